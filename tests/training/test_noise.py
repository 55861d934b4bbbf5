"""Coloured noise has the colour and the power that it says."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import torch

from sottovoce.training.coloured_noise import coloured_noise, tilt


@pytest.mark.parametrize("slope_db", [0.0, -3.0, -6.0, 3.0])
def test_slope_and_power(slope_db: float) -> None:
    noise = coloured_noise(torch.tensor([slope_db]), 160_000, torch.Generator().manual_seed(0))[0].numpy()
    assert np.mean(noise**2) == pytest.approx(1.0, abs=1e-4)
    frequency, density = scipy.signal.welch(noise, fs=16_000, nperseg=2048)
    inside = (frequency > 300) & (frequency < 6_000)
    fitted = np.polyfit(np.log2(frequency[inside]), 10 * np.log10(density[inside]), 1)[0]
    assert fitted == pytest.approx(slope_db, abs=0.25)


def test_tilt_keeps_one_kilohertz_and_moves_an_octave_by_its_slope() -> None:
    time = torch.arange(16_000) / 16_000
    tones = torch.stack([torch.sin(2 * torch.pi * hz * time) for hz in (1_000.0, 2_000.0, 500.0)])
    tilted = tilt(tones, torch.full((3,), 6.0))
    # 6 dB an octave is a factor of 10 ** 0.3 = 1.99526.
    assert tilted.abs().amax(dim=1).tolist() == pytest.approx([1.0, 1.99526, 0.50119], rel=1e-3)
