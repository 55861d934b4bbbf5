"""Resampling by a windowed sinc: differentiable, linear phase, no delay."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from sottovoce.errors import InputError

# Zero crossings of the kernel on each side, and Kaiser's beta for about 90 dB.
_CROSSINGS, _BETA = 64, 9.0
# The cutoff as a share of the lower Nyquist frequency, so that the stop band begins there.
_ROLLOFF = 0.955
# Samples in a block: many phases at once are faster, too many are wasted work.
_BLOCK = 128
_LARGEST_KERNEL = 8_000_000


def resample(waveforms: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """Waveforms `(batch, time)` at another rate, aligned at the first sample; at least as long."""
    if from_hz == to_hz:
        return waveforms
    kernel, step, reach = _resampling_kernel(from_hz, to_hz)
    blocks = -(-waveforms.shape[1] // step)
    padded = torch.nn.functional.pad(waveforms, (reach, blocks * step - waveforms.shape[1] + reach))
    phases = torch.nn.functional.conv1d(padded[:, None], kernel.to(waveforms), stride=step)
    return phases.transpose(1, 2).flatten(1)


def resample_clips(waveforms: Tensor, lengths: Tensor, from_hz: int, to_hz: int) -> tuple[Tensor, Tensor]:
    """Clips `(batch, time)` and their lengths `(batch,)` at another rate; zero beyond each end."""
    if from_hz == to_hz:
        return waveforms, lengths
    lengths = resampled_lengths(lengths, from_hz, to_hz)
    found = resample(waveforms, from_hz, to_hz)[:, : int(lengths.max())]
    inside = torch.arange(found.shape[1], device=found.device) < lengths[:, None]
    return found.masked_fill(~inside, 0.0), lengths


def resampled_lengths(lengths: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """The lengths of clips at another rate, `(batch,)`: the samples that start before the clip ends."""
    return torch.div(lengths * to_hz + from_hz - 1, from_hz, rounding_mode="floor")


@lru_cache(maxsize=16)
def _resampling_kernel(from_hz: int, to_hz: int) -> tuple[Tensor, int, int]:
    """Weights `(phases, 1, step + 2 reach)`: each block of `step` samples gives one sample of every phase."""
    common = math.gcd(from_hz, to_hz)
    times = max(1, _BLOCK * common // max(from_hz, to_hz))
    step, phases = times * from_hz // common, times * to_hz // common
    # Units of the input: its Nyquist frequency is 1, its samples are 1 apart.
    cutoff = _ROLLOFF * min(1.0, to_hz / from_hz)
    reach = math.ceil(_CROSSINGS / cutoff)
    if phases * (step + 2 * reach) > _LARGEST_KERNEL:
        raise InputError(
            f"expected sample rates with a large common divisor, got {from_hz} and {to_hz} Hz, which have "
            f"{common}; round the rate to hundreds."
        )
    samples = torch.arange(-reach, step + reach, dtype=torch.float64)
    offsets = samples - torch.arange(phases, dtype=torch.float64)[:, None] * step / phases
    inside = (1 - (offsets / reach) ** 2).clamp(min=0.0).sqrt()
    window = torch.special.i0(_BETA * inside) / torch.special.i0(torch.tensor(_BETA, dtype=torch.float64))
    weights = cutoff * torch.sinc(cutoff * offsets) * window * (offsets.abs() <= reach)
    return weights[:, None], step, reach
