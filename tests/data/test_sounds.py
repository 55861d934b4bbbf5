"""Synthesised sounds: the same for an id, different between ids, and each with what its name promises."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import find_peaks, welch

from sottovoce.core.draws import Draws
from sottovoce.data.corpora import open_corpus
from sottovoce.data.sound_recipes import RECIPES, beats, noise, ring, scatter, tilt, tones
from sottovoce.data.synthetic_sounds import EACH, made, sounds, synthesise
from sottovoce.errors import UnknownName

RATE = 16_000


@cache
def some(label: str) -> tuple[NDArray[np.float64], ...]:
    return tuple(synthesise(f"check/{label}-{number}", label) for number in range(5))


def spectrum(
    sound: NDArray[np.float64], window: int = 4_096
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frequencies in Hz and power."""
    return welch(sound, RATE, nperseg=window)


def share_between(sound: NDArray[np.float64], low_hz: float, high_hz: float) -> float:
    hz, power = spectrum(sound)
    return float(power[(hz >= low_hz) & (hz < high_hz)].sum() / power.sum())


def crest_db(sound: NDArray[np.float64]) -> float:
    """How far the peak is above the mean power."""
    return float(20 * np.log10(np.abs(sound).max() / np.sqrt(np.mean(sound**2))))


def test_names_and_numbers() -> None:
    assert list(RECIPES) == [
        "clapping",
        "crackling_fire",
        "dog",
        "engine",
        "keyboard_typing",
        "rain",
        "siren",
        "vacuum_cleaner",
        "water_drops",
        "wind",
    ]
    assert {split: len(sounds(split)) for split in EACH} == {"train": 2_000, "valid": 300, "test": 100}
    assert open_corpus("sounds").name == "sounds-test"
    assert open_corpus("sounds:valid").entries[31].id == "valid/crackling_fire-001"
    with pytest.raises(UnknownName, match="unknown split 'tests': did you mean 'test'"):
        sounds("tests")


def test_no_id_is_in_two_splits_and_more_clips_change_none() -> None:
    ids = [{entry.id for entry in sounds(split)} for split in EACH]
    assert len(set.union(*ids)) == 2_400
    few, many = made("test", 1), {entry.id: entry for entry in made("test", 30)}
    assert all(many[entry.id].label == entry.label for entry in few)


def test_a_clip_hangs_on_its_id_alone() -> None:
    corpus = sounds()
    first, again = (corpus.load(corpus.entries[60], RATE) for _ in range(2))
    assert first.id == "test/siren-000"
    assert (first.waveform == again.waveform).all()
    other = corpus.load(corpus.entries[61], RATE).waveform
    size = min(len(other), len(first.waveform))
    assert np.corrcoef(first.waveform[:size], other[:size])[0, 1] < 0.5
    train = synthesise("train/siren-000", "siren")
    assert len(train) != len(first.waveform) or np.abs(train - first.waveform.numpy()).max() > 0.1


@pytest.mark.parametrize("label", RECIPES)
def test_length_and_level(label: str) -> None:
    for sound in some(label):
        assert 2 * RATE <= len(sound) <= 4 * RATE and len(sound) % 800 == 0
        assert np.abs(sound).max() == pytest.approx(0.9)
        assert abs(sound.mean()) < 0.02 and sound.std() > 0.003


def test_a_siren_sings_where_its_recipe_says() -> None:
    for sound in some("siren"):
        # Frame by frame the strongest tone lies between 450 and 1800 Hz, give or take a bin of the transform.
        for start in range(0, len(sound) - 2_048, 2_048):
            hz, power = spectrum(sound[start : start + 2_048], 2_048)
            assert 440 <= hz[power.argmax()] <= 1_810


def test_an_engine_hums_at_its_firing_rate() -> None:
    for sound in some("engine"):
        assert share_between(sound, 0, 1_000) > 0.7
        # The autocorrelation of a hum returns after a period of 22 to 70 Hz.
        size = 1 << (2 * len(sound)).bit_length()
        echo = np.fft.irfft(np.abs(np.fft.rfft(sound, size)) ** 2)[: RATE // 20]
        lags = slice(RATE // 75, RATE // 20)
        assert echo[lags].max() / echo[0] > 0.25


def test_wind_is_low_and_rain_is_high() -> None:
    for low, high in zip(some("wind"), some("rain"), strict=True):
        assert share_between(low, 0, 1_500) > 0.8
        assert share_between(high, 1_500, 8_000) > 0.4


def test_a_vacuum_cleaner_is_steady_and_a_dog_is_not() -> None:
    def levels(sound: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([piece.std() for piece in np.array_split(sound, 20)])

    for steady, broken in zip(some("vacuum_cleaner"), some("dog"), strict=True):
        assert levels(steady).max() < 1.5 * levels(steady).min()
        assert levels(broken).max() > 5 * levels(broken).min()


@pytest.mark.parametrize("label", ["keyboard_typing", "crackling_fire", "water_drops"])
def test_short_events_stand_out(label: str) -> None:
    # Gaussian noise of three seconds has a crest of some 13 dB, a tone one of 3 dB.
    for sound in some(label):
        assert crest_db(sound) > 17


def test_noise_has_its_slope_and_unit_power() -> None:
    pink = noise(Draws(0).generator("pink"), 1 << 18, -3.0, 20.0, 8_000.0)
    assert np.mean(pink**2) == pytest.approx(1.0)
    hz, power = spectrum(pink)
    octaves = [power[(hz >= low) & (hz < 2 * low)].mean() for low in (500, 2_000)]
    # Two octaves of -3 dB each.
    assert 10 * np.log10(octaves[1] / octaves[0]) == pytest.approx(-6.0, abs=0.5)


def test_tilt_leaves_1_khz_alone() -> None:
    time = np.arange(RATE) / RATE
    tone = np.sin(2 * np.pi * 1_000 * time) + np.sin(2 * np.pi * 4_000 * time)
    after = np.abs(np.fft.rfft(tilt(tone, 3.0, 1.0, 1e6))) / (RATE / 2)
    # 4 kHz lies two octaves above: 6 dB.
    assert (after[1_000], after[4_000]) == (pytest.approx(1.0, rel=1e-3), pytest.approx(10**0.3, rel=1e-3))


def test_harmonics_and_what_lies_too_high() -> None:
    sound = tones(np.full(RATE, 3_000.0), [1.0, 0.5, 0.25], [0.0, 0.0, 0.0])
    lines = np.abs(np.fft.rfft(sound)) / (RATE / 2)
    assert lines[[3_000, 6_000, 7_000]] == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)


def test_grains_are_laid_at_their_times_and_cut_at_the_end() -> None:
    sound = scatter(
        RATE,
        [
            (0.25, 2.0, np.ones(3)),
            (0.25, 1.0, np.ones(1)),
            (0.9999, 1.0, np.ones(99)),
            (2.0, 1.0, np.ones(9)),
        ],
    )
    assert sound[3_998:4_005].tolist() == [0, 0, 3, 2, 2, 0, 0]
    assert sound.sum() == 7 + 2


def test_a_rhythm_keeps_its_period() -> None:
    times = beats(Draws(0).generator("beats"), 4 * RATE, 0.5, 0.0)
    assert 7 <= len(times) <= 8 and np.diff(times) == pytest.approx(np.full(len(times) - 1, 0.5))
    clicks = scatter(4 * RATE, [(time, 1.0, ring(2_000.0, 0.005)) for time in times])
    found, _ = find_peaks(np.abs(clicks), height=0.5, distance=4_000)
    assert np.diff(found) == pytest.approx(np.full(len(times) - 1, 8_000), abs=8)
