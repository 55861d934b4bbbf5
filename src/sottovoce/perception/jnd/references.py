"""References for a listening test: short pieces of real speech, cut where there is some."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.core.draws import Draws
from sottovoce.data.load import Clip, Corpus, Entry
from sottovoce.data.pack import FULL_SCALE
from sottovoce.errors import InputError
from sottovoce.perception.jnd.answers import split_speakers

TRIES = 8
FADE_SECONDS = 0.005
SOFTEST_RMS = 10 ** (-55 / 20)
"""Speech that is softer is taken for silence, which nobody can be asked about."""
LOUDEST_PEAK = 0.95


class Reference(NamedTuple):
    """A piece of speech with the split of its speaker."""

    clip: Clip
    split: str


@final
@dataclass(frozen=True, kw_only=True)
class Cut:
    """How references are cut. seconds: how long. rms_db: how loud, re. full scale, as peaks allow."""

    seconds: tuple[float, float] = (1.0, 2.0)
    rms_db: tuple[float, float] = (-35.0, -18.0)
    sample_rate: int = 16_000

    def __post_init__(self) -> None:
        if not 0.1 <= self.seconds[0] <= self.seconds[1]:
            raise InputError(
                f"seconds: expected a shortest and a longest length from 0.1 s on, got {self.seconds}; give "
                "the shorter one first."
            )

    def piece(self, clip: Clip, name: str, draws: Draws) -> Clip | None:
        """A piece of a clip on the 16-bit grid, with faded ends; None where there is nothing to hear."""
        source = draws.turn("cut").generator(name)
        speech = clip.waveform.double().numpy()
        size = min(int(source.uniform(*self.seconds) * self.sample_rate), len(speech))
        starts = source.integers(0, len(speech) - size + 1, TRIES)
        pieces = [speech[start : start + size] for start in starts]
        # The first that is about as loud as the whole clip, else the loudest.
        loud = [one for one in pieces if _rms(one) >= 0.7 * _rms(speech)] or [max(pieces, key=_rms)]
        if size < self.seconds[0] * self.sample_rate / 2 or _rms(loud[0]) < SOFTEST_RMS:
            return None
        wanted = 10 ** (source.uniform(*self.rms_db) / 20) / _rms(loud[0])
        made = _fade(loud[0] * min(wanted, LOUDEST_PEAK / np.abs(loud[0]).max()), self.sample_rate)
        grid = torch.from_numpy((np.rint(made * FULL_SCALE) / FULL_SCALE).astype(np.float32))
        return Clip(name, grid, self.sample_rate, clip.label, clip.loaded, clip.facts)


def cut_references(corpora: Sequence[Corpus], count: int, cut: Cut, draws: Draws) -> list[Reference]:
    """So many references, from each corpus as many as from any other, over all of its clips in turn."""
    splits = split_speakers(speaker_of(corpus, entry) for corpus in corpora for entry in corpus)
    found: list[Reference] = []
    turns = _turns(corpora, draws.turn("order"))
    for tries, (corpus, entry) in enumerate(turns):
        if len(found) == count:
            break
        if tries > 4 * count + 100:
            raise InputError(
                f"expected {count} pieces with speech in them, got {len(found)} in {tries} tries; give "
                "longer or louder clips."
            )
        # A piece of a second or two is cut from it, so any length will do.
        clip = corpus.load(entry, cut.sample_rate, math.inf)
        piece = cut.piece(clip, f"r{len(found):05d}", draws.turn(tries))
        if piece is not None:
            speaker = speaker_of(corpus, entry)
            facts = {**piece.facts, "speaker": speaker}
            label = f"{corpus.name}/{entry.id}"
            clip = Clip(piece.id, piece.waveform, piece.sample_rate, label, piece.loaded, facts)
            found.append(Reference(clip, splits[speaker]))
    return found


def speaker_of(corpus: Corpus, entry: Entry) -> str:
    """Who speaks, told apart between corpora; where it is not known, what comes before "_" in the name.

    That is the speaker in Speech Commands, and elsewhere keeps takes of one thing together.
    """
    speaker = entry.facts.get("speaker") or entry.id.rpartition("/")[2].partition("_")[0]
    return f"{corpus.name.partition('-')[0]}/{speaker}"


def _turns(corpora: Sequence[Corpus], draws: Draws) -> Iterator[tuple[Corpus, Entry]]:
    """Corpora in turn, the clips of each in a drawn order, again and again."""
    orders = [_shuffled(corpus, draws.turn(place)) for place, corpus in enumerate(corpora)]
    while corpora:
        for corpus, order in zip(corpora, orders, strict=True):
            yield corpus, next(order)


def _shuffled(corpus: Iterable[Entry], draws: Draws) -> Iterator[Entry]:
    entries = list(corpus)
    lap = 0
    while True:
        for place in draws.generator(f"lap {lap}").permutation(len(entries)).tolist():
            yield entries[place]
        lap += 1


def _rms(samples: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(samples**2)))


def _fade(samples: NDArray[np.float64], sample_rate: int) -> NDArray[np.float64]:
    size = min(round(FADE_SECONDS * sample_rate), len(samples) // 2)
    ramp = np.ones(len(samples))
    rise = np.sin(0.5 * np.pi * (np.arange(size) + 0.5) / size) ** 2 if size else np.ones(0)
    ramp[:size], ramp[len(samples) - size :] = rise, rise[::-1]
    return samples * ramp
