"""One pass over the records: what the report needs of them, in columns instead of objects."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results.clean_decisions import CleanDecisions
from sottovoce.auditing.results.summary import find_metric, speaker_of
from sottovoce.core.metric import Estimate, clip_values
from sottovoce.core.record import Record
from sottovoce.report.model_reading import WORDS, read_as

NOISE = "noise"
"""White noise, with which every attack is compared."""


@dataclass
class Judged:
    """The judged clips of one cell, in columns."""

    labels: list[str] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    speakers: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    _parts: dict[str, array[float]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        for name in [name for name in record.parts if name not in self._parts]:
            self._parts[name] = array("d", [math.nan] * (2 * len(self.labels)))
        for name, column in self._parts.items():
            column.extend(record.parts.get(name, (math.nan, math.nan)))
        self.labels.append(sys.intern(record.label))
        self.levels.append(sys.intern(record.facts.get("intensity", "")))
        self.speakers.append(speaker_of(record))
        self.languages.append(sys.intern(record.facts.get("language", "")))

    def parts(self, metric: str) -> NDArray[np.float64]:
        """`(n, 2)`, empty for a metric that was not measured."""
        return np.array(self._parts.get(metric, ()), dtype=np.float64).reshape(-1, 2)

    def values(self, metric: str) -> NDArray[np.float64]:
        """The finite values of a metric, one a clip that has one."""
        values = clip_values(self.parts(metric))
        return values[np.isfinite(values)]

    def estimate(self, metric: str, members: NDArray[np.bool_]) -> Estimate | None:
        """A metric's estimate on some of the clips; None where it was not measured."""
        parts = self.parts(metric)
        if not len(parts):
            return None
        speakers = [self.speakers[row] for row in np.flatnonzero(members)]
        return find_metric(metric).summarise(parts[members], speakers)


@dataclass
class Extremes:
    """The loudest and the quietest success of every clip, as candidates for the examples."""

    loudness: Callable[[Record], float]
    loudest: dict[str, tuple[float, Record]] = field(default_factory=dict)
    quietest: dict[str, tuple[float, Record]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        level = self.loudness(record)
        if not math.isfinite(level):
            return
        if record.clip not in self.loudest or level > self.loudest[record.clip][0]:
            self.loudest[record.clip] = level, record
        if record.clip not in self.quietest or level < self.quietest[record.clip][0]:
            self.quietest[record.clip] = level, record

    def pick(self, count: int) -> tuple[list[Record], list[Record]]:
        """At most this many of the loudest and of the quietest, each clip once where there are enough."""
        loud = [item for _, item in sorted(self.loudest.values(), key=lambda pair: -pair[0])[:count]]
        taken = {record.clip for record in loud} if len(self.quietest) >= 2 * count else set()
        keys = {record.key for record in loud}
        ranked = [item for _, item in sorted(self.quietest.values(), key=lambda pair: pair[0])]
        quiet = [item for item in ranked if item.clip not in taken and item.key not in keys]
        return loud, quiet[:count]


class Trials:
    """What is kept of the records while they stream by."""

    def __init__(self, plan: Plan) -> None:
        self.cells: dict[str, Cell] = {cell.id: cell for cell in plan.cells()}
        self.judged: dict[str, Judged] = {}
        self.clips: set[str] = set()
        """Every clip that was judged in some cell."""
        self.sample_rates: set[int] = set()
        self.by_background = Extremes(lambda record: _value(record, "db-mean-background"))
        self.by_snr = Extremes(lambda record: -_value(record, "snr"))
        self._clean: dict[str, CleanDecisions] = {}

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each looked at on its way."""
        for record in records:
            if record.status == "ok" and record.cell in self.cells:
                self._add(record)
            yield record

    def clean(self, metric: str, defense: str) -> Estimate | None:
        """A figure of the model before any attack, over all clips, whichever attacks they went through."""
        return self._clean[defense].estimate(metric) if defense in self._clean else None

    @property
    def extremes(self) -> Extremes:
        return self.by_background if self.by_background.loudest else self.by_snr

    def _add(self, record: Record) -> None:
        cell = self.cells[record.cell]
        self.judged.setdefault(record.cell, Judged()).add(record)
        self.clips.add(record.clip)
        if record.sample_rate:
            self.sample_rates.add(record.sample_rate)
        self._clean.setdefault(cell.defense, CleanDecisions()).add(record)
        if record.achieved and _counts(record) and len(record.audio) == 2 and cell.attack.name != NOISE:
            self.by_background.add(record)
            self.by_snr.add(record)


def _counts(record: Record) -> bool:
    """Whether a success on this clip counts: a classifier must have been right before."""
    if "success" in record.parts:
        return math.isfinite(record.parts["success"][0])
    return read_as(record.parts) is WORDS or record.clean_text == record.label


def _value(record: Record, metric: str) -> float:
    value, weight = record.parts.get(metric, (math.nan, math.nan))
    return value / weight if weight > 0 else math.nan
