"""Decisions about speakers, from the scores of their clips (Amiri and Kodrasi, section 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.core.record import Record


@final
@dataclass(frozen=True)
class SpeakerVote:
    """The soft vote of one speaker's clips: `chance` is the mean probability of the right one of two classes.

    A tie is no decision for the right class, so it counts as wrong.
    """

    speaker: str
    label: str
    chance: float
    clips: int

    @property
    def right(self) -> bool:
        return self.chance > 0.5


class Spread(NamedTuple):
    """A mean over seeds and the deviation around it."""

    mean: float
    deviation: float
    n: int


def speaker_votes(
    records: Iterable[Record], metric: str = "chance", *, weigh: Callable[[Record], float] | None = None
) -> list[SpeakerVote]:
    """One vote a speaker, in the order of their names. Clips without a value do not vote.

    records: of a detector with two classes and one cell, with the metric among their parts.
    metric: `chance` under attack, `clean-chance` before it.
    weigh: what each clip counts for; None: all alike, segments and utterances however long.
    """
    sums: dict[str, list[tuple[float, float]]] = {}
    labels: dict[str, str] = {}
    seen: set[str] = set()
    for record in records:
        if record.status != "ok":
            continue
        speaker = _speaker(record, labels)
        if record.clip in seen:
            raise InputError(
                f"clip {record.clip!r}: expected one record a clip, got two; give the records of a single "
                "cell."
            )
        seen.add(record.clip)
        value, weight = _parts(record, metric)
        if np.isfinite([value, weight]).all():
            factor = 1.0 if weigh is None else weigh(record)
            sums.setdefault(speaker, []).append((factor * value, factor * weight))
    return [_vote(speaker, labels[speaker], sums[speaker]) for speaker in sorted(sums)]


def speaker_accuracy(votes: Sequence[SpeakerVote], *, level: float = 0.95) -> Interval:
    """The share of speakers that are classified correctly, with its exact interval (Clopper-Pearson)."""
    return clopper_pearson(sum(vote.right for vote in votes), len(votes), level=level)


def over_seeds(values: Sequence[float]) -> Spread:
    """Mean and deviation of a figure over seeds.

    The deviation divides by the number of seeds, not by one less: Table 2 of the paper has 0.8 +- 0.7 % for
    100 speakers and five seeds, which no five whole percentages have the other way.
    """
    if not values:
        return Spread(float("nan"), float("nan"), 0)
    return Spread(float(np.mean(values)), float(np.std(values)), len(values))


def _speaker(record: Record, labels: dict[str, str]) -> str:
    speaker = record.facts.get("speaker", "")
    if not speaker:
        raise InputError(
            f"clip {record.clip!r}: expected a speaker among its facts, got none; add the speakers to the "
            "corpus."
        )
    label = labels.setdefault(speaker, record.label)
    if label != record.label:
        raise InputError(
            f"speaker {speaker!r}: expected one label, got {label!r} and {record.label!r}; correct the "
            "corpus."
        )
    return speaker


def _parts(record: Record, metric: str) -> tuple[float, float]:
    if metric not in record.parts:
        raise InputError(
            f"clip {record.clip!r}: expected the metric {metric!r} in its record, got "
            f"{', '.join(record.parts) or 'none'}; ask for it when the clips are attacked."
        )
    value, weight = record.parts[metric]
    return value, weight


def _vote(speaker: str, label: str, parts: Sequence[tuple[float, float]]) -> SpeakerVote:
    value, weight = np.sum(parts, axis=0)
    return SpeakerVote(speaker, label, float(value / weight), len(parts))
