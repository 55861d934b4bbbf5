"""The transform, measured on vowels whose pitch and resonances are known; the rulers are SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_toeplitz
from scipy.signal import butter, find_peaks, firwin, freqz, lfilter, sosfiltfilt

from sottovoce.core.draws import Draws
from sottovoce.data.dysarthria import HEALTHY, LIMITS, SEVERE, Voice, draw_voice, render
from sottovoce.data.source_filter import analyse, from_line_spectrum, line_spectrum, runs, track_pitch
from sottovoce.errors import InputError

RATE = 16_000
# Mean formants of men for the vowels of "hod", "heed" and "who'd" (Peterson and Barney 1952).
VOWELS = {"a": (730, 1090, 2440), "i": (270, 2290, 3010), "u": (300, 870, 2240)}


def source(f0_hz: np.ndarray) -> np.ndarray:
    """Pulses of a voice: all harmonics below 7.6 kHz, falling by 6 dB an octave."""
    phase = 2 * np.pi * np.cumsum(f0_hz) / RATE
    pulses = sum(np.cos(number * phase) for number in range(1, int(7600 / f0_hz.max()) + 1))
    return lfilter([1.0], [1.0, -0.95], pulses)


def filtered(excitation: np.ndarray, formants: tuple[int, ...]) -> np.ndarray:
    for centre, width in zip((*formants, 3500, 4500), (80, 90, 120, 150, 200), strict=True):
        radius = np.exp(-np.pi * width / RATE)
        excitation = lfilter(
            [1.0], [1.0, -2 * radius * np.cos(2 * np.pi * centre / RATE), radius**2], excitation
        )
    return 0.5 * excitation / np.abs(excitation).max()


def vowel(name: str = "a", f0_hz: float = 120.0, seconds: float = 1.0) -> np.ndarray:
    return filtered(source(np.full(round(seconds * RATE), f0_hz)), VOWELS[name])


def words(pause: float = 0.3) -> np.ndarray:
    """a, pause, i, pause, u, of half a second each."""
    gap = np.zeros(round(pause * RATE))
    return np.concatenate(
        [vowel("a", seconds=0.5), gap, vowel("i", seconds=0.5), gap, vowel("u", seconds=0.5)]
    )


def say(waveform: np.ndarray, seed: int = 0, **changes: float) -> np.ndarray:
    return render(waveform, Voice(**changes), np.random.default_rng(seed))


def middle(waveform: np.ndarray, share: float = 0.15) -> np.ndarray:
    edge = round(share * len(waveform))
    return waveform[edge:-edge]


def pulses(waveform: np.ndarray, f0_hz: float) -> tuple[np.ndarray, np.ndarray]:
    """Times and heights of the highest peak of each period, to a fraction of a sample."""
    smooth = sosfiltfilt(butter(4, 1500, fs=RATE, output="sos"), middle(waveform))
    place, _ = find_peaks(smooth, distance=round(0.7 * RATE / f0_hz), height=0.3 * smooth.max())
    before, here, after = smooth[place - 1], smooth[place], smooth[place + 1]
    shift = 0.5 * (before - after) / (before - 2 * here + after)
    return place + shift, here - 0.25 * (before - after) * shift


def unevenness(values: np.ndarray) -> float:
    """Mean difference of neighbours over the mean, in percent."""
    return float(100 * np.abs(np.diff(values)).mean() / values.mean())


def harmonicity_db(waveform: np.ndarray, f0_hz: float) -> float:
    """Boersma's (1993) ratio: from the correlation of a wave with itself one period later."""
    body = middle(waveform)
    lags = [
        np.dot(body[:-lag], body[lag:])
        / np.sqrt(np.dot(body[:-lag], body[:-lag]) * np.dot(body[lag:], body[lag:]))
        for lag in range(round(0.9 * RATE / f0_hz), round(1.1 * RATE / f0_hz))
    ]
    best = max(lags)
    return float(10 * np.log10(best / max(1 - best, 1e-9)))


def formants(waveform: np.ndarray) -> np.ndarray:
    """The first three resonances in Hz, by linear prediction with SciPy."""
    body = lfilter([1.0, -0.97], [1.0], middle(waveform, 0.3)) * 1.0
    body = body * np.hanning(len(body))
    lags = np.correlate(body, body, "full")[len(body) - 1 :][:15]
    lags[0] *= 1 + 1e-6
    roots = np.roots([1.0, *-solve_toeplitz(lags[:-1], lags[1:])])
    hz = np.sort(np.angle(roots[roots.imag > 0]) * RATE / (2 * np.pi))
    widths = {float(np.angle(one) * RATE / (2 * np.pi)): -np.log(abs(one)) * RATE / np.pi for one in roots}
    return np.array([one for one in hz if one > 150 and widths[float(one)] < 700][:3])


def vowel_area(waveform: np.ndarray) -> float:
    """The area in kHz^2 that the three vowels of `words(pause=0)` span with their first two formants."""
    (ax, ay), (ix, iy), (ux, uy) = (formants(part)[:2] / 1000 for part in np.array_split(waveform, 3))
    return float(abs((ix - ax) * (uy - ay) - (ux - ax) * (iy - ay)) / 2)


@pytest.mark.parametrize("f0_hz", [100.0, 120.0, 173.3, 220.0])
def test_neutral_settings_keep_the_pitch(f0_hz: float) -> None:
    spoken = say(vowel("a", f0_hz))
    times, heights = pulses(spoken, f0_hz)
    assert RATE / np.diff(times).mean() == pytest.approx(f0_hz, rel=0.003)
    assert unevenness(np.diff(times)) < 0.2 and unevenness(heights) < 1.0
    assert len(spoken) == RATE


@pytest.mark.parametrize("name", VOWELS)
def test_neutral_settings_keep_the_formants(name: str) -> None:
    clean = vowel(name)
    assert formants(say(clean)) == pytest.approx(formants(clean), rel=0.03)


def test_the_ruler_finds_the_formants_of_peterson_and_barney() -> None:
    assert formants(vowel("a")) == pytest.approx([730, 1090, 2440], rel=0.01)
    assert formants(vowel("i")) == pytest.approx([270, 2290, 3010], rel=0.01)


@pytest.mark.parametrize("asked", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("f0_hz", [120.0, 200.0])
def test_jitter_is_what_was_asked(asked: float, f0_hz: float) -> None:
    times, _ = pulses(say(vowel("a", f0_hz, 3.0), jitter_percent=asked), f0_hz)
    assert unevenness(np.diff(times)) == pytest.approx(asked, rel=0.25)


@pytest.mark.parametrize("asked", [2.0, 5.0, 10.0])
@pytest.mark.parametrize("f0_hz", [120.0, 200.0])
def test_shimmer_is_what_was_asked(asked: float, f0_hz: float) -> None:
    times, heights = pulses(say(vowel("a", f0_hz, 3.0), shimmer_percent=asked), f0_hz)
    assert unevenness(heights) == pytest.approx(asked, rel=0.25)
    assert unevenness(np.diff(times)) < 0.2


@pytest.mark.parametrize("asked", [-20.0, -15.0, -10.0, -5.0])
def test_breath_is_what_was_asked(asked: float) -> None:
    assert harmonicity_db(say(vowel("a", 200.0, 2.0), breath_db=asked), 200.0) == pytest.approx(
        -asked, abs=3.0
    )


def test_breath_has_the_colour_of_the_vowel() -> None:
    """Half way between the harmonics only breath is heard: near the formant of 730 Hz 20 dB more of it."""
    breathy = middle(say(vowel("a", 200.0, 4.0), breath_db=-10.0))
    levels = []
    for hz in (700, 6100):
        taps = firwin(4001, [hz - 30, hz + 30], fs=RATE, pass_zero=False)
        levels.append(10 * np.log10(np.mean(np.convolve(breathy, taps, "valid") ** 2)))
    assert levels[0] - levels[1] > 20


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0, 1.2])
def test_pitch_range_is_narrowed_around_the_same_pitch(share: float) -> None:
    """A voice that swings by 20 % around 150 Hz once a second."""
    time = np.arange(3 * RATE) / RATE
    clean = filtered(source(150 * np.exp(0.2 * np.sin(2 * np.pi * time))), VOWELS["a"])
    times, _ = pulses(say(clean, pitch_range=share), 150)
    logs = np.log(RATE / np.diff(times))
    assert logs.std() == pytest.approx(share * 0.2 / np.sqrt(2), rel=0.15)
    assert np.exp(logs.mean()) == pytest.approx(150, rel=0.03)


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_vowels_are_drawn_together(share: float) -> None:
    """Every side of the triangle shrinks by the share, so that the area shrinks by its square."""
    clean = words(pause=0.0)
    shrunk = vowel_area(say(clean, centralisation=share)) / vowel_area(say(clean))
    assert shrunk == pytest.approx((1 - share) ** 2, rel=0.25)


def test_vowels_are_spread_out() -> None:
    clean = words(pause=0.0)
    assert vowel_area(say(clean, centralisation=-0.1)) > 1.05 * vowel_area(say(clean))


@pytest.mark.parametrize(
    ("stretch", "pause_stretch", "seconds"), [(1.3, 1.0, 2.73), (1.0, 2.0, 2.7), (1.5, 2.0, 4.05)]
)
def test_rate_and_pauses(stretch: float, pause_stretch: float, seconds: float) -> None:
    """1.5 s of vowels and 0.6 s of pauses."""
    spoken = say(words(), stretch=stretch, pause_stretch=pause_stretch)
    assert len(spoken) / RATE == pytest.approx(seconds, rel=0.03)


def test_slow_speech_keeps_its_pitch() -> None:
    spoken = say(vowel("a", 120.0, 2.0), stretch=1.5)
    assert len(spoken) == 48_000
    times, _ = pulses(spoken, 120)
    assert RATE / np.diff(times).mean() == pytest.approx(120, rel=0.003)


def test_levels_are_brought_together() -> None:
    """A vowel 12 dB louder than the next one: half the range leaves 6 dB."""
    clean = np.concatenate([vowel(seconds=1.0), 10 ** (-12 / 20) * vowel(seconds=1.0)])
    first, second = np.array_split(say(clean, loudness_range=0.5), 2)
    gap_db = 20 * np.log10(middle(first, 0.25).std() / middle(second, 0.25).std())
    assert gap_db == pytest.approx(6.0, abs=0.7)


def loudness(waveform: np.ndarray) -> float:
    """The root of the mean square of what is not silent."""
    heard = np.convolve(waveform**2, np.ones(400) / 400, "same")
    return float(np.sqrt(heard[heard > 0.003 * heard.max()].mean()))


@settings(deadline=None, max_examples=15)
@given(st.floats(0, 1), st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2, 3]))
def test_any_voice_on_any_sound(severity: float, seed: int, kind: int) -> None:
    """Speech, noise, silence or one click: finite, on the 16-bit grid, in range, as loud as before."""
    noise = 0.1 * np.random.default_rng(seed).standard_normal(8000)
    click = np.zeros(8000)
    click[4000] = 0.5
    clean = (0.3 * words()[:16_000], noise, np.zeros(8000), click)[kind]
    voice = draw_voice(severity, np.random.default_rng(seed))
    spoken = render(clean, voice, np.random.default_rng(seed))
    steps = spoken * 32768
    assert np.isfinite(steps).all() and (steps == np.rint(steps)).all() and np.abs(spoken).max() <= 0.951
    assert 0.9 * len(clean) < len(spoken) < 3.1 * len(clean)
    if kind == 0:
        assert loudness(spoken) == pytest.approx(loudness(clean), rel=0.15)


def test_the_seed_and_the_clip_alone_decide() -> None:
    draws = Draws(7)
    voice = draw_voice(0.6, draws.generator("anna"))
    assert voice == draw_voice(0.6, Draws(7).generator("anna"))
    assert voice != draw_voice(0.6, draws.generator("bert"))
    one, same, other = (render(words(), voice, draws.generator(id)) for id in ("a", "a", "b"))
    assert (one == same).all() and (one != other).any()


def test_severity_moves_every_sign_and_healthy_is_healthy() -> None:
    for seed in range(20):
        well, ill = draw_voice(0.0, np.random.default_rng(seed)), draw_voice(1.0, np.random.default_rng(seed))
        for name, (low, high) in HEALTHY.items():
            assert low <= getattr(well, name) <= high
            away = abs(getattr(ill, name) - SEVERE[name])
            assert away <= 0.6 * abs(getattr(well, name) - SEVERE[name])


def test_healthy_voices_are_within_the_limits_of_the_clinic() -> None:
    """1.04 % of jitter and 3.81 % of shimmer are the limits of the MDVP; severe voices are past them."""
    assert HEALTHY["jitter_percent"][1] < 1.04 < SEVERE["jitter_percent"]
    assert HEALTHY["shimmer_percent"][1] < 3.81 < SEVERE["shimmer_percent"]
    assert set(HEALTHY) == set(SEVERE) == set(LIMITS)


def test_wrong_settings() -> None:
    with pytest.raises(InputError, match=r"jitter_percent: expected 0 to 10, got 11"):
        Voice(jitter_percent=11)
    with pytest.raises(InputError, match=r"severity: expected 0 \(healthy\) to 1, got 1.5"):
        draw_voice(1.5, np.random.default_rng(0))
    with pytest.raises(InputError, match="expected finite samples"):
        render(np.array([0.0, np.nan]), Voice(), np.random.default_rng(0))
    with pytest.raises(InputError, match="expected finite samples"):
        render(np.zeros(0), Voice(), np.random.default_rng(0))


def test_line_spectrum_of_no_filter_is_even() -> None:
    """For A(z) = 1 the lines divide the half circle into 19 equal parts."""
    lines = line_spectrum(np.eye(1, 19))
    assert lines[0] == pytest.approx(np.pi * np.arange(1, 19) / 19, abs=1e-5)
    assert from_line_spectrum(lines) == pytest.approx(np.eye(1, 19), abs=1e-4)


def test_a_mixture_of_line_spectra_is_stable_and_resonates_in_between() -> None:
    one, other = (analyse(vowel(name)).filters[100] for name in ("a", "i"))
    lines = line_spectrum(np.stack([one, other]))
    mixed = from_line_spectrum(lines.mean(axis=0, keepdims=True))[0]
    assert (np.abs(np.roots(mixed)) < 1).all()
    hz, response = freqz([1.0], mixed, worN=4096, fs=RATE)
    low = hz < 1200
    assert 270 < hz[low][np.argmax(np.abs(response[low]))] < 730


def test_pitch_is_zero_without_a_voice() -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(RATE)
    assert (track_pitch(noise) > 0).mean() < 0.05
    assert not track_pitch(np.zeros(RATE)).any()
    assert np.median(track_pitch(vowel("u", 250.0))) == pytest.approx(250, rel=0.003)


def test_runs() -> None:
    assert runs(np.array([True, True, False, True])) == [(0, 2), (3, 4)]
    assert runs(np.zeros(3, dtype=bool)) == []
