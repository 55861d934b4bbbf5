"""Intervals and tests: Clopper-Pearson, the exact binomial test, and a bootstrap for ratios of sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import special

from sottovoce.errors import InputError

Alternative = Literal["two-sided", "greater", "less"]
Floats = NDArray[np.float64]

# Resamples are drawn in blocks of about this many row numbers, which limits the memory for any n.
BLOCK = 2**20
KEPT = 2**22
"""Up to this many counts are cached for the next ratio of as many rows: a cell has dozens of metrics."""


class Interval(NamedTuple):
    """A value, its confidence interval, and the number of observations. NaN means unknown."""

    value: float
    low: float
    high: float
    n: int


def clopper_pearson(successes: int, n: int, *, level: float = 0.95) -> Interval:
    """Exact interval of a success rate. With n = 0 all three numbers are NaN."""
    _check_counts(successes, n)
    _check_level(level)
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    tail = (1.0 - level) / 2.0
    low = special.betaincinv(successes, n - successes + 1, tail) if successes else 0.0
    high = special.betaincinv(successes + 1, n - successes, 1.0 - tail) if successes < n else 1.0
    return Interval(successes / n, float(low), float(high), n)


def exact_binomial_p(
    successes: int, n: int, *, p: float = 0.5, alternative: Alternative = "two-sided"
) -> float:
    """p-value of the exact binomial test that the success rate is `p`; NaN with n = 0."""
    _check_counts(successes, n)
    if n == 0:
        return np.nan
    return float(scipy.stats.binomtest(successes, n, p=p, alternative=alternative).pvalue)


def ratio_bootstrap(
    parts: ArrayLike,
    *,
    groups: Sequence[str] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Interval of sum(parts[:, 0]) / sum(parts[:, 1]) for `parts (n, 2)`, by the BCa bootstrap over rows.

    groups: the name of each row's group, such as its speaker. Whole groups are then resampled, because clips
        of one speaker are similar and carry less information than as many of different speakers.

    Corpus WER is errors over words; a plain mean is values over ones. Rows with a NaN are dropped: `n` counts
    the rows used. A single row or an infinite sum has a value but no interval (NaN bounds); no rows, or
    denominators that sum to zero, have no value either. If all rows have the same ratio, such as a fooling
    rate of 1, the interval has no width: use `clopper_pearson` for rates.
    """
    rows = _as_rows(parts)
    if groups is None:
        return _bootstrap(rows, _ratio, level, resamples, seed)
    rows, sums = _sum_groups(rows, groups)
    return _bootstrap(sums, _ratio, level, resamples, seed)._replace(n=len(rows))


def ratio_difference(
    parts: ArrayLike, baseline: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Interval of the ratio of `parts` less that of `baseline`, both `(n, 2)`; row i of both is one clip.

    Clips are resampled in pairs, so that the difficulty of a clip cancels. A pair with a NaN on either side
    is dropped. Otherwise as `ratio_bootstrap`.
    """
    rows, others = _as_rows(parts), _as_rows(baseline)
    if len(rows) != len(others):
        raise InputError(
            f"paired parts must have the same length, got {len(rows)} and {len(others)}; match them by id."
        )
    pairs = np.concatenate([rows, others], axis=1)
    return _bootstrap(pairs, lambda sums: _ratio(sums[:, :2]) - _ratio(sums[:, 2:]), level, resamples, seed)


def _sum_groups(rows: Floats, groups: Sequence[str]) -> tuple[Floats, Floats]:
    """The rows that have a value, and their sums by group, in order of first appearance."""
    if len(groups) != len(rows):
        raise InputError(f"groups must have a name for each of {len(rows)} rows, got {len(groups)}.")
    known = np.flatnonzero(~np.isnan(rows).any(axis=1)).tolist()
    rows, names = rows[known], [groups[row] for row in known]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    sums = np.zeros((len(places), 2))
    np.add.at(sums, [places[name] for name in names], rows)
    return rows, sums


def _ratio(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[:, 1] == 0, np.nan, sums[:, 0] / sums[:, 1])


def _bootstrap(
    rows: Floats, statistic: Callable[[Floats], Floats], level: float, resamples: int, seed: int
) -> Interval:
    """BCa interval (Efron 1987) of a statistic of column sums, `(m, columns) -> (m,)`."""
    _check_level(level)
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, got {resamples}; 2000 is usual.")
    rows = rows[~np.isnan(rows).any(axis=1)]
    totals = rows.sum(axis=0, keepdims=True)
    value = float(statistic(totals)[0])
    if len(rows) < 2 or not np.isfinite(value):
        return Interval(value, np.nan, np.nan, len(rows))
    # A resample whose denominators are all zero has no ratio and is left out.
    replicates = statistic(_resampled_sums(rows, resamples, seed))
    replicates = replicates[~np.isnan(replicates)]
    low, high = np.quantile(replicates, _bca_levels(replicates, value, statistic(totals - rows), level))
    return Interval(value, float(low), float(high), len(rows))


def _resampled_sums(rows: Floats, resamples: int, seed: int) -> Floats:
    """Column sums of rows drawn with replacement: `(resamples, columns)`."""
    n = len(rows)
    if resamples * n <= KEPT:
        return _counts(n, resamples, seed) @ rows
    columns = np.ascontiguousarray(rows.T)
    sums = np.empty((resamples, len(columns)))
    for first, picks in _draw(n, resamples, seed):
        for index, column in enumerate(columns):
            sums[first : first + len(picks), index] = column[picks].sum(axis=1)
    return sums


@lru_cache(maxsize=4)
def _counts(n: int, resamples: int, seed: int) -> Floats:
    """How often each of `n` rows occurs in each resample, `(resamples, n)`."""
    counts = np.empty((resamples, n))
    for first, picks in _draw(n, resamples, seed):
        for row, drawn in enumerate(picks, start=first):
            counts[row] = np.bincount(drawn, minlength=n)
    return counts


def _draw(n: int, resamples: int, seed: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Row numbers of resamples `(some, n)`, block by block, with the index of the first."""
    generator = np.random.default_rng(seed)
    block = max(1, BLOCK // n)
    for first in range(0, resamples, block):
        yield first, generator.integers(n, size=(min(block, resamples - first), n))


def _bca_levels(replicates: Floats, value: float, left_out: Floats, level: float) -> Floats:
    """The two quantile levels, corrected for bias (z0) and for skewness (acceleration)."""
    # Ties count half; the bounds keep z0 finite if all replicates are on one side.
    below = (np.mean(replicates < value) + np.mean(replicates <= value)) / 2
    edge = 0.5 / len(replicates)
    bias = special.ndtri(np.clip(below, edge, 1.0 - edge))
    left_out = left_out[~np.isnan(left_out)]
    gaps = left_out.mean() - left_out if len(left_out) else np.zeros(1)
    spread = np.sum(gaps**2) ** 1.5
    acceleration = np.sum(gaps**3) / (6.0 * spread) if spread > 0 else 0.0
    shifted = bias + special.ndtri([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return np.asarray(special.ndtr(bias + shifted / (1.0 - acceleration * shifted)), dtype=np.float64)


def _as_rows(parts: ArrayLike) -> Floats:
    rows = np.asarray(parts, dtype=np.float64)
    if rows.size == 0:
        return np.empty((0, 2))
    if rows.ndim != 2 or rows.shape[1] != 2:
        raise InputError(
            f"parts must have shape (n, 2), numerator and denominator, got {rows.shape}; stack them."
        )
    return rows


def _check_counts(successes: int, n: int) -> None:
    if not 0 <= successes <= n:
        raise InputError(f"successes must be between 0 and n, got {successes} of {n}; check the counts.")


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InputError(f"level must be between 0 and 1, got {level}; write 95 % as 0.95.")
