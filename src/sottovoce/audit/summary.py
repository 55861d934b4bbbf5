"""Adding up records: estimates with intervals by cell, by class, or by anything else a record knows."""

from __future__ import annotations

import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import registry
from sottovoce.audit.plan import Cell, Plan
from sottovoce.core.metric import Estimate, Metric
from sottovoce.core.record import Record


@dataclass(frozen=True)
class CellSummary:
    """One cell's estimates, by metric name."""

    cell: Cell
    clips: int
    failed: int
    skipped: int
    lost_by_rounding: int
    """Successes that the float perturbation had and the rounded file has not."""
    estimates: dict[str, Estimate]


@dataclass(frozen=True)
class Summary:
    cells: list[CellSummary]
    failures: list[Record]
    """Every clip that failed, in whichever cell, each reason once a clip."""

    def to_json(self) -> dict[str, Any]:
        """As plain data, NaN as null."""
        return {
            "cells": [
                {
                    "id": item.cell.id,
                    "defense": item.cell.defense,
                    "attack": str(item.cell.attack),
                    "goal": str(item.cell.goal),
                    "budget": str(item.cell.budget),
                    "clips": item.clips,
                    "failed": item.failed,
                    "skipped": item.skipped,
                    "lost_by_rounding": item.lost_by_rounding,
                    "metrics": {name: _plain(asdict(found)) for name, found in item.estimates.items()},
                }
                for item in self.cells
            ],
            "failed": [
                {"clip": record.clip, "cell": record.cell, "reason": record.reason}
                for record in self.failures
            ],
        }


def summarise(plan: Plan, records: Iterable[Record]) -> Summary:
    """Estimates of every metric in every cell of the plan that has records, in one pass over them."""
    tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
    failures: dict[tuple[str, str], Record] = {}
    for record in records:
        tallies[record.cell].add(record)
        if record.status == "failed":
            failures.setdefault((record.clip, record.reason), record)
    cells = [tallies[cell.id].summary(cell) for cell in plan.cells() if cell.id in tallies]
    return Summary(cells, list(failures.values()))


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
class _Tally:
    """What is kept of a cell's records while they stream by: counts and parts, not the records."""

    status: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    parts: dict[str, array[float]] = field(default_factory=dict)
    speakers: dict[str, list[str]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        self.status[record.status] += 1
        self.lost += bool(record.achieved_unrounded) and not record.achieved
        for name, parts in record.parts.items():
            self.parts.setdefault(name, array("d")).extend(parts)
            self.speakers.setdefault(name, []).append(speaker_of(record))

    def summary(self, cell: Cell) -> CellSummary:
        return CellSummary(
            cell=cell,
            clips=self.status["ok"],
            failed=self.status["failed"],
            skipped=self.status["skipped"],
            lost_by_rounding=self.lost,
            estimates={
                name: find_metric(name).summarise(np.array(parts).reshape(-1, 2), groups=self.speakers[name])
                for name, parts in self.parts.items()
            },
        )


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value
        for key, value in content.items()
    }
