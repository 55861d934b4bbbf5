"""Intervals and tests against published numbers, closed forms and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sottovoce.core import statistics
from sottovoce.core.statistics import (
    Interval,
    clopper_pearson,
    exact_binomial_p,
    ratio_bootstrap,
    ratio_difference,
)
from sottovoce.errors import InputError


def errors_and_words(n: int, seed: int = 0) -> np.ndarray:
    draws = np.random.default_rng(seed)
    words = draws.integers(3, 30, n)
    return np.stack([draws.binomial(words, 0.2), words], axis=1).astype(float)


def same(found: Interval, expected: tuple[float, float, float, int]) -> bool:
    return np.array_equal(np.array(found), np.array(expected), equal_nan=True)


@pytest.mark.parametrize(
    # Vadillo and Santana, section 5.2.3: ABX at low, medium and high intensity, n = 36, to two decimals. The
    # bound that the paper gives as 0.99 is 0.975 ** (1 / 36) = 0.9993.
    ("successes", "rate", "low", "high"),
    [(35, 0.972, 0.85, 0.99), (33, 0.917, 0.78, 0.98), (20, 0.556, 0.38, 0.72)],
)
def test_published_abx_intervals(successes, rate, low, high):
    interval = clopper_pearson(successes, 36)
    assert interval.value == pytest.approx(rate, abs=0.0005)
    assert interval.low == pytest.approx(low, abs=0.005)
    assert interval.high == pytest.approx(high, abs=0.01)
    assert interval.n == 36


def test_published_abx_p_values():
    assert exact_binomial_p(20, 36, alternative="greater") == pytest.approx(0.31, abs=0.005)
    assert exact_binomial_p(20, 36) == pytest.approx(0.62, abs=0.005)


def test_clopper_pearson_closed_forms():
    # No success: the upper bound solves (1 - p)^n = 0.025; all successes: the mirror image.
    none, every = clopper_pearson(0, 10), clopper_pearson(10, 10)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(1 - 0.025**0.1)
    assert (every.value, every.high) == (1.0, 1.0)
    assert every.low == pytest.approx(0.025**0.1)
    assert clopper_pearson(10, 10, level=0.9).low == pytest.approx(0.05**0.1)


def test_exact_binomial_p_by_hand():
    # 4 heads of 4: 1/16 one-sided, 2/16 two-sided; 0 of 2 at p = 0.1: 0.81 below.
    assert exact_binomial_p(4, 4, alternative="greater") == pytest.approx(0.0625)
    assert exact_binomial_p(4, 4) == pytest.approx(0.125)
    assert exact_binomial_p(0, 2, p=0.1, alternative="less") == pytest.approx(0.81)


def test_no_trials_means_no_value():
    assert same(clopper_pearson(0, 0), (math.nan, math.nan, math.nan, 0))
    assert math.isnan(exact_binomial_p(0, 0))


def test_impossible_counts_and_levels_are_refused():
    for successes, n in [(3, 2), (-1, 2), (0, -1)]:
        with pytest.raises(InputError, match="successes"):
            clopper_pearson(successes, n)
        with pytest.raises(InputError, match="successes"):
            exact_binomial_p(successes, n)
    for level in (0.0, 1.0, 95.0):
        with pytest.raises(InputError, match="level"):
            clopper_pearson(1, 2, level=level)
        with pytest.raises(InputError, match="level"):
            ratio_bootstrap([[1, 2], [3, 4]], level=level)


@pytest.mark.parametrize("n", [12, 300])
def test_ratio_bootstrap_agrees_with_scipy(n):
    parts = errors_and_words(n)
    oracle = stats.bootstrap(
        (parts[:, 0], parts[:, 1]),
        lambda errors, words, axis: errors.sum(axis=axis) / words.sum(axis=axis),
        paired=True,
        method="BCa",
        n_resamples=20000,
        rng=np.random.default_rng(7),
    ).confidence_interval
    found = ratio_bootstrap(parts, resamples=20000, seed=3)
    width = oracle.high - oracle.low
    assert found.value == pytest.approx(parts[:, 0].sum() / parts[:, 1].sum())
    # Two runs of 20000 resamples differ by Monte Carlo error alone, about 1 % of the width.
    assert found.low == pytest.approx(oracle.low, abs=0.04 * width)
    assert found.high == pytest.approx(oracle.high, abs=0.04 * width)
    assert found.n == n


def scipy_mean_interval(values: np.ndarray, level: float) -> tuple[float, float]:
    draws = np.random.default_rng(7)
    found = stats.bootstrap(
        (values,), np.mean, method="BCa", n_resamples=20000, confidence_level=level, rng=draws
    )
    return tuple(found.confidence_interval)


def test_bias_is_corrected_as_scipy_does():
    # Strong skew moves the median of the resamples off the mean; half the level makes the move stand out.
    values = np.random.default_rng(4).exponential(1.0, 15) ** 3
    low, high = scipy_mean_interval(values, 0.5)
    found = ratio_bootstrap(np.stack([values, np.ones(15)], axis=1), level=0.5, resamples=20000)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.03 * (high - low))


def test_ties_count_half_as_scipy_does():
    # The mean of a resample is 0, 1/3, 2/3 or 1 with chances 8, 12, 6 and 1 of 27: mostly ties.
    values = np.array([0.0, 0.0, 1.0])
    found = ratio_bootstrap(np.stack([values, np.ones(3)], axis=1), resamples=20000)
    assert (found.low, found.high) == pytest.approx(scipy_mean_interval(values, 0.95))


def test_ratio_bootstrap_of_a_mean_is_near_the_normal_interval():
    values = np.random.default_rng(1).normal(5, 2, 5000)
    found = ratio_bootstrap(np.stack([values, np.ones(5000)], axis=1))
    half = 1.959964 * values.std() / math.sqrt(5000)
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_same_seed_same_interval_whatever_the_block(monkeypatch):
    parts = errors_and_words(40)
    whole = ratio_bootstrap(parts, seed=5)
    assert ratio_bootstrap(parts, seed=5) == whole
    assert ratio_bootstrap(parts, seed=6) != whole
    monkeypatch.setattr(statistics, "BLOCK", 130)  # three resamples a block, the last one short
    assert ratio_bootstrap(parts, seed=5) == whole


def test_rows_with_nan_are_dropped_and_counted():
    parts = errors_and_words(20)
    holes = np.insert(parts, [0, 7, 20], np.nan, axis=0)
    holes[0, 1] = 4.0  # one half of a row is enough
    assert ratio_bootstrap(holes) == ratio_bootstrap(parts)
    assert ratio_bootstrap(holes).n == 20


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], (math.nan, math.nan, math.nan, 0)),
        (np.empty((0, 2)), (math.nan, math.nan, math.nan, 0)),
        ([[math.nan, 1.0]], (math.nan, math.nan, math.nan, 0)),
        ([[1.0, 4.0]], (0.25, math.nan, math.nan, 1)),
        ([[1.0, 0.0], [2.0, 0.0]], (math.nan, math.nan, math.nan, 2)),
        ([[math.inf, 1.0], [20.0, 1.0]], (math.inf, math.nan, math.nan, 2)),
        ([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], (1.0, 1.0, 1.0, 3)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_small_and_degenerate_parts(parts, expected):
    assert same(ratio_bootstrap(parts), expected)


@pytest.mark.filterwarnings("error")
def test_resamples_without_a_denominator_are_left_out():
    found = ratio_bootstrap([[1.0, 4.0], [0.0, 0.0]])
    assert same(found, (0.25, 0.25, 0.25, 2))


def test_parts_of_another_shape_are_refused():
    with pytest.raises(InputError, match="shape"):
        ratio_bootstrap([1.0, 2.0])
    with pytest.raises(InputError, match="shape"):
        ratio_bootstrap(np.ones((3, 3)))
    with pytest.raises(InputError, match="resamples"):
        ratio_bootstrap([[1, 2], [3, 4]], resamples=0)
    with pytest.raises(InputError, match="the same length"):
        ratio_difference(np.ones((3, 2)), np.ones((2, 2)))


def test_difference_agrees_with_scipy():
    before, after = errors_and_words(60, seed=1), errors_and_words(60, seed=2)
    oracle = stats.bootstrap(
        (after[:, 0], after[:, 1], before[:, 0], before[:, 1]),
        lambda a, b, c, d, axis: a.sum(axis=axis) / b.sum(axis=axis) - c.sum(axis=axis) / d.sum(axis=axis),
        paired=True,
        method="BCa",
        n_resamples=20000,
        rng=np.random.default_rng(7),
    ).confidence_interval
    found = ratio_difference(after, before, resamples=20000)
    width = oracle.high - oracle.low
    assert found.value == pytest.approx(
        after[:, 0].sum() / after[:, 1].sum() - before[:, 0].sum() / before[:, 1].sum()
    )
    assert found.low == pytest.approx(oracle.low, abs=0.04 * width)
    assert found.high == pytest.approx(oracle.high, abs=0.04 * width)


def test_pairing_cancels_what_clips_share():
    before = errors_and_words(50)
    after = before.copy()
    after[:, 0] = before[:, 0] + 0.1 * before[:, 1]
    found = ratio_difference(after, before)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert found.n == 50


def test_pairs_with_nan_on_either_side_are_dropped():
    before, after = errors_and_words(30, seed=1), errors_and_words(30, seed=2)
    kept = ratio_difference(after[2:], before[2:])
    before[0, 0] = after[1, 1] = math.nan
    assert ratio_difference(after, before) == kept
    assert kept.n == 28


def test_swapping_the_sides_turns_the_difference_around():
    before, after = errors_and_words(30, seed=1), errors_and_words(30, seed=2)
    forth, back = ratio_difference(after, before), ratio_difference(before, after)
    assert (back.value, back.low, back.high) == pytest.approx((-forth.value, -forth.high, -forth.low))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    # Errors are Poisson with mean 0.3 a word, so the true ratio is 0.3. Over 500 corpora the number of covers
    # of a 90 % interval has a standard deviation of 1.3 %; four of them and the small-sample bias make 6 %.
    draws = np.random.default_rng(11)
    covered = 0
    for trial in range(500):
        words = draws.integers(1, 20, 60)
        found = ratio_bootstrap(
            np.stack([draws.poisson(0.3 * words), words], axis=1), level=0.9, resamples=500, seed=trial
        )
        covered += found.low <= 0.3 <= found.high
    assert covered / 500 == pytest.approx(0.9, abs=0.06)


def test_groups_of_one_row_are_rows():
    parts = errors_and_words(30)
    by_row = ratio_bootstrap(parts, resamples=500, seed=1)
    assert ratio_bootstrap(parts, groups=[f"g{row}" for row in range(30)], resamples=500, seed=1) == by_row


def test_a_bootstrap_over_groups_agrees_with_scipy():
    # Twelve speakers with 2 to 6 clips and error rates of their own: scipy resamples the speakers' sums.
    draws = np.random.default_rng(5)
    sizes = draws.integers(2, 7, 12)
    names = np.repeat([f"s{place}" for place in range(12)], sizes)
    words = draws.integers(3, 30, len(names))
    errors = draws.binomial(words, np.repeat(draws.uniform(0.02, 0.6, 12), sizes))
    parts = np.stack([errors, words], axis=1).astype(float)
    sums = np.array([parts[names == f"s{place}"].sum(axis=0) for place in range(12)])
    oracle = stats.bootstrap(
        (sums[:, 0], sums[:, 1]),
        lambda one, two, axis: one.sum(axis=axis) / two.sum(axis=axis),
        paired=True,
        method="BCa",
        n_resamples=20000,
        rng=np.random.default_rng(7),
    ).confidence_interval
    found = ratio_bootstrap(parts, groups=list(names), resamples=20000, seed=3)
    width = oracle.high - oracle.low
    assert (found.value, found.n) == (pytest.approx(errors.sum() / words.sum()), len(names))
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=0.04 * width)
    # Clips of a speaker are alike here, so resampling clips would claim too much.
    by_clip = ratio_bootstrap(parts, resamples=20000, seed=3)
    assert by_clip.high - by_clip.low < 0.8 * width


def test_groups_by_hand():
    # Two speakers, all errors or none: every resample of the two is 0, 5/10 or 10/10.
    parts = np.array([[1.0, 1.0]] * 5 + [[0.0, 1.0]] * 5)
    found = ratio_bootstrap(parts, groups=["a"] * 5 + ["b"] * 5)
    assert same(found, (0.5, 0.0, 1.0, 10))
    # One speaker has a value, but nothing to resample.
    assert same(ratio_bootstrap(parts, groups=["a"] * 10), (0.5, math.nan, math.nan, 10))


def test_groups_lose_their_rows_without_a_value():
    parts = np.array([[1.0, 2.0], [math.nan, 2.0], [3.0, 4.0], [math.nan, 1.0]])
    found = ratio_bootstrap(parts, groups=["a", "a", "b", "c"])
    assert found == ratio_bootstrap(parts[[0, 2]], groups=["a", "b"]) and found.n == 2
    with pytest.raises(InputError, match="a name for each of 4 rows, got 3"):
        ratio_bootstrap(parts, groups=["a", "a", "b"])
