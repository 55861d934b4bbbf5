"""Several attacks as one: each clip under the attack that did it most harm."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sottovoce import registry
from sottovoce.core.metric import Estimate, clip_values

if TYPE_CHECKING:
    from sottovoce.auditing.results.summary import Outcomes


@dataclass(frozen=True)
class WorstByMetric:
    """Every clip under the attack that did it most harm, by one metric.

    rows: `(clips, 2)`, its parts.
    """

    metric: str
    clips: list[str]
    rows: NDArray[np.float64]
    speakers: list[str]

    def estimate(self) -> Estimate:
        found: Estimate = registry.find("metric", self.metric)().summarise(self.rows, groups=self.speakers)
        return found

    def by_clip(self) -> dict[str, tuple[float, float]]:
        return {clip: (row[0], row[1]) for clip, row in zip(self.clips, self.rows.tolist(), strict=True)}


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
