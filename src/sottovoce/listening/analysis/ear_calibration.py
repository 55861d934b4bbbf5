"""What people heard beside what an ear predicts of the same pairs: is a P(heard) of 30 % heard by 30 %?

Shares of "different" are raw: corrected neither for guessing nor for lapses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.core.batch import AudioBatch
from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.listening.analysis.answer_rows import AnswerRow
from sottovoce.listening.analysis.counted_answers import ALL
from sottovoce.listening.analysis.jnd_searches import Sounds, pair_of
from sottovoce.perception.ears.ear import Ear
from sottovoce.training.ear.ear_figures import BINS, EarFigures, judge

AT_ONCE = 8
Known = dict[tuple[str, str], float]
"""P(heard) by the keys of a pair: its reference and its changed clip."""
Floats = NDArray[np.float64]


class ComparedPair(NamedTuple):
    """Two clips that were compared: how often, and how often they were called different."""

    reference: str
    changed: str
    direction: str
    strength: float
    different: int
    asked: int


class Bin(NamedTuple):
    """Answers on pairs with a prediction from `low` to `high`. predicted: its mean; heard: what was said."""

    low: float
    high: float
    predicted: float
    heard: Interval


class Calibration(NamedTuple):
    """Of one direction, or of all. predicted: mean over answers. bins: those with answers."""

    direction: str
    pairs: int
    predicted: float
    heard: Interval
    figures: EarFigures
    bins: list[Bin]


def read_pairs(rows: Sequence[AnswerRow]) -> list[ComparedPair]:
    """Pairs of comparisons that count. Sentinels are left out: who missed one does not count, so that all
    that is left of them was heard."""
    found: dict[tuple[str, str], list[AnswerRow]] = {}
    for row in rows:
        if row.kind == "same-different" and row.asked:
            found.setdefault(pair_of(row), []).append(row)
    return [
        ComparedPair(
            *keys,
            some[0].fact("direction"),
            float(some[0].truth["strength"]),
            sum(bool(row.given["different"]) for row in some),
            len(some),
        )
        for keys, some in sorted(found.items())
    ]


def predict(ear: Ear, pairs: Sequence[ComparedPair], sounds: Sounds, known: Known | None = None) -> Floats:
    """P(heard) of every pair, `(pairs,)`. known: those that need not be predicted; gets those that are."""
    known = {} if known is None else known
    by_rate: dict[int, list[ComparedPair]] = {}
    for pair in pairs:
        if pair[:2] not in known:
            by_rate.setdefault(sounds(pair.reference).sample_rate, []).append(pair)
    for rate, waiting in by_rate.items():
        for first in range(0, len(waiting), AT_ONCE):
            some = waiting[first : first + AT_ONCE]
            names = [str(row) for row in range(len(some))]
            clean, changed = (
                AudioBatch.of([sounds(key).waveform.numpy() for key in keys], rate, names)
                for keys in ([pair.reference for pair in some], [pair.changed for pair in some])
            )
            with torch.no_grad():
                heard = ear.heard(clean, changed).double().cpu().tolist()
            known.update(zip([pair[:2] for pair in some], heard, strict=True))
    return np.array([known[pair[:2]] for pair in pairs], dtype=np.float64)


def calibrate(pairs: Sequence[ComparedPair], predicted: Floats) -> list[Calibration]:
    """Over all directions first, then one by one where there are several."""
    directions = sorted({pair.direction for pair in pairs})
    groups: Mapping[str, list[int]] = {
        ALL: list(range(len(pairs))),
        **(
            {name: [row for row, pair in enumerate(pairs) if pair.direction == name] for name in directions}
            if len(directions) > 1
            else {}
        ),
    }
    return [
        _calibration(name, [pairs[row] for row in rows], predicted[rows])
        for name, rows in groups.items()
        if rows
    ]


def _calibration(direction: str, pairs: Sequence[ComparedPair], predicted: Floats) -> Calibration:
    yes = np.array([pair.different for pair in pairs])
    asked = np.array([pair.asked for pair in pairs])
    place = (predicted * BINS).astype(int).clip(0, BINS - 1)
    bins = [
        Bin(
            number / BINS,
            (number + 1) / BINS,
            float(np.average(predicted[place == number], weights=asked[place == number])),
            clopper_pearson(int(yes[place == number].sum()), int(asked[place == number].sum())),
        )
        for number in sorted(set(place.tolist()))
    ]
    return Calibration(
        direction,
        len(pairs),
        float(np.average(predicted, weights=asked)),
        clopper_pearson(int(yes.sum()), int(asked.sum())),
        judge(predicted, yes, asked),
        bins,
    )
