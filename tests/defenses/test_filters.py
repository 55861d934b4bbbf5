from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.signal
import soxr
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.defenses.filters import BiquadLowPass, IdealLowPass, MedianSmoothing, Resample
from sottovoce.errors import InputError
from sottovoce.testing import check_transform

RATE = 16000
ALL = [
    IdealLowPass(),
    IdealLowPass(share=0.5),
    BiquadLowPass(),
    BiquadLowPass(hz=3000.0, q=5.0),
    MedianSmoothing(),
    MedianSmoothing(window=7),
    Resample(),
    Resample(hz=11025),
]


def noise(*lengths: int, seed: int = 0) -> list[NDArray[np.float64]]:
    source = np.random.default_rng(seed)
    return [source.uniform(-0.9, 0.9, length) for length in lengths]


def tone(hz: float, count: int, rate: int = RATE) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(count) / rate)


def through(
    transform: Transform, *clips: NDArray[np.float64] | list[float], rate: int = RATE
) -> list[NDArray[np.float64]]:
    batch = AudioBatch.of(clips, rate)
    heard = transform(batch, draws=Draws(0))
    return [heard.clip(row).double().numpy() for row in range(len(batch))]


@pytest.mark.parametrize("transform", ALL, ids=str)
def test_laws_of_transforms(transform: Transform) -> None:
    check_transform(transform)
    assert not transform.random


@pytest.mark.parametrize("transform", ALL, ids=str)
def test_the_shortest_clips_keep_their_length(transform: Transform) -> None:
    clips = noise(1, 2, 3, 5, 4001)
    together = through(transform, *clips)
    assert [len(clip) for clip in together] == [1, 2, 3, 5, 4001]
    for clip, heard in zip(clips, together, strict=True):
        np.testing.assert_allclose(through(transform, clip)[0], heard, atol=5e-6)


@pytest.mark.parametrize(
    "transform", [IdealLowPass(share=0.3), BiquadLowPass(), Resample()], ids=lambda one: type(one).__name__
)
def test_gradients_of_linear_filters_are_their_own_transposes(transform: Transform) -> None:
    # For a linear map y = Ax, the gradient of <v, Ax> is A'v: <v, Au> must be <A'v, u> for any u.
    batch = AudioBatch.of(noise(300, 211), RATE)
    weights = AudioBatch.of(noise(300, 211, seed=1), RATE).waveforms.double()
    others = AudioBatch.of(noise(300, 211, seed=2), RATE).waveforms.double()
    leaf = batch.waveforms.double().requires_grad_()
    heard = transform(batch.with_waveforms(leaf), draws=Draws(0)).waveforms
    (heard * weights).sum().backward()
    forward = transform(batch.with_waveforms(others), draws=Draws(0)).waveforms
    assert leaf.grad is not None
    torch.testing.assert_close((leaf.grad * others).sum(1), (weights * forward).sum(1), rtol=1e-9, atol=1e-9)


# The ideal low-pass


def test_ideal_low_pass_keeps_the_lowest_share_and_nothing_else() -> None:
    # 400 samples have bins 40 Hz apart; 5 % of 8000 Hz is 400 Hz, bin 10, the last one to stay.
    for place, kept in ((1, True), (10, True), (11, False), (150, False)):
        clip = tone(40.0 * place, 400)
        heard = through(IdealLowPass(share=0.05), clip)[0]
        np.testing.assert_allclose(heard, clip if kept else 0 * clip, atol=1e-6)


def test_ideal_low_pass_works_in_the_clips_own_spectrum() -> None:
    clips = noise(399, 400, 127, 400)
    for clip, heard in zip(clips, through(IdealLowPass(share=0.3), *clips), strict=True):
        spectrum = np.fft.rfft(clip)
        spectrum[math.floor(0.3 * len(clip) / 2) + 1 :] = 0
        np.testing.assert_allclose(heard, np.fft.irfft(spectrum, len(clip)), atol=1e-6)


def test_ideal_low_pass_by_hand() -> None:
    # Four samples have the frequencies 0, half and all of Nyquist. Their mean is 0.25; the half has the
    # cosine (x0 - x2)/2 = 0.25 and the sine (x1 - x3)/2 = 0: 0.25 + 0.25 cos(pi n / 2).
    heard = through(IdealLowPass(share=0.6), [0.5, 0.25, 0.0, 0.25])[0]
    np.testing.assert_allclose(heard, [0.5, 0.25, 0.0, 0.25], atol=1e-7)
    heard = through(IdealLowPass(share=0.4), [0.5, 0.25, 0.0, 0.25])[0]
    np.testing.assert_allclose(heard, [0.25] * 4, atol=1e-7)


# The biquad


@pytest.mark.parametrize(
    ("hz", "q", "rate"),
    [
        (200.0, 0.7071, RATE),
        (200.0, 0.7071, 1000),
        (20.0, 0.7071, 44100),
        (4000.0, 0.5, RATE),
        (3000.0, 10.0, RATE),
        (1000.0, 0.1, RATE),
        (7900.0, 0.3, RATE),
        (0.001, 0.7071, RATE),
        (1000.0, 1e18, RATE),
    ],
)
def test_biquad_is_scipys_filter(hz: float, q: float, rate: int) -> None:
    angle = 2 * np.pi * hz / rate
    alpha, cosine = np.sin(angle) / (2 * q), np.cos(angle)
    forward = [(1 - cosine) / 2, 1 - cosine, (1 - cosine) / 2]
    clips = noise(16001, 4000, 17)
    for clip, heard in zip(clips, through(BiquadLowPass(hz=hz, q=q), *clips, rate=rate), strict=True):
        expected = scipy.signal.lfilter(forward, [1 + alpha, -2 * cosine, 1 - alpha], clip)
        np.testing.assert_allclose(heard, expected, atol=1e-5)


def test_biquad_first_samples_by_hand() -> None:
    # At a quarter of the rate the cosine is 0 and the sine 1. With q = 0.5 alpha is 1, so a = (2, 0, 0) and
    # b = (1/2, 1, 1/2): a click of 0.8 gives 0.2, 0.4, 0.2 and then silence.
    heard = through(BiquadLowPass(hz=4000.0, q=0.5), [0.8, 0.0, 0.0, 0.0, 0.0])[0]
    np.testing.assert_allclose(heard, [0.2, 0.4, 0.2, 0.0, 0.0], atol=1e-7)


def test_biquad_has_three_decibels_less_at_its_cutoff() -> None:
    heard = through(BiquadLowPass(hz=200.0), tone(200.0, RATE), tone(20.0, RATE), tone(2000.0, RATE))
    levels = [20 * np.log10(np.sqrt(2 * np.mean(clip[8000:] ** 2)) / 0.5) for clip in heard]
    # Butterworth: 10 log10(1 + (f/f0)^4); the bilinear transform adds a little at 2000 Hz.
    np.testing.assert_allclose(levels[:2], [-3.0103, -0.0004], atol=0.002)
    assert -41.0 < levels[2] < -40.0


# The median


def test_median_by_hand() -> None:
    # Mirrored ends: 3 | 1 3 2 5 4 | 5, in hundredths.
    heard = through(MedianSmoothing(), [0.01, 0.03, 0.02, 0.05, 0.04], [0.02, 0.01], [0.07])
    np.testing.assert_allclose(heard[0], [0.03, 0.02, 0.03, 0.04, 0.05], atol=1e-8)
    np.testing.assert_allclose(heard[1], [0.01, 0.02], atol=1e-8)
    np.testing.assert_allclose(heard[2], [0.07], atol=1e-8)


@settings(max_examples=30)
@given(st.sampled_from([3, 5, 9]), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_median_is_numpys_over_a_mirrored_clip(window: int, lengths: list[int]) -> None:
    clips = noise(*lengths)
    for clip, heard in zip(clips, through(MedianSmoothing(window=window), *clips), strict=True):
        mirrored = np.pad(clip.astype(np.float32), window // 2, mode="reflect")
        expected = np.median(np.lib.stride_tricks.sliding_window_view(mirrored, window), axis=1)
        np.testing.assert_array_equal(heard, expected)


def test_the_medians_gradient_goes_to_the_sample_that_was_taken() -> None:
    batch = AudioBatch.of([[0.1, 0.5, 0.2, 0.3]], RATE)
    leaf = batch.waveforms.clone().requires_grad_()
    heard = MedianSmoothing()(batch.with_waveforms(leaf), draws=Draws(0)).waveforms
    torch.testing.assert_close(heard, torch.tensor([[0.5, 0.2, 0.3, 0.2]]))
    (heard * torch.tensor([[1.0, 10.0, 100.0, 1000.0]])).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[0.0, 1.0, 1010.0, 100.0]]


# Down and up again


@pytest.mark.parametrize(("hz", "rate"), [(8000, 16000), (11025, 16000), (6000, 16000), (16000, 44100)])
def test_resampling_keeps_what_fits_and_drops_what_does_not(hz: int, rate: int) -> None:
    inner = slice(rate // 8, -rate // 8)
    for share in (0.01, 0.3, 0.6, 0.9):
        clip = tone(share * hz / 2, rate, rate)
        np.testing.assert_allclose(
            through(Resample(hz=hz), clip, rate=rate)[0][inner], clip[inner], atol=1e-4
        )
    for share in (1.02, 1.2, 1.3):
        if share * hz < rate:
            clip = tone(share * hz / 2, rate, rate)
            assert np.abs(through(Resample(hz=hz), clip, rate=rate)[0][inner]).max() < 1e-4


def test_resampling_is_soxrs_and_scipys_for_sound_that_fits() -> None:
    source = np.random.default_rng(3)
    band = scipy.signal.firwin(501, 3300.0, fs=RATE)
    clip = np.clip(scipy.signal.fftconvolve(source.normal(0, 0.2, RATE + 1), band, "same"), -1, 1)
    clip *= scipy.signal.windows.tukey(len(clip), 0.2)
    heard = through(Resample(hz=8000), clip)[0]
    low = soxr.resample(clip, RATE, 8000, quality="VHQ")
    both = soxr.resample(low, 8000, RATE, quality="VHQ")[: len(clip)]
    np.testing.assert_allclose(heard[: len(both)], both, atol=2e-4)
    window = ("kaiser", 14.0)
    poly = scipy.signal.resample_poly(clip, 1, 2, window=scipy.signal.firwin(801, 0.5, window=window))
    back = scipy.signal.resample_poly(poly, 2, 1, window=scipy.signal.firwin(801, 0.5, window=window))
    np.testing.assert_allclose(heard, back[: len(clip)], atol=2e-4)


def test_resampling_moves_no_click() -> None:
    for place in (0, 1, 777, 3999, 4000):
        clip = np.zeros(4001)
        clip[place] = 0.9
        assert int(np.abs(through(Resample(hz=4000), clip)[0]).argmax()) == place


# Settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IdealLowPass(share=0.0), "share: expected a number between 0 and 1, got 0.0"),
        (lambda: IdealLowPass(share=1.0), "got 1.0"),
        (lambda: IdealLowPass(share=float("nan")), "got nan"),
        (lambda: BiquadLowPass(hz=0.0), "expected a cutoff above 0 Hz, got 0.0"),
        (lambda: BiquadLowPass(hz=float("nan")), "got nan"),
        (lambda: BiquadLowPass(q=-1.0), "q: expected a number above 0, got -1.0"),
        (lambda: BiquadLowPass(q=float("inf")), "got inf"),
        (lambda: MedianSmoothing(window=4), "window: expected an odd number of samples, 3 or more, got 4"),
        (lambda: MedianSmoothing(window=1), "got 1"),
        (lambda: Resample(hz=0), "hz: expected a sample rate above 0 Hz, got 0"),
    ],
)
def test_settings_that_make_no_filter(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (BiquadLowPass(hz=8000.0), "below half the sample rate, 8000 Hz, got 8000"),
        (Resample(hz=16000), "below that of the clips, 16000 Hz, got 16000"),
        (Resample(hz=15999), "which have 1; round the rate to hundreds"),
    ],
)
def test_a_filter_that_would_do_nothing_is_refused(transform: Transform, message: str) -> None:
    with pytest.raises(InputError, match=message):
        through(transform, [0.0, 0.5])
