"""Linear filters and median smoothing, with exact gradients; padding does not change a clip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.resampling import resample, resampled_lengths
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError

# A filter's tail is cut where it is too quiet for float32, relative to full scale.
_TAIL = 1e-9


@final
@dataclass(frozen=True, kw_only=True)
class IdealLowPass(Transform):
    """Keep the lowest `share` of the frequencies and remove all others.

    share: of the band from 0 Hz to half the sample rate, between 0 and 1; 0.05 keeps 5 %.

    The cut is made in the spectrum of the whole clip, which counts as periodic.

    >>> clip = sv.AudioBatch.of([[0.5, 0.0, 0.5, 0.0]], sample_rate=16000)  # a mean and the highest frequency
    >>> sv.defenses.IdealLowPass(share=0.5)(clip, draws=sv.Draws(0)).waveforms.tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    share: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError(
                f"share: expected a number between 0 and 1, got {self.share}; 0.05 keeps the lowest 5 %."
            )

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        heard = torch.zeros_like(batch.waveforms)
        for length in sorted(set(batch.lengths.tolist())):
            rows = (batch.lengths == length).nonzero()[:, 0]
            spectrum = torch.fft.rfft(batch.waveforms[rows, :length])
            # Bin k of n samples lies at 2k/n of the Nyquist frequency.
            kept = torch.arange(spectrum.shape[1], device=batch.device) * 2 <= self.share * length + 1e-6
            heard[rows, :length] = torch.fft.irfft(spectrum * kept, n=length)
        return heard


@final
@dataclass(frozen=True, kw_only=True)
class BiquadLowPass(Transform):
    """A second-order low-pass filter (Bristow-Johnson's audio EQ cookbook).

    hz: cutoff frequency in Hz, below half the sample rate.
    q: quality; 0.7071 has no peak at the cutoff, more has one.

    The filter starts from silence, so it delays a little; what lies above the cutoff falls by 12 dB an
    octave.

    >>> clip = sv.AudioBatch.of([[0.5] * 1600], sample_rate=16000)
    >>> filtered = sv.defenses.BiquadLowPass(hz=200)(clip, draws=sv.Draws(0))
    >>> round(float(filtered.waveforms[0, -1]), 3)  # a constant passes
    0.5
    """

    hz: float = 200.0
    q: float = 0.7071

    def __post_init__(self) -> None:
        if not self.hz > 0:
            raise InputError(f"hz: expected a cutoff above 0 Hz, got {self.hz}; 200 is usual.")
        if not 0 < self.q < math.inf:
            raise InputError(f"q: expected a number above 0, got {self.q}; 0.7071 has no peak.")

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        width = batch.waveforms.shape[1]
        longest = 2 ** math.ceil(math.log2(width))
        response = _impulse_response(self.hz, self.q, batch.sample_rate, longest)[:width]
        size = _fast_size(width + len(response) - 1)
        spectrum = torch.fft.rfft(response.to(batch.waveforms), n=size)
        heard: Tensor = torch.fft.irfft(torch.fft.rfft(batch.waveforms, n=size) * spectrum, n=size)
        return heard[:, :width]


@final
@dataclass(frozen=True, kw_only=True)
class MedianSmoothing(Transform):
    """The median of `window` samples around each sample: removes clicks and single changed samples.

    window: in samples, odd, 3 or more.

    A clip is mirrored at its ends. The gradient goes to the sample that was the median.

    >>> clip = sv.AudioBatch.of([[0.125, 0.75, 0.25, 0.5]], sample_rate=16000)
    >>> sv.defenses.MedianSmoothing(window=3)(clip, draws=sv.Draws(0)).waveforms.tolist()
    [[0.75, 0.25, 0.5, 0.25]]
    """

    window: int = 3

    def __post_init__(self) -> None:
        if self.window < 3 or self.window % 2 == 0:
            raise InputError(
                f"window: expected an odd number of samples, 3 or more, got {self.window}; 3 is usual."
            )

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        half = self.window // 2
        places = torch.arange(-half, batch.waveforms.shape[1] + half, device=batch.device)
        # Mirrored without its ends, a clip of n samples comes again every 2(n - 1).
        period = (2 * (batch.lengths - 1)).clamp(min=1)[:, None]
        places = places % period
        mirrored = batch.waveforms.gather(1, torch.minimum(places, period - places))
        return mirrored.unfold(1, self.window, 1).median(dim=2).values


@final
@dataclass(frozen=True, kw_only=True)
class Resample(Transform):
    """Down to a lower sample rate and up again: removes what lies above half that rate.

    hz: the lower rate in Hz, below that of the clips.

    Both ways by a windowed sinc of linear phase, so the rest stays where it was.

    >>> seconds = torch.arange(16000) / 16000
    >>> clip = sv.AudioBatch.of([0.5 * torch.sin(6.2832 * 6000 * seconds)], sample_rate=16000)  # 6 kHz
    >>> filtered = sv.defenses.Resample(hz=8000)(clip, draws=sv.Draws(0))
    >>> bool(filtered.waveforms[0, 1000:-1000].abs().max() < 0.005)  # at least 40 dB lower
    True
    """

    hz: int = 8000

    def __post_init__(self) -> None:
        if self.hz < 1:
            raise InputError(f"hz: expected a sample rate above 0 Hz, got {self.hz}; 8000 is usual.")

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        rate = batch.sample_rate
        if self.hz >= rate:
            raise InputError(
                f"hz: expected a sample rate below that of the clips, {rate} Hz, got {self.hz}; lower it."
            )
        low = resample(batch.waveforms, rate, self.hz)
        # Past its end a clip alone has no low samples either: what rings on there must not come back.
        lengths = resampled_lengths(batch.lengths, rate, self.hz)
        low = low * (torch.arange(low.shape[1], device=batch.device) < lengths[:, None])
        return resample(low, self.hz, rate)[:, : batch.waveforms.shape[1]]


@lru_cache(maxsize=16)
def _impulse_response(hz: float, q: float, sample_rate: int, longest: int) -> Tensor:
    """`(time,)` float64, until it is too quiet to matter, or `longest`."""
    if hz >= sample_rate / 2:
        raise InputError(
            f"hz: expected a cutoff below half the sample rate, {sample_rate / 2:g} Hz, got {hz:g}; lower it."
        )
    angle = 2 * math.pi * hz / sample_rate
    alpha = math.sin(angle) / (2 * q)
    peak = (1 - math.cos(angle)) / (1 + alpha)
    a1, a2 = -2 * math.cos(angle) / (1 + alpha), (1 - alpha) / (1 + alpha)
    # The larger pole tells how soon the tail is over: two real ones, or a pair of one magnitude.
    real = a1 * a1 / 4 - a2
    pole = abs(a1) / 2 + math.sqrt(real) if real > 0 else math.sqrt(a2)
    count = math.ceil(math.log(_TAIL) / math.log(min(max(pole, 0.5), 1 - 1e-12)))
    response = [0.0, 0.0]
    for driven in (peak / 2, peak, peak / 2, *[0.0] * (min(count, longest) - 3)):
        response.append(driven - a1 * response[-1] - a2 * response[-2])
    return torch.tensor(response[2:], dtype=torch.float64)


def _fast_size(least: int) -> int:
    """A size from `least` on whose transform is quick: a power of two times 1, 3, 5, 9 or 15."""
    return min(odd << max(0, math.ceil(math.log2(least / odd))) for odd in (1, 3, 5, 9, 15))
