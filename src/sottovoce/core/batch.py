"""Audio on its way through the system: the only thing that carries waveforms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sottovoce.errors import InputError

PASS = "\x1f"
"""Stands between the name of a clip and the number of the pass over it."""


@dataclass(frozen=True, eq=False)
class AudioBatch:
    """Mono clips of one sample rate, padded with zeros at the end.

    waveforms: `(batch, time)` float in [-1, 1], zero past each length.
    lengths: `(batch,)` int64, in samples.
    ids: one name a clip, all different; random draws and records hang on them.
    """

    waveforms: Tensor
    lengths: Tensor
    sample_rate: int
    ids: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_shapes(self)
        _check_values(self)

    @classmethod
    def of(cls, clips: Sequence[ArrayLike], sample_rate: int, ids: Sequence[str] | None = None) -> AudioBatch:
        """Pad single clips, each `(time,)`, into one batch. Ids default to the positions."""
        if not clips:
            raise InputError("expected at least one clip, got none; give one waveform per clip.")
        rows = [torch.as_tensor(np.asarray(clip)).detach().to(torch.float32) for clip in clips]
        for position, row in enumerate(rows):
            if row.ndim != 1:
                raise InputError(
                    f"expected mono clips of shape (time,), got {tuple(row.shape)} at position {position}; "
                    "mix stereo down to one channel first."
                )
        names = tuple(ids) if ids is not None else tuple(str(position) for position in range(len(rows)))
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        return cls(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths, sample_rate, names)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def device(self) -> torch.device:
        return self.waveforms.device

    @cached_property
    def ragged(self) -> bool:
        """Whether any clip is shorter than the widest one."""
        return bool((self.lengths < self.waveforms.shape[1]).any())

    @cached_property
    def mask(self) -> Tensor:
        """`(batch, time)` bool: true where there is audio, false in the padding."""
        return torch.arange(self.waveforms.shape[1], device=self.device) < self.lengths[:, None]

    @cached_property
    def length_l2(self) -> Tensor:
        """Euclidean length of each clip, `(batch,)` float64."""
        length: Tensor = torch.linalg.vector_norm(self.waveforms.detach().double(), dim=1)
        return length

    @cached_property
    def peak(self) -> Tensor:
        """Largest magnitude of each clip, `(batch,)` float64."""
        return self.waveforms.detach().double().abs().amax(dim=1)

    def with_waveforms(self, waveforms: Tensor) -> AudioBatch:
        """The same clips with other samples, `(batch, time)`; energy and gradient in the padding are cut.

        Values are not checked or clamped: this runs inside every attack step, and noise inside a smoothed
        target may leave [-1, 1].
        """
        if waveforms.shape != self.waveforms.shape:
            raise InputError(
                f"expected waveforms of shape {tuple(self.waveforms.shape)}, got {tuple(waveforms.shape)}; "
                "keep length and batch size as they are."
            )
        batch = object.__new__(AudioBatch)
        kept = waveforms.masked_fill(~self.mask, 0.0) if self.ragged else waveforms
        # What depends on the lengths alone is shared; what depends on the samples is not.
        shared = ("lengths", "sample_rate", "ids", "ragged", "mask")
        known = {name: self.__dict__[name] for name in shared if name in self.__dict__}
        batch.__dict__.update(known, waveforms=kept)
        return batch

    def copy(self) -> AudioBatch:
        """The same clips in memory of their own, without a gradient and not checked again."""
        batch = object.__new__(AudioBatch)
        batch.__dict__.update(
            waveforms=self.waveforms.detach().clone(),
            lengths=self.lengths.clone(),
            sample_rate=self.sample_rate,
            ids=self.ids,
        )
        return batch

    def same_as(self, other: AudioBatch) -> bool:
        """Whether every sample and every length is the same, and so are the names."""
        return (
            torch.equal(self.waveforms, other.waveforms)
            and torch.equal(self.lengths, other.lengths)
            and (self.sample_rate, self.ids) == (other.sample_rate, other.ids)
        )

    def select(self, rows: Sequence[int]) -> AudioBatch:
        """Some of the clips, cut to the longest of them."""
        picked = torch.as_tensor(list(rows), dtype=torch.int64)
        lengths = self.lengths[picked.to(self.lengths.device)]
        width = int(lengths.max())
        waveforms = self.waveforms[picked.to(self.device), :width]
        return AudioBatch(waveforms, lengths, self.sample_rate, tuple(self.ids[row] for row in rows))

    def passes(self, count: int, at_once: int) -> Iterator[tuple[list[int], AudioBatch]]:
        """Every clip `count` times, at most `at_once` rows together: rows of this batch, and those clips.

        Pass after pass, so that clips of one pass stand together. Pass k of a clip has a name of its own, and
        so draws of its own, which are the same in any batch. Values are not checked again.
        """
        places = [(row, turn) for turn in range(count) for row in range(len(self))]
        for first in range(0, len(places), at_once):
            some = places[first : first + at_once]
            rows = [row for row, _ in some]
            picked = torch.tensor(rows, device=self.device)
            lengths = self.lengths[picked.to(self.lengths.device)]
            piece = object.__new__(AudioBatch)
            piece.__dict__.update(
                waveforms=self.waveforms[picked, : int(lengths.max())],
                lengths=lengths,
                sample_rate=self.sample_rate,
                ids=tuple(f"{self.ids[row]}{PASS}{turn}" for row, turn in some),
            )
            yield rows, piece

    def clip(self, row: int) -> Tensor:
        """One clip without its padding, `(time,)`."""
        return self.waveforms[row, : int(self.lengths[row])]

    def to(self, device: torch.device | str) -> AudioBatch:
        return AudioBatch(self.waveforms.to(device), self.lengths.to(device), self.sample_rate, self.ids)


@final
class Lent:
    """Clips as parts get to see them: a copy, and a fresh one where somebody wrote into the last.

    Whoever keeps the clips themselves can judge by them whatever a part does.
    """

    def __init__(self, clips: AudioBatch) -> None:
        self._clips = clips
        self._copy = clips.copy()

    def __call__(self) -> AudioBatch:
        if not self._copy.same_as(self._clips):
            self._copy = self._clips.copy()
        return self._copy


def _check_shapes(batch: AudioBatch) -> None:
    waveforms, lengths, ids = batch.waveforms, batch.lengths, batch.ids
    if waveforms.ndim != 2 or not waveforms.is_floating_point():
        raise InputError(
            f"expected float waveforms of shape (batch, time), got {waveforms.dtype} "
            f"{tuple(waveforms.shape)}; mix stereo down and scale integers to [-1, 1]."
        )
    if len(waveforms) == 0:
        raise InputError("expected at least one clip, got an empty batch; give one waveform per clip.")
    if lengths.shape != (len(waveforms),) or lengths.dtype != torch.int64:
        raise InputError(
            f"expected int64 lengths of shape ({len(waveforms)},) in samples, got {lengths.dtype} "
            f"{tuple(lengths.shape)}; lengths are sample counts, not fractions."
        )
    if len(ids) != len(waveforms) or len(set(ids)) != len(ids):
        raise InputError(
            f"expected {len(waveforms)} different ids, got {len(ids)} of which {len(set(ids))} differ; "
            "give every clip a name of its own."
        )
    if batch.sample_rate <= 0:
        raise InputError(
            f"expected a sample rate above 0 Hz, got {batch.sample_rate}; give samples per second."
        )


def _check_values(batch: AudioBatch) -> None:
    waveforms, lengths, ids = batch.waveforms, batch.lengths, batch.ids
    for row, length in enumerate(lengths.tolist()):
        if not 0 < length <= waveforms.shape[1]:
            raise InputError(
                f"clip {ids[row]!r}: expected a length from 1 to {waveforms.shape[1]} samples, got {length}; "
                "drop empty clips."
            )
    finite = torch.isfinite(waveforms).all(dim=1)
    if not bool(finite.all()):
        bad = ids[int((~finite).nonzero()[0])]
        raise InputError(
            f"clip {bad!r}: expected finite samples, got NaN or infinity; repair or drop the file."
        )
    peaks = waveforms.detach().abs().amax(dim=1)
    if bool((peaks > 1.0).any()):
        row = int(peaks.argmax())
        raise InputError(
            f"clip {ids[row]!r}: expected samples in [-1, 1], got a peak of {float(peaks[row]):.4g}; "
            "divide 16-bit integers by 32768."
        )
    if batch.ragged and bool(waveforms.detach().masked_select(~batch.mask).any()):
        raise InputError("expected zeros past each clip's length, got sound there; pad with zeros.")
