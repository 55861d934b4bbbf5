"""Ten everyday sounds as recipes: noise, tones and grains of both, each with parameters drawn anew.

A recipe takes a NumPy generator and a number of samples at 16 kHz, and gives `(time,)` float64 at any level.
The sounds are caricatures: right in what tells them apart (colour, rhythm, pitch), bare of detail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Waveform = NDArray[np.float64]
Recipe = Callable[[Generator, int], Waveform]

SAMPLE_RATE = 16_000
SIREN_HZ = (450.0, 1_800.0)
"""Between these the pitch of a siren moves."""
FIRING_HZ = (22.0, 70.0)
"""How often an engine fires."""


def tilt(sound: Waveform, slope_db: float, low_hz: float = 40.0, high_hz: float = 8_000.0) -> Waveform:
    """Tilt a spectrum by so many dB an octave around 1 kHz, and fade it out below and above two corners."""
    spectrum = np.fft.rfft(sound)
    hz = np.maximum(np.fft.rfftfreq(len(sound), 1 / SAMPLE_RATE), 10.0)
    gain = 10 ** (slope_db * np.log2(hz / 1000) / 20)
    edges = 1 / np.sqrt((1 + (low_hz / hz) ** 6) * (1 + (hz / high_hz) ** 6))
    tilted: Waveform = np.fft.irfft(spectrum * gain * edges, n=len(sound))
    return tilted


def noise(source: Generator, samples: int, slope_db: float, low_hz: float, high_hz: float) -> Waveform:
    """Noise of unit power: slope 0 is white, -3 pink, -6 brown."""
    sound = tilt(source.standard_normal(samples), slope_db, low_hz, high_hz)
    return sound / float(np.sqrt(np.mean(sound**2)))


def drift(source: Generator, samples: int, period_seconds: float) -> Waveform:
    """A smooth random walk around 0 of about unit deviation, with a turn in every period or so."""
    knots = source.standard_normal(int(samples / (period_seconds * SAMPLE_RATE)) + 4)
    places = np.arange(samples) / (period_seconds * SAMPLE_RATE) + source.uniform()
    return np.interp(places, np.arange(len(knots)), np.convolve(knots, [0.5, 1.0, 0.5], "same") / 1.22)


def tones(pitch_hz: Waveform, gains: Iterable[float], phases: Iterable[float]) -> Waveform:
    """Harmonics of a moving pitch `(time,)`; those above 7.5 kHz are left out."""
    angle = 2 * np.pi * np.cumsum(pitch_hz) / SAMPLE_RATE
    sound = np.zeros(len(pitch_hz))
    for number, (gain, phase) in enumerate(zip(gains, phases, strict=True), start=1):
        sound += gain * np.sin(number * angle + phase) * (number * pitch_hz < 7_500)
    return sound


def fade(samples: int, attack_seconds: float, decay_seconds: float) -> Waveform:
    """A quick rise and an exponential fall from 1."""
    time = np.arange(samples) / SAMPLE_RATE
    return np.minimum(time / attack_seconds, 1.0) * np.exp(-time / decay_seconds)


def click(source: Generator, center_hz: float, decay_seconds: float) -> Waveform:
    """A burst of noise, about two octaves wide."""
    samples = int(8 * decay_seconds * SAMPLE_RATE) + 32
    burst = noise(source, samples, 0.0, center_hz / 2, min(center_hz * 2, 7_500))
    return burst * fade(samples, 0.0004, decay_seconds)


def ring(pitch_hz: float, decay_seconds: float, rise: float = 0.0) -> Waveform:
    """A damped tone whose pitch rises by this share while it decays."""
    samples = int(6 * decay_seconds * SAMPLE_RATE) + 32
    pitch = pitch_hz * (1 + rise * np.arange(samples) / (decay_seconds * SAMPLE_RATE))
    return np.sin(2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE) * fade(samples, 0.001, decay_seconds)


def scatter(samples: int, grains: Iterable[tuple[float, float, Waveform]]) -> Waveform:
    """Grains laid over silence, each with its start in seconds and its gain; what passes the end is cut."""
    sound = np.zeros(samples)
    for seconds, gain, grain in grains:
        start = int(seconds * SAMPLE_RATE)
        piece = grain[: max(samples - start, 0)]
        sound[start : start + len(piece)] += gain * piece
    return sound


def beats(source: Generator, samples: int, period_seconds: float, jitter: float) -> list[float]:
    """Times of a rhythm from its first beat on, each step off by a share of the period."""
    steps = period_seconds * (1 + jitter * source.standard_normal(int(samples / period_seconds / 8_000) + 2))
    times = source.uniform(0, period_seconds) + np.cumsum(np.maximum(steps, 0.02)) - steps[0]
    return [float(time) for time in times if 0 <= time < samples / SAMPLE_RATE]


def chances(source: Generator, samples: int, per_second: float) -> list[float]:
    """Times of events that know nothing of each other; at least one."""
    seconds = samples / SAMPLE_RATE
    count = max(1, int(source.poisson(per_second * seconds)))
    return [float(time) for time in source.uniform(0, seconds, size=count)]


def room(source: Generator, sound: Waveform, decay_seconds: float, share: float) -> Waveform:
    """The sound with a reverberation tail of this share of its level."""
    samples = int(4 * decay_seconds * SAMPLE_RATE)
    tail = source.standard_normal(samples) * fade(samples, 1e-4, decay_seconds)
    size = 1 << (len(sound) + samples).bit_length()
    echo = np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(tail, size), size)[: len(sound)]
    return sound + share * echo / np.linalg.norm(tail)


def clapping(source: Generator, samples: int) -> Waveform:
    """One to sixty people clap, each at a rhythm of their own."""
    people = int(source.choice([1, 2, 6, 25, 60]))
    claps = []
    for _ in range(people):
        center, decay = source.uniform(700, 2_500), source.uniform(0.004, 0.014)
        gain = source.lognormal(0, 0.4)
        times = beats(source, samples, source.uniform(0.18, 0.5), source.uniform(0.02, 0.15))
        hand = click(source, center, decay)
        claps += [(time, gain * source.lognormal(0, 0.2), hand) for time in times]
    return room(source, scatter(samples, claps), source.uniform(0.03, 0.15), source.uniform(0.2, 0.8))


def crackling_fire(source: Generator, samples: int) -> Waveform:
    """A fire: random snaps over a low roar."""
    snaps = [
        (
            time,
            source.lognormal(0, 0.9),
            click(source, source.uniform(1_000, 6_000), source.uniform(3e-4, 2e-3)),
        )
        for time in chances(source, samples, source.uniform(6, 40))
    ]
    roar = noise(source, samples, source.uniform(-9, -5), 40, 1_500)
    breath = 1 + 0.3 * drift(source, samples, 0.2)
    hiss = noise(source, samples, -2.0, 500, 7_500)
    return scatter(samples, snaps) + source.uniform(0.03, 0.25) * roar * breath + 0.01 * hiss


def dog(source: Generator, samples: int) -> Waveform:
    """A dog barks at a rhythm: harmonics through one formant, and hoarse noise."""
    base, formant = source.uniform(250, 800), source.uniform(700, 1_600)
    hoarse, length = source.uniform(0.1, 0.5), source.uniform(0.08, 0.22)
    barks = []
    for time in beats(source, samples, source.uniform(0.3, 1.2), 0.15):
        size = int(length * source.uniform(0.8, 1.2) * SAMPLE_RATE)
        progress = np.arange(size) / size
        pitch = base * source.uniform(0.9, 1.1) * (0.7 + 1.2 * progress * np.exp(1 - 3 * progress))
        numbers = np.arange(1, 13)
        gains = np.exp(-(np.log2(numbers * base / formant) ** 2)) + 0.05
        voice = tones(pitch, gains, source.uniform(0, 6.28, 12))
        rough = noise(source, size, -3.0, formant / 2, formant * 3) * voice.std()
        shape = np.sin(np.pi * progress**0.6) ** 1.5
        barks.append((time, source.lognormal(0, 0.2), (voice + hoarse * rough) * shape))
    return room(source, scatter(samples, barks), source.uniform(0.05, 0.25), source.uniform(0.1, 0.5))


def engine(source: Generator, samples: int) -> Waveform:
    """An engine runs: harmonics of its firing rate, and a rattle in step with it."""
    pitch = source.uniform(*FIRING_HZ) * (1 + 0.02 * drift(source, samples, 0.5))
    count = 30
    numbers = np.arange(1, count + 1)
    gains = source.lognormal(0, 0.7, count) * numbers ** -source.uniform(0.6, 1.3)
    hum = tones(pitch, gains, source.uniform(0, 6.28, count))
    firing = (0.5 + 0.5 * np.cos(2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE)) ** 3
    rattle = noise(source, samples, source.uniform(-8, -4), 60, 4_000) * (0.3 + firing)
    return hum / float(hum.std()) + source.uniform(0.2, 0.9) * rattle


def keyboard_typing(source: Generator, samples: int) -> Waveform:
    """Keys are struck and released on a board that rings."""
    center, decay = source.uniform(2_000, 5_000), source.uniform(0.0015, 0.005)
    body, held = source.uniform(150, 450), source.uniform(0.06, 0.12)
    thud = source.uniform(0.1, 0.6)
    parts = []
    for time in beats(source, samples, source.uniform(0.11, 0.26), 0.35):
        gain = source.lognormal(0, 0.35)
        key = center * source.uniform(0.8, 1.25)
        parts += [
            (time, gain, click(source, key, decay)),
            (time, gain * thud, ring(body, 0.012)),
            (time + held * source.uniform(0.8, 1.2), gain * 0.35, click(source, key * 1.2, decay)),
        ]
    return room(source, scatter(samples, parts), 0.03, source.uniform(0.05, 0.3))


def rain(source: Generator, samples: int) -> Waveform:
    """Rain: a hush, and drops over it."""
    hush = noise(source, samples, source.uniform(-4, 1), source.uniform(150, 900), 7_500)
    drops = [
        (time, source.lognormal(0, 0.7), click(source, source.uniform(1_500, 6_000), 0.002))
        for time in chances(source, samples, source.uniform(40, 250))
    ]
    swell = 1 + 0.08 * drift(source, samples, 0.6)
    return hush * swell + source.uniform(0.0, 2.0) * scatter(samples, drops)


def siren(source: Generator, samples: int) -> Waveform:
    """A siren that wails, yelps, or alternates between two tones."""
    low = source.uniform(SIREN_HZ[0], 800)
    high = min(low * source.uniform(1.35, 2.2), SIREN_HZ[1])
    # A slow wail, a fast yelp, or two tones in turn.
    period = source.choice([source.uniform(2, 6), source.uniform(0.25, 0.5), source.uniform(0.8, 1.6)])
    turn = np.arange(samples) / (period * SAMPLE_RATE) + source.uniform()
    wave = np.sin(2 * np.pi * turn)
    place = (np.tanh(30 * wave) if 0.8 <= period <= 1.6 else wave) / 2 + 0.5
    gains = [1.0, *(source.uniform(0.05, 0.5, 5) / np.arange(1, 6))]
    sound = tones(low + (high - low) * place, gains, source.uniform(0, 6.28, 6))
    return room(source, sound, source.uniform(0.05, 0.3), source.uniform(0.0, 0.5))


def vacuum_cleaner(source: Generator, samples: int) -> Waveform:
    """A vacuum cleaner: air, a motor, and its whine."""
    air = noise(source, samples, source.uniform(-4, 0), 150, source.uniform(4_000, 7_500))
    pitch = source.uniform(90, 330) * (1 + 0.003 * drift(source, samples, 0.4))
    gains = source.lognormal(0, 1.0, 20) / np.arange(1, 21) ** 0.5
    motor = tones(pitch, gains, source.uniform(0, 6.28, 20))
    whine = np.sin(source.integers(6, 18) * 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE)
    return air + source.uniform(0.3, 1.2) * motor / float(motor.std()) + source.uniform(0.1, 0.8) * whine


def water_drops(source: Generator, samples: int) -> Waveform:
    """Drops of water: a click each, and tones that rise as they ring."""
    base, rise = source.uniform(450, 2_200), source.uniform(0.05, 0.4)
    drops = []
    for time in chances(source, samples, source.uniform(1, 5)):
        pitch, gain = base * source.lognormal(0, 0.2), source.lognormal(0, 0.4)
        drops.append((time, 0.15 * gain, click(source, 3_000, 0.001)))
        for later in range(int(source.integers(1, 4))):
            ringing = ring(pitch * source.uniform(1, 1.5), source.uniform(0.008, 0.04), rise)
            drops.append((time + later * source.uniform(0.01, 0.05), gain * 0.6**later, ringing))
    return room(source, scatter(samples, drops), source.uniform(0.05, 0.3), source.uniform(0.05, 0.4))


def wind(source: Generator, samples: int) -> Waveform:
    """Wind: low noise that swells, and gusts of a narrow band."""
    sound = noise(source, samples, -9.0, 40, 400) * 10 ** (0.3 * drift(source, samples, 0.8))
    for _ in range(3):
        center = source.uniform(150, 900)
        gust = 10 ** (source.uniform(0.3, 0.6) * drift(source, samples, source.uniform(0.3, 1.0)))
        sound += source.uniform(0.2, 1.0) * gust * noise(source, samples, -3.0, center / 1.5, center * 1.5)
    return sound


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.__name__: recipe
        for recipe in (
            clapping,
            crackling_fire,
            dog,
            engine,
            keyboard_typing,
            rain,
            siren,
            vacuum_cleaner,
            water_drops,
            wind,
        )
    }
)
"""By the name of the sound, which is that of ESC-50."""
