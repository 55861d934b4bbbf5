"""Synthetic noise of any colour, for background, augmentation and the class `silence`."""

from __future__ import annotations

import torch
from torch import Tensor


def tilt(waveforms: Tensor, slope_db: Tensor) -> Tensor:
    """Tilt each spectrum by its slope: `(batch, time)` waveforms, `(batch,)` slopes in dB per octave.

    1 kHz keeps its level at 16 kHz sampling (an eighth of Nyquist); what lies below a fiftieth of that is
    tilted no further, so that a steep fall does not leave a rumble alone.
    """
    spectrum = torch.fft.rfft(waveforms)
    frequency = torch.linspace(0.0, 8.0, spectrum.shape[-1], device=waveforms.device).clamp(min=0.02)
    gain = 10.0 ** (slope_db.unsqueeze(1) * torch.log2(frequency) / 20.0)
    found: Tensor = torch.fft.irfft(spectrum * gain, n=waveforms.shape[-1])
    return found


def coloured_noise(slope_db: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """Gaussian noise `(batch, samples)` of unit power; slope 0 is white, -3 pink, -6 brown, 3 blue."""
    white = torch.randn(len(slope_db), samples, generator=generator, device=generator.device)
    noise = tilt(white, slope_db)
    return noise / noise.square().mean(dim=1, keepdim=True).sqrt()


def uniform(count: int, bounds: tuple[float, float], generator: torch.Generator) -> Tensor:
    """`(count,)` draws between the bounds, on the generator's device."""
    draws = torch.rand(count, generator=generator, device=generator.device)
    return draws * (bounds[1] - bounds[0]) + bounds[0]
