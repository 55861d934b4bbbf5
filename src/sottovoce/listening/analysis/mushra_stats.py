"""MUSHRA: who is screened out, means by condition, and which conditions differ (ITU-R BS.1534-3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from sottovoce.core.statistics import Interval, ratio_bootstrap
from sottovoce.listening.analysis.answer_rows import AnswerRow
from sottovoce.listening.analysis.exact_tests import holm, signed_rank_test

HIGH = 90
"""Who rates the hidden reference below it, or the mid anchor above it, did not tell them apart."""
ALLOWED = 0.15
"""The share of items on which that may happen."""
MID_ANCHOR_HZ = 7000


class Rating(NamedTuple):
    """What one listener gave one item in one condition; the mean where it was there more than once."""

    listener: str
    item: str
    condition: str
    value: float


class Screened(NamedTuple):
    """One listener's items. low_references: hidden references below 90. high_anchors: mid anchors above 90;
    None where the study has no mid anchor."""

    listener: str
    items: int
    low_references: int
    high_anchors: int | None

    @property
    def reasons(self) -> list[str]:
        found = []
        if self.low_references > ALLOWED * self.items:
            found.append(f"hidden reference below {HIGH} on {self.low_references} of {self.items} items")
        if self.high_anchors is not None and self.high_anchors > ALLOWED * self.items:
            found.append(f"mid anchor above {HIGH} on {self.high_anchors} of {self.items} items")
        return found

    @property
    def kept(self) -> bool:
        return not self.reasons


class Mean(NamedTuple):
    """Of one condition. by_t: mean over listeners, with Student's interval; by_bootstrap: the same mean, with
    the BCa interval over listeners. ratings: all, for a box."""

    condition: str
    by_t: Interval
    by_bootstrap: Interval
    ratings: NDArray[np.float64]


class Difference(NamedTuple):
    """Of two conditions: the median over listeners, and Wilcoxon's test of their means, before and after
    Holm's correction for all pairs."""

    first: str
    second: str
    median: float
    listeners: int
    p: float
    p_holm: float


def screen_listeners(rows: Sequence[AnswerRow]) -> list[Screened]:
    """BS.1534-3's post-screening: each rule allows a slip on 15 % of the items."""
    found: dict[str, list[AnswerRow]] = {}
    for row in rows:
        if row.kind == "mushra":
            found.setdefault(row.session, []).append(row)
    return [_screen(session, some) for session, some in sorted(found.items())]


def read_ratings(rows: Sequence[AnswerRow], excluded: frozenset[str] = frozenset()) -> list[Rating]:
    """All ratings but those of excluded sessions."""
    given: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if row.kind != "mushra" or row.session in excluded:
            continue
        item = row.fact("clip") or row.clip("reference")
        for slot, value in row.given["ratings"].items():
            given.setdefault((row.session, item, str(row.truth["conditions"][slot])), []).append(float(value))
    return [Rating(*key, float(np.mean(values))) for key, values in given.items()]


def means(ratings: Sequence[Rating]) -> list[Mean]:
    """Every condition, the best first."""
    found = []
    for condition, by_listener in _by_condition(ratings).items():
        values = np.array(list(by_listener.values()))
        all_ = np.array([one.value for one in ratings if one.condition == condition])
        bootstrap = ratio_bootstrap(np.column_stack([values, np.ones(len(values))]))
        found.append(Mean(condition, t_interval(values), bootstrap, all_))
    return sorted(found, key=lambda mean: -mean.by_t.value)


def t_interval(values: NDArray[np.float64], *, level: float = 0.95) -> Interval:
    """Mean with Student's interval; one value has no interval."""
    if len(values) < 2:
        return Interval(float(values.mean()) if len(values) else np.nan, np.nan, np.nan, len(values))
    reach = scipy.stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    mean = float(values.mean())
    # Ratings end at 0 and 100, and so does what their mean can be.
    return Interval(mean, max(0.0, mean - float(reach)), min(100.0, mean + float(reach)), len(values))


def differences(ratings: Sequence[Rating]) -> list[Difference]:
    """All pairs of conditions. A listener counts once, by the mean over the items heard in both: several
    answers of one person are no independent ones."""
    said: dict[tuple[str, str], dict[str, float]] = {}
    for one in ratings:
        said.setdefault((one.condition, one.listener), {})[one.item] = one.value
    listeners = sorted({one.listener for one in ratings})
    found = []
    for first, second in combinations([mean.condition for mean in means(ratings)], 2):
        gaps = []
        for listener in listeners:
            ours, theirs = said.get((first, listener), {}), said.get((second, listener), {})
            shared = ours.keys() & theirs.keys()
            if shared:
                # Whole sums: rounding must not tell apart two listeners with the same difference.
                gaps.append(round(sum(ours[item] - theirs[item] for item in shared) / len(shared), 9))
        tested = signed_rank_test(gaps)
        found.append(
            Difference(first, second, float(np.median(gaps)) if gaps else np.nan, len(gaps), tested.p, 0)
        )
    corrected = holm([one.p for one in found])
    return [one._replace(p_holm=float(p)) for one, p in zip(found, corrected, strict=True)]


def _screen(session: str, rows: Sequence[AnswerRow]) -> Screened:
    low, high, anchored = 0, 0, False
    for row in rows:
        ratings, truth = row.given["ratings"], row.truth
        low += ratings[truth["hidden"]] < HIGH
        for slot, hz in truth.get("anchors", {}).items():
            if int(hz) == MID_ANCHOR_HZ:
                anchored = True
                high += ratings[slot] > HIGH
    return Screened(session, len(rows), low, high if anchored else None)


def _by_condition(ratings: Sequence[Rating]) -> dict[str, dict[str, float]]:
    """Means over items, by condition and listener."""
    values: dict[str, dict[str, list[float]]] = {}
    for one in ratings:
        values.setdefault(one.condition, {}).setdefault(one.listener, []).append(one.value)
    return {
        condition: {listener: float(np.mean(some)) for listener, some in by_listener.items()}
        for condition, by_listener in values.items()
    }
