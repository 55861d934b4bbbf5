"""Front ends against the feature extractors that were published with the models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sottovoce.targets.families.front_ends import (
    FrontEnd,
    KaldiFilterbank,
    RawWaveform,
    WhisperLogMel,
    kaldi_filters,
    slaney_filters,
)

transformers = pytest.importorskip("transformers")

RATE = 16_000
Clip = NDArray[np.float32]


def noise(samples: int, level: float = 0.5) -> Clip:
    return np.random.default_rng(samples).uniform(-level, level, samples).astype(np.float32)


def voice(samples: int) -> Clip:
    """Something like speech: a gliding fundamental with formants, in syllables, over a faint hiss."""
    time = np.arange(samples) / RATE
    phase = 2 * np.pi * np.cumsum(120.0 + 30.0 * np.sin(2 * np.pi * 1.3 * time)) / RATE
    sound = np.zeros(samples)
    for harmonic in range(1, 40):
        formants = sum(math.exp(-(((120 * harmonic - hz) / 150) ** 2)) for hz in (600, 1300, 2500))
        sound += (formants + 0.02) * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 2.5 * time), 0.0, None)
    hiss = np.random.default_rng(3).standard_normal(samples)
    return (0.4 * sound / np.abs(sound).max() * syllables + 1e-4 * hiss).astype(np.float32)


CLIPS: dict[str, Clip] = {
    "noise": noise(16_000),
    "faint noise": noise(7_301, level=1e-3),
    "loud noise": noise(23_456, level=1.0),
    "one window": noise(400),
    "voice": voice(20_000),
    "long voice": voice(51_234),
    "silence": np.zeros(3_000, dtype=np.float32),
    "constant": np.full(3_000, 0.25, dtype=np.float32),
    "click": np.eye(1, 5_000, 2_500, dtype=np.float32)[0],
}

FRONT_ENDS: dict[str, Callable[[], FrontEnd]] = {
    "raw": lambda: RawWaveform(normalise=True),
    "kaldi": lambda: KaldiFilterbank(bands=32, frames=40, mean=-4.0, spread=9.0),
    "whisper": lambda: WhisperLogMel(seconds=1),
}


def run(front: FrontEnd, *clips: Clip) -> torch.Tensor:
    rows = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(clip) for clip in clips], batch_first=True)
    return front(rows, torch.tensor([len(clip) for clip in clips]))


def published_ast(**settings: object) -> object:
    with warnings.catch_warnings():
        # 128 bands leave one without a bin, which the extractor says each time.
        warnings.filterwarnings("ignore", message="At least one mel filter")
        return transformers.ASTFeatureExtractor(**settings)


# --- against the published extractors ------------------------------------------------------------------


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("normalise", [True, False])
def test_raw_waveform_agrees_with_the_published_extractor(name: str, normalise: bool) -> None:
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalise)
    expected = extractor(CLIPS[name], sampling_rate=RATE, return_tensors="pt").input_values
    torch.testing.assert_close(
        run(RawWaveform(normalise=normalise), CLIPS[name]), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("frames", [1024, 128])
def test_kaldi_filterbank_agrees_with_the_published_extractor(name: str, frames: int) -> None:
    extractor = published_ast(max_length=frames)
    front = KaldiFilterbank(frames=frames, mean=-4.2677393, spread=2 * 4.5689974)
    expected = extractor(CLIPS[name], sampling_rate=RATE, return_tensors="pt").input_values
    assert expected.shape == (1, frames, 128)
    torch.testing.assert_close(run(front, CLIPS[name]), expected, atol=1e-3, rtol=0)


def test_kaldi_filterbank_without_scaling_agrees_too() -> None:
    extractor = published_ast(max_length=64, num_mel_bins=40, do_normalize=False)
    expected = extractor(CLIPS["voice"], sampling_rate=RATE, return_tensors="pt").input_values
    actual = run(KaldiFilterbank(bands=40, frames=64), CLIPS["voice"])
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("bands", [80, 128])
def test_whisper_log_mel_agrees_with_the_published_extractor(name: str, bands: int) -> None:
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
    expected = extractor(CLIPS[name], sampling_rate=RATE, return_tensors="pt").input_features
    assert expected.shape == (1, bands, 3000)
    torch.testing.assert_close(run(WhisperLogMel(bands=bands), CLIPS[name]), expected, atol=1e-4, rtol=0)


def test_whisper_log_mel_cuts_what_comes_too_late() -> None:
    extractor = transformers.WhisperFeatureExtractor(chunk_length=2)
    expected = extractor(CLIPS["long voice"], sampling_rate=RATE, return_tensors="pt").input_features
    assert expected.shape == (1, 80, 200)
    actual = run(WhisperLogMel(seconds=2), CLIPS["long voice"])
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def test_mel_filters_agree_with_the_published_ones() -> None:
    bank = transformers.audio_utils.mel_filter_bank
    kaldi = bank(257, 40, 20, 8000, RATE, mel_scale="kaldi", triangularize_in_mel_space=True)
    slaney = bank(201, 80, 0.0, 8000.0, RATE, norm="slaney", mel_scale="slaney")
    np.testing.assert_allclose(kaldi_filters(40).numpy(), kaldi, atol=1e-6)
    np.testing.assert_allclose(slaney_filters(80, 201, RATE, 8000.0).numpy(), slaney, atol=1e-8)


# --- by hand -------------------------------------------------------------------------------------------


def test_normalised_clip_by_hand() -> None:
    # Mean 0.5, variance 0.0625 over the first clip's two samples: the padding counts for nothing.
    rows = torch.tensor([[0.25, 0.75, 0.0, 0.0], [0.5, -0.5, 0.5, -0.5]])
    actual = RawWaveform(normalise=True)(rows, torch.tensor([2, 4]))
    torch.testing.assert_close(
        actual, torch.tensor([[-1.0, 1.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0]]), atol=1e-5, rtol=0
    )


def test_kaldi_silence_by_hand() -> None:
    # 1000 samples hold 1 + 600 // 160 = 4 frames at the floor, -23 ln 2; the two missing ones are zero.
    energies = run(KaldiFilterbank(bands=16, frames=6), np.zeros(1000, dtype=np.float32))[0]
    torch.testing.assert_close(energies[:4], torch.full((4, 16), -15.9423851))
    assert energies[4:].abs().max() == 0.0


def test_whisper_silence_by_hand() -> None:
    # The floor is 1e-10: (log10(1e-10) + 4) / 4.
    assert torch.equal(run(WhisperLogMel(seconds=1), CLIPS["silence"]), torch.full((1, 80, 100), -1.5))


def test_lengths_that_are_heard() -> None:
    assert KaldiFilterbank(frames=128).shortest == 400
    # With 400 + 128 * 160 = 20,880 samples there would be a 129th frame.
    assert KaldiFilterbank(frames=128).longest == 20_879
    assert WhisperLogMel().longest == 480_000
    assert RawWaveform(normalise=True).longest is None


# --- laws ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRONT_ENDS)
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(400, 9_000), min_size=2, max_size=4))
def test_a_clip_gives_the_same_alone_and_in_a_batch(name: str, lengths: list[int]) -> None:
    front = FRONT_ENDS[name]()
    clips = [noise(length) for length in lengths]
    together = run(front, *clips)
    for row, clip in enumerate(clips):
        alone = run(front, clip)[0]
        inside = together[row, : len(alone)] if name == "raw" else together[row]
        torch.testing.assert_close(inside, alone, atol=1e-4, rtol=0)
        if name == "raw":
            assert not together[row, len(clip) :].any()


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_gradient_is_the_slope(name: str) -> None:
    front = FRONT_ENDS[name]()
    clip = torch.from_numpy(voice(6_000)).double()[None]
    lengths = torch.tensor([6_000])
    way = torch.from_numpy(noise(6_000)).double()[None]
    weights = torch.from_numpy(noise(front(clip, lengths).numel())).double()

    def value(step: float) -> torch.Tensor:
        return (front(clip + step * way, lengths).flatten() * weights).sum()

    moved = clip.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((front(moved, lengths).flatten() * weights).sum(), moved)
    slope = (value(1e-7) - value(-1e-7)) / 2e-7
    torch.testing.assert_close((gradient * way).sum(), slope, rtol=1e-3, atol=1e-3)
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_gradient_is_finite_on_silence(name: str) -> None:
    clip = torch.zeros(1, 2_000, requires_grad=True)
    FRONT_ENDS[name]()(clip, torch.tensor([2_000])).sum().backward()
    assert clip.grad is not None and bool(torch.isfinite(clip.grad).all())


def test_front_ends_add_nothing_to_a_saved_model() -> None:
    for make in FRONT_ENDS.values():
        assert not make().state_dict()
