"""The interface of an ear: how different two clips sound, and how likely a listener hears that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError


class Ear(ABC):
    """A model of a listener who is asked "same or different?".

    A subclass writes `distance` and `probability`. Both are differentiable with respect to both clips, look
    at each pair by itself and ignore padding. An ear takes clips of any length and rate that it can judge,
    and raises on others.

    >>> clips = sv.testing.example_clips(16000)
    >>> sv.ears.MaskingEar().heard(clips, clips).tolist()  # P(different) of equal clips
    [0.0, 0.0, 0.0, 0.0]
    """

    name: ClassVar[str]
    title: ClassVar[str]

    @abstractmethod
    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        """How far apart two clips sound, `(batch,)`: 0 for equal ones, without an upper end."""

    @abstractmethod
    def probability(self, distance: Tensor) -> Tensor:
        """P(different) of an attentive listener at a distance, `(batch,)`: rises with it, 0 at 0."""

    @final
    def heard(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        """P(different) of each pair, `(batch,)`."""
        check_pair(clean, changed)
        return self.probability(self.distance(clean, changed))


def check_pair(clean: AudioBatch, changed: AudioBatch) -> None:
    """Refuse two batches that do not hold the same clips at the same rate."""
    if clean.sample_rate != changed.sample_rate:
        raise InputError(
            f"expected two clips at one rate, got {clean.sample_rate} and {changed.sample_rate} Hz; resample "
            "one of them."
        )
    if clean.waveforms.shape != changed.waveforms.shape or not torch.equal(clean.lengths, changed.lengths):
        raise InputError(
            f"expected two clips of one length, got {clean.lengths.tolist()} and {changed.lengths.tolist()} "
            "samples; align and cut them first."
        )
