"""Sessions of the paper's shape, and what discards one."""

from __future__ import annotations

from collections import Counter

import pytest

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.perception.jnd.session_plan import PlannedTrial, SessionPlan, judge_session
from sottovoce.perception.jnd.simulated_listeners import InattentiveListener, PsychometricListener
from sottovoce.perception.jnd.simulated_session import sit


def test_the_published_session() -> None:
    """Two teaching trials and 3 x 10 comparisons, six of them sentinels: two a reference."""
    slots = SessionPlan().slots(Draws(0))
    assert len(slots) == SessionPlan().total == 32
    assert Counter(slots) == {
        PlannedTrial("teaching"): 2,
        **{PlannedTrial("comparison", place): 8 for place in range(3)},
        **{PlannedTrial("sentinel", place): 2 for place in range(3)},
    }
    assert [slot.reference for slot in slots] == [-1] * 2 + [0] * 10 + [1] * 10 + [2] * 10
    assert slots == SessionPlan().slots(Draws(0)) != SessionPlan().slots(Draws(1))


@pytest.mark.parametrize("bad", [{"sentinels": 5}, {"sentinels": 30}, {"references": 0}, {"teaching": -1}])
def test_plans_that_cannot_be_laid_out(bad: dict[str, int]) -> None:
    with pytest.raises(InputError):
        SessionPlan(**bad)


def answers(slots: list[PlannedTrial], **changed: bool) -> list[bool]:
    """Sentinels heard, comparisons in turn."""
    return [slot.kind == "sentinel" or place % 2 == 0 for place, slot in enumerate(slots)]


def test_what_discards_a_session() -> None:
    slots = SessionPlan().slots(Draws(0))
    given = answers(slots)
    assert judge_session(slots, given) == (True, ())
    first = slots.index(PlannedTrial("sentinel", 0))
    missed = [*given[:first], False, *given[first + 1 :]]
    assert judge_session(slots, missed) == (False, ("1 of 6 sentinels called 'same'",))
    assert judge_session(slots, given[:20]).reasons == ("20 of 32 trials answered",)
    deaf = [slot.kind == "sentinel" for slot in slots]
    assert judge_session(slots, deaf).reasons == ("all 24 comparisons called 'same'",)
    assert judge_session(slots, [True] * 32).reasons == ("all 24 comparisons called 'different'",)
    with pytest.raises(InputError, match="at most 32 answers"):
        judge_session(slots, [True] * 33)


def test_an_attentive_listener_is_kept_and_found() -> None:
    person = [PsychometricListener(mu=mu, sigma=4.0, seed=7) for mu in (30.0, 50.0, 70.0)]
    loud = [PsychometricListener(mu=0.0, sigma=1.0, seed=7)] * 3
    found = sit(person, loud, SessionPlan(comparisons=22), Draws(2))
    assert found.verdict.kept and len(found.heard) == 66
    for search, mu in zip(found.searches, (30.0, 50.0, 70.0), strict=True):
        assert len(search.answers) == 20
        assert search.estimate().mu == pytest.approx(mu, abs=6.0)


def test_a_coin_passes_six_sentinels_once_in_64() -> None:
    kept = 0
    for seed in range(300):
        coin = [InattentiveListener(seed=seed)] * 3
        plan = SessionPlan(comparisons=3)
        kept += sit(coin, coin, plan, Draws(seed)).verdict.kept
    # 300/64 = 4.7 expected; 15 or more would come once in 10,000 times.
    assert kept < 15


def test_levels_and_exploration_are_kept_to() -> None:
    person = [PsychometricListener(mu=50.0, sigma=4.0)] * 3
    levels = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    found = sit(person, person, SessionPlan(comparisons=12), Draws(0), levels=levels, explore=10)
    asked = [one.strength for one in found.heard if one.strength is not None]
    assert set(asked) <= set(levels) and len(set(asked)) >= 5
