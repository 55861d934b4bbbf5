"""Fewer bits: the bit-depth form of feature squeezing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.quantisation import nearest_step
from sottovoce.core.transform import Transform, straight_through
from sottovoce.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class Quantise(Transform):
    """Round samples to fewer bits: the bit-depth form of feature squeezing (Xu et al. 2018).

    bits: 2 to 16; b bits have steps of 2^(1-b) of full scale.

    Rounding has no gradient of its own, so the identity's is used.

    >>> clip = sv.AudioBatch.of([[0.3, 0.2, -0.6]], sample_rate=16000)
    >>> sv.defenses.Quantise(bits=2)(clip, draws=sv.Draws(0)).waveforms.tolist()  # steps of 0.5
    [[0.5, 0.0, -0.5]]
    """

    bits: int = 8

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise InputError(f"bits: expected 2 to 16, got {self.bits}; 8 is usual.")

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        rounded = nearest_step(batch.waveforms, self.bits)
        return straight_through(batch.waveforms, rounded)
