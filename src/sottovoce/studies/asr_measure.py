"""What the records of recognisers add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from sottovoce.audit.plan import Cell
from sottovoce.audit.summary import find_metric, speaker_of, stack_parts
from sottovoce.core.goal import Become
from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval, ratio_bootstrap
from sottovoce.metrics.text import word_edits

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
