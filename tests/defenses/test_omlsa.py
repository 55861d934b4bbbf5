"""OMLSA: gains against scipy, presence by hand, and what it does to noise and to speech."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import exp1

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.defenses.omlsa import (
    Omlsa,
    between,
    estimate,
    exponential_integral,
    follow_noise,
    frame_presence,
    lsa_gain,
    presence_by_minima,
    smooth_bins,
)
from sottovoce.errors import InputError
from sottovoce.testing import check_transform, example_clips

RATE = 16000


def column(values: list[float]) -> torch.Tensor:
    """One clip, one bin: `(frames, 1, 1)`."""
    return torch.tensor(values, dtype=torch.float64)[:, None, None]


def cleaned(clip: np.ndarray, **settings: float) -> np.ndarray:
    batch = AudioBatch.of([clip], RATE)
    return Omlsa(**settings)(batch, draws=Draws(0)).waveforms[0].double().numpy()


def level_db(signal: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(signal**2)))


def test_the_exponential_integral_is_scipys() -> None:
    values = np.logspace(-6, 2, 400)
    found = exponential_integral(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(found, exp1(values), atol=3e-7)
    # Its derivative is -exp(-v) / v; the approximation is of values, so its slope is a little less exact.
    leaf = torch.tensor([0.05, 0.5, 1.5, 8.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(exponential_integral(leaf).sum(), leaf)
    points = leaf.detach().numpy()
    np.testing.assert_allclose(slope.numpy(), -np.exp(-points) / points, rtol=2e-4)


def test_the_gain_is_ephraim_and_malahs() -> None:
    prior, posterior = np.array([0.1, 1.0, 10.0, 100.0]), np.array([0.5, 2.0, 11.0, 90.0])
    v = posterior * prior / (1 + prior)
    expected = prior / (1 + prior) * np.exp(exp1(v) / 2)
    found = lsa_gain(torch.from_numpy(prior / (1 + prior)), torch.from_numpy(v))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    # Far above the noise it is Wiener's; there it tends to 1.
    assert float(found[-1]) == pytest.approx(100 / 101, rel=1e-6)


def test_the_a_priori_snr_follows_the_rule() -> None:
    found = estimate(column([3.0, 2.0, 0.5]), smoothing=0.5)
    # Before the first frame gain and SNR were 1: 0.5 + 0.5 (3 - 1).
    first = 1.5
    gains = [first / 2.5 * math.exp(exp1(3.0 * first / 2.5) / 2)]
    second = 0.5 * gains[0] ** 2 * 3.0 + 0.5 * (2 - 1)
    gains.append(second / (1 + second) * math.exp(exp1(2.0 * second / (1 + second)) / 2))
    # Nothing rises above the noise: all comes from the frame before.
    third = 0.5 * gains[1] ** 2 * 2.0
    assert found.prior.flatten().tolist() == pytest.approx([first, second, third], rel=1e-6)
    assert found.gain.flatten().tolist()[:2] == pytest.approx(gains, rel=1e-6)
    assert found.v.flatten().tolist()[0] == pytest.approx(3.0 * 0.6)


def test_presence_between_two_limits() -> None:
    # -10 dB and less, -7.5 dB, -5 dB and more.
    ratios = torch.tensor([0.0, 0.1, 10**-0.75, 10**-0.5, 7.0], dtype=torch.float64)
    assert between(ratios).tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0], abs=1e-9)


def test_frames_while_the_snr_rises_and_falls() -> None:
    # Silence; a rise to 4, the peak; then 4 10^-0.75 is halfway between the limits, 0.3 below the lower one;
    # a rise again; and what is below -10 dB is no speech at all.
    means = torch.tensor([0.05, 1.0, 4.0, 4.0 * 10**-0.75, 0.3, 0.35, 0.09], dtype=torch.float64)[:, None]
    assert frame_presence(means)[:, 0].tolist() == pytest.approx([0, 1, 1, 0.5, 0, 1, 0], abs=1e-9)
    # A peak counts as 10 at most: 2 is -7 dB of that, of 100 it would be -17.
    high = torch.tensor([100.0, 2.0], dtype=torch.float64)[:, None]
    assert frame_presence(high)[1].item() == pytest.approx((10 - 10 * math.log10(5)) / 5)


def test_bins_are_smoothed_with_a_hann_window() -> None:
    bins = torch.tensor([[0.0, 0.0, 4.0, 0.0, 8.0]])
    # Weights 1/4, 1/2, 1/4; past the last bin as at it.
    assert smooth_bins(bins, 1)[0].tolist() == pytest.approx([0.0, 1.0, 2.0, 3.0, 6.0])


def test_a_burst_counts_as_speech_and_not_as_noise() -> None:
    power = torch.ones(200, 1, 8, dtype=torch.float64)
    power[100:120] = 100.0
    presence = presence_by_minima(power, window=125)
    assert float(presence[90].max()) == 0.0
    assert float(presence[110].min()) > 0.99
    noise = follow_noise(power, window=125)
    # Had it been averaged as the rest is, 20 frames would have brought it to 1 + 99 (1 - 0.95^20) = 65.
    assert float(noise[119].max()) < 15
    assert float(noise[199].max()) < 1.5


def test_noise_that_stays_louder_is_learned() -> None:
    power = torch.ones(700, 1, 8, dtype=torch.float64)
    power[200:] = 30.0
    noise = follow_noise(power, window=100)
    assert float(noise[205].max()) < 10
    assert float(noise[-1].min()) == pytest.approx(30.0, rel=0.01)


def test_noise_alone_goes_down_to_the_floor() -> None:
    noise = 0.05 * np.random.default_rng(0).standard_normal(3 * RATE)
    left = cleaned(noise)[RATE:]
    # -25 dB where a cell counts as noise; a few are taken for speech now and then.
    assert -25.5 < level_db(left) - level_db(noise[RATE:]) < -17
    assert -11 < level_db(cleaned(noise, floor_db=-10.0)[RATE:]) - level_db(noise[RATE:]) < -8


def test_syllables_stay_and_noise_between_them_goes() -> None:
    time = np.arange(4 * RATE) / RATE
    voice = sum(np.sin(2 * np.pi * 130 * k * time + k) / k for k in range(1, 20))
    there = np.sin(2 * np.pi * 1.5 * time - 1.5) > 0.2
    clean = 0.1 * voice * there
    noise = 0.01 * np.random.default_rng(1).standard_normal(len(time))
    heard = cleaned(clean + noise)
    late = time > 1.0
    assert level_db(heard[there & late]) == pytest.approx(level_db(clean[there & late]), abs=0.5)
    error = level_db((heard - clean)[late])
    assert error < level_db(noise) - 4


def test_it_keeps_the_laws() -> None:
    check_transform(Omlsa())


def test_it_keeps_the_laws_at_the_toys_rate() -> None:
    check_transform(Omlsa(), example_clips(1000))


@pytest.mark.parametrize("settings", [{"smoothing": 1.0}, {"smoothing": -0.1}, {"floor_db": 0.0}])
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        Omlsa(**settings)


def test_a_clip_shorter_than_a_frame_is_refused() -> None:
    with pytest.raises(InputError, match="512 samples"):
        cleaned(np.full(500, 0.1))
