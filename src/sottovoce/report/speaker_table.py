"""Accuracy by speaker, by the votes of their clips, for models that separate two groups of speakers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sottovoce.auditing.results.summary import Outcomes, Summary, plain
from sottovoce.core.metric import Estimate
from sottovoce.core.record import Record
from sottovoce.metrics.speaker_votes import speaker_accuracy, speaker_votes

VOTED = {"clean-chance": "clean", "chance": "attacked"}
"""What votes are counted from, and what it is of."""
Told = dict[str, dict[str, Estimate]]
"""Shares of speakers by the id of the cell, then by the metric whose means voted."""
NO_SCORES = (
    "Speakers have several clips each, but the records hold no probabilities for these to vote with: add "
    "chance and clean-chance to --metrics to get the accuracy by speaker."
)


def tell_speakers(summary: Summary, records: Iterable[Record]) -> Told | None:
    """The soft vote of every speaker in each cell: right where the mean probability of the right label over
    the clips is above one half. Empty where no probabilities are on record.

    None where that does not apply: labels or answers other than the two groups, clips without a speaker, a
    speaker with both labels, or one clip per speaker.
    """
    if not any(map(_several, summary.outcomes.values())):
        return None
    labels: dict[str, str] = {}
    texts: set[str] = set()
    cells: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.status != "ok":
            continue
        speaker = record.facts.get("speaker", "")
        # A clip that nobody attacked was heard once.
        said = [record.clean_text, *([] if record.achieved is None else [record.adversarial_text])]
        texts |= {record.label, *said}
        if len(texts) > 2 or not speaker or labels.setdefault(speaker, record.label) != record.label:
            return None
        cells[record.cell].append(record)
    if len(set(labels.values())) != 2:
        return None
    return {cell: found for cell, some in cells.items() if (found := _told(some))}


def _several(outcomes: Outcomes) -> bool:
    """Whether some speaker has more than one clip, and all are known."""
    return all(outcomes.speakers) and len(set(outcomes.speakers)) < len(outcomes.clips)


def _told(records: list[Record]) -> dict[str, Estimate]:
    found = {}
    for metric in VOTED:
        votes = speaker_votes((one for one in records if metric in one.parts), metric)
        if votes:
            found[metric] = Estimate(*speaker_accuracy(votes), "Clopper-Pearson 95%")
    return found


def as_summary(summary: Summary, told: Told) -> Summary:
    """The same cells with the shares of speakers for their figures, for whoever lays out tables."""
    cells = [replace(item, estimates=told.get(item.cell.id, {})) for item in summary.cells]
    return replace(summary, cells=cells)


def speakers_to_json(told: Told | None) -> dict[str, dict[str, dict[str, Any]]] | None:
    """By cell, `clean` and `attacked`; None where accuracy by speaker does not apply."""
    if told is None:
        return None
    return {
        cell: {VOTED[metric]: plain(vars(estimate)) for metric, estimate in found.items()}
        for cell, found in told.items()
    }
