"""What a model makes of clips before any attack, from the records of whichever cells they went through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from sottovoce import registry
from sottovoce.core.metric import Estimate
from sottovoce.core.record import Record

if TYPE_CHECKING:
    from sottovoce.auditing.results.summary import Outcomes

CLEAN = ("clean-accuracy", "clean-wer", "clean-cer", "clean-chance")
"""Metrics of clean clips, the foremost first."""
LEADS = ("clean-accuracy", "clean-wer")
"""The one that every summary shows: of a classifier the first, of a recogniser the second."""
Parts = tuple[float, float]


@dataclass
class CleanDecisions:
    """What a target said to clips that nobody touched: each clip once, in the order in which they came.

    One cell may lack clips: a goal passes some over, and universal attacks are fitted on others.
    """

    parts: dict[str, dict[str, Parts]] = field(default_factory=dict)
    """Metric name to clip to parts."""
    speakers: dict[str, str] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """A judged clip of some cell behind the defense in question."""
        self.speakers.setdefault(record.clip, record.facts.get("speaker", ""))
        for metric in CLEAN:
            if metric in record.parts:
                value, weight = record.parts[metric]
                self.parts.setdefault(metric, {}).setdefault(record.clip, (value, weight))

    def add_cell(self, outcomes: Outcomes) -> None:
        """All judged clips of a cell."""
        for metric in CLEAN:
            if metric in outcomes.parts:
                known = self.parts.setdefault(metric, {})
                for clip, (value, weight) in zip(outcomes.clips, outcomes.rows(metric).tolist(), strict=True):
                    known.setdefault(clip, (value, weight))
        for clip, speaker in zip(outcomes.clips, outcomes.speakers, strict=True):
            self.speakers.setdefault(clip, speaker)

    def estimate(self, metric: str) -> Estimate | None:
        """None where it was not measured."""
        known = self.parts.get(metric)
        if not known:
            return None
        rows = np.array(list(known.values()), dtype=np.float64)
        groups = [self.speakers[clip] for clip in known]
        found: Estimate = registry.find("metric", metric)().summarise(rows, groups=groups)
        return found


def clean_figures(cells: Iterable[tuple[str, Outcomes]]) -> dict[str, dict[str, Estimate]]:
    """Behind each defense the estimates that were measured, each clip once."""
    behind: dict[str, CleanDecisions] = {}
    for defense, outcomes in cells:
        behind.setdefault(defense, CleanDecisions()).add_cell(outcomes)
    found = {
        defense: {metric: known for metric in CLEAN if (known := said.estimate(metric)) is not None}
        for defense, said in behind.items()
    }
    return {defense: figures for defense, figures in found.items() if figures}
