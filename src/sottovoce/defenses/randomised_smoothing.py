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
    """Noise that is drawn anew each time, at a level given in one of two ways. A subclass draws it.

    sigma: standard deviation of the Gaussian noise, where full scale is 1; 0.01 where neither way is given.
        The level is the same for every clip, which certificates need.
    snr_db: the ratio of each clip's energy to that of its noise, in dB. It is exact for every clip, not only
        on average. The level follows the clip, and gradients take that into account; a clip of zeros counts
        as half a 16-bit step loud.
    """

    sigma: float | None = None
    snr_db: float | None = None

    random = True

    def __post_init__(self) -> None:
        if self.sigma is not None and self.snr_db is not None:
            raise InputError(
                f"sigma and snr_db exclude each other, got {self.sigma} and {self.snr_db}; drop one of them."
            )
        if self.snr_db is not None and not math.isfinite(self.snr_db):
            raise InputError(f"snr_db: expected a finite number of decibels, got {self.snr_db}; 12 is usual.")
        if self.sigma is not None and not 0 < self.sigma < math.inf:
            raise InputError(f"sigma: expected a number above 0, got {self.sigma}; {USUAL_SIGMA} is usual.")
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
    """White Gaussian noise, fresh on every pass: randomised smoothing (Cohen et al. 2019).

    sigma: standard deviation, where full scale is 1; 0.01 where neither setting is given.
    snr_db: the ratio of clip to noise in dB instead, exact for each clip.

    Small perturbations drown in it, and so do quiet sounds. It is the noise that certificates rest on, and it
    makes a model random: put a vote such as `majority` behind it.

    >>> clips = sv.testing.example_clips()
    >>> noisy = sv.defenses.Gaussian(snr_db=20)(clips, draws=sv.Draws(0))
    >>> noise = (noisy.waveforms - clips.waveforms).norm(dim=1)
    >>> (20 * (clips.length_l2 / noise).log10()).round().tolist()  # SNR of each clip in dB
    [20.0, 20.0, 20.0, 20.0]
    """

    def draw(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return draws.normal(batch)


@final
@dataclass(frozen=True, kw_only=True)
class MadNoise(Smoothing):
    """Moving-average-difference noise: high-pass noise, (nu_n - nu_{n-1}) / 2 (Olivier 2023, section 7.5.1).

    sigma: standard deviation of the Gaussian nu, where full scale is 1; 0.01 where neither setting is given.
    snr_db: the ratio of clip to noise in dB instead, exact for each clip.

    It leaves the low frequencies of speech almost clean, so recognisers lose less than under white noise.
    Every sample has variance sigma^2 / 2; the power density at w radians a sample is sigma^2 (1 - cos w) / 2.

    >>> silence = sv.AudioBatch.of([[0.0] * 16000], sample_rate=16000)
    >>> noise = sv.defenses.MadNoise(sigma=0.1)(silence, draws=sv.Draws(0)).waveforms[0]
    >>> power = torch.fft.rfft(noise).abs().square()
    >>> bool(power[7000:].mean() > 50 * power[:1000].mean())  # above 7 kHz against below 1 kHz
    True
    """

    def draw(self, batch: AudioBatch, draws: Draws) -> Tensor:
        noise = draws.normal(batch)
        before = draws.turn("before")
        first = [before.generator(name).standard_normal(1, dtype=np.float32) for name in batch.ids]
        earlier = torch.cat([torch.from_numpy(np.stack(first)).to(noise), noise[:, :-1]], dim=1)
        return ((noise - earlier) / 2.0).masked_fill(~batch.mask, 0.0)
