"""`AudioBatch`: clips as tensors, the only form in which audio passes from part to part."""

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
"""Separates the name of a clip from the number of the pass over it."""


@dataclass(frozen=True, eq=False)
class AudioBatch:
    """Mono clips of one sample rate, padded with zeros to one length. Frozen; `of` makes one from arrays.

    waveforms: `(batch, time)` float in [-1, 1], zero beyond each length.
    lengths: `(batch,)` int64, in samples.
    ids: a name for each clip, all different. Random numbers and records depend on it, not on the position.

    >>> batch = sv.AudioBatch.of([[0.1, 0.2, 0.3], [0.5]], sample_rate=16000, ids=["yes-1", "no-1"])
    >>> batch.waveforms.shape, batch.lengths.tolist()
    (torch.Size([2, 3]), [3, 1])
    >>> batch.clip(1).tolist()  # without its padding
    [0.5]
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
        """One batch from single clips, each `(time,)`. ids default to "0", "1" ..."""
        if not clips:
            raise InputError("expected at least one clip, got none; give one waveform for each clip.")
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
        """Whether any clip is shorter than the longest one."""
        return bool((self.lengths < self.waveforms.shape[1]).any())

    @cached_property
    def mask(self) -> Tensor:
        """True where there is audio, false in the padding, `(batch, time)`."""
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
        """The same clips with other samples, `(batch, time)`, whose padding is set to zero.

        Values are not checked or clamped: this runs in every attack step, and noise inside a smoothed target
        may leave [-1, 1].
        """
        if waveforms.shape != self.waveforms.shape:
            raise InputError(
                f"expected waveforms of shape {tuple(self.waveforms.shape)}, got {tuple(waveforms.shape)}; "
                "keep the length and the batch size."
            )
        batch = object.__new__(AudioBatch)
        kept = waveforms.masked_fill(~self.mask, 0.0) if self.ragged else waveforms
        # What depends on the lengths alone is shared; what depends on the samples is not.
        shared = ("lengths", "sample_rate", "ids", "ragged", "mask")
        known = {name: self.__dict__[name] for name in shared if name in self.__dict__}
        batch.__dict__.update(known, waveforms=kept)
        return batch

    def copy(self) -> AudioBatch:
        """A copy of the clips, detached from any gradient."""
        batch = object.__new__(AudioBatch)
        batch.__dict__.update(
            waveforms=self.waveforms.detach().clone(),
            lengths=self.lengths.clone(),
            sample_rate=self.sample_rate,
            ids=self.ids,
        )
        return batch

    def same_as(self, other: AudioBatch) -> bool:
        """Whether all samples, lengths and ids are equal."""
        return (
            torch.equal(self.waveforms, other.waveforms)
            and torch.equal(self.lengths, other.lengths)
            and (self.sample_rate, self.ids) == (other.sample_rate, other.ids)
        )

    def select(self, rows: Sequence[int]) -> AudioBatch:
        """Some of the clips, by row, cut to the longest of them."""
        picked = torch.as_tensor(list(rows), dtype=torch.int64)
        lengths = self.lengths[picked.to(self.lengths.device)]
        width = int(lengths.max())
        waveforms = self.waveforms[picked.to(self.device), :width]
        return AudioBatch(waveforms, lengths, self.sample_rate, tuple(self.ids[row] for row in rows))

    def passes(self, count: int, at_once: int) -> Iterator[tuple[list[int], AudioBatch]]:
        """Every clip `count` times, in pieces of at most `at_once` rows: (rows of this batch, their clips).

        Pass by pass, so that the clips of one pass are neighbours. Pass k of a clip has an id of its own, so
        its random numbers are the same in any batch.
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
    """A copy of clips for other code to work on; replaced if that code has written into it.

    The original stays intact whatever an attack or a metric does.
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
        raise InputError("expected at least one clip, got an empty batch; give one waveform for each clip.")
    if lengths.shape != (len(waveforms),) or lengths.dtype != torch.int64:
        raise InputError(
            f"expected int64 lengths of shape ({len(waveforms)},) in samples, got {lengths.dtype} "
            f"{tuple(lengths.shape)}; lengths count samples, not seconds."
        )
    if len(ids) != len(waveforms) or len(set(ids)) != len(ids):
        raise InputError(
            f"expected {len(waveforms)} different ids, got {len(ids)} of which {len(set(ids))} differ; "
            "give every clip its own id."
        )
    if batch.sample_rate <= 0:
        raise InputError(
            f"expected a sample_rate above 0 Hz, got {batch.sample_rate}; give samples per second."
        )


def _check_values(batch: AudioBatch) -> None:
    waveforms, lengths, ids = batch.waveforms, batch.lengths, batch.ids
    for row, length in enumerate(lengths.tolist()):
        if not 0 < length <= waveforms.shape[1]:
            raise InputError(
                f"clip {ids[row]!r}: expected a length from 1 to {waveforms.shape[1]} samples, got {length}; "
                "leave empty clips out."
            )
    finite = torch.isfinite(waveforms).all(dim=1)
    if not bool(finite.all()):
        bad = ids[int((~finite).nonzero()[0])]
        raise InputError(
            f"clip {bad!r}: expected finite samples, got NaN or infinity; repair the file or leave it out."
        )
    peaks = waveforms.detach().abs().amax(dim=1)
    if bool((peaks > 1.0).any()):
        row = int(peaks.argmax())
        raise InputError(
            f"clip {ids[row]!r}: expected samples in [-1, 1], got a peak of {float(peaks[row]):.4g}; "
            "divide 16-bit integers by 32768."
        )
    if batch.ragged and bool(waveforms.detach().masked_select(~batch.mask).any()):
        raise InputError("expected zeros beyond each clip's length, got sound there; pad with zeros.")
