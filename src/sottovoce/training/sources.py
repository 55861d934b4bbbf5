"""Sources of batches: clips held in memory, or strings of words put together at random each time."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.core.transform import Transform
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Corpus
from sottovoce.errors import InputError
from sottovoce.training.recogniser.recogniser_errors import JudgedClips, listen
from sottovoce.training.recogniser.recogniser_pack import load_pack
from sottovoce.training.recogniser.word_strings import SAMPLE_RATE, ItemBank, Style, draw_plan, render

FULL_SCALE = 32768.0
CHUNK = 256
# Widths of batches are rounded up to half seconds: few sizes make for few plans of the Fourier transform.
WIDTH_MULTIPLE = 8_000
VALID_STRINGS = 200
MOST_SHARED = 0.02
"""Largest share of validation clips that may also be training clips."""
STRING_PEAK = 0.9
"""About that of the strings that come with sottovoce."""


@final
@dataclass(frozen=True, eq=False)
class Labelled:
    """A batch, and what each of its clips says or is."""

    batch: AudioBatch
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: Sequence[int]) -> Labelled:
        return Labelled(self.batch.select(rows), tuple(self.labels[row] for row in rows))


@final
@dataclass(frozen=True, eq=False)
class ClipsInMemory:
    """Clips of different lengths in memory: clip `i` is the next `lengths[i]` of `samples`.

    samples: int16 `(all,)`, on the device that batches are wanted on. lengths: int64 `(n,)`, on the CPU.
    """

    samples: Tensor
    lengths: NDArray[np.int64]
    labels: tuple[str, ...]
    ids: tuple[str, ...]
    sample_rate: int
    name: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def sounds(self) -> tuple[str, ...]:
        """A hash of each clip's samples; nothing for a clip of zeros, which is no clip in particular."""
        rows = np.split(self.samples.cpu().numpy(), np.cumsum(self.lengths)[:-1])
        return tuple(sha256(row.tobytes()).hexdigest() if row.any() else "" for row in rows)

    def describe(self) -> dict[str, Any]:
        """Which clips these are, for a report and a checkpoint."""
        return _describe(self.name, zip(self.ids, self.labels, self.sounds, strict=True))

    def to(self, device: torch.device | str) -> ClipsInMemory:
        return replace(self, samples=self.samples.to(device))

    def batch(self, places: Sequence[int]) -> Labelled:
        """The clips at the places, padded with zeros."""
        device = self.samples.device
        starts = (np.cumsum(self.lengths) - self.lengths)[list(places)]
        lengths = torch.as_tensor(self.lengths[list(places)]).to(device)
        time = torch.arange(int(self.lengths[list(places)].max()), device=device)
        index = torch.as_tensor(starts).to(device)[:, None] + time
        sound = self.samples[index.clamp_max(len(self.samples) - 1)].float() / FULL_SCALE
        waveforms = sound.masked_fill(time >= lengths[:, None], 0.0)
        batch = AudioBatch(waveforms, lengths, self.sample_rate, tuple(self.ids[place] for place in places))
        return Labelled(batch, tuple(self.labels[place] for place in places))

    def in_order(self, size: int) -> Iterator[Labelled]:
        for first in range(0, len(self), size):
            yield self.batch(range(first, min(first + size, len(self))))

    def some(self, count: int, draws: Draws) -> list[int]:
        """Places of at most `count` clips, drawn at random, in order."""
        return sorted(draws.generator("some").permutation(len(self))[:count].tolist())


def hold_clips(
    waveforms: Sequence[NDArray[np.int16]],
    labels: Sequence[str],
    ids: Sequence[str],
    sample_rate: int,
    name: str = "",
) -> ClipsInMemory:
    """Single clips, int16 `(time,)`, in memory. name: of the corpus, for reports."""
    lengths = np.array([len(waveform) for waveform in waveforms], dtype=np.int64)
    samples = torch.from_numpy(np.concatenate(waveforms))
    return ClipsInMemory(samples, lengths, tuple(labels), tuple(ids), sample_rate, name)


def hold_corpus(corpus: Corpus, sample_rate: int, *, log: Callable[[str], None] = print) -> ClipsInMemory:
    """A corpus in memory at a sample rate; a clip that cannot be read is named and left out."""
    found = []
    for clips, failures in corpus.chunks(CHUNK, sample_rate):
        found += clips
        for failure in failures:
            log(f"left out {failure.id}: {failure.reason}")
    if not found:
        raise InputError(
            f"corpus {corpus.name!r}: expected clips that can be read, got none; check the files."
        )
    waveforms = [(clip.waveform.numpy() * FULL_SCALE).astype(np.int16) for clip in found]
    labels, ids = [clip.label for clip in found], [clip.id for clip in found]
    return hold_clips(waveforms, labels, ids, sample_rate, corpus.name)


def hold_heard(heard: JudgedClips) -> ClipsInMemory:
    """Rendered clips in memory, rounded to 16 bits."""
    steps = (heard.waveforms * FULL_SCALE).round().clamp(-FULL_SCALE, FULL_SCALE - 1).to(torch.int16)
    waveforms = [row[:length].numpy() for row, length in zip(steps, heard.lengths.tolist(), strict=True)]
    ids = [f"string-{place:05d}" for place in range(len(waveforms))]
    return hold_clips(waveforms, heard.texts, ids, SAMPLE_RATE, "strings")


def check_clips(clips: ClipsInMemory, target: Target, what: str) -> None:
    """Refuse clips that the target cannot hear or name."""
    if clips.sample_rate != target.sample_rate:
        raise InputError(
            f"expected {what} clips at {target.sample_rate} Hz, got {clips.sample_rate} Hz; load them at the "
            "model's rate."
        )
    target.check_labels(sorted(set(clips.labels)))
    longest = target.longest or int(clips.lengths.max())
    for place in (int(clips.lengths.argmin()), int(clips.lengths.argmax())):
        if not target.shortest <= int(clips.lengths[place]) <= longest:
            raise InputError(
                f"{what} clip {clips.ids[place]!r}: expected {target.shortest} to {longest} samples at "
                f"{target.sample_rate} Hz, got {int(clips.lengths[place])}; cut it or drop it."
            )
    if target.says == "class" and what == "training" and len(set(clips.labels)) < 2:
        raise InputError(
            f"expected training clips of two classes or more, got {len(clips)} of {clips.labels[0]!r} only; "
            "add clips of another class."
        )


def check_apart(train: ClipsInMemory, valid: ClipsInMemory, log: Callable[[str], None] = print) -> None:
    """Refuse validation clips that are also training clips, under whatever name; a few copies, which
    published corpora have as well, only give a warning."""
    heard = {sound for sound in train.sounds if sound}
    shared = [name for name, sound in zip(valid.ids, valid.sounds, strict=True) if sound in heard]
    count = f"{len(shared)} of {len(valid)}"
    if len(shared) > MOST_SHARED * len(valid):
        raise InputError(
            f"{count} validation clips are also training clips, such as {shared[0]!r}; name another corpus "
            "with "
            "--valid, or remove them from one of the two."
        )
    if shared:
        log(f"warning: {count} validation clips are also training clips, such as {shared[0]!r}")


def _describe(name: str, rows: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """A name, the number of clips, and a hash of everything known of them."""
    told = list(rows)
    return {"name": name, "clips": len(told), "hash": sha256(json.dumps(told).encode()).hexdigest()[:16]}


class Source(ABC):
    """Batches without end, an epoch at a time."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Which clips there are, for a report and a checkpoint: `name`, `clips` and `hash`."""

    @abstractmethod
    def to(self, device: torch.device | str) -> Source:
        """The same batches on a device."""

    @abstractmethod
    def steps(self, size: int) -> int:
        """Batches in an epoch."""

    @abstractmethod
    def batches(self, size: int, draws: Draws) -> Iterator[Labelled]:
        """The batches of an epoch, of at most `size` clips; the same draws give the same batches."""


@final
@dataclass(frozen=True, eq=False)
class ClipSource(Source):
    """Every clip once per epoch, in a random order.

    change: what happens to clips each time, such as `Jitter`; None leaves them as they are.
    """

    clips: ClipsInMemory
    change: Transform | None = None

    def describe(self) -> dict[str, Any]:
        return self.clips.describe()

    def to(self, device: torch.device | str) -> ClipSource:
        return replace(self, clips=self.clips.to(device))

    def steps(self, size: int) -> int:
        return -(-len(self.clips) // size)

    def batches(self, size: int, draws: Draws) -> Iterator[Labelled]:
        order = draws.generator("order").permutation(len(self.clips)).tolist()
        for first in range(0, len(order), size):
            drawn = self.clips.batch(order[first : first + size])
            yield _changed(drawn, self.change, draws.turn("change"))


@final
@dataclass(frozen=True, eq=False)
class StringSource(Source):
    """Strings of recorded words and sentences of synthetic voices, no two alike; an epoch is a number of
    batches.

    sentence_share: how much of a batch is sentences.
    """

    bank: ItemBank
    style: Style = field(default_factory=Style)
    sentence_share: float = 0.5
    epoch_steps: int = 200
    change: Transform | None = None

    def describe(self) -> dict[str, Any]:
        bank = self.bank
        return _describe("strings", zip(bank.texts, map(str, bank.lengths), strict=True))

    def to(self, device: torch.device | str) -> StringSource:
        bank = copy(self.bank)
        bank.samples = bank.samples.to(device)
        return replace(self, bank=bank)

    def steps(self, size: int) -> int:
        return self.epoch_steps

    def batches(self, size: int, draws: Draws) -> Iterator[Labelled]:
        sentences = round(size * self.sentence_share) if len(self.bank.sentences) else 0
        ids = tuple(str(row) for row in range(size))
        for step in range(self.epoch_steps):
            turn = draws.turn("batch", step)
            plan = draw_plan(
                self.bank, turn.generator("plan"), self.style, strings=size - sentences, sentences=sentences
            )
            waveforms, lengths = render(self.bank, plan, multiple=WIDTH_MULTIPLE)
            batch = AudioBatch(_levelled(waveforms), lengths, SAMPLE_RATE, ids)
            yield _changed(Labelled(batch, plan.texts), self.change, turn.turn("change"))


def open_strings(folder: Path, change: Transform | None = None) -> tuple[StringSource, ClipsInMemory]:
    """What the embedded recogniser is trained on, a folder of part-N.npz: its batches, and strings of other
    words to judge by."""
    data = load_pack(folder)
    missing = {"train", "valid"} - set(data.split.tolist())
    if missing:
        raise InputError(f"{folder} has no {' and no '.join(sorted(missing))} items; pack all three splits.")
    train, valid = (ItemBank(data.part(data.split == split)) for split in ("train", "valid"))
    style = Style(sentences=(1, 2), speed=(0.88, 1.14))
    heard = listen(valid, strings=VALID_STRINGS)
    judged = replace(heard, waveforms=_levelled(heard.waveforms))
    return StringSource(train, style, change=change), hold_heard(judged)


def open_clips(
    data: str,
    valid: str | None,
    sample_rate: int,
    change: Transform | None = None,
    *,
    settle: Callable[[Corpus], Corpus] = lambda corpus: corpus,
    log: Callable[[str], None] = print,
) -> tuple[Source, ClipsInMemory]:
    """Training batches and validation clips by name: two corpora that share no clip, or one folder of
    part-N.npz.

    settle: handles labels that the model does not know, before any clip is read.
    """
    folder = Path(data).expanduser()
    if folder.is_dir() and any(folder.glob("part-*.npz")):
        if valid is None:
            return open_strings(folder, change)
        judged = hold_corpus(settle(open_corpus(valid)), sample_rate, log=log)
        return open_strings(folder, change)[0], judged
    if valid is None:
        raise InputError(
            f"{data!r} needs validation clips beside it: add --valid with a corpus that is not trained on, "
            "such as "
            "pack:FILE.npz#valid."
        )
    settled = [settle(open_corpus(spec)) for spec in (data, valid)]
    train, judged = (hold_corpus(corpus, sample_rate, log=log) for corpus in settled)
    check_apart(train, judged, log)
    return ClipSource(train, change), judged


def _levelled(waveforms: Tensor) -> Tensor:
    """Rows `(rows, time)` with one peak: noise has an absolute level, so clips must have one too."""
    return waveforms * (STRING_PEAK / waveforms.abs().amax(dim=1, keepdim=True).clamp_min(1e-8))


def _changed(drawn: Labelled, change: Transform | None, draws: Draws) -> Labelled:
    return Labelled(change(drawn.batch, draws=draws), drawn.labels) if change else drawn


@final
@dataclass(frozen=True, kw_only=True)
class Jitter(Transform):
    """A clip at another level and a little earlier or later, with zeros where it was: light augmentation.

    gain_db: from and to. shift_seconds: at most so much either way.
    """

    gain_db: tuple[float, float] = (-6.0, 6.0)
    shift_seconds: float = 0.1

    random = True

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        fractions = draws.fractions(batch, 2)
        low, high = self.gain_db
        gain = 10.0 ** ((low + (high - low) * fractions[:, :1]) / 20.0)
        most = self.shift_seconds * batch.sample_rate
        shift = ((2.0 * fractions[:, 1:] - 1.0) * most).round().long()
        place = torch.arange(batch.waveforms.shape[1], device=batch.device) - shift
        inside = (place >= 0) & (place < batch.lengths[:, None])
        moved = batch.waveforms.gather(1, place.clamp(0, batch.waveforms.shape[1] - 1)) * inside
        return (moved * gain).clamp(-1.0, 1.0)
