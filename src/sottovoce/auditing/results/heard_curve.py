"""Success against P(heard): of every clip the smallest P(heard) at which an attack fooled it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sottovoce.auditing.results.summary import CellSummary, Outcomes, Summary, plain
from sottovoce.core.metric import Estimate
from sottovoce.core.statistics import clopper_pearson

OPINIONS = ("p-heard", "p-heard-masking")
"""Metrics that say P(heard): the one that counts where it has a value, and the one to fall back on."""
FEW = 0.25
"""Heard by fewer than one in four: what the first line of a report counts."""
JND = 0.5
"""One just noticeable difference: heard by one in two. Below it a success is called inaudible."""


@dataclass(frozen=True)
class HeardCurve:
    """How many clips an attack, or the best of several, fools below any P(heard).

    clips: on which success was judged.
    heard: the smallest P(heard) of a success, of every fooled clip that has one, in order.
    unknown: fooled clips of which no success has a P(heard); they count as heard.
    """

    clips: int
    heard: tuple[float, ...]
    unknown: int

    def up_to(self, p: float) -> Estimate:
        """Share of clips that are fooled with a P(heard) of at most p."""
        return self._share(bisect_right(self.heard, p))

    def fewer(self, p: float) -> int:
        """Clips that are fooled with a P(heard) below p."""
        return bisect_left(self.heard, p)

    def below(self, p: float) -> Estimate:
        """Share of clips that are fooled with a P(heard) below p."""
        return self._share(self.fewer(p))

    def _share(self, count: int) -> Estimate:
        return Estimate(*clopper_pearson(count, self.clips), "Clopper-Pearson 95%")


def opinion_of(summary: Summary) -> str | None:
    """The metric whose P(heard) counts in this run; None where none has a value."""
    return next((name for name in OPINIONS if any(item.has(name) for item in summary.cells)), None)


def why_unheard(summary: Summary, metric: str = OPINIONS[0]) -> str:
    """Why clips have no P(heard), the commonest reason; "" where it has or was not asked for."""
    said = [reasons for each in summary.outcomes.values() if (reasons := each.unscored.get(metric))]
    total = sum(said[1:], start=said[0].copy()) if said else None
    return total.most_common(1)[0][0] if total else ""


def draw_curve(outcomes: Iterable[Outcomes], metric: str) -> HeardCurve:
    """The curve of several cells: each clip counts where it is fooled with the smallest P(heard)."""
    clips: set[str] = set()
    smallest: dict[str, float] = {}
    for each in outcomes:
        success, heard = each.values("success"), each.values(metric)
        clips |= success.keys()
        for clip in (clip for clip, value in success.items() if value > 0):
            smallest[clip] = min(smallest.get(clip, math.inf), heard.get(clip, math.inf))
    known = sorted(value for value in smallest.values() if math.isfinite(value))
    return HeardCurve(len(clips), tuple(known), len(smallest) - len(known))


def inaudible(outcomes: Outcomes, metric: str) -> Estimate:
    """Of the successes of a cell that have a P(heard), the share below one just noticeable difference."""
    heard = outcomes.values(metric)
    found = [heard[clip] for clip, value in outcomes.values("success").items() if value > 0 and clip in heard]
    return Estimate(*clopper_pearson(sum(p < JND for p in found), len(found)), "Clopper-Pearson 95%")


def worst_curve(summary: Summary, items: Iterable[CellSummary], metric: str) -> HeardCurve:
    """The curve of all attacks together, noise left out."""
    return draw_curve((summary.outcomes[item.cell.id] for item in items if item.attacks), metric)


def heard_to_json(summary: Summary) -> dict[str, Any]:
    """How many clips are fooled unheard behind each defense, for each goal, as plain data."""
    metric = opinion_of(summary)
    if metric is None:
        return {"metric": None, "reason": why_unheard(summary) or None, "curves": []}
    groups: dict[tuple[str, str], list[CellSummary]] = {}
    for item in summary.cells:
        groups.setdefault((item.cell.defense, str(item.cell.goal)), []).append(item)
    curves = []
    for (defense, goal), items in groups.items():
        curve = worst_curve(summary, items, metric)
        share = curve.below(FEW)
        figures = plain({"value": share.value, "low": share.low, "high": share.high})
        counts = {"clips": curve.clips, "fooled": len(curve.heard) + curve.unknown}
        below = {"below": FEW, "fooled_below": curve.fewer(FEW), "share": figures}
        curves.append({"defense": defense, "goal": goal, **counts, **below})
    return {"metric": metric, "reason": None, "curves": curves}
