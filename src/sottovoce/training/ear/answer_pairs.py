"""Answers as training data: pairs of clips on a device, and how often each was called different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.draws import Draws
from sottovoce.core.resampling import resample_clips
from sottovoce.data.pack import FULL_SCALE, Pack
from sottovoce.perception.ears.learned_network import SAMPLE_RATE
from sottovoce.perception.jnd.answers import Answers, SameDifferentAnswer, split_speakers

SILENCE_SECONDS = 0.25
LARGEST_SHIFT_SECONDS = 0.001
"""Clips with a delay below this sound the same."""
GAIN_DB = 3.0


class PaddedClips(NamedTuple):
    """Clips `(batch, time)` at 16 kHz, zero past their lengths `(batch,)`."""

    waveforms: Tensor
    lengths: Tensor


@final
@dataclass(frozen=True)
class Store:
    """The clips of a pack on a device, in 16 bits, to be taken by their places."""

    samples: Tensor
    starts: Tensor
    lengths: Tensor
    sample_rate: int

    @classmethod
    def of(cls, pack: Pack, device: torch.device) -> Store:
        starts, lengths = (torch.from_numpy(np.asarray(array)) for array in (pack.starts, pack.lengths))
        samples = torch.from_numpy(np.asarray(pack.samples))
        return cls(samples.to(device), starts.to(device), lengths.to(device), pack.sample_rate)

    def take(self, places: Tensor, before: Tensor | None = None, after: Tensor | None = None) -> PaddedClips:
        """Clips by their places `(batch,)`, with silence before and after, in samples `(batch,)`."""
        none = torch.zeros_like(places)
        before, after = none if before is None else before, none if after is None else after
        own, starts = self.lengths[places], self.starts[places]
        lengths = own + before + after
        steps = torch.arange(int(lengths.max()), device=places.device) - before[:, None]
        inside = (steps >= 0) & (steps < own[:, None])
        taken = self.samples[(starts[:, None] + steps).clamp(0, len(self.samples) - 1)]
        waveforms = (taken.float() / FULL_SCALE).masked_fill(~inside, 0.0)
        return PaddedClips(*resample_clips(waveforms, lengths, self.sample_rate, SAMPLE_RATE))


@final
@dataclass(frozen=True)
class AnswerPairs:
    """Pairs of clips that differ, each once.

    clean, changed: places in the store, `(pairs,)`. different, asked: answers `(pairs,)` float.
    groups: a number for each reference and direction, `(pairs,)`; strengths: along it, NaN if not known.
    """

    store: Store
    clean: Tensor
    changed: Tensor
    different: Tensor
    asked: Tensor
    groups: Tensor
    strengths: Tensor

    def __len__(self) -> int:
        return len(self.clean)

    def sounds(self, rows: Tensor) -> tuple[PaddedClips, PaddedClips]:
        """Clean and changed clips as they are."""
        return self.store.take(self.clean[rows]), self.store.take(self.changed[rows])

    def varied(self, rows: Tensor, source: np.random.Generator) -> tuple[PaddedClips, PaddedClips]:
        """Both clips of a pair changed alike: a quarter of a second of silence before or after (section 3.3
        of the paper), another place among the frames, a little gain, and polarity."""
        device, rate = rows.device, self.store.sample_rate
        place = source.integers(0, 3, len(rows))
        silence = round(SILENCE_SECONDS * rate)
        offset = source.integers(0, rate // 100, len(rows))
        before = torch.from_numpy(offset + silence * (place == 1)).to(device)
        after = torch.from_numpy(silence * (place == 2)).to(device)
        gain = 10 ** (source.uniform(-GAIN_DB, GAIN_DB, len(rows)) / 20) * source.choice([-1, 1], len(rows))
        factor = torch.from_numpy(gain.astype(np.float32)).to(device)[:, None]
        found = (self.store.take(places[rows], before, after) for places in (self.clean, self.changed))
        clean, changed = (PaddedClips(factor * one.waveforms, one.lengths) for one in found)
        return clean, changed


def make_pairs(answers: Answers, rows: Sequence[int], store: Store) -> AnswerPairs:
    """The answers of some rows by pairs. A clip against itself teaches nothing: its distance is 0."""
    counts: dict[tuple[str, str], list[int]] = {}
    told: dict[tuple[str, str], SameDifferentAnswer] = {}
    for row in rows:
        one = answers.answers[row]
        key = (one.reference, one.changed)
        if one.reference == one.changed:
            continue
        told.setdefault(key, one)
        count = counts.setdefault(key, [0, 0])
        count[0] += one.different
        count[1] += 1
    names = sorted(counts)
    lines = {line: place for place, line in enumerate(sorted({_line(told[name]) for name in names}))}

    def column(values: list[float] | list[int], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=store.samples.device)

    strengths = [told[name].strength for name in names]
    return AnswerPairs(
        store,
        column([answers.places[reference] for reference, _ in names], torch.int64),
        column([answers.places[changed] for _, changed in names], torch.int64),
        column([counts[name][0] for name in names], torch.float32),
        column([counts[name][1] for name in names], torch.float32),
        column([lines[_line(told[name])] for name in names], torch.int64),
        column([float("nan") if one is None else one for one in strengths], torch.float32),
    )


def _line(answer: SameDifferentAnswer) -> tuple[str, str]:
    """What a pair's strength is counted along."""
    return answer.reference, answer.direction


def split_rows(answers: Answers) -> dict[str, list[int]]:
    """Rows of "train", "valid" and "test" by speaker; by reference where that leaves one empty."""
    found = {name: answers.rows(name) for name in ("train", "valid", "test")}
    if found["train"] and found["valid"]:
        return found
    names = sorted({one.reference for one in answers.answers})
    splits = split_speakers(names)
    if len(names) == 2:
        splits[names[-1]] = "valid"
    drawn: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    for row, one in enumerate(answers.answers):
        drawn[splits[one.reference]].append(row)
    return drawn


@final
class Sampler:
    """Batches of pairs that come two by two from one reference and direction, so that they can be ordered."""

    def __init__(self, pairs: AnswerPairs) -> None:
        groups = pairs.groups.cpu().numpy()
        order = np.argsort(groups, kind="stable")
        self._members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
        sizes = np.array([len(members) for members in self._members], dtype=np.float64)
        # A group is drawn as often as it has pairs, so that pairs come up alike.
        self._odds = sizes / sizes.sum()
        self._device = pairs.clean.device

    def draw(self, size: int, source: np.random.Generator) -> Tensor:
        """Rows `(size,)`; row 2k and row 2k + 1 are of one group, and equal where it has but one pair."""
        chosen = source.choice(len(self._members), size=size // 2, p=self._odds)
        rows = [_two(self._members[group], source) for group in chosen]
        return torch.from_numpy(np.concatenate(rows)).to(self._device)


def _two(members: NDArray[np.int64], source: np.random.Generator) -> NDArray[np.int64]:
    return source.choice(members, size=2, replace=len(members) < 2)


def shifted(sound: PaddedClips, rows: int, draws: Draws) -> tuple[PaddedClips, PaddedClips]:
    """The first clips of a batch, and themselves a moment later: up to a millisecond."""
    width = sound.waveforms.shape[1]
    most = max(1, round(LARGEST_SHIFT_SECONDS * SAMPLE_RATE))
    shift = int(draws.generator("shift").integers(1, most + 1))
    some = PaddedClips(sound.waveforms[:rows], sound.lengths[:rows])
    inside = torch.arange(width, device=sound.waveforms.device) < some.lengths[:, None]
    later = torch.nn.functional.pad(some.waveforms, (shift, 0))[:, :width].masked_fill(~inside, 0.0)
    return some, PaddedClips(later, some.lengths)
