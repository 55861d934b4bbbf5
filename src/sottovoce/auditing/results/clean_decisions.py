"""What a model makes of clips before any attack, from the records of whichever cells they went through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sottovoce import registry
from sottovoce.core.metric import Estimate

if TYPE_CHECKING:
    from sottovoce.auditing.results.summary import Outcomes

CLEAN = ("clean-accuracy", "clean-wer", "clean-cer", "clean-chance")
"""Metrics of clean clips, the foremost first."""
LEADS = ("clean-accuracy", "clean-wer")
"""The one that every summary shows: of a classifier the first, of a recogniser the second."""


def clean_figures(cells: Iterable[tuple[str, Outcomes]]) -> dict[str, dict[str, Estimate]]:
    """Behind each defense the estimates that were measured, each clip once.

    One cell may lack clips: a goal passes some over, and universal attacks are fitted on others.
    """
    behind: dict[str, list[Outcomes]] = {}
    for defense, outcomes in cells:
        behind.setdefault(defense, []).append(outcomes)
    found = {
        defense: {metric: known for metric in CLEAN if (known := _estimate(judged, metric)) is not None}
        for defense, judged in behind.items()
    }
    return {defense: figures for defense, figures in found.items() if figures}


def _estimate(judged: Sequence[Outcomes], metric: str) -> Estimate | None:
    """None where it was not measured."""
    seen: set[str] = set()
    rows, speakers = [], list[str]()
    for outcomes in judged:
        if metric not in outcomes.parts or seen.issuperset(outcomes.clips):
            continue
        fresh = [place for place, clip in enumerate(outcomes.clips) if clip not in seen]
        rows.append(outcomes.rows(metric)[fresh])
        speakers += [outcomes.speakers[place] for place in fresh]
        seen.update(outcomes.clips)
    if not rows:
        return None
    found: Estimate = registry.find("metric", metric)().summarise(np.concatenate(rows), groups=speakers)
    return found
