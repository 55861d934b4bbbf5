"""What the records of recognisers add up to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sottovoce.auditing.plan.plan_file import Cell
from sottovoce.auditing.results.summary import find_metric, speaker_of, stack_parts
from sottovoce.core.goal import Become
from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval, ratio_bootstrap, ratio_difference
from sottovoce.metrics.text_errors import word_edits

Keep = Callable[[Record], bool]


def found(records: Iterable[Record], metric: str, keep: Keep = lambda record: True) -> Interval | None:
    """A metric's estimate over the records that are kept; None where no clip has a value."""
    kept = [record for record in records if keep(record) and metric in record.parts]
    if not kept:
        return None
    estimate = find_metric(metric).summarise(
        stack_parts(kept, metric), groups=[speaker_of(record) for record in kept]
    )
    return Interval(estimate.value, estimate.low, estimate.high, estimate.n) if estimate.n else None


def forced_wer(cell: Cell, records: Iterable[Record]) -> Interval | None:
    """Word error rate against the texts that a goal forces: all errors over all of their words."""
    goal = cell.goal.build("goal")
    rows = list(records)
    if not isinstance(goal, Become) or not rows:
        return None
    wanted = goal.bind([record.clean_text for record in rows]).texts
    edits = [word_edits(text, record.adversarial_text) for text, record in zip(wanted, rows, strict=True)]
    return ratio_bootstrap(np.array([[one.errors, one.length] for one in edits], dtype=np.float64))


def reached(record: Record) -> bool:
    return bool(record.achieved)


def by_language(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by the language that is spoken, in the order of the codes."""
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.facts.get("language", "not known")].append(record)
    return dict(sorted(groups.items()))


def lost_by_rounding(records: Iterable[Record]) -> int:
    """Successes that the float perturbation had and the rounded file has not."""
    return sum(bool(record.achieved_unrounded) and not record.achieved for record in records)


def less(records: Iterable[Record], others: Iterable[Record], metric: str) -> Interval | None:
    """A metric's value over records less that over others, on the clips that both have.

    Records of one clip, at several sizes say, count together.
    """
    ours, theirs = _by_clip(records, metric), _by_clip(others, metric)
    clips = [clip for clip in ours if clip in theirs]
    if not clips:
        return None
    return ratio_difference([ours[clip] for clip in clips], [theirs[clip] for clip in clips])


def _by_clip(records: Iterable[Record], metric: str) -> dict[str, NDArray[np.float64]]:
    sums: defaultdict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(2))
    for record in records:
        if metric in record.parts:
            sums[record.clip] = sums[record.clip] + np.array(record.parts[metric])
    return sums


def crossing_db(points: Iterable[tuple[float, float]], level: float) -> float | None:
    """The highest SNR at which a rate reaches `level`, between `(SNR, rate)` points along straight lines.

    Infinite where the highest SNR has it already; None where none of them has.
    """
    known = sorted(points, reverse=True)
    if known and known[0][1] >= level:
        return math.inf
    for (above, low), (below, high) in pairwise(known):
        if high >= level:
            return above + (below - above) * (level - low) / (high - low)
    return None
