"""Log-mel energies of recognisers, by hand and beside scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import torch

from sottovoce.targets.zoo.log_mel import LogMel, count_frames


@pytest.mark.parametrize(("samples", "frames"), [(400, 1), (559, 1), (560, 2), (16_000, 98)])
def test_frames_lie_wholly_inside_the_clip(samples: int, frames: int) -> None:
    # 1 + floor((samples - 400) / 160); one second: 1 + 15,600 / 160 = 98.5, so 98.
    assert count_frames(torch.tensor(samples)).item() == frames
    features, counted = LogMel()(torch.zeros(1, samples), torch.tensor([samples]))
    assert features.shape == (1, frames, 80)
    assert counted.tolist() == [frames]


def test_energies_are_those_of_scipys_spectrogram_less_their_mean() -> None:
    sound = torch.randn(1, 4_000, generator=torch.Generator().manual_seed(0)) * 0.1
    mel = LogMel()
    features, _ = mel(sound, torch.tensor([4_000]))
    window = scipy.signal.get_window("hann", 400)
    _, _, spectrum = scipy.signal.stft(
        sound[0].double().numpy(),
        window=window,
        nperseg=400,
        noverlap=240,
        nfft=512,
        boundary=None,
        padded=False,
    )
    # scipy divides by the sum of the window, which is 200 for 400 points of Hann.
    power = np.abs(200.0 * spectrum.T) ** 2
    assert power.shape == (23, 257)
    logs = np.log(power @ mel.filters.double().numpy() + 1e-6)
    assert features[0].numpy() == pytest.approx((logs - logs.mean(axis=0)) / 4.0, abs=1e-4)


def test_level_does_not_matter() -> None:
    sound = torch.randn(1, 4_000, generator=torch.Generator().manual_seed(0)) * 0.1
    loud, _ = LogMel()(sound, torch.tensor([4_000]))
    soft, _ = LogMel()(sound * 0.5, torch.tensor([4_000]))
    assert loud.numpy() == pytest.approx(soft.numpy(), abs=1e-2)
