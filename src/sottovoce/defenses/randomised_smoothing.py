"""Noise added on purpose, so that a small perturbation drowns in it: randomised smoothing."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import SILENCE
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError

USUAL_SIGMA = 0.01


@dataclass(frozen=True, kw_only=True)
class Smoothing(Transform):
    """Noise, fresh at every hearing, at a level given in one of two ways. A subclass draws it.

    sigma: standard deviation of the Gaussian noise drawn, in the amplitude of the waveform; 0.01 where
        neither way is given. The level is the same for every clip, as certificates need it.
    snr_db: each clip's ratio to the noise that is added to it, in decibels. It is exact: what is measured on
        the clip is what was asked for, not its expectation. The level follows the clip, and the gradient
        knows that; half a 16-bit step stands in for the RMS of a clip of zeros.
    """

    sigma: float | None = None
    snr_db: float | None = None

    random = True

    def __post_init__(self) -> None:
        if self.sigma is not None and self.snr_db is not None:
            raise InputError(
                f"expected sigma or snr_db, got both ({self.sigma} and {self.snr_db}); drop one of them."
            )
        if self.snr_db is not None and not math.isfinite(self.snr_db):
            raise InputError(f"expected snr_db as a number of decibels, got {self.snr_db}; 12 is usual.")
        if self.sigma is not None and not 0 < self.sigma < math.inf:
            raise InputError(f"expected sigma above 0, got {self.sigma}; {USUAL_SIGMA} is usual.")
        if self.sigma is None and self.snr_db is None:
            object.__setattr__(self, "sigma", USUAL_SIGMA)

    @abstractmethod
    def draw(self, batch: AudioBatch, draws: Draws) -> Tensor:
        """The noise for a sigma of 1, `(batch, time)`, zero in the padding."""

    @final
    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return batch.waveforms + self._scaled(self.draw(batch, draws), batch)

    def _scaled(self, noise: Tensor, batch: AudioBatch) -> Tensor:
        if self.sigma is not None:
            return self.sigma * noise
        assert self.snr_db is not None
        loudness = torch.linalg.vector_norm(batch.waveforms, dim=1, keepdim=True)
        silence = SILENCE * batch.lengths.to(loudness).sqrt()[:, None]
        unit = torch.nn.functional.normalize(noise, dim=1)
        ratio: float = 10.0 ** (-self.snr_db / 20.0)
        scaled: Tensor = ratio * loudness.maximum(silence) * unit
        return scaled


@final
@dataclass(frozen=True, kw_only=True)
class Gaussian(Smoothing):
    """Independent Gaussian noise nu of standard deviation sigma (Cohen et al. 2019)."""

    def draw(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return draws.normal(batch)


@final
@dataclass(frozen=True, kw_only=True)
class MadNoise(Smoothing):
    """Moving-average-difference noise, which lies high: (nu_n - nu_{n-1}) / 2 (Olivier 2023, section 7.5.1).

    Sigma is that of nu. What is added has a variance of sigma^2 / 2 in every sample, the first included, and
    a power density of sigma^2 (1 - cos w) / 2 at w radians a sample.
    """

    def draw(self, batch: AudioBatch, draws: Draws) -> Tensor:
        noise = draws.normal(batch)
        before = draws.turn("before")
        first = [before.generator(name).standard_normal(1, dtype=np.float32) for name in batch.ids]
        earlier = torch.cat([torch.from_numpy(np.stack(first)).to(noise), noise[:, :-1]], dim=1)
        return ((noise - earlier) / 2.0).masked_fill(~batch.mask, 0.0)
