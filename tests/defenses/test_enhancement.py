"""The decision-directed Wiener filter: gains by hand, and what it does to noise, tones and speech."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Defended
from sottovoce.defenses.enhancement import Asnr, OverlappingFrames, mad_density, wiener_gains
from sottovoce.defenses.randomised_smoothing import Gaussian, MadNoise, Smoothing
from sottovoce.errors import InputError
from sottovoce.testing import ToyClassifier, ToyCtc, check_target, check_transform, example_clips

RATE = 16000


def enhanced(asnr: Asnr, batch: AudioBatch) -> np.ndarray:
    heard: np.ndarray = asnr(batch, draws=Draws(0)).waveforms.double().numpy()
    return heard


def noisy(noise: Smoothing, batch: AudioBatch) -> AudioBatch:
    return noise(batch, draws=Draws(1))


def level_db(signal: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(signal**2)))


def snr_db(clean: np.ndarray, heard: np.ndarray) -> float:
    return level_db(clean) - level_db(heard - clean)


def speech_like(seconds: float = 3.0) -> np.ndarray:
    """Voiced syllables with pauses between them: harmonics of a gliding pitch, weaker as they rise. The
    first begins with the clip."""
    time = np.arange(round(seconds * RATE)) / RATE
    pitch = 120 + 20 * np.sin(2 * np.pi * 0.7 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(k * phase + k) / k for k in range(1, 25))
    envelope = np.maximum(0.0, np.sin(2 * np.pi * 1.5 * time + 0.5))
    sound = voice * envelope
    return 0.1 * sound / np.sqrt(np.mean(sound**2))


def gains_of(posterior: list[float], smoothing: float, floor: float) -> list[float]:
    """One clip, one bin."""
    column = torch.tensor(posterior, dtype=torch.float64)[:, None, None]
    found: list[float] = wiener_gains(column, smoothing=smoothing, floor=floor)[:, 0, 0].tolist()
    return found


def test_gains_by_hand() -> None:
    # xi: (3 - 1) / 2 = 1; (1/2)^2 3 / 2 + 1 = 11/8; (11/19)^2 3 / 2 + 0 = 363/722.
    assert gains_of([3.0, 3.0, 1.0], 0.5, 1e-3) == pytest.approx([1 / 2, 11 / 19, 363 / 1085])
    # 0.02 (5 - 1) = 2/25; nothing is carried into a frame of which nothing rises above the noise, but for
    # 0.98 (2/27)^2 5.
    carried = 0.98 * (2 / 27) ** 2 * 5
    assert gains_of([5.0, 0.5], 0.98, 1e-3) == pytest.approx([2 / 27, carried / (1 + carried)])


def test_a_floor_holds_and_is_carried_on() -> None:
    # The first gain would be 1/2; raised to 3/5 it carries (3/5)^2 3 / 2 = 27/50 on, to which 1 is added.
    assert gains_of([3.0, 3.0, 0.0, 0.0], 0.5, 0.6) == pytest.approx([3 / 5, 77 / 127, 3 / 5, 3 / 5])


@pytest.mark.parametrize("posterior", [2.0, 10.0, 1000.0])
def test_a_steady_cell_settles_where_the_rule_stands_still(posterior: float) -> None:
    # xi = 0.98 (xi / (1 + xi))^2 gamma + 0.02 (gamma - 1), multiplied out; from below the least root is met.
    fresh = 0.02 * (posterior - 1)
    roots = np.roots([1.0, 2.0 - fresh - 0.98 * posterior, 1.0 - 2.0 * fresh, -fresh])
    settled = min(root.real for root in roots if abs(root.imag) < 1e-9 and root.real > 0)
    assert gains_of([posterior] * 400, 0.98, 1e-6)[-1] == pytest.approx(settled / (1 + settled), rel=1e-6)


@pytest.mark.parametrize("floor", [0.01, 0.1, 10**-0.5, 0.4])
def test_the_gains_have_their_true_gradient(floor: float) -> None:
    source = torch.Generator().manual_seed(0)
    posterior = 6.0 * torch.rand(7, 2, 3, dtype=torch.float64, generator=source)
    check = torch.autograd.gradcheck(
        lambda cells: wiener_gains(cells, smoothing=0.9, floor=floor), posterior.requires_grad_()
    )
    assert check


@pytest.mark.parametrize("asnr", [Asnr(), Asnr(noise="mad", sigma=0.05)])
def test_the_filter_has_its_true_gradient(asnr: Asnr) -> None:
    source = torch.Generator().manual_seed(1)
    rows = 0.2 * torch.rand(2, 90, dtype=torch.float64, generator=source) - 0.1
    rows[1, 70:] = 0.0
    clips = AudioBatch(rows, torch.tensor([90, 70]), 1000, ("a", "b"))
    check = torch.autograd.gradcheck(
        lambda waveforms: asnr(clips.with_waveforms(waveforms), draws=Draws(0)).waveforms,
        rows.clone().requires_grad_(),
    )
    assert check


@pytest.mark.parametrize("rate", [1000, 8000, 16000, 44100])
def test_frames_joined_as_they_were_split_give_the_clip(rate: int) -> None:
    frames = OverlappingFrames.at(rate)
    source = torch.Generator().manual_seed(2)
    for length in (frames.size, frames.size + 1, 3 * frames.size - 1, 2 * rate):
        clip = torch.rand(2, length, generator=source) - 0.5
        assert torch.allclose(frames.join(frames.split(clip), length), clip, atol=1e-6)


def test_frames_know_how_much_of_them_lies_in_the_clip() -> None:
    frames = OverlappingFrames.at(RATE)
    batch = AudioBatch.of([np.zeros(1600), np.zeros(700)], RATE)
    # The squares of a sine window over 512 samples: 256. Half of it lies on either side of the middle.
    energy = frames.energy(batch)
    assert energy[3].tolist() == pytest.approx([256.0, 256.0])  # samples 0 to 511
    assert energy[1].tolist() == pytest.approx([128.0, 128.0], abs=0.5)  # samples -256 to 255
    inside = np.sin(np.pi * np.arange(700 - 512) / 512) ** 2
    assert energy[7].tolist() == pytest.approx([256.0, float(inside.sum())])  # samples 512 to 1023
    assert energy[10, 1].item() == 0.0  # samples 896 to 1407: padding


def test_silence_stays_silent() -> None:
    batch = AudioBatch.of([np.zeros(8000), np.zeros(5000)], RATE)
    for asnr in (Asnr(), Asnr(noise="gaussian", sigma=0.01)):
        assert not enhanced(asnr, batch).any()


def test_known_white_noise_sinks_to_the_floor() -> None:
    noise = noisy(Gaussian(sigma=0.02), AudioBatch.of([np.zeros(5 * RATE)], RATE))
    # The power of a cell over the noise's is exponential. The gain leaves the floor of 0.1 where xi passes
    # 1/9, so where 0.02 (gamma - 1) does but for what is carried: beyond gamma = 6, in 1 of 400 cells.
    attenuation = level_db(noise.waveforms.numpy()) - level_db(
        enhanced(Asnr(noise="gaussian", sigma=0.02, floor_db=-20.0), noise)
    )
    assert 18.5 < attenuation < 21.0


def test_estimated_white_noise_sinks_near_the_floor() -> None:
    noise = noisy(Gaussian(sigma=0.02), AudioBatch.of([np.zeros(5 * RATE)], RATE))
    asnr = Asnr(floor_db=-15.0)
    assert level_db(noise.waveforms.numpy()) - level_db(enhanced(asnr, noise)) > 13.5


def test_a_loud_tone_is_left_alone() -> None:
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE)
    clip = AudioBatch.of([tone], RATE)
    assert snr_db(tone, enhanced(Asnr(noise="gaussian", sigma=0.001), clip)[0]) > 35.0


def test_a_tone_that_never_pauses_is_not_taken_for_noise() -> None:
    tone = 0.1 * np.sin(2 * np.pi * 1000 * np.arange(2 * RATE) / RATE)
    clip = noisy(Gaussian(sigma=0.02), AudioBatch.of([tone], RATE))
    before, after = (snr_db(tone, heard[0]) for heard in (clip.waveforms.numpy(), enhanced(Asnr(), clip)))
    # 10 dB of floor and more on all but a few of 257 bins.
    assert after - before > 8.0


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("sigma", [0.02, 0.06])
def test_noisy_speech_gains_decibels(sigma: float, known: bool) -> None:
    clean = speech_like()
    clip = noisy(Gaussian(sigma=sigma), AudioBatch.of([clean], RATE))
    asnr = Asnr(noise="gaussian", sigma=sigma) if known else Asnr()
    assert snr_db(clean, enhanced(asnr, clip)[0]) - snr_db(clean, clip.waveforms[0].numpy()) > 5.0


def test_the_estimate_finds_the_noise_between_the_words() -> None:
    clean = speech_like()
    clip = noisy(Gaussian(sigma=0.03), AudioBatch.of([clean], RATE))
    told = enhanced(Asnr(noise="gaussian", sigma=0.03), clip)[0]
    # Both end up with nearly the same filter.
    assert snr_db(told, enhanced(Asnr(), clip)[0]) > 15.0


def test_mad_noise_is_met_with_its_own_spectrum() -> None:
    clean = speech_like()
    clip = noisy(MadNoise(sigma=0.06), AudioBatch.of([clean], RATE))
    own, other = (
        snr_db(clean, enhanced(Asnr(noise=kind, sigma=0.06), clip)[0]) for kind in ("mad", "gaussian")
    )
    assert own > other + 1.0
    assert own > snr_db(clean, clip.waveforms[0].numpy()) + 5.0


def test_the_spectrum_of_mad_noise_through_the_window() -> None:
    source = np.random.default_rng(0)
    white = source.standard_normal((20_000, 33))
    window = np.sin(np.pi * np.arange(32) / 32)
    measured = np.mean(np.abs(np.fft.rfft(np.diff(white, axis=1) / 2 * window, axis=1)) ** 2, axis=0)
    # Over the window's energy of 16. 20,000 frames: a standard error of 1 % at the ends, less between.
    assert mad_density(OverlappingFrames(8))[0].numpy() == pytest.approx(measured / 16, rel=0.04)


def test_a_clip_that_does_not_fill_a_frame_is_refused() -> None:
    with pytest.raises(InputError, match="clip 'b': speech enhancement needs at least 512 samples"):
        Asnr()(AudioBatch.of([np.zeros(512), np.zeros(511)], RATE, ["a", "b"]), draws=Draws(0))


def test_a_rate_without_speech_is_refused() -> None:
    with pytest.raises(InputError, match="needs clips at 500 Hz or more, got 100 Hz"):
        Asnr()(AudioBatch.of([np.zeros(512)], 100), draws=Draws(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": "pink"}, "noise: expected 'estimate', 'gaussian' or 'mad', got 'pink'"),
        (
            {"sigma": 0.01},
            "sigma: expected none with noise=estimate, which measures the noise itself, got 0.01",
        ),
        (
            {"noise": "gaussian"},
            "sigma: noise=gaussian needs the sigma of the noise in front of this filter, above 0, got None",
        ),
        (
            {"noise": "mad", "sigma": 0.0},
            "sigma: noise=mad needs the sigma of the noise in front of this filter, above 0, got 0.0",
        ),
        (
            {"noise": "mad", "sigma": math.nan},
            "sigma: noise=mad needs the sigma of the noise in front of this filter, above 0, got nan",
        ),
        ({"smoothing": 1.0}, "smoothing: expected a number from 0 to below 1, got 1.0"),
        ({"smoothing": -0.1}, "smoothing: expected a number from 0 to below 1, got -0.1"),
        ({"floor_db": 0.0}, "floor_db: expected a number below 0, got 0.0"),
        ({"floor_db": -math.inf}, "floor_db: expected a number below 0, got -inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Asnr(**settings)


@pytest.mark.parametrize(
    "asnr", [Asnr(), Asnr(noise="gaussian", sigma=0.02), Asnr(noise="mad", sigma=0.02)], ids=str
)
def test_the_filter_obeys_the_laws(asnr: Asnr) -> None:
    check_transform(asnr)
    check_target(Defended(ToyClassifier(), (asnr,)))
    check_target(Defended(ToyCtc(), (Gaussian(sigma=0.02), asnr)))
    assert not asnr.random


def test_it_stands_behind_smoothing_without_being_told_of_it() -> None:
    clean = example_clips()
    target = Defended(ToyClassifier(), (Gaussian(sigma=0.01), Asnr()))
    assert target.random
    assert len(target.decode(clean, draws=Draws(0))) == len(clean)
