"""A run read for comparison: a summary of few metrics, without the intervals that nobody looks at.

A leaderboard needs of every trial whether it succeeded, its errors, its SNR and its P(heard). The bootstrap
of all other metrics takes most of the time of a summary, so they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.results.clean_decisions import CleanDecisions
from sottovoce.auditing.results.heard_curve import OPINIONS
from sottovoce.auditing.results.summary import LEADS, ComparableCells, Outcomes, Summary, summarise
from sottovoce.auditing.results.worst_case import WorstByMetric, worst_of
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import EVERY, Record

KEPT = (*LEADS, "snr", *OPINIONS)
"""Metrics of which every trial's parts are kept."""


@dataclass(frozen=True)
class RunReading:
    """One run.

    summary: with no other metrics than those of `KEPT`, and with intervals of the leading figures alone.
    clean: by defense.
    """

    folder: RunFolder
    plan: Plan
    summary: Summary
    clean: Mapping[str, CleanDecisions]

    @property
    def trials(self) -> int:
        """Clips times cells that are on record."""
        return sum(sum(each.status.values()) for each in self.summary.outcomes.values())

    @property
    def failed(self) -> set[str]:
        """Clips that failed somewhere."""
        return {record.clip for record in self.summary.failures} - {EVERY}


def read_run(folder: RunFolder) -> RunReading:
    """One pass over the records of a run."""
    plan = folder.plan()
    clean: dict[str, CleanDecisions] = {}
    records = _watch(plan, folder.records(), clean)
    summary = summarise(plan, records, metrics=KEPT, intervals=LEADS)
    return RunReading(folder, plan, summary, clean)


def _watch(plan: Plan, records: Iterable[Record], clean: dict[str, CleanDecisions]) -> Iterator[Record]:
    """The same records; what was said to clean clips is noted as they go by."""
    defenses = {cell.id: cell.defense for cell in plan.cells()}
    for record in records:
        if record.status == "ok" and record.cell in defenses:
            clean.setdefault(defenses[record.cell], CleanDecisions()).add(record)
        yield record


def find_worst(group: ComparableCells, outcomes: Mapping[str, Outcomes]) -> dict[str, WorstByMetric]:
    """The leading figures that were measured under any attack of a group, clip by clip."""
    judged = [outcomes[item.cell.id] for item in group.attacks]
    return {name: worst for name in LEADS if len((worst := worst_of(judged, name)).clips)}
