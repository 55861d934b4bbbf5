"""How well a measure agrees with listeners: correlations, orders of pairs, and calibration.

Everything here takes tables `(items, conditions)`. Values of a measure are turned so that more is better
before they come here, so that 1 is full agreement for all. NaN: no value, and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from sottovoce.core.statistics import Interval
from sottovoce.data.mushra_ratings import MushraRatings

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
RESAMPLES = 2000
HEARD_BELOW = 90.0
"""A rating below this is taken for "heard", beside one below the listener's own of the hidden reference."""


class Agreement(NamedTuple):
    """Of one measure with listeners. pairs: clear ones, ordered as listeners do; unclear: the others."""

    spearman_conditions: Interval
    pearson_conditions: Interval
    spearman_clips: Interval
    pearson_clips: Interval
    pairs: Interval
    unclear: Interval


def agreement(values: Floats, ratings: Floats, clear: Bools, *, seed: int = 0) -> Agreement:
    """With percentile intervals of a bootstrap over items; clear: `(items, conditions, conditions)`."""
    measured = np.where(np.isnan(values), np.nan, ratings)
    hits, sure, unsure = _orders(values, measured, clear)

    def clips(rows: NDArray[np.int_], correlate: Callable[[Floats, Floats], Floats]) -> Floats:
        return correlate(*(table[rows].reshape(len(rows), -1) for table in (values, measured)))

    def conditions(rows: NDArray[np.int_], correlate: Callable[[Floats, Floats], Floats]) -> Floats:
        return correlate(*(_mean(table[rows]) for table in (values, measured)))

    def share(rows: NDArray[np.int_], which: Floats) -> Floats:
        right, count = (hits * which)[rows].sum(axis=(1, 2, 3)), which[rows].sum(axis=(1, 2, 3))
        return _ratio(right, count)

    n = int((~np.isnan(values)).sum())
    wide = int((~np.isnan(_mean(values[None]))).sum())
    return Agreement(
        _interval(len(values), lambda rows: conditions(rows, spearman), wide, seed),
        _interval(len(values), lambda rows: conditions(rows, pearson), wide, seed),
        _interval(len(values), lambda rows: clips(rows, spearman), n, seed),
        _interval(len(values), lambda rows: clips(rows, pearson), n, seed),
        _interval(len(values), lambda rows: share(rows, sure), int(sure.sum()), seed),
        _interval(len(values), lambda rows: share(rows, unsure), int(unsure.sum()), seed),
    )


def spearman_difference(ours: Floats, theirs: Floats, ratings: Floats, *, seed: int = 0) -> Interval:
    """By condition, of two measures of the same clips: items are resampled for both at once."""
    known = ~np.isnan(ours) & ~np.isnan(theirs)
    one, other, rated = (np.where(known, table, np.nan) for table in (ours, theirs, ratings))

    def gap(rows: NDArray[np.int_]) -> Floats:
        means = _mean(rated[rows])
        return spearman(_mean(one[rows]), means) - spearman(_mean(other[rows]), means)

    return _interval(len(ours), gap, int((~np.isnan(_mean(one[None]))).sum()), seed)


def pearson(values: Floats, ratings: Floats) -> Floats:
    """Of each row `(rows, n)`; NaN where a value is infinite or all are equal."""
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = (table - _mean(table[:, :, None]) for table in (values, ratings))
        spread = np.sqrt(np.nansum(x * x, axis=1) * np.nansum(y * y, axis=1))
        found: Floats = np.where(spread > 0, np.nansum(x * y, axis=1) / spread, np.nan)
    found[np.isinf(values).any(axis=1)] = np.nan
    return found


def spearman(values: Floats, ratings: Floats) -> Floats:
    """Of each row `(rows, n)`; an infinite value is above all others."""
    return pearson(*(scipy.stats.rankdata(table, axis=1, nan_policy="omit") for table in (values, ratings)))


def ratings_table(test: MushraRatings, conditions: Sequence[str]) -> Floats:
    """Mean ratings, `(items, conditions)`; NaN where a condition was not rated on an item."""
    means = {(one.item, one.condition): one.mean for one in test.stimuli}
    rows = [[means.get((item, condition), np.nan) for condition in conditions] for item in test.items]
    return np.array(rows, dtype=np.float64)


def clear_pairs(test: MushraRatings, conditions: Sequence[str], *, level: float = 0.95) -> Bools:
    """Where listeners tell two conditions of an item apart: the interval of their mean difference excludes 0.

    The t interval over listeners who rated both, `(items, conditions, conditions)`, above the diagonal.
    """
    said = {(one.item, one.condition): one.by_listener() for one in test.stimuli}
    found = np.zeros((len(test.items), len(conditions), len(conditions)), dtype=bool)
    for place, item in enumerate(test.items):
        for first in range(len(conditions)):
            for second in range(first + 1, len(conditions)):
                one, other = (said.get((item, conditions[k]), {}) for k in (first, second))
                gaps = np.array([one[name] - other[name] for name in one if name in other])
                found[place, first, second] = _excludes_zero(gaps, level)
    return found


def heard_shares(test: MushraRatings, conditions: Sequence[str]) -> Floats:
    """The share of listeners who seem to have heard a difference, `(items, conditions)`: a proxy.

    MUSHRA asks how good a clip is, not whether it differs. Who rates a clip below 90, or below their own
    rating of the hidden reference, is taken to have heard one. Of the hidden reference itself: below 90.
    """
    said = {(one.item, one.condition): one.by_listener() for one in test.stimuli}
    found = np.full((len(test.items), len(conditions)), np.nan)
    for row, item in enumerate(test.items):
        own = test.reference(item).by_listener()
        for column, condition in enumerate(conditions):
            ratings = said.get((item, condition), {})
            heard = [value < HEARD_BELOW or value < own.get(name, 0.0) for name, value in ratings.items()]
            if heard:
                found[row, column] = np.mean(heard)
    return found


def _excludes_zero(gaps: Floats, level: float) -> bool:
    if len(gaps) < 2:
        return False
    reach = scipy.stats.t.ppf((1 + level) / 2, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
    return bool(abs(gaps.mean()) > reach)


def _orders(values: Floats, ratings: Floats, clear: Bools) -> tuple[Floats, Floats, Floats]:
    """Each `(items, conditions, conditions)`: 1 where both order a pair alike (a tie: half), which pairs are
    clear, and which are not."""
    with np.errstate(invalid="ignore"):
        ours = np.sign(values[:, :, None] - values[:, None, :])
        theirs = np.sign(ratings[:, :, None] - ratings[:, None, :])
    # Two infinite values, such as the SNR of untouched clips, are a tie.
    both = np.isinf(values)[:, :, None] & (values[:, :, None] == values[:, None, :])
    ours[both] = 0.0
    above = np.triu(np.ones(clear.shape[1:], dtype=bool), 1)
    known = ~np.isnan(ours) & ~np.isnan(theirs) & (theirs != 0) & above
    hits = np.where(known, np.where(ours == 0, 0.5, (ours == theirs).astype(np.float64)), 0.0)
    return hits, (known & clear).astype(np.float64), (known & ~clear).astype(np.float64)


def _mean(tables: Floats) -> Floats:
    """Over the middle, `(rows, items, conditions)` to `(rows, conditions)`, of those that have a value."""
    known = ~np.isnan(tables)
    count = known.sum(axis=1)
    total = np.where(known, tables, 0.0).sum(axis=1)
    return _ratio(total, count)


def _ratio(total: Floats, count: NDArray[Any]) -> Floats:
    """NaN where there is nothing to divide by."""
    found: Floats = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return found


def _interval(items: int, statistic: Callable[[NDArray[np.int_]], Floats], n: int, seed: int) -> Interval:
    value = float(statistic(np.arange(items)[None])[0])
    if items < 2 or np.isnan(value):
        return Interval(value, np.nan, np.nan, n)
    picks = np.random.default_rng(seed).integers(items, size=(RESAMPLES, items))
    replicates = statistic(picks)
    low, high = np.nanquantile(replicates, [0.025, 0.975])
    return Interval(value, float(low), float(high), n)
