"""The adaptive rule against SciPy's optimiser, QUEST+ and figures worked out by hand."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.perception.jnd.jnd_rule import (
    Balance,
    Jnd,
    JndRule,
    agreement,
    balance,
    estimate,
    is_done,
    next_strength,
    probability,
)
from sottovoce.studies.manocha2020.jnd_rivals import (
    TRIALS,
    make_listener,
    quest_plus,
    rmse,
    search_adaptively,
    search_at_random,
)

FLAT = JndRule(fade=1e-9, lapse=1e-9)
"""No priors and no lapses: plain maximum likelihood."""
TRIAL = st.tuples(st.floats(0.0, 100.0), st.booleans())


def loss(mu: float, log_sigma: float, answers: list[tuple[float, bool]], rule: JndRule) -> float:
    """What is minimised, written out anew from the paper's likelihood and SciPy's normal distribution."""
    total = 0.0
    for strength, different in answers:
        c = rule.lapse / 2 + (1 - rule.lapse) * norm.cdf(strength, mu, math.exp(log_sigma))
        total += math.log((1 - different) * (1 - c) + different * c)
    weight = 1 / (1 + len(answers) / rule.fade)
    total += weight * norm.logpdf(mu, rule.mu, rule.mu_spread)
    total += weight * norm.logpdf(log_sigma, math.log(rule.sigma), math.log(rule.sigma_factor))
    return -total


@pytest.mark.parametrize("seed", range(5))
def test_estimate_is_at_the_top_that_scipy_finds(seed: int) -> None:
    source = np.random.default_rng(seed)
    answers = [
        (float(rho), bool(source.random() < norm.cdf(rho, 45, 9))) for rho in source.uniform(20, 70, 25)
    ]
    found = estimate(answers)
    # There can be several tops: SciPy climbs from ours, and from other places to none that is higher.
    starts = ((found.mu, math.log(found.sigma)), (30, 2.0), (60, 2.0))
    tops = [minimize(lambda v: loss(*v, answers, JndRule()), start, method="Nelder-Mead") for start in starts]
    assert tops[0].fun <= min(top.fun for top in tops) + 1e-4
    assert found.mu == pytest.approx(tops[0].x[0], abs=0.05)
    assert math.log(found.sigma) == pytest.approx(tops[0].x[1], abs=0.02)
    assert not found.undetermined and found.answers == 25


def test_without_priors_it_is_the_probit_of_the_counts() -> None:
    """Two strengths with 1 in 4 and 3 in 4: mu in the middle, sigma so that z is -+0.6745."""
    answers = [(40.0, k == 0) for k in range(4)] + [(50.0, k < 3) for k in range(4)]
    found = estimate(answers, FLAT)
    assert found.mu == pytest.approx(45.0, abs=0.01)
    assert found.sigma == pytest.approx(5.0 / 0.67449, rel=0.01)


def test_before_any_answer_it_is_the_prior() -> None:
    found = estimate([])
    assert (found.mu, found.sigma) == pytest.approx((50.0, 8.0), rel=1e-3)
    # A normal prior of spread 25, cut at 0 and 100, two standard deviations out.
    assert found.mu_error == pytest.approx(
        25 * math.sqrt(1 - 4 * norm.pdf(2) / (1 - 2 * norm.sf(2))), rel=0.01
    )
    assert found.undetermined and "no answers" in found.reason


def test_standard_error_agrees_with_fisher_information() -> None:
    """Half "different" at 50, and 6 in 40 against the rule a step away, as at a sigma of 11.6."""
    answers = [(50.0, k % 2 == 0) for k in range(200)]
    answers += [(38.0, k < 6) for k in range(40)] + [(62.0, k >= 6) for k in range(40)]
    found = estimate(answers, JndRule(lapse=1e-6))
    information = sum(
        norm.pdf(z := (rho - found.mu) / found.sigma) ** 2 / (norm.cdf(z) * norm.sf(z)) for rho, _ in answers
    )
    assert found.mu_error == pytest.approx(found.sigma / math.sqrt(information), rel=0.15)


def test_one_slip_moves_it_little() -> None:
    sure = [(rho, rho > 40) for rho in np.linspace(5, 95, 19)] * 2
    slip = [*sure, (98.0, False)]
    assert abs(estimate(slip).mu - estimate(sure).mu) < 1.0
    # Without the lapse term, the same slip says that sigma is large.
    stern = JndRule(lapse=1e-6)
    assert estimate(slip, stern).sigma > 2 * estimate(slip).sigma


@pytest.mark.parametrize(("different", "edge", "word"), [(False, 100.0, "stronger"), (True, 0.0, "weaker")])
def test_one_kind_of_answer_leads_to_the_edge_and_says_so(different: bool, edge: float, word: str) -> None:
    search = Jnd()
    for _ in range(12):
        search = search.add(search.next(Draws(0)), different)
    strengths = [trial.strength for trial in search.answers]
    assert strengths[-1] == edge
    assert np.all(np.diff(strengths) * (1 if edge else -1) >= 0)
    found = search.estimate()
    assert found.mu == pytest.approx(edge, abs=1.0) and math.isfinite(found.sigma)
    assert found.undetermined and word in found.reason


@given(answers=st.lists(TRIAL, max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_answers_give_a_finite_estimate_in_range(answers: list[tuple[float, bool]]) -> None:
    found = estimate(answers)
    assert 0.0 <= found.mu <= 100.0 and 1.0 <= found.sigma <= 40.0
    assert 0.0 < found.mu_error < 50.0 and 0.0 < found.sigma_error < 40.0
    assert 0.0 <= next_strength(answers, Draws(1)) <= 100.0


@given(answers=st.lists(TRIAL, min_size=1, max_size=12), seed=st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_order_does_not_matter_and_mirrored_answers_mirror_the_estimate(
    answers: list[tuple[float, bool]], seed: int
) -> None:
    found = estimate(answers)
    shuffled = [answers[place] for place in np.random.default_rng(seed).permutation(len(answers))]
    again = estimate(shuffled)
    assert (again.mu_error, again.sigma_error) == pytest.approx((found.mu_error, found.sigma_error), rel=1e-6)
    mirrored = estimate([(100.0 - strength, not different) for strength, different in answers])
    assert mirrored.mu_error == pytest.approx(found.mu_error, rel=1e-6)


def test_the_sign_of_q_breaks_the_trend() -> None:
    base = [(40.0, False), (60.0, True)] * 6
    more_same, more_different = [*base, (30.0, False)], [*base, (70.0, True)]
    for seed in range(8):
        mu = estimate(more_same).mu
        sigma = estimate(more_same).sigma
        assert mu < next_strength(more_same, Draws(seed)) <= mu + 0.8 * sigma
        assert next_strength(more_different, Draws(seed)) < estimate(more_different).mu
    sides = {next_strength(base, Draws(seed)) > estimate(base).mu for seed in range(8)}
    assert sides == {True, False}
    assert next_strength(base, Draws(0), JndRule(q=0.0)) == pytest.approx(estimate(base).mu)


def test_levels_that_can_be_played_are_kept_to() -> None:
    levels = [0.0, 25.0, 50.0, 75.0, 100.0]
    assert next_strength([(40.0, False), (60.0, True)], Draws(0), levels=levels) == 50.0
    with pytest.raises(InputError, match="at least one strength"):
        next_strength([], Draws(0), levels=[])


def test_a_search_is_its_answers() -> None:
    search = Jnd().add(40, False).add(60, True)
    assert Jnd(search.answers).next(Draws(3)) == search.next(Draws(3))
    assert search.answers == ((40.0, False), (60.0, True))


def test_stop_rules() -> None:
    answers = [(40.0, False), (60.0, True)] * 15
    assert is_done(answers) and not is_done(answers[:29])
    close = JndRule(error=4.0, least=10)
    assert estimate(answers[:20]).mu_error < 4.0
    assert is_done(answers[:20], close) and not is_done(answers[:8], close)
    assert not is_done([(99.0, False)] * 20, JndRule(error=50.0))
    assert Jnd(tuple(answers)).done  # type: ignore[arg-type]


def test_agreement_and_balance_by_hand() -> None:
    answers = [(10.0, False), (30.0, True), (50.0, False), (70.0, True), (90.0, True)]
    assert agreement(answers, 60.0) == pytest.approx(4 / 5)
    assert agreement(answers, 20.0) == pytest.approx(4 / 5)
    assert agreement(answers, 50.0) == pytest.approx(4 / 5)
    assert balance(answers) == Balance(2, 3) and balance(answers).share == pytest.approx(0.4)
    assert math.isnan(agreement([], 3.0)) and math.isnan(balance([]).share)


def test_probability_has_lapses_on_both_sides() -> None:
    assert probability(0.0, 50.0, 1.0, 0.1) == pytest.approx(0.05)
    assert probability(100.0, 50.0, 1.0, 0.1) == pytest.approx(0.95)
    assert probability(58.0, 50.0, 8.0) == pytest.approx(0.8413, abs=1e-4)


@pytest.mark.parametrize("strength", [-1.0, 100.1, math.nan, math.inf])
def test_strengths_off_the_scale_are_refused(strength: float) -> None:
    with pytest.raises(InputError, match="from 0 to 100"):
        estimate([(strength, True)])


@pytest.mark.parametrize("bad", [{"lapse": 0.0}, {"lapse": 1.0}, {"fade": 0.0}, {"q": -1.0}, {"trials": 0}])
def test_rules_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        JndRule(**bad)  # type: ignore[arg-type]


def test_a_server_can_use_it_without_torch() -> None:
    modules = "sottovoce.perception.jnd.jnd_rule, sottovoce.perception.jnd.session_plan"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _errors(count: int, seed: int) -> dict[str, float]:
    """RMSE of mu over simulated listeners with one lapse in ten, after 30 trials."""
    listeners = [make_listener(number, seed=seed) for number in range(count)]
    mus = [one.mu for one in listeners]
    turns = [Draws(seed).turn("search", number) for number in range(count)]
    pairs = list(zip(listeners, turns, strict=True))
    return {
        "ours": rmse([search_adaptively(*pair).estimate().mu for pair in pairs], mus),
        "random": rmse([search_at_random(*pair).estimate().mu for pair in pairs], mus),
    }


def test_much_closer_than_random_strengths() -> None:
    found = _errors(24, seed=0)
    assert found["ours"] < 2 / 3 * found["random"]


@pytest.mark.slow
def test_as_close_as_quest_plus() -> None:
    pytest.importorskip("questplus")
    count = 50
    found = _errors(count, seed=1)
    listeners = [make_listener(number, seed=1) for number in range(count)]
    oracle = rmse([quest_plus(one, Draws(1), TRIALS)[-1] for one in listeners], [one.mu for one in listeners])
    assert found["ours"] < 1.25 * oracle
    assert found["ours"] < 2 / 3 * found["random"]
