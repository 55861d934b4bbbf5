"""A run read for comparison: the same numbers as `auditing.summary`, of fewer metrics and much faster.

A leaderboard needs of every trial whether it succeeded, its errors, its SNR and its P(heard). So those few
parts are kept in arrays, and intervals are made where they are shown and nowhere else.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results.heard_curve import OPINIONS
from sottovoce.auditing.results.summary import (
    LEADS,
    CellSummary,
    ComparableCells,
    Outcomes,
    Strongest,
    Summary,
    find_metric,
    lead_of,
)
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.metric import Estimate, clip_values
from sottovoce.core.record import EVERY, Key, Record, outdated, read_records

KEPT = (*LEADS, "snr", *OPINIONS)
"""Metrics of which every trial's parts are kept."""
CLEAN = ("clean-accuracy", "clean-wer")
"""Metrics of the model before any attack, kept once a clip and defense."""
Parts = tuple[float, float]


@dataclass
class CleanDecisions:
    """The target on clean clips: each clip once, in the order of the records."""

    parts: dict[str, dict[str, Parts]] = field(default_factory=dict)
    """Metric name to clip to parts."""
    speakers: dict[str, str] = field(default_factory=dict)

    def estimate(self, metric: str) -> Estimate | None:
        """None where it was not measured."""
        found = self.parts.get(metric)
        if not found:
            return None
        rows = np.array(list(found.values()), dtype=np.float64)
        return find_metric(metric).summarise(rows, [self.speakers[clip] for clip in found])


@dataclass(frozen=True)
class WorstByMetric:
    """Every clip under the attack that harmed it most, by one metric.

    rows: `(clips, 2)`, its parts.
    """

    metric: str
    clips: list[str]
    rows: NDArray[np.float64]
    speakers: list[str]

    def estimate(self) -> Estimate:
        return find_metric(self.metric).summarise(self.rows, groups=self.speakers)

    def by_clip(self) -> dict[str, Parts]:
        return {clip: (row[0], row[1]) for clip, row in zip(self.clips, self.rows.tolist(), strict=True)}


@dataclass(frozen=True)
class RunReading:
    """One run.

    summary: as `summarise` makes it, but with intervals of the leading figures alone and with no others
        than those of `KEPT`.
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
    cells = {cell.id: cell for cell in plan.cells()}
    stream = _Stream(cells)
    read_contents(folder.records_path, stream.add)
    failures = stream.failures()
    judged = [
        _summarise(stream.outcomes[name], cell) for name, cell in cells.items() if name in stream.outcomes
    ]
    groups = _groups(judged, stream.outcomes)
    summary = Summary(judged, failures, groups, stream.outcomes)
    return RunReading(folder, plan, summary, stream.clean)


def read_contents(path: Path, use: Callable[[dict[str, Any]], None]) -> None:
    """Yield the fields of the records of a file in order; an incomplete last line is dropped."""
    for record in read_records(path):
        use(vars(record))


class _Stream:
    """What is kept of the records while they go by: each clip of each cell once, as `core.record.latest`."""

    def __init__(self, cells: Mapping[str, Cell]) -> None:
        self._defenses = {name: cell.defense for name, cell in cells.items()}
        self._seen: dict[str, set[str]] = {}
        self._failed: dict[Key, dict[str, Any]] = {}
        self.outcomes: dict[str, Outcomes] = {}
        self.clean: dict[str, CleanDecisions] = {}

    def add(self, content: dict[str, Any]) -> None:
        cell, clip, status = content["cell"], sys.intern(content["clip"]), content["status"]
        if clip == EVERY:
            if cell not in self._seen:
                self._failed[cell, clip] = content
            return
        if self._failed:
            for old in outdated((cell, clip)):
                self._failed.pop(old, None)
        seen = self._seen.get(cell)
        if seen is None:
            seen = self._seen[cell] = set()
        if clip in seen:
            return
        if status == "failed":
            self._failed[cell, clip] = content
            return
        seen.add(clip)
        kept = self._count(content)
        if status == "ok":
            self._add_judged(kept, cell, clip, content)

    def failures(self) -> list[Record]:
        """What failed to the end, each reason once a clip. To be asked when all records have gone by."""
        found: dict[tuple[str, str], Record] = {}
        for (cell, clip), content in self._failed.items():
            self._count(content)
            words = {name: content[name] for name in ("reason", "label")}
            record = Record(cell=cell, clip=clip, status="failed", **words)
            found.setdefault((clip, record.reason), record)
        return list(found.values())

    def _count(self, content: dict[str, Any]) -> Outcomes:
        kept = self.outcomes.get(content["cell"])
        if kept is None:
            kept = self.outcomes[content["cell"]] = Outcomes()
        kept.status[content["status"]] += 1
        if content["achieved_unrounded"] and not content["achieved"]:
            kept.lost += 1
        return kept

    def _add_judged(self, kept: Outcomes, cell: str, clip: str, content: dict[str, Any]) -> None:
        parts, columns = content["parts"], kept.parts
        for name in KEPT:
            found, column = parts.get(name), columns.get(name)
            if column is None:
                if found is None:
                    continue
                column = columns[name] = array("d", [math.nan]) * (2 * len(kept.clips))
            column.extend((math.nan, math.nan) if found is None else found)
        facts = content["facts"]
        speaker = sys.intern(facts.get("speaker", ""))
        kept.clips.append(clip)
        kept.speakers.append(speaker)
        if not kept.facts:
            kept.facts = facts
        for name, reason in content["unscored"].items():
            kept.unscored.setdefault(name, Counter())[reason] += 1
        if cell in self._defenses:
            self._add_clean(self._defenses[cell], clip, speaker, parts)

    def _add_clean(self, defense: str, clip: str, speaker: str, parts: dict[str, Any]) -> None:
        clean = self.clean.get(defense)
        if clean is None:
            clean = self.clean[defense] = CleanDecisions()
        if clip in clean.speakers:
            return
        clean.speakers[clip] = speaker
        for name in CLEAN:
            if name in parts:
                clean.parts.setdefault(name, {})[clip] = parts[name]


def _summarise(outcomes: Outcomes, cell: Cell) -> CellSummary:
    estimates = {
        name: find_metric(name).summarise(outcomes.rows(name), groups=outcomes.speakers)
        if name in LEADS
        else _mean(outcomes.rows(name))
        for name in outcomes.parts
    }
    status = outcomes.status
    return CellSummary(cell, status["ok"], status["failed"], status["skipped"], outcomes.lost, estimates)


def _mean(rows: NDArray[np.float64]) -> Estimate:
    """A value without an interval."""
    scored = rows[np.isfinite(rows).all(axis=1)]
    total = scored.sum(axis=0)
    value = float(total[0] / total[1]) if total[1] != 0 else math.nan
    return Estimate(value, math.nan, math.nan, len(scored), "none")


def _groups(cells: Sequence[CellSummary], outcomes: Mapping[str, Outcomes]) -> list[ComparableCells]:
    """As `summarise` makes them; the worst case has the leading figures alone."""
    worded = any(item.has("wer") for item in cells)
    members: dict[tuple[str, str, str], list[CellSummary]] = {}
    for item in cells:
        key = item.cell.defense, str(item.cell.goal), str(item.cell.budget)
        members.setdefault(key, []).append(item)
    groups = []
    for found in members.values():
        first, lead = found[0].cell, lead_of(found[0].cell, worded)
        group = ComparableCells(first.defense, first.goal, first.budget, lead, found, None)
        strongest = None
        if group.attacks:
            best = max(group.attacks, key=lambda item: (item.estimates[lead].value, item.snr_db))
            worst = find_worst(group, outcomes)
            per_clip = {name: each.estimate() for name, each in worst.items()}
            strongest = Strongest(best, len(group.attacks), per_clip)
        groups.append(ComparableCells(first.defense, first.goal, first.budget, lead, found, strongest))
    return groups


def find_worst(group: ComparableCells, outcomes: Mapping[str, Outcomes]) -> dict[str, WorstByMetric]:
    """The leading figures that were measured under any attack of a group, clip by clip."""
    judged = [outcomes[item.cell.id] for item in group.attacks]
    return {name: worst for name in LEADS if len((worst := worst_of(judged, name)).clips)}


def worst_of(judged: Iterable[Outcomes], metric: str) -> WorstByMetric:
    """Each clip where a metric is highest; of equals the first."""
    places: dict[str, int] = {}
    speakers: list[str] = []
    highest, rows = np.empty(0), np.empty((0, 2))
    for each in judged:
        parts = each.rows(metric)
        values = clip_values(parts)
        known = np.flatnonzero(~np.isnan(values))
        at = np.empty(len(known), dtype=np.int64)
        for order, row in enumerate(known.tolist()):
            place = places.setdefault(each.clips[row], len(places))
            if place == len(speakers):
                speakers.append(each.speakers[row])
            at[order] = place
        new = len(places) - len(highest)
        highest = np.append(highest, np.full(new, -math.inf))
        rows = np.concatenate([rows, np.full((new, 2), math.nan)])
        higher = values[known] > highest[at]
        highest[at[higher]] = values[known][higher]
        rows[at[higher]] = parts[known][higher]
    return WorstByMetric(metric, list(places), rows, speakers)
