"""Noise added on purpose, so that a small perturbation drowns in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Transform):
    """Independent Gaussian noise of standard deviation `sigma`, fresh at every hearing."""

    sigma: float = 0.01

    random = True

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise InputError(f"expected sigma above 0, got {self.sigma}; 0.01 is usual.")

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return batch.waveforms + self.sigma * draws.normal(batch)
