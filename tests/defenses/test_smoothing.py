"""Noise of a known level: sigma, spectrum and SNR against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.signal
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Defended
from sottovoce.defenses.randomised_smoothing import Gaussian, MadNoise, Smoothing
from sottovoce.errors import InputError
from sottovoce.testing import ToyClassifier, check_target, check_transform, example_clips

KINDS = (Gaussian, MadNoise)


def added(noise: Smoothing, batch: AudioBatch, seed: int = 0) -> np.ndarray:
    change: np.ndarray = (noise(batch, draws=Draws(seed)).waveforms - batch.waveforms).double().numpy()
    return change


def long_silence() -> AudioBatch:
    return AudioBatch.of([np.zeros(200_000)], 16000)


def test_gaussian_noise_has_variance_sigma_squared_and_no_memory() -> None:
    noise = added(Gaussian(sigma=0.02), long_silence())[0]
    # The variance of 200,000 samples strays by sqrt(2 / 200,000) = 0.3 %.
    assert np.mean(noise**2) == pytest.approx(0.0004, rel=0.015)
    assert np.mean(noise[1:] * noise[:-1]) / np.mean(noise**2) == pytest.approx(0.0, abs=0.015)


def test_mad_noise_has_half_the_variance_and_turns_at_every_sample() -> None:
    noise = added(MadNoise(sigma=0.02), long_silence())[0]
    power = np.mean(noise**2)
    assert power == pytest.approx(0.0002, rel=0.015)
    assert np.mean(noise[1:] * noise[:-1]) / power == pytest.approx(-0.5, abs=0.015)
    assert np.mean(noise[2:] * noise[:-2]) / power == pytest.approx(0.0, abs=0.015)


def test_mad_noise_has_the_spectrum_of_a_difference() -> None:
    noise = added(MadNoise(sigma=0.1), long_silence())[0]
    frequency, density = scipy.signal.welch(noise, fs=1.0, nperseg=256, detrend=False)
    # |1 - e^(-jw)|^2 / 4 sigma^2 on both sides of zero, and Welch's density is one-sided.
    expected = 2.0 * np.abs(1 - np.exp(-2j * np.pi * frequency)) ** 2 / 4.0 * 0.01
    middle = slice(20, -2)
    assert density[middle] / expected[middle] == pytest.approx(1.0, abs=0.2)
    assert np.mean(density[middle] / expected[middle]) == pytest.approx(1.0, abs=0.02)


def test_the_first_sample_of_mad_noise_is_as_loud_as_the_others() -> None:
    batch = AudioBatch.of([np.zeros(2)] * 5000, 16000)
    first, second = np.mean(added(MadNoise(sigma=1.0), batch) ** 2, axis=0)
    # 5000 clips: a standard error of 2 %.
    assert first == pytest.approx(0.5, rel=0.08)
    assert second == pytest.approx(0.5, rel=0.08)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(snr_db=st.floats(-20.0, 60.0), seed=st.integers(0, 1000))
def test_the_snr_asked_for_is_the_snr_measured(kind: type[Smoothing], snr_db: float, seed: int) -> None:
    batch = example_clips()
    noise = added(kind(snr_db=snr_db), batch, seed)
    clean = batch.waveforms.double().numpy()
    ratio = 10 * np.log10(np.sum(clean**2, axis=1) / np.sum(noise**2, axis=1))
    assert ratio == pytest.approx(snr_db, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_step_stands_in_for_the_level_of_silence(kind: type[Smoothing]) -> None:
    noise = added(kind(snr_db=20.0), AudioBatch.of([np.zeros(4000), np.zeros(1000)], 16000))
    assert np.sqrt(np.sum(noise**2, axis=1) / [4000, 1000]) == pytest.approx(0.1 * 0.5 / 32768, rel=1e-4)


def test_noise_is_fresh_at_every_hearing_and_the_same_when_asked_again() -> None:
    noise, batch = MadNoise(), example_clips()
    assert np.array_equal(added(noise, batch, seed=1), added(noise, batch, seed=1))
    assert not np.isclose(added(noise, batch, seed=1), added(noise, batch, seed=2)).all(axis=1).any()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_knows_that_the_level_follows_the_clip(kind: type[Smoothing]) -> None:
    noise = kind(snr_db=3.0)
    lengths = torch.tensor([8, 5])
    rows = torch.tensor([[0.1, -0.2, 0.3, 0.1, 0.0, 0.2, 0.1, -0.1], [0.2, 0.1, -0.1, 0.3, 0.1, 0, 0, 0]])

    def heard(waveforms: torch.Tensor) -> torch.Tensor:
        batch = AudioBatch(rows.double(), lengths, 1000, ("a", "b")).with_waveforms(waveforms)
        return noise(batch, draws=Draws(0)).waveforms

    assert torch.autograd.gradcheck(heard, rows.double().requires_grad_())


@pytest.mark.parametrize("kind", KINDS)
def test_the_level_is_sigma_or_an_snr(kind: type[Smoothing]) -> None:
    assert (kind().sigma, kind().snr_db) == (0.01, None)
    assert (kind(snr_db=12.0).sigma, kind(snr_db=12.0).snr_db) == (None, 12.0)
    assert kind().random


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("level", "message"),
    [
        ({"sigma": 0.0}, "sigma: expected a number above 0, got 0.0"),
        ({"sigma": -0.1}, "sigma: expected a number above 0, got -0.1"),
        ({"sigma": math.nan}, "sigma: expected a number above 0, got nan"),
        ({"sigma": math.inf}, "sigma: expected a number above 0, got inf"),
        ({"snr_db": math.inf}, "snr_db: expected a finite number of decibels, got inf"),
        ({"sigma": 0.01, "snr_db": 20.0}, "sigma and snr_db exclude each other"),
    ],
)
def test_a_level_that_makes_no_sense_is_refused(
    kind: type[Smoothing], level: dict[str, float], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        kind(**level)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [{"sigma": 0.02}, {"snr_db": 15.0}])
def test_smoothing_obeys_the_laws(kind: type[Smoothing], level: dict[str, float]) -> None:
    noise = kind(**level)
    check_transform(noise)
    check_target(Defended(ToyClassifier(), (noise,)))
