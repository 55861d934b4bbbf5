"""Same or different: the searches for just noticeable differences, and the answers as a metric learns them.

What is reported is that of Manocha et al. 2020, section 3.2: how often "same" and "different" were said, and
how many answers agree with the JND that was found at the end.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import soundfile
import torch

from sottovoce.core.statistics import Interval, ratio_bootstrap
from sottovoce.data.load import Clip
from sottovoce.errors import InputError
from sottovoce.listening.analysis.answer_rows import AnswerRow
from sottovoce.listening.analysis.counted_answers import ALL
from sottovoce.listening.study.sound_keys import source_of
from sottovoce.listening.study.study_file import ListeningStudy
from sottovoce.perception.jnd.answers import AnswerSummary, SameDifferentAnswer, write_answers
from sottovoce.perception.jnd.jnd_rule import Balance, JndEstimate, JndTrial, agreement, balance, estimate
from sottovoce.perception.jnd.simulated_listeners import PREFIX

Sounds = Callable[[str], Clip]
"""The clip of a key, as listeners heard it."""
HELD = 512
"""Clips that are kept in memory."""


class Files(Protocol):
    """What is needed of a `Shelf`."""

    def wav(self, key: str) -> bytes: ...


class Search(NamedTuple):
    """One listener's answers along one direction from one reference, in order, and what they say."""

    session: str
    reference: str
    direction: str
    trials: tuple[JndTrial, ...]
    found: JndEstimate


class Jnds(NamedTuple):
    """All searches of a direction and a reference; "all" is over all of them.

    mu: mean of the JNDs that are determined, with a bootstrap over listeners. pooled: the JND of all answers
    as if of one listener; None over all directions, whose strengths are no one scale.
    """

    direction: str
    reference: str
    searches: int
    undetermined: int
    mu: Interval
    pooled: JndEstimate | None
    balance: Balance
    agreement: float


def sounds_of(shelf: Files, study: ListeningStudy) -> Sounds:
    """The clips on a shelf, silence at the end and all; with the speaker of the clip they are made from."""

    @lru_cache(maxsize=HELD)
    def sound(key: str) -> Clip:
        samples, rate = soundfile.read(io.BytesIO(shelf.wav(key)), dtype="float32")
        source = study.clips.get(source_of(key))
        speaker = source.facts.get("speaker", "") if source is not None else ""
        return Clip(key, torch.from_numpy(samples), int(rate), "", facts={"speaker": speaker})

    return sound


def read_searches(rows: Sequence[AnswerRow]) -> list[Search]:
    """Searches in rows that count, one a session and track."""
    trials: dict[tuple[str, int, str], list[AnswerRow]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        if row.kind == "same-different" and row.asked:
            trials.setdefault((row.session, row.block, row.fact("track")), []).append(row)
    return [_search(some) for _, some in sorted(trials.items())]


def summarise(searches: Sequence[Search]) -> list[Jnds]:
    """Over everything first, then by direction, and by reference where a direction has several."""
    if not searches:
        return []
    found = [_jnds(ALL, ALL, searches)]
    for direction in sorted({one.direction for one in searches}):
        some = [one for one in searches if one.direction == direction]
        references = sorted({one.reference for one in some})
        found.append(_jnds(direction, ALL if len(references) > 1 else references[0], some))
        if len(references) > 1:
            found += [_jnds(direction, name, [o for o in some if o.reference == name]) for name in references]
    return found


def pair_of(row: AnswerRow) -> tuple[str, str]:
    """Keys of the reference and of the changed clip of a comparison."""
    side = str(row.truth["reference"])
    return row.clip(side), row.clip({"first": "second", "second": "first"}[side])


def to_answers(rows: Iterable[AnswerRow]) -> list[SameDifferentAnswer]:
    """Comparisons and sentinels of accepted sessions, as the metric's training reads them."""
    found = []
    for row in rows:
        if row.kind != "same-different" or row.teaching or not row.accepted:
            continue
        reference, changed = pair_of(row)
        strength = row.truth.get("strength")
        found.append(
            SameDifferentAnswer(
                listener=f"{PREFIX}{row.session}" if row.simulated else row.session,
                simulated=row.simulated,
                reference=reference,
                changed=changed,
                different=bool(row.given["different"]),
                strength=None if strength is None or row.sentinel else float(strength),
                direction="" if row.sentinel else row.fact("direction"),
                sentinel=row.sentinel,
                dither=row.dither,
            )
        )
    return found


def export(rows: Iterable[AnswerRow], sounds: Sounds, folder: Path) -> AnswerSummary:
    """Write an answers folder for `sottovoce metric train`; the clips are those that were heard, without
    dither."""
    answers = to_answers(rows)
    if not answers:
        raise InputError(
            "there are no same-different answers of accepted sessions to export; the study needs such a "
            "block, "
            "and a listener who has finished it."
        )
    keys = sorted({key for one in answers for key in (one.reference, one.changed)})
    return write_answers(folder, answers, [sounds(key) for key in keys]).summary()


def _search(rows: Sequence[AnswerRow]) -> Search:
    trials = tuple(JndTrial(float(row.truth["strength"]), bool(row.given["different"])) for row in rows)
    first = rows[0]
    return Search(first.session, pair_of(first)[0], first.fact("direction"), trials, estimate(trials))


def _jnds(direction: str, reference: str, searches: Sequence[Search]) -> Jnds:
    known = [one for one in searches if not one.found.undetermined]
    trials = [trial for one in searches for trial in one.trials]
    agreeing = sum(agreement(one.trials, one.found.mu) * len(one.trials) for one in searches)
    return Jnds(
        direction,
        reference,
        len(searches),
        len(searches) - len(known),
        ratio_bootstrap(
            np.array([[one.found.mu, 1.0] for one in known]).reshape(-1, 2),
            groups=[one.session for one in known],
        ),
        None if direction == ALL else estimate(trials),
        balance(trials),
        agreeing / len(trials),
    )
