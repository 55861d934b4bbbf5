from __future__ import annotations

import sys

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Defended, Transform
from sottovoce.data.embedded import embedded, strings
from sottovoce.data.load import collate
from sottovoce.defenses.codecs import Mp3, MuLaw
from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.zoo.keyword_cnn import keyword
from sottovoce.testing import check_target, check_transform

RATE = 16000


def through(
    transform: Transform, *clips: NDArray[np.float64] | list[float], rate: int = RATE
) -> list[NDArray[np.float64]]:
    batch = AudioBatch.of(clips, rate)
    heard = transform(batch, draws=Draws(0))
    return [heard.clip(row).double().numpy() for row in range(len(batch))]


def noise(count: int, seed: int = 0) -> NDArray[np.float64]:
    """Noise below a quarter of the sample rate, which every bit rate lets through."""
    source = np.random.default_rng(seed)
    smooth = np.convolve(source.normal(0.0, 1.0, count + 7), np.ones(8), "valid")
    return np.asarray(0.3 * smooth / np.abs(smooth).max())


def speech() -> AudioBatch:
    corpus = strings().limit(3)
    return collate([corpus.load(entry, RATE) for entry in corpus])


def lag(clip: NDArray[np.float64], heard: NDArray[np.float64]) -> int:
    """Samples by which `heard` is late, by cross-correlation over all lags."""
    size = 2 * len(clip)
    product = np.fft.rfft(heard, size) * np.conj(np.fft.rfft(clip, size))
    place = int(np.fft.irfft(product, size).argmax())
    return place if place < len(clip) else place - size


def snr_db(clip: NDArray[np.float64], heard: NDArray[np.float64]) -> float:
    return float(10 * np.log10((clip**2).sum() / ((heard - clip) ** 2).sum()))


# MP3


@pytest.mark.parametrize("kbps", [8, 32, 40, 160])
def test_mp3_keeps_the_laws_of_transforms(kbps: int) -> None:
    check_transform(Mp3(kbps=kbps))
    assert not Mp3(kbps=kbps).random


def test_a_target_behind_mp3_keeps_the_laws_of_targets() -> None:
    check_target(Defended(keyword(), (Mp3(kbps=32),)))


@pytest.mark.parametrize(
    ("rate", "kbps"),
    [
        *[(RATE, kbps) for kbps in (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)],
        *[(8000, kbps) for kbps in (8, 16, 24, 64)],
        *[(11025, 16), (12000, 24), (22050, 48), (22050, 56), (24000, 56), (24000, 64)],
        *[(32000, 32), (32000, 40), (44100, 32), (44100, 56), (44100, 320), (48000, 56), (48000, 64)],
    ],
)
def test_mp3_is_aligned_to_the_sample(rate: int, kbps: int) -> None:
    burst = np.zeros(12345)
    burst[5000:7000] = noise(2000)
    (heard,) = through(Mp3(kbps=kbps), burst, rate=rate)
    assert len(heard) == 12345
    assert lag(burst, heard) == 0
    # Before and after the burst there is next to nothing.
    energy = (heard**2).sum()
    assert (heard[3500:8500] ** 2).sum() > 0.999 * energy


@pytest.mark.parametrize("kbps", [32, 64])
@pytest.mark.parametrize("place", [0, 1, 4999, 9998])
def test_mp3_moves_no_click(kbps: int, place: int) -> None:
    click = np.zeros(9999)
    click[place] = 0.9
    (heard,) = through(Mp3(kbps=kbps), click)
    assert int(np.abs(heard).argmax()) == place


def test_mp3_at_every_length_alone_and_in_a_batch() -> None:
    # An MP3 frame at 16 kHz has 576 samples.
    lengths = [1, 2, 99, 575, 576, 577, 1151, 1152, 1153, 4001]
    clips = [noise(length, seed) for seed, length in enumerate(lengths)]
    for kbps in (24, 64):
        together = through(Mp3(kbps=kbps), *clips)
        assert [len(clip) for clip in together] == lengths
        for clip, heard in zip(clips, together, strict=True):
            np.testing.assert_allclose(through(Mp3(kbps=kbps), clip)[0], heard, atol=1e-7)


def test_mp3_comes_closer_with_the_bit_rate() -> None:
    batch = speech()
    clips = [batch.clip(row).double().numpy() for row in range(len(batch))]
    found = [through(Mp3(kbps=kbps), *clips) for kbps in (8, 16, 32, 64)]
    for row, clip in enumerate(clips):
        levels = [snr_db(clip, heard[row]) for heard in found]
        assert levels == sorted(levels)
        assert levels[0] > 5.0
        assert levels[-1] - levels[0] > 5.0


def test_mp3_does_not_change_what_the_clips_say() -> None:
    corpus = embedded()
    clips = [corpus.load(entry, RATE) for entry in corpus.entries[::4]]
    heard = Defended(keyword(), (Mp3(kbps=64),)).decode(collate(clips), draws=Draws(0))
    right = sum(text == clip.label for text, clip in zip(heard, clips, strict=True))
    assert right >= 0.9 * len(clips)


def test_mp3_has_the_gradient_of_the_identity() -> None:
    batch = AudioBatch.of([noise(700), noise(400)], RATE)
    leaf = batch.waveforms.clone().requires_grad_()
    heard = Mp3()(batch.with_waveforms(leaf), draws=Draws(0)).waveforms
    (heard * 3.0).sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, 3.0 * batch.mask.float())


def test_mp3_lets_samples_past_full_scale_through() -> None:
    batch = AudioBatch.of([0.9 * np.sin(np.arange(8000) / 9)], RATE)
    heard = Mp3(kbps=160)(batch.with_waveforms(1.5 * batch.waveforms), draws=Draws(0)).waveforms
    # LAME takes about 5 % off; clipping would leave no more than 1.
    assert 1.2 < float(heard.abs().max()) < 1.4


def test_mp3_refuses_numbers_that_are_none() -> None:
    batch = AudioBatch.of([np.zeros(1000)], RATE)
    with pytest.raises(InputError, match="mp3 got NaN or infinite samples"):
        Mp3()(batch.with_waveforms(batch.waveforms / 0.0), draws=Draws(0))


@pytest.mark.parametrize("kbps", [0, 7, 33, 321])
def test_bit_rates_that_mp3_does_not_have(kbps: int) -> None:
    with pytest.raises(
        InputError, match=rf"expected a bit rate of MP3 in kbit/s \(8, 16, 24, 32, .*got {kbps}\."
    ):
        Mp3(kbps=kbps)


def test_rates_that_mp3_does_not_know() -> None:
    with pytest.raises(InputError, match=r"mp3 works at .*got clips at 1000 Hz; resample"):
        through(Mp3(), [0.0] * 100, rate=1000)
    with pytest.raises(InputError, match=r"MP3 at 16000 Hz has 8, .*160 kbit/s, got 320"):
        through(Mp3(kbps=320), [0.0] * 100)
    with pytest.raises(InputError, match=r"MP3 at 44100 Hz has 32, 40, .*kbit/s, got 8"):
        through(Mp3(kbps=8), [0.0] * 100, rate=44100)


def test_a_libsndfile_without_mp3_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = {"WAV": "WAV (Microsoft)", "FLAC": "FLAC (Free Lossless Audio Codec)"}
    monkeypatch.setattr(soundfile, "available_formats", lambda: formats)
    with pytest.raises(MissingExtra, match="mp3 needs a libsndfile that writes MP3"):
        Mp3()


def test_without_soundfile_mp3_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingExtra, match="mp3 needs the package soundfile"):
        Mp3()


def test_an_encoder_that_gives_another_bit_rate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = soundfile.SoundFile

    def deaf(*arguments: object, compression_level: float = 0.0, **settings: object) -> soundfile.SoundFile:
        return plain(*arguments, compression_level=0.5, **settings)

    monkeypatch.setattr(soundfile, "SoundFile", deaf)
    # Half way from 160 down to 8 kbit/s is 84, and 80 is the nearest there is.
    with pytest.raises(InputError, match="the MP3 encoder gave 80 kbit/s, expected 32"):
        through(Mp3(kbps=32), noise(2000))


# Mu-law


@pytest.mark.parametrize("transform", [MuLaw(), MuLaw(levels=16), MuLaw(mu=7.0)], ids=str)
def test_mu_law_keeps_the_laws_of_transforms(transform: MuLaw) -> None:
    check_transform(transform)
    assert not transform.random


def test_mu_law_by_hand() -> None:
    # With mu = 3 the curve is log4(1 + 3|x|), and 5 levels are 0, 1/2 and 1 on it: that is 0, 1/3 and 1.
    # They part at a quarter, (sqrt(2) - 1)/3 = 0.138, and at three quarters, (2 sqrt(2) - 1)/3 = 0.609.
    law = MuLaw(levels=5, mu=3.0)
    (heard,) = through(law, [0.0, 0.137, 0.139, -0.5, 0.608, 0.611, -1.0])
    np.testing.assert_allclose(heard, [0, 0, 1 / 3, -1 / 3, 1 / 3, 1, -1], atol=1e-7)
    # A sixth level has no place without moving zero.
    np.testing.assert_allclose(through(MuLaw(levels=6, mu=3.0), [0.2, 0.7])[0], [1 / 3, 1], atol=1e-7)


@settings(max_examples=50)
@given(st.floats(-1.0, 1.0, width=32))
def test_mu_law_of_256_levels_is_within_half_a_step(sample: float) -> None:
    # A step on the curve is 1/127, so half of one is a factor of 256^(1/254) on 1 + 255|x|.
    (heard,) = through(MuLaw(), [sample])
    before, after = 1 + 255 * abs(sample), 1 + 255 * abs(float(heard[0]))
    assert abs(np.log(after / before)) <= np.log(256) / 254 + 1e-5
    assert float(heard[0]) == 0 or np.sign(heard[0]) == np.sign(sample)
    # What has been coded once is not changed by coding it again.
    np.testing.assert_allclose(through(MuLaw(), heard)[0], heard, atol=1e-7)


def test_mu_law_cuts_at_full_scale_and_has_the_gradient_of_the_identity() -> None:
    batch = AudioBatch.of([[0.5, -0.5]], RATE)
    leaf = (4.0 * batch.waveforms).requires_grad_()
    heard = MuLaw()(batch.with_waveforms(leaf), draws=Draws(0)).waveforms
    assert heard.tolist() == [[1.0, -1.0]]
    (heard * torch.tensor([[2.0, 5.0]])).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[2.0, 5.0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels": 2}, "expected 3 to 65536 levels, got 2"),
        ({"levels": 65537}, "got 65537"),
        ({"mu": 0.0}, "expected mu above 0, got 0.0"),
        ({"mu": float("inf")}, "got inf"),
        ({"mu": float("nan")}, "got nan"),
    ],
)
def test_settings_that_make_no_mu_law(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MuLaw(**settings)  # type: ignore[arg-type]
