"""The MFCC front end against scipy, and against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch

from sottovoce.targets.zoo.mfcc import Mfcc, cosine_basis, hz_from_mel, mel_filters, mel_from_hz


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 0.1


def scipy_power(waveform: np.ndarray) -> np.ndarray:
    """`(frames, bins)`; scipy divides by the sum of the window, which for 512 points of Hann is 256."""
    _, _, spectrum = scipy.signal.stft(
        waveform, window="hann", nperseg=512, noverlap=352, boundary=None, padded=False
    )
    return np.abs(spectrum.T * 256.0) ** 2


def test_mel_scale_is_htk() -> None:
    # 2595 log10(2) = 781.173; 2595 log10(1 + 10/7) = 999.986; at 6300 Hz the logarithm is 1.
    assert mel_from_hz(0.0) == 0.0
    assert mel_from_hz(700.0) == pytest.approx(781.1728, abs=1e-3)
    assert mel_from_hz(1000.0) == pytest.approx(999.9855, abs=1e-3)
    assert mel_from_hz(6300.0) == pytest.approx(2595.0)
    assert hz_from_mel(torch.tensor([0.0, 2595.0])).tolist() == pytest.approx([0.0, 6300.0])


def test_one_triangle_by_hand() -> None:
    # Corners at 0, 1297.5 and 2595 mel: 0 Hz, 700 (sqrt(10) - 1) = 1513.594 Hz, 6300 Hz. Bins are 31.25 Hz.
    weights = mel_filters(bands=1, bins=257, sample_rate=16_000, low_hz=0.0, high_hz=6300.0)[:, 0]
    assert weights.shape == (257,)
    assert weights[0] == 0.0
    assert weights[48].item() == pytest.approx(1500.0 / 1513.594, abs=1e-5)
    assert weights[96].item() == pytest.approx((6300.0 - 3000.0) / (6300.0 - 1513.594), abs=1e-5)
    assert weights[202:].abs().max() == 0.0


def test_no_mel_band_is_empty() -> None:
    weights = mel_filters(bands=40, bins=257, sample_rate=16_000, low_hz=20.0, high_hz=8_000.0)
    assert (weights.amax(dim=0) > 0.3).all()


@pytest.mark.parametrize("outputs", [13, 40])
def test_cosine_basis_matches_scipy(outputs: int) -> None:
    values = noise(5, 40)
    expected = scipy.fft.dct(values.double().numpy(), type=2, norm="ortho")[:, :outputs]
    actual = values @ cosine_basis(inputs=40, outputs=outputs)
    np.testing.assert_allclose(actual.numpy(), expected, atol=1e-6)


def test_power_matches_scipy() -> None:
    waveforms = noise(2, 16_000)
    power = Mfcc().power(waveforms)
    assert power.shape == (2, 97, 257)
    np.testing.assert_allclose(
        power[1].numpy(), scipy_power(waveforms[1].double().numpy()), rtol=1e-3, atol=1e-4
    )


def test_whole_chain_matches_scipy() -> None:
    waveforms = noise(1, 16_000)
    corners_hz = 700.0 * (10.0 ** (np.linspace(31.749, 2840.023, 42) / 2595.0) - 1.0)
    bin_hz = np.arange(257) * 31.25
    filters = np.stack([np.interp(bin_hz, corners_hz[k : k + 3], [0, 1, 0]) for k in range(40)], axis=1)
    energies = scipy_power(waveforms[0].double().numpy()) @ filters
    expected = scipy.fft.dct(np.log(energies + 1e-6), type=2, norm="ortho")
    np.testing.assert_allclose(Mfcc()(waveforms)[0].numpy(), expected, atol=2e-3)


def test_digital_silence_by_hand() -> None:
    # Every log energy is log(1e-6) = -13.815511; the first coefficient is sqrt(40) times that, the rest none.
    image = Mfcc()(torch.zeros(1, 16_000))
    assert image[0, :, 0].tolist() == pytest.approx([-87.37696] * 97, abs=1e-4)
    assert image[0, :, 1:].abs().max().item() < 1e-4


def test_gradient_of_digital_silence_is_finite() -> None:
    waveforms = torch.zeros(1, 16_000, requires_grad=True)
    Mfcc()(waveforms).sum().backward()
    assert waveforms.grad is not None
    assert waveforms.grad.isfinite().all()


def test_gradient_matches_finite_differences() -> None:
    mfcc = Mfcc(bands=10, coefficients=10, window_samples=128, hop_samples=64).double()
    waveforms = noise(1, 256).double().requires_grad_()
    assert torch.autograd.gradcheck(mfcc, (waveforms,))


def test_faint_clip_has_gradient_everywhere_that_a_frame_looks() -> None:
    # One 16-bit step of amplitude. Frames end at sample 96 * 160 + 512 = 15872; the window is 0 at sample 0.
    waveforms = (noise(1, 16_000).sign() / 32768.0).requires_grad_()
    Mfcc()(waveforms)[..., 0].sum().backward()
    assert waveforms.grad is not None
    assert (waveforms.grad[0, 1:15_872] != 0).float().mean() > 0.999
    assert waveforms.grad[0, 15_872:].abs().max() == 0.0


def test_an_item_is_the_same_alone_and_in_a_batch() -> None:
    waveforms = noise(3, 16_000)
    waveforms[1] *= 100.0
    together = Mfcc()(waveforms)
    torch.testing.assert_close(together[2:], Mfcc()(waveforms[2:]), rtol=1e-5, atol=1e-4)


def test_constants_are_not_saved() -> None:
    assert Mfcc().state_dict() == {}
