"""Bands of the spectrum cut and boosted, without a delay."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from scipy.fft import next_fast_len
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.perception.degradations.degradation import Degradation, Range, at_level_of

LARGEST_GAIN_DB = 20.0
"""What a band is cut or boosted by at an amount of 1."""
LOWEST_HZ = 100.0
"""The three bands are equally wide in octaves from here to half the sample rate; the first one goes down to
zero."""
FILTER_SECONDS = 0.064
_SLOPE_OCTAVES = 0.25
# Cut, leave, boost: all three bands alike would change nothing, because the level is kept.
_PATTERNS = tuple(signs for signs in itertools.product((-1, 0, 1), repeat=3) if len(set(signs)) > 1)


@final
@dataclass(frozen=True, kw_only=True)
class Equaliser(Degradation):
    """Three bands of the spectrum, each cut, kept or boosted, at the level (RMS) of the clip.

    The filter has zero phase: nothing moves in time. The bands meet at 431 and 1857 Hz for clips at 16 kHz.

    strength: 0 to 100, linear: an amount of 0 to 1; 50 where neither this nor amount is given.
    amount: gain of a cut or boosted band, in units of 20 dB: 0 to 1.
    bands: -1 (cut), 0 (keep) or 1 (boost) for the low, the middle and the high band, not all alike; where
        they are not given, each clip draws its own.

    >>> clips = sv.testing.example_clips(16000)
    >>> boosted = sv.defenses.Equaliser(amount=0.5, bands=(1, 0, -1))(clips, draws=sv.Draws(0))
    >>> bool(torch.allclose(boosted.length_l2, clips.length_l2))  # the level stays
    True
    """

    amount: float | None = None
    bands: tuple[int, int, int] | None = None

    random = True
    range: ClassVar[Range] = Range(figure="amount", unit="", least=0.0, most=1.0, legal=(0.0, 1.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bands is not None and tuple(self.bands) not in _PATTERNS:
            raise InputError(
                f"bands: expected three numbers of -1, 0 or 1, not all alike, got {self.bands}; write (1, 0, "
                "-1), say."
            )

    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        # Where each clip draws its bands, it is by name: as many are asked for as there are clips.
        places = (draws.fractions(batch, 1)[:, 0] * len(_PATTERNS)).long().tolist()
        bands = [_PATTERNS[place] if self.bands is None else self.bands for place in places]
        signs = torch.tensor(bands, dtype=torch.float64, device=batch.device)
        taps = zero_phase(LARGEST_GAIN_DB * self.asked * signs, batch.sample_rate)
        width, half = batch.waveforms.shape[1], taps.shape[1] // 2
        size = next_fast_len(width + taps.shape[1] - 1, real=True)
        spectrum = torch.fft.rfft(taps, n=size)
        heard = torch.fft.irfft(torch.fft.rfft(batch.waveforms.double(), n=size) * spectrum, n=size)
        return at_level_of(batch, heard[:, half : half + width])


def zero_phase(gains_db: Tensor, sample_rate: int) -> Tensor:
    """Symmetric filters `(batch, taps)` of an odd length, from gains `(batch, 3)` in dB."""
    half = max(8, round(FILTER_SECONDS / 2 * sample_rate))
    hz = torch.linspace(0, sample_rate / 2, half + 1, dtype=torch.float64, device=gains_db.device)
    octaves = torch.log2(hz.clamp_min(1e-3))
    first, second = (math.log2(edge) for edge in edges_hz(sample_rate))

    def past(edge: float) -> Tensor:
        """From 0 below an edge to 1 above it, over a quarter of an octave either side."""
        place = ((octaves - edge) / (2 * _SLOPE_OCTAVES) + 0.5).clamp(0.0, 1.0)
        return 0.5 - 0.5 * torch.cos(math.pi * place)

    low, middle, high = gains_db.T[:, :, None]
    curve_db = low + (middle - low) * past(first) + (high - middle) * past(second)
    response = torch.fft.irfft(10.0 ** (curve_db / 20.0), n=2 * half)
    centred = torch.cat([response[:, half:], response[:, : half + 1]], dim=1)
    window = torch.hann_window(2 * half + 1, periodic=False, dtype=torch.float64, device=centred.device)
    return centred * window


def edges_hz(sample_rate: int) -> tuple[float, float]:
    """Where the three bands are parted."""
    if sample_rate < 4 * LOWEST_HZ:
        raise InputError(f"eq needs clips at {4 * LOWEST_HZ:g} Hz or more, got {sample_rate} Hz.")
    step = (sample_rate / 2 / LOWEST_HZ) ** (1 / 3)
    return LOWEST_HZ * step, LOWEST_HZ * step**2
