"""Probabilities of robustness, and the areas under them (sections 3.3 and 3.5.3), with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.studies.olivier2023.accidental.rxor_runs import MARGINS, RxorFound

Floats = NDArray[np.float64]
Z = 1.959964
"""Of a 95 % interval."""
FEWEST = 30
"""Valid networks from which on an area has an interval, and claims are answered."""


def weights(margins: Sequence[float]) -> Floats:
    """Of the trapezoid rule over these margins, divided by their range, so that 1 is the largest area."""
    places = np.array(margins)
    order = np.argsort(places)
    gaps = np.diff(places[order])
    found = np.zeros(len(places))
    found[order[:-1]] += gaps / 2
    found[order[1:]] += gaps / 2
    shares: Floats = found / gaps.sum()
    return shares


def probabilities(flags: NDArray[np.bool_]) -> list[Interval]:
    """Of each margin, with exact intervals, from `(networks, margins)`."""
    return [clopper_pearson(int(column.sum()), len(column)) for column in flags.T]


def area(flags: NDArray[np.bool_], margins: Sequence[float] = MARGINS) -> Interval:
    """The area under P(robust), the mean over networks of their own, with a normal interval."""
    each = flags @ weights(margins)
    if not len(each):
        return Interval(np.nan, np.nan, np.nan, 0)
    if len(each) < FEWEST:
        return Interval(float(each.mean()), np.nan, np.nan, len(each))
    reach = Z * float(each.std(ddof=1)) / len(each) ** 0.5
    return Interval(float(each.mean()), float(each.mean()) - reach, float(each.mean()) + reach, len(each))


def oracle(valid: Sequence[Interval], place: int) -> list[float]:
    """P*: the valid networks at each margin to those at margin number `place`; NaN where there are none."""
    own = valid[place].value
    return [one.value / own if own else np.nan for one in valid]


def oracle_area(valid: Sequence[Interval], place: int, margins: Sequence[float] = MARGINS) -> Interval:
    """The area under P*, with an interval by the delta method: the counts are independent binomials."""
    shares, own = np.array([one.value for one in valid]), valid[place].value
    trained, count = valid[place].n, round(valid[place].value * valid[place].n)
    if not own:
        return Interval(np.nan, np.nan, np.nan, 0)
    rule = weights(margins)
    value = float(rule @ shares / own)
    if count < FEWEST:
        return Interval(value, np.nan, np.nan, count)
    slopes = rule / own
    slopes[place] -= value / own
    reach = Z * float(np.sqrt((slopes**2 * shares * (1 - shares)).sum() / trained))
    return Interval(value, value - reach, value + reach, count)


def difference(one: Interval, other: Interval) -> Interval:
    """Of two areas of different networks; `n` is that of the smaller group."""
    value, n = one.value - other.value, min(one.n, other.n)
    reach = float(np.hypot(one.high - one.value, other.high - other.value))
    return Interval(value, value - reach, value + reach, n)


def sampled_area(found: RxorFound) -> Interval:
    return area(found.passed)


def exact_area(found: RxorFound) -> Interval:
    return area(found.exact)
