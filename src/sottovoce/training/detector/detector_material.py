"""What detectors of pathological speech learn from: segments, embeddings, and what is done to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import SILENCE
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Defended, Transform
from sottovoce.data.load import Corpus
from sottovoce.errors import InputError
from sottovoce.targets.zoo.detector_networks import CLASSES, HOP, SAMPLE_RATE, SEGMENT, LogStft, SegmentCnn
from sottovoce.targets.zoo.detector_targets import SegmentDetector
from sottovoce.training.hardening import Adversary, pick
from sottovoce.training.sources import FULL_SCALE, ClipsInMemory, hold_clips, hold_corpus

CHUNK = 32
FEATURE_CHUNK = 512


@final
@dataclass(frozen=True, eq=False)
class Utterances:
    """Clips in memory with the speaker of each, to take the speakers of a fold from."""

    clips: ClipsInMemory
    speakers: tuple[str, ...]

    @classmethod
    def of(cls, corpus: Corpus, *, log: Callable[[str], None] = print) -> Utterances:
        """All clips of a corpus at 16 kHz; every one must name its speaker."""
        clips = hold_corpus(corpus, SAMPLE_RATE, log=log)
        known = {entry.id: entry.facts.get("speaker", "") for entry in corpus}
        speakers = tuple(known[name] for name in clips.ids)
        if not all(speakers):
            nameless = clips.ids[speakers.index("")]
            raise InputError(
                f"clip {nameless!r}: expected a speaker, got none; name one for every "
                "clip: a detector is judged on speakers that it did not learn from."
            )
        return cls(clips, speakers)

    def by(self, speakers: Iterable[str]) -> ClipsInMemory:
        """The clips of some speakers, in order."""
        wanted = set(speakers)
        return take(self.clips, [place for place, name in enumerate(self.speakers) if name in wanted])


def take(clips: ClipsInMemory, places: Sequence[int]) -> ClipsInMemory:
    """Some of the clips."""
    if not places:
        raise InputError("expected clips of the speakers asked for, got none; check their names.")
    samples = clips.samples.cpu().numpy()
    starts = np.cumsum(clips.lengths) - clips.lengths
    waveforms = [samples[starts[place] : starts[place] + clips.lengths[place]] for place in places]
    labels, ids = ([column[place] for place in places] for column in (clips.labels, clips.ids))
    return hold_clips(waveforms, labels, ids, clips.sample_rate)


def changed(clips: ClipsInMemory, transform: Transform, draws: Draws) -> ClipsInMemory:
    """The clips as a transform leaves them, once and for all, cut to [-1, 1) and rounded to 16 bits."""
    found = []
    for first in range(0, len(clips), CHUNK):
        batch = clips.batch(range(first, min(first + CHUNK, len(clips)))).batch
        with torch.no_grad():
            heard = transform(batch, draws=draws).waveforms
        steps = (heard * FULL_SCALE).round().clamp(-FULL_SCALE, FULL_SCALE - 1).to(torch.int16)
        found += [row[:length] for row, length in zip(steps, batch.lengths.tolist(), strict=True)]
    return replace(clips, samples=torch.cat(found))


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Background(Transform):
    """A recording of noise behind each clip, at an exact SNR over the clip's own length.

    recordings: waveforms `(time,)` at the clips' sample rate. Each clip gets one, from a drawn place on,
        again and again where it is too short.
    """

    recordings: tuple[NDArray[np.float32], ...]
    snr_db: float = 15.0

    random = True

    def __post_init__(self) -> None:
        if not self.recordings or any(one.ndim != 1 or not one.any() for one in self.recordings):
            raise InputError(
                "expected recordings of noise (time,), got none, a silent one or another shape; give at "
                "least one that can be heard."
            )

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        noise = np.zeros(tuple(batch.waveforms.shape))
        for row, (name, length) in enumerate(zip(batch.ids, batch.lengths.tolist(), strict=True)):
            source = draws.generator(name)
            recording = self.recordings[int(source.integers(len(self.recordings)))]
            place = int(source.integers(len(recording)))
            piece = np.take(recording.astype(np.float64), range(place, place + length), mode="wrap")
            noise[row, :length] = piece / max(np.linalg.norm(piece), np.finfo(np.float64).tiny)
        level = batch.length_l2.maximum(SILENCE * batch.lengths.double().sqrt())
        scaled: Tensor = (
            torch.from_numpy(noise).to(batch.device) * (level * 10.0 ** (-self.snr_db / 20.0))[:, None]
        )
        noisy: Tensor = batch.waveforms + scaled.to(batch.waveforms)
        return noisy


class Lessons(ABC):
    """Items to learn from or to judge by, and what a network makes of them.

    wanted: the place of each item's class, `(items,)` int64, on the device of the network.
    """

    wanted: Tensor

    @abstractmethod
    def scores(self, module: nn.Module, rows: Tensor, draws: Draws) -> Tensor:
        """Logits `(rows, 2)` of some items, by the module in the mode it is in."""


@final
@dataclass(frozen=True, eq=False)
class Held(Lessons):
    """Inputs of a network that never change, computed once."""

    inputs: Tensor
    wanted: Tensor
    read: Callable[[nn.Module, Tensor], Tensor]

    def scores(self, module: nn.Module, rows: Tensor, draws: Draws) -> Tensor:
        return self.read(module, self.inputs[rows])


@final
@dataclass(frozen=True, eq=False)
class Sounds(Lessons):
    """Segments that are attacked, or get fresh noise, each time they are used.

    segments: int16 `(items, 8000)`. A share of each batch is attacked and the rest of it stays clean; the
    noise comes last, as a smoothed detector adds it to whatever it is given.
    """

    segments: Tensor
    wanted: Tensor
    ids: tuple[str, ...]
    adversary: Adversary | None = None
    smoothing: Transform | None = None

    def scores(self, module: nn.Module, rows: Tensor, draws: Draws) -> Tensor:
        batch = self._batch(rows)
        if self.adversary is not None:
            target = SegmentDetector(_segment_cnn(module))
            known = Defended(target, (self.smoothing,)) if self.smoothing else target
            labels = [CLASSES[place] for place in self.wanted[rows].tolist()]
            attacked = pick(len(batch), self.adversary.share.at(0.0), draws)
            batch = self.adversary.disturb(known, batch, labels, attacked, draws.turn("adversary"))
        if self.smoothing is not None:
            batch = self.smoothing(batch, draws=draws.turn("noise"))
        scores: Tensor = module(batch.waveforms)
        return scores

    def _batch(self, rows: Tensor) -> AudioBatch:
        waveforms = self.segments[rows].float() / FULL_SCALE
        lengths = torch.full((len(waveforms),), SEGMENT, device=waveforms.device)
        return AudioBatch(waveforms, lengths, SAMPLE_RATE, tuple(self.ids[row] for row in rows.tolist()))


def cut_segments(clips: ClipsInMemory, device: str) -> Sounds:
    """Every segment that lies wholly inside a clip."""
    starts = np.cumsum(clips.lengths) - clips.lengths
    pieces, wanted, ids = [], [], []
    for start, length, label, name in zip(starts, clips.lengths, clips.labels, clips.ids, strict=True):
        segments = clips.samples[start : start + length].unfold(0, SEGMENT, HOP)
        pieces.append(segments)
        wanted += [CLASSES.index(label)] * len(segments)
        ids += [f"{name}#{place}" for place in range(len(segments))]
    return Sounds(torch.cat(pieces).to(device), torch.tensor(wanted, device=device), tuple(ids))


def hold_features(sounds: Sounds) -> Held:
    """The inputs of a `SegmentCnn`, which do not change where the audio does not."""
    stft = LogStft().to(sounds.segments.device)
    parts = [stft(some.float() / FULL_SCALE) for some in torch.split(sounds.segments, FEATURE_CHUNK)]
    return Held(torch.cat(parts), sounds.wanted, lambda module, rows: _segment_cnn(module).classify(rows))


def _segment_cnn(module: nn.Module) -> SegmentCnn:
    assert isinstance(module, SegmentCnn)
    return module
