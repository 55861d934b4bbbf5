"""Adding up records: estimates with intervals by cell, by class, or by anything else a record knows."""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce import registry
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results.clean_decisions import clean_figures
from sottovoce.auditing.results.worst_case import worst_of
from sottovoce.core.metric import Estimate, Metric, clip_values
from sottovoce.core.record import EVERY, LOADING, Record
from sottovoce.registry.part_text import Part

Lead = Literal["success", "wer"]
LEADS: tuple[Lead, ...] = ("success", "wer")


@dataclass(frozen=True)
class CellSummary:
    """One cell's estimates, by metric name."""

    cell: Cell
    clips: int
    failed: int
    skipped: int
    lost_by_rounding: int | None
    """Successes that the float perturbation had and the rounded file has not; None where nobody can tell."""
    estimates: dict[str, Estimate]

    def has(self, metric: str) -> bool:
        """Whether a metric has a value here."""
        return metric in self.estimates and math.isfinite(self.estimates[metric].value)

    @property
    def attacks(self) -> bool:
        """Whether it is an attack, and not noise that looks at nothing."""
        return self.cell.sees != "nothing"

    @property
    def snr_db(self) -> float:
        """The measured mean SNR; without one, lower than any."""
        return self.estimates["snr"].value if self.has("snr") else -math.inf


@dataclass(frozen=True)
class Strongest:
    """All attacks at one budget behind one defense: the strongest of them, and the worst of each clip.

    item: the attack with the highest leading figure; of equals, the quieter one.
    attacks: how many there are.
    per_clip: the figures that may lead, where each clip counts under the attack that harmed it most: it is
    broken if any attack broke it, and has its highest error rate.
    """

    item: CellSummary
    attacks: int
    per_clip: dict[str, Estimate]


@dataclass(frozen=True)
class ComparableCells:
    """What can be compared: all cells of one defense, goal and budget."""

    defense: str
    goal: Part
    budget: Part
    lead: Lead
    cells: list[CellSummary]
    strongest: Strongest | None
    """None where nothing but noise has a value."""

    @property
    def budget_title(self) -> str:
        return self.cells[0].cell.budget_title

    @property
    def attacks(self) -> list[CellSummary]:
        """Those that have the leading figure, without noise."""
        return [item for item in self.cells if item.attacks and item.has(self.lead)]

    @property
    def noise(self) -> CellSummary | None:
        found = [item for item in self.cells if not item.attacks and item.has(self.lead)]
        return found[0] if found else None


@dataclass(frozen=True)
class Summary:
    cells: list[CellSummary]
    failures: list[Record]
    """Every clip that failed, in whichever cell, each reason once a clip; and each cell that failed whole."""
    groups: list[ComparableCells] = field(default_factory=list)
    outcomes: Mapping[str, Outcomes] = field(default_factory=dict)
    """The outcome of every clip, by the id of the cell."""
    clean: Mapping[str, dict[str, Estimate]] = field(default_factory=dict)
    """By defense, figures of the model before any attack; see `clean_figures`."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Why clips were tried in no cell, and how many for each reason."""

    def to_json(self) -> dict[str, Any]:
        """As plain data, NaN as null; so is the clip of a cell that failed whole, and the cell of a clip that
        could not be loaded."""
        return {
            "cells": [
                {
                    **_named(item.cell),
                    "clips": item.clips,
                    "failed": item.failed,
                    "skipped": item.skipped,
                    "lost_by_rounding": item.lost_by_rounding,
                    "metrics": _figures(item.estimates),
                }
                for item in self.cells
            ],
            "clean": [
                {"defense": defense, "metrics": _figures(found)} for defense, found in self.clean.items()
            ],
            "strongest": [
                {
                    "defense": group.defense,
                    "goal": str(group.goal),
                    "budget": str(group.budget),
                    "cell": found.item.cell.id,
                    "attacker": found.item.cell.attacker,
                    "attacks": found.attacks,
                    "metrics": _figures({group.lead: found.item.estimates[group.lead]}),
                    "per_clip": _figures(found.per_clip),
                }
                for group in self.groups
                if (found := group.strongest) is not None
            ],
            "failed": [
                {"clip": record.clip or None, "cell": record.cell or None, "reason": record.reason}
                for record in self.failures
            ],
            "skipped": [{"clips": count, "reason": reason} for reason, count in self.skipped.items()],
        }


def _named(cell: Cell) -> dict[str, str]:
    return {
        "id": cell.id,
        "defense": cell.defense,
        "attack": str(cell.attack),
        "attacker": cell.attacker,
        "goal": str(cell.goal),
        "budget": str(cell.budget),
    }


def summarise(
    plan: Plan,
    records: Iterable[Record],
    *,
    metrics: Collection[str] | None = None,
    intervals: Collection[str] | None = None,
) -> Summary:
    """Estimates of metrics in every cell of the plan that has records, in one pass over them.

    metrics: those to keep; None: all that were measured.
    intervals: those to give intervals, which take most of the time; None: all that are kept.
    """
    failures: dict[tuple[str, str], Record] = {}
    left_out: Counter[str] = Counter()

    def watched() -> Iterator[Record]:
        for record in records:
            if record.status == "failed":
                what = record.cell if record.clip == EVERY else record.clip
                failures.setdefault((what, record.reason), record)
            elif record.cell == LOADING:
                left_out[record.reason] += 1
            yield record

    outcomes = gather(watched(), metrics)
    cells = [outcomes[cell.id].summary(cell, intervals) for cell in plan.cells() if cell.id in outcomes]
    groups = _groups([item for item in cells if not item.cell.clean], outcomes)
    clean = clean_figures((item.cell.defense, outcomes[item.cell.id]) for item in cells)
    return Summary(cells, list(failures.values()), groups, outcomes, clean, left_out)


def gather(records: Iterable[Record], metrics: Collection[str] | None = None) -> dict[str, Outcomes]:
    """The outcome of every clip, by the name of the cell. metrics: those to keep; None: all."""
    kept = None if metrics is None else frozenset(metrics)
    outcomes: defaultdict[str, Outcomes] = defaultdict(lambda: Outcomes(kept=kept))
    for record in records:
        outcomes[record.cell].add(record)
    return dict(outcomes)


def _groups(cells: Sequence[CellSummary], outcomes: Mapping[str, Outcomes]) -> list[ComparableCells]:
    worded = any(item.has("wer") for item in cells)
    members: defaultdict[tuple[str, str, str], list[CellSummary]] = defaultdict(list)
    for item in cells:
        members[item.cell.defense, str(item.cell.goal), str(item.cell.budget)].append(item)
    return [_group(found, lead_of(found[0].cell, worded), outcomes) for found in members.values()]


def lead_of(cell: Cell, worded: bool) -> Lead:
    """The metric by which attacks are ranked, where errors in words were counted or not.

    An attack that is to change a transcript is ranked by the errors it makes, for one letter changes a
    transcript too; every other by whether it reaches its goal.
    """
    return "wer" if worded and cell.goal.name == "evade" else "success"


def _group(members: list[CellSummary], lead: Lead, outcomes: Mapping[str, Outcomes]) -> ComparableCells:
    first = members[0].cell
    group = ComparableCells(first.defense, first.goal, first.budget, lead, members, None)
    if not group.attacks:
        return group
    best = max(group.attacks, key=lambda item: (item.estimates[lead].value, item.snr_db))
    judged = [outcomes[item.cell.id] for item in group.attacks]
    per_clip: dict[str, Estimate] = {
        name: worst.estimate() for name in LEADS if (worst := worst_of(judged, name)).clips
    }
    return ComparableCells(
        first.defense, first.goal, first.budget, lead, members, Strongest(best, len(judged), per_clip)
    )


def by_group(records: Iterable[Record], metric: str, group: Callable[[Record], str]) -> dict[str, Estimate]:
    """A metric's estimate for each group of records, such as each class."""
    groups: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.status == "ok":
            groups[group(record)].append(record)
    found = find_metric(metric)
    return {
        name: found.summarise(
            stack_parts(members, metric),
            groups=[speaker_of(record) for record in members if metric in record.parts],
        )
        for name, members in groups.items()
    }


def stack_parts(records: Iterable[Record], metric: str) -> NDArray[np.float64]:
    """`(n, 2)`: the parts of a metric, record by record."""
    rows = [record.parts[metric] for record in records if metric in record.parts]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def speaker_of(record: Record) -> str:
    """Who is heard, "" where that is not known."""
    return sys.intern(record.facts.get("speaker", ""))


def find_metric(name: str) -> Metric:
    metric: Metric = registry.find("metric", name)()
    return metric


@dataclass
class Outcomes:
    """What is kept of a cell's records while they stream by: counts and parts, not the records.

    clips: in the order of the parts.
    """

    status: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    unrounded: int = 0
    """Clips of which it is known what the float perturbation did."""
    parts: dict[str, array[float]] = field(default_factory=dict)
    speakers: list[str] = field(default_factory=list)
    clips: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    """Those of the first record."""
    unscored: dict[str, Counter[str]] = field(default_factory=dict)
    """Why clips have no value, by metric: how often each reason was given."""
    kept: frozenset[str] | None = None
    """Metrics whose parts are kept; None: all."""

    def add(self, record: Record) -> None:
        self.status[record.status] += 1
        self.lost += bool(record.achieved_unrounded) and not record.achieved
        self.unrounded += record.achieved_unrounded is not None
        if record.status != "ok":
            return
        # In the record's order, which is that of every summary: a set has another in each process.
        for name in [name for name in record.parts if name not in self.parts and self._keeps(name)]:
            self.parts[name] = array("d", [math.nan]) * (2 * len(self.clips))
        for name, column in self.parts.items():
            column.extend(record.parts.get(name, (math.nan, math.nan)))
        self.clips.append(sys.intern(record.clip))
        self.speakers.append(speaker_of(record))
        self.facts = self.facts or record.facts
        for name, reason in record.unscored.items():
            self.unscored.setdefault(name, Counter())[reason] += 1

    def _keeps(self, metric: str) -> bool:
        return self.kept is None or metric in self.kept

    def rows(self, metric: str) -> NDArray[np.float64]:
        """`(clips, 2)`, empty for a metric that was not measured."""
        return np.array(self.parts.get(metric, ()), dtype=np.float64).reshape(-1, 2)

    def by_clip(self, metric: str) -> dict[str, tuple[float, list[float], str]]:
        """A metric's value, its parts and the speaker, of every clip that has a value."""
        rows = self.rows(metric)
        found = zip(self.clips, clip_values(rows).tolist(), rows.tolist(), self.speakers, strict=False)
        return {clip: (value, parts, speaker) for clip, value, parts, speaker in found if value == value}

    def values(self, metric: str) -> dict[str, float]:
        """A metric's value, of every clip that has one."""
        return {clip: value for clip, (value, _, _) in self.by_clip(metric).items()}

    def ratio(self, metric: str) -> float:
        """A metric over all clips; NaN without any."""
        rows = self.rows(metric)
        total = rows[np.isfinite(rows).all(axis=1)].sum(axis=0)
        return float(total[0] / total[1]) if total[1] > 0 else math.nan

    def summary(self, cell: Cell, intervals: Collection[str] | None = None) -> CellSummary:
        return CellSummary(
            cell=cell,
            clips=self.status["ok"],
            failed=self.status["failed"],
            skipped=self.status["skipped"],
            lost_by_rounding=self.lost if self.unrounded or not self.clips else None,
            estimates={
                name: self._estimate(name, intervals is None or name in intervals) for name in self.parts
            },
        )

    def _estimate(self, metric: str, interval: bool) -> Estimate:
        rows = self.rows(metric)
        if interval:
            return find_metric(metric).summarise(rows, groups=self.speakers)
        n = int(np.isfinite(rows).all(axis=1).sum())
        return Estimate(self.ratio(metric), math.nan, math.nan, n, "none")


def _figures(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    return {name: plain(asdict(found)) for name, found in estimates.items()}


def plain(content: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has it: NaN and infinity as null."""
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in content.items()
    }
