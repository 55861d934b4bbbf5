"""Certificates: bounds worked out by hand and by scipy, coverage summed over every outcome, known radii."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, final

import jiwer
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Defended, Transform
from sottovoce.defenses.certified_radius import Certificate, Within, certify, elect, predict
from sottovoce.defenses.noisy_passes import BLOCK, Greedy, Smoothed, certified_sigma
from sottovoce.defenses.quantise import Quantise
from sottovoce.defenses.randomised_smoothing import Gaussian, MadNoise
from sottovoce.defenses.rover import Rover
from sottovoce.defenses.sampling_bounds import (
    Count,
    Look,
    Sampling,
    certified_radius,
    lower_bound,
    plan_looks,
    radius_snr_db,
)
from sottovoce.defenses.votes import Majority
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.families.recogniser import Recogniser
from sottovoce.testing import ToyCtc, ToyNoise

SAMPLES = 400


@final
class Mean(torch.nn.Module):
    """Above zero on average, or not. In n samples, a mean of a is a * sqrt(n) away from zero in L2."""

    def forward(self, waveforms: Tensor) -> Tensor:
        mean = waveforms.mean(dim=1, keepdim=True)
        return torch.cat([mean, -mean], dim=1)


@final
class Words(Recogniser):
    """Writes one of two sentences: by the sign of the first sample."""

    sample_rate = 1000

    def __init__(self, above: str, below: str) -> None:
        self.sentences = (above, below)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return [self.sentences[0 if first > 0 else 1] for first in batch.waveforms[:, 0].tolist()]


def mean_model() -> ModuleClassifier:
    return ModuleClassifier(Mean(), ["up", "down"], 8000)


def level(value: float, samples: int = SAMPLES, rate: int = 8000, name: str = "clip") -> AudioBatch:
    return AudioBatch.of([np.full(samples, value, dtype=np.float32)], rate, [name])


# Bounds and radii


@pytest.mark.parametrize(
    ("successes", "passes", "alpha", "bound"),
    [
        (0, 10, 0.05, 0.0),
        (1, 1, 0.05, 0.05),  # P(1 of 1) = p
        (100, 100, 0.001, 0.933254),  # p^100 = 0.001
        (1, 10, 0.05, 0.005116),  # 1 - (1 - p)^10 = 0.05
        (100_000, 100_000, 0.001, 0.99993092),  # p^100000 = 0.001
        (2, 2, 0.25, 0.5),
    ],
)
def test_bounds_worked_out_by_hand(successes: int, passes: int, alpha: float, bound: float) -> None:
    assert lower_bound(successes, passes, alpha) == pytest.approx(bound, abs=1e-6)


@given(st.integers(1, 3000), st.floats(0, 1), st.floats(1e-6, 0.5))
def test_the_bound_is_scipys(passes: int, share: float, alpha: float) -> None:
    successes = round(share * passes)
    found = stats.binomtest(successes, passes, alternative="greater").proportion_ci(1 - alpha, "exact")
    assert lower_bound(successes, passes, alpha) == pytest.approx(found.low, abs=1e-9)


def test_radii_by_hand() -> None:
    # Phi(1) = 0.841345, Phi(2) = 0.977250; Cohen et al. (2019): about 3.8 sigma at best from 100,000 passes.
    assert certified_radius(0.8413447460685429, 0.25) == pytest.approx(0.25)
    assert certified_radius(0.9772498680518208, 0.01) == pytest.approx(0.02)
    assert certified_radius(lower_bound(100, 100, 0.001), 1.0) == pytest.approx(1.500475, abs=1e-6)
    assert certified_radius(lower_bound(100_000, 100_000, 0.001), 1.0) == pytest.approx(3.811457, abs=1e-6)
    assert certified_radius(0.5, 1.0) is None
    assert certified_radius(0.2, 1.0) is None


def test_a_radius_as_snr() -> None:
    assert radius_snr_db(1.0, 0.1) == pytest.approx(20.0)
    assert radius_snr_db(6.0, 0.06) == pytest.approx(40.0)
    assert radius_snr_db(0.0, 0.1) is None
    assert radius_snr_db(1.0, None) is None


# Looks and stopping


def test_plain_certify_has_one_look_with_all_of_alpha() -> None:
    assert Count(Sampling(passes=1000, alpha=0.01), 1.0).looks == (Look(1000, 0.01),)


def test_looks_halve_on_whole_blocks_and_share_alpha() -> None:
    looks = plan_looks(10_000, 0.001, level=0.5)
    assert [look.passes for look in looks] == [128, 192, 320, 640, 1280, 2560, 5056, 10_000]
    assert all(look.passes % BLOCK == 0 for look in looks[:-1])
    assert math.fsum(look.alpha for look in looks) == pytest.approx(0.001, rel=1e-12)
    assert looks[-1].alpha == pytest.approx(0.0005)
    # 0.001^(1/n) > 0.99 from n = 688 on.
    assert [look.passes for look in plan_looks(10_000, 0.001, level=0.99)] == [1280, 2560, 5056, 10_000]


def outcomes(sampling: Sampling, sigma: float, *, stopping: bool = True) -> list[tuple[int, int, float, int]]:
    """Every way a count of single passes can end: passes, successes, the bound reported, and how many
    sequences of outcomes lead there."""
    ends: dict[tuple[int, int, float], int] = {}
    paths = {(0, 0.0): 1}
    for passes in range(sampling.passes):
        grown: dict[tuple[int, float], int] = {}
        for (successes, lower), ways in paths.items():
            for hit in (0, 1):
                count = Count(sampling, sigma, successes, passes, lower, block=1)
                count.add(hit, 1)
                last = passes + 1 == sampling.passes
                if last or (stopping and count.stop() is not None):
                    key = count.passes, count.successes, count.lower
                    ends[key] = ends.get(key, 0) + ways
                else:
                    state = count.successes, count.lower
                    grown[state] = grown.get(state, 0) + ways
        paths = grown
    return [(*key, ways) for key, ways in ends.items()]


def chance_too_high(ends: list[tuple[int, int, float, int]], p: float) -> float:
    """Exactly how likely the reported bound is above p."""
    return math.fsum(ways * p**k * (1 - p) ** (n - k) for n, k, lower, ways in ends if lower > p)


SAMPLINGS = [
    (Sampling(passes=24, alpha=0.05), 1.0),
    (Sampling(passes=24, alpha=0.05, radius=0.3), 1.0),
    (Sampling(passes=24, alpha=0.05, tolerance=0.1), 1.0),
    (Sampling(passes=24, alpha=0.2, radius=0.05), 0.1),
    (Sampling(passes=17, alpha=0.1, tolerance=0.3), 1.0),
]


@pytest.mark.parametrize(("sampling", "sigma"), SAMPLINGS)
def test_the_bound_covers_over_all_outcomes(sampling: Sampling, sigma: float) -> None:
    ends = outcomes(sampling, sigma)
    for p in (0.3, 0.51, 0.75, 0.9):
        total = math.fsum(ways * p**k * (1 - p) ** (n - k) for n, k, _, ways in ends)
        assert total == pytest.approx(1.0)
    # The chance is highest just below a bound that can be reported: these are all the worst cases.
    worst = sorted({lower for _, _, lower, _ in ends if lower > 0})
    assert worst
    for p in [*worst, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99]:
        assert chance_too_high(ends, p - 1e-12) <= sampling.alpha + 1e-9


def test_peeking_at_the_same_alpha_would_not_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = tuple(Look(passes, 0.05) for passes in (2, 3, 6, 12, 24))
    monkeypatch.setattr(Count, "looks", looks)
    ends = outcomes(Sampling(passes=24, alpha=0.05, radius=0.3), 1.0)
    assert max(chance_too_high(ends, lower - 1e-12) for _, _, lower, _ in ends if lower) > 0.05


@pytest.mark.parametrize(("sampling", "sigma"), SAMPLINGS)
def test_stopping_early_saves_passes(sampling: Sampling, sigma: float) -> None:
    ends = outcomes(sampling, sigma)
    assert min(n for n, _, _, _ in ends) < sampling.passes
    assert math.fsum(ways * 0.5**n for n, _, _, ways in ends) == pytest.approx(1.0)


BLOCKS = st.lists(st.integers(0, BLOCK), min_size=16, max_size=16) | st.lists(
    st.integers(28, 44), min_size=16, max_size=16
)


@settings(max_examples=200)
@given(BLOCKS, st.sampled_from([{}, {"radius": 0.4}, {"radius": 1.2}, {"tolerance": 0.2}]))
def test_stopping_early_never_changes_an_abstention(blocks: list[int], early: dict[str, float]) -> None:
    sampling = Sampling(passes=1000, alpha=0.001, **early)  # type: ignore[arg-type]
    stopped, full = Count(sampling, 1.0), Count(sampling, 1.0)
    reached: float | None = None
    for number, hits in enumerate(blocks):
        size = min(BLOCK, sampling.passes - number * BLOCK)
        if stopped.stop() is None:
            stopped.add(min(hits, size), size)
        full.add(min(hits, size), size)
    assert full.stop() == "end"
    assert (stopped.radius is None) == (full.radius is None)
    reached = full.radius
    if "radius" in early:
        wanted = early["radius"]
        assert (stopped.radius or 0) > wanted or not (reached or 0) > wanted


def test_abstention_is_certain_as_soon_as_too_many_passes_failed() -> None:
    # Of 100 passes, 66 or more must succeed: P(Bin(100, 1/2) >= 66) = 0.0009, >= 65: 0.0018.
    assert stats.binom.sf(65, 100, 0.5) < 0.001 < stats.binom.sf(64, 100, 0.5)
    count = Count(Sampling(passes=100, alpha=0.001), 1.0, block=1)
    count.add(0, 34)
    assert count.stop() is None
    count.add(0, 1)
    assert count.stop() == "abstains"


# Noise


def noisy_rows(smoothed: Smoothed, clip: AudioBatch, stage: str, passes: int, start: int = 0) -> Tensor:
    return torch.cat([rows.clone() for rows in smoothed._noisy(clip, stage, start, passes)])


def test_noise_is_gaussian_of_that_sigma_and_hangs_on_block_stage_seed_and_clip() -> None:
    clip = level(0.25, samples=300)
    smoothed = Smoothed(target=mean_model(), sigma=0.02, seed=3)
    noise = (noisy_rows(smoothed, clip, "count", 256) - 0.25).double() / 0.02
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-3
    # Rows and samples are independent: correlations of 300 and 256 numbers stay small.
    assert float(torch.corrcoef(noise).fill_diagonal_(0).abs().max()) < 0.35
    assert float(torch.corrcoef(noise.T).fill_diagonal_(0).abs().max()) < 0.35
    others = [
        noisy_rows(smoothed, clip, "elect", 256),
        noisy_rows(Smoothed(target=mean_model(), sigma=0.02, seed=4), clip, "count", 256),
        noisy_rows(smoothed, level(0.25, samples=300, name="other"), "count", 256),
    ]
    for other in others:
        rows = torch.cat([noise, (other.double() - 0.25) / 0.02])
        assert float(torch.corrcoef(rows)[:256, 256:].abs().max()) < 0.35


@pytest.mark.parametrize("batch", [1, 7, 64, 100, 128, 1000])
def test_noise_does_not_hang_on_the_batch_nor_on_where_it_starts(batch: int) -> None:
    clip = level(0.1, samples=50)
    usual = noisy_rows(Smoothed(target=mean_model(), sigma=0.1), clip, "count", 300)
    other = Smoothed(target=mean_model(), sigma=0.1, batch=batch)
    assert torch.equal(noisy_rows(other, clip, "count", 300), usual)
    assert torch.equal(noisy_rows(other, clip, "count", 300, start=128), usual[128:])
    assert torch.equal(noisy_rows(other, clip, "count", 200), usual[:200])


def test_no_more_than_a_batch_is_held_at_once() -> None:
    smoothed = Smoothed(target=mean_model(), sigma=0.1, batch=128)
    places = {rows.data_ptr() for rows in smoothed._noisy(level(0.1), "count", 0, 1000)}
    assert len(places) == 1
    sizes: list[int] = []

    class Watched(torch.nn.Module):
        def forward(self, waveforms: Tensor) -> Tensor:
            sizes.append(len(waveforms))
            return torch.cat([waveforms[:, :1], -waveforms[:, :1]], dim=1)

    target = ModuleClassifier(Watched(), ["up", "down"], 8000)
    blocks = list(Smoothed(target=target, sigma=0.1, batch=48).texts(level(0.1), "count", 200))
    assert [len(block) for block in blocks] == [64, 64, 64, 8]
    assert sizes == [48, 16, 48, 16, 48, 16, 8]


# Certificates


def test_a_linear_classifier_is_certified_just_below_its_known_radius() -> None:
    # 0.0025 * sqrt(400) = 0.05 = sigma away from its border: p = Phi(1) = 0.841.
    smoothed = Smoothed(target=mean_model(), sigma=0.05)
    found = certify(smoothed, level(0.0025), Sampling(passes=20_000))
    assert found.text == "up"
    assert found.passes == 20_000
    assert found.radius is not None
    assert 0.95 * 0.05 < found.radius < 0.05
    assert found.successes / found.passes == pytest.approx(0.8413, abs=0.01)


def test_a_radius_too_large_is_as_rare_as_alpha_says() -> None:
    """200 certificates at alpha = 0.1: P(Bin(200, 0.1) > 34) < 0.001."""
    plans = [Sampling(passes=512, select=16, alpha=0.1), Sampling(passes=512, alpha=0.1, tolerance=0.005)]
    for sampling in plans:
        wrong = 0
        for seed in range(200):
            smoothed = Smoothed(target=mean_model(), sigma=0.05, seed=seed)
            found = certify(smoothed, level(0.00395, samples=160), sampling)
            wrong += found.radius is not None and found.radius > 0.00395 * math.sqrt(160)
        assert wrong <= 34


def test_a_coin_flip_is_not_certified_nor_predicted() -> None:
    smoothed = Smoothed(target=mean_model(), sigma=0.05)
    found = certify(smoothed, level(0.0), Sampling(passes=5000))
    assert found.radius is None
    assert found.passes <= 5000
    assert found.stop in ("abstains", "end")
    assert predict(smoothed, level(0.0), passes=1000) is None


def test_what_is_never_said_stops_at_half() -> None:
    # "b" is elected from 1 pass of luck; then nothing but "a" comes. 51.6 % of 10,000 must succeed.
    target = Words("a", "a")
    found = certify(
        Smoothed(target=target, sigma=0.1),
        level(0.5, rate=1000),
        Sampling(passes=10_000),
        wer=0.5,
        resume=("b", Count(Sampling(passes=10_000), 0.1)),
    )
    assert found.stop == "abstains"
    assert found.passes == 4864  # the first whole block with 4,845 failures: 5,156 successes are needed
    assert stats.binom.sf(5155, 10_000, 0.5) < 0.001 < stats.binom.sf(5154, 10_000, 0.5)


def test_a_wanted_radius_stops_the_count() -> None:
    smoothed = Smoothed(target=mean_model(), sigma=0.05)
    easy = certify(smoothed, level(0.01), Sampling(passes=20_000, radius=0.05))
    assert (easy.stop, easy.passes) == ("reached", 128)
    assert easy.radius is not None
    assert 0.05 < easy.radius < 0.2
    hard = certify(smoothed, level(0.0025), Sampling(passes=20_000, radius=0.1))
    assert hard.stop == "out of reach"
    assert hard.passes < 20_000
    assert hard.radius is not None


def test_a_tolerance_stops_the_count() -> None:
    smoothed = Smoothed(target=mean_model(), sigma=0.05)
    found = certify(smoothed, level(0.0025), Sampling(passes=20_000, tolerance=0.005))
    full = certify(smoothed, level(0.0025), Sampling(passes=20_000))
    assert found.stop == "settled"
    assert found.passes < 20_000
    assert found.radius is not None
    assert full.radius is not None
    assert full.radius - 0.01 < found.radius < full.radius


@pytest.mark.parametrize("early", [{}, {"radius": 0.03}, {"tolerance": 0.01}])
def test_the_batch_does_not_matter(early: dict[str, float]) -> None:
    sampling = Sampling(passes=1000, select=30, alpha=0.01, **early)  # type: ignore[arg-type]
    found = {
        certify(Smoothed(target=mean_model(), sigma=0.05, batch=batch), level(0.0025), sampling)
        for batch in (None, 1, 50, 64, 200, 5000)
    }
    assert len(found) == 1


def test_a_count_goes_on_where_it_was() -> None:
    smoothed = Smoothed(target=mean_model(), sigma=0.05)
    sampling = Sampling(passes=2000, tolerance=0.001)
    states: list[dict[str, Any]] = []

    def watch(text: str, count: Count) -> None:
        states.append({"successes": count.successes, "passes": count.passes, "lower": count.lower})

    whole = certify(smoothed, level(0.0025), sampling, watch=watch)
    for state in states[:: len(states) // 5]:
        again = certify(smoothed, level(0.0025), sampling, resume=("up", Count(sampling, 0.05, **state)))
        assert again == whole


def test_transforms_behind_the_noise_belong_to_the_model() -> None:
    # Two bits round what is at least half a step of 1/2 to it: a mean of 0.3 becomes 0.5 in every sample.
    smoothed = Smoothed.behind([Gaussian(sigma=0.01), Quantise(bits=2)], mean_model())
    assert smoothed.sigma == 0.01
    assert isinstance(smoothed.base, Defended)
    assert certify(smoothed, level(0.3), Sampling(passes=100)).text == "up"
    # Rounded to zero, nothing is above it.
    assert certify(smoothed, level(0.05), Sampling(passes=100)).successes == 100


def test_predict_by_hand() -> None:
    # All of n passes agree: p = 2 / 2^n is 0.00195 at 10 passes and 0.00098 at 11.
    smoothed = Smoothed(target=mean_model(), sigma=0.001)
    assert predict(smoothed, level(0.5), passes=10, alpha=0.001) is None
    assert predict(smoothed, level(0.5), passes=11, alpha=0.001) == "up"
    assert predict(smoothed, level(-0.5), passes=100) == "down"


# Recognisers


def test_the_event_is_less_than_k() -> None:
    # At 0.1 with sigma 0.1, Phi(1) = 84 % of the passes say "a b c d"; the others are 1 word of 4 off it.
    smoothed = Smoothed(target=Words("a b c d", "a b x d"), sigma=0.1)
    clip = level(0.1, samples=20, rate=1000)
    loose = certify(smoothed, clip, Sampling(passes=2000), wer=0.26, vote=Majority())
    strict = certify(smoothed, clip, Sampling(passes=2000), wer=0.25, vote=Majority())
    assert loose.text == strict.text == "a b c d"
    assert loose.successes == 2000
    assert strict.successes / 2000 == pytest.approx(0.8413, abs=0.03)
    assert strict.radius is not None
    assert 0.085 < strict.radius < 0.1


def test_an_empty_transcript_is_near_to_silence_alone() -> None:
    smoothed = Smoothed(target=Words("", "a"), sigma=0.1)
    clip = level(0.1, samples=20, rate=1000)
    found = certify(smoothed, clip, Sampling(passes=2000), wer=1.0, vote=Majority())
    assert found.text == ""
    assert found.successes / 2000 == pytest.approx(0.8413, abs=0.03)
    assert Within(Words("", ""), "", 1.0)("")
    assert not Within(Words("", ""), "", 1.0)("a")


def test_seven_errors_in_a_hundred_words_are_not_less_than_7_percent() -> None:
    assert 0.07 * 100 > 7  # in floats
    reference = " ".join(f"word{number}" for number in range(100))
    near = reference.split()
    assert not Within(Words("", ""), reference, 0.07)(" ".join(["x"] * 7 + near[7:]))
    assert Within(Words("", ""), reference, 0.07)(" ".join(["x"] * 6 + near[6:]))


WORDS = st.lists(st.sampled_from(["red", "blue", "green", "fish"]), min_size=1, max_size=8)


@given(WORDS, WORDS, st.sampled_from(["0.1", "0.25", "0.3", "0.5", "0.6", "1"]))
def test_the_event_is_jiwers(reference: list[str], heard: list[str], k: str) -> None:
    edits = jiwer.process_words(" ".join(reference), " ".join(heard))
    errors = edits.substitutions + edits.deletions + edits.insertions
    expected = Fraction(errors, len(reference)) < Fraction(k)
    assert Within(Words("", ""), " ".join(reference), float(k))(" ".join(heard)) == expected


def test_case_and_punctuation_do_not_count() -> None:
    assert Within(Words("", ""), "Stop, right now!", 0.1)("stop right now")


def test_rover_elects_and_another_vote_can() -> None:
    smoothed = Smoothed(target=Words("a b c", "a x c d"), sigma=0.1)
    clip = level(0.1, samples=20, rate=1000)
    assert elect(smoothed, clip, 60) == "a b c"
    assert elect(smoothed, clip, 60, Majority()) == "a b c"
    with pytest.raises(MissingCapability, match="majority"):
        elect(Smoothed(target=mean_model(), sigma=0.1), level(0.1), 10, Rover())


@pytest.mark.parametrize("transforms", [(), (Quantise(bits=8),)])
def test_greedy_ctc_is_read_as_it_decodes(transforms: tuple[Transform, ...]) -> None:
    target = ToyCtc()
    heard = Defended(target, transforms) if transforms else target
    source = np.random.default_rng(0)
    clip = source.normal(0, 0.1, 700)
    rows = [np.clip(clip + source.normal(0, 0.03, 700), -1, 1).astype(np.float32) for _ in range(150)]
    batch = AudioBatch.of(rows, 1000)
    said = target.decode(heard._heard(batch, Draws(0)) if transforms else batch, draws=Draws(0))
    assert len(set(said)) > 5
    read = Greedy(heard, Draws(0))  # type: ignore[arg-type]
    assert read(batch) == said
    assert read(batch) == said  # and once more, known by now


def test_a_beam_search_is_left_to_the_target() -> None:
    clip = AudioBatch.of([np.random.default_rng(1).normal(0, 0.1, 400).astype(np.float32)], 1000, ["c"])
    smoothed = Smoothed(target=ToyCtc(beams=3), sigma=0.02)
    noisy = noisy_rows(smoothed, clip, "count", 5)
    expected = smoothed.target.decode(AudioBatch.of(list(noisy.numpy()), 1000), draws=Draws(0))
    assert list(smoothed.texts(clip, "count", 5)) == [expected]


# Bad input


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"passes": 0}, "passes: expected 1 or more"),
        ({"select": 0}, "select: expected 1 to 100,000 passes"),
        ({"alpha": 0.0}, "alpha: expected a number between 0 and 1"),
        ({"alpha": 1.0}, "alpha: expected a number between 0 and 1"),
        ({"alpha": math.nan}, "alpha: expected a number between 0 and 1"),
        ({"radius": 0.0}, "radius: expected a number above 0"),
        ({"tolerance": -1.0}, "tolerance: expected a number above 0"),
        ({"radius": 1.0, "tolerance": 1.0}, "radius and tolerance exclude each other"),
    ],
)
def test_bad_samplings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**wrong)


def test_a_radius_beyond_all_passes_is_refused() -> None:
    # One look: 0.001^(1/100) gives 1.5005 sigma.
    Sampling(passes=100, radius=0.01499).check(0.01)
    with pytest.raises(InputError, match=r"at most 0\.015, "):
        Sampling(passes=100, radius=0.016).check(0.01)


@pytest.mark.parametrize("sigma", [0.0, -0.1, math.nan, math.inf])
def test_a_sigma_must_be_above_zero(sigma: float) -> None:
    with pytest.raises(InputError, match="sigma: expected a number above 0"):
        Smoothed(target=mean_model(), sigma=sigma)


@pytest.mark.parametrize(
    ("transforms", "reason"),
    [
        ([], "got none: the noise is what certifies"),
        ([Quantise(bits=8), Gaussian(sigma=0.1)], "begins with gaussian"),
        ([Gaussian(snr_db=20.0)], "follows the clip"),
        ([MadNoise(sigma=0.1)], "low frequencies"),
    ],
)
def test_noise_that_certifies_nothing_is_refused(transforms: list[Transform], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        certified_sigma(transforms)


def test_more_randomness_is_refused() -> None:
    with pytest.raises(InputError, match="but MadNoise draws"):
        Smoothed.behind([Gaussian(sigma=0.1), MadNoise(sigma=0.1)], mean_model())
    with pytest.raises(InputError, match="but Defended draws"):
        Smoothed(target=Defended(mean_model(), (ToyNoise(),)), sigma=0.1)


@pytest.mark.parametrize("wer", [0.0, -0.5, 1.5, math.nan])
def test_a_wer_that_none_or_all_can_meet_is_refused(wer: float) -> None:
    smoothed = Smoothed(target=Words("a", "b"), sigma=0.1)
    with pytest.raises(InputError, match="wer: expected a number above 0 and at most 1"):
        certify(smoothed, level(0.1, rate=1000), Sampling(passes=10), wer=wer)


def test_a_wer_belongs_to_recognisers() -> None:
    with pytest.raises(InputError, match="got none"):
        certify(Smoothed(target=Words("a", "b"), sigma=0.1), level(0.1, rate=1000), Sampling(passes=10))
    with pytest.raises(InputError, match="expected none for a classifier"):
        certify(Smoothed(target=mean_model(), sigma=0.1), level(0.1), Sampling(passes=10), wer=0.5)


def test_a_clip_of_another_rate_is_refused() -> None:
    with pytest.raises(InputError, match="8000 Hz"):
        certify(Smoothed(target=mean_model(), sigma=0.1), level(0.1, rate=1000), Sampling(passes=10))


def test_two_clips_at_once_are_refused() -> None:
    pair = AudioBatch.of([np.zeros(SAMPLES), np.zeros(SAMPLES)], 8000)
    with pytest.raises(InputError, match="one clip at a time"):
        certify(Smoothed(target=mean_model(), sigma=0.1), pair, Sampling(passes=10))


def test_gradients_are_left_on_between_blocks() -> None:
    for _ in Smoothed(target=mean_model(), sigma=0.1).texts(level(0.1), "count", 200):
        assert torch.is_grad_enabled()


def test_a_certificate_is_plain_data() -> None:
    found = certify(Smoothed(target=mean_model(), sigma=0.01), level(0.5), Sampling(passes=100))
    assert found == Certificate(
        text="up",
        radius=pytest.approx(0.01500475, abs=1e-8),
        lower=pytest.approx(0.933254, abs=1e-6),
        successes=100,
        passes=100,
        stop="end",
    )
