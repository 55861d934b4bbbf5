"""Synthetic replacements for the six noises of Table 2, which are recordings of QUT-NOISE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from sottovoce.core.draws import Draws
from sottovoce.data import sound_recipes as recipes
from sottovoce.data.sound_recipes import SAMPLE_RATE, Waveform

SECONDS = 8
RECORDINGS = 2
"""Of each noise, to learn from and again to be tested with."""


def babble(source: Generator, samples: int, people: int, pitch_hz: tuple[float, float]) -> Waveform:
    """People who all talk at once: gliding harmonics and breath that come and go by the syllable."""
    sound = np.zeros(samples)
    for _ in range(people):
        pitch = source.uniform(*pitch_hz) * (1 + 0.12 * recipes.drift(source, samples, 0.4))
        gains = np.exp(-0.25 * np.arange(16)) * source.lognormal(0, 0.5, 16)
        voice = recipes.tones(pitch, gains, source.uniform(0, 6.28, 16))
        breath = recipes.noise(source, samples, -3.0, 1_500, 6_500)
        voiced = np.clip(recipes.drift(source, samples, 0.18), 0, None)
        hissed = np.clip(recipes.drift(source, samples, 0.12) - 0.8, 0, None)
        sound += source.lognormal(0, 0.5) * (voiced * voice / voice.std() + 0.5 * hissed * breath)
    return sound / float(sound.std())


def dishes(source: Generator, samples: int, per_second: float) -> Waveform:
    """Cups and plates that are put down."""
    grains = []
    for time in recipes.chances(source, samples, per_second):
        gain = source.lognormal(0, 0.6)
        grains += [
            (time, gain, recipes.click(source, source.uniform(2_000, 5_500), source.uniform(0.001, 0.004))),
            (time, 0.5 * gain, recipes.ring(source.uniform(1_800, 5_000), source.uniform(0.02, 0.08))),
        ]
    return recipes.scatter(samples, grains)


def cafe(source: Generator, samples: int) -> Waveform:
    mixed = babble(source, samples, 6, (90, 230)) + 0.7 * dishes(source, samples, 2.0)
    return recipes.room(source, mixed, 0.12, 0.5)


def food_court(source: Generator, samples: int) -> Waveform:
    mixed = babble(source, samples, 16, (90, 260)) + 0.5 * dishes(source, samples, 5.0)
    return recipes.room(source, mixed, 0.35, 0.9)


def kitchen(source: Generator, samples: int) -> Waveform:
    tap = recipes.noise(source, samples, -1.0, 300, 7_000) * (1 + 0.2 * recipes.drift(source, samples, 0.3))
    return 0.5 * tap + dishes(source, samples, 3.0) + 0.2 * recipes.vacuum_cleaner(source, samples)


def living_room(source: Generator, samples: int) -> Waveform:
    rumble = recipes.noise(source, samples, -6.0, 40, 3_000)
    television = recipes.tilt(babble(source, samples, 2, (100, 220)), -3.0, 150, 4_000)
    return rumble + 0.6 * television / float(television.std())


def city(source: Generator, samples: int) -> Waveform:
    cars = sum(
        recipes.engine(source, samples) * 10 ** (0.3 * recipes.drift(source, samples, 1.5)) for _ in range(3)
    )
    return cars + recipes.noise(source, samples, -4.0, 60, 6_000)


def kindergarten(source: Generator, samples: int) -> Waveform:
    street = recipes.engine(source, samples)
    children = babble(source, samples, 8, (240, 420))
    wind = recipes.wind(source, samples)
    return 0.5 * street / float(street.std()) + children + 0.4 * wind / float(wind.std())


RECIPES: Mapping[str, Callable[[Generator, int], Waveform]] = MappingProxyType(
    {
        "CAFE": cafe,
        "FOODCOURT": food_court,
        "KITCHEN": kitchen,
        "LIVINGB": living_room,
        "CITY": city,
        "KG": kindergarten,
    }
)
"""By the paper's names."""


@lru_cache(maxsize=2 * len(RECIPES))
def recordings(name: str, part: str) -> tuple[NDArray[np.float32], ...]:
    """Some seconds of a noise at 16 kHz, always the same; those of different parts are different ones."""
    draws = Draws(0, ("pathology", "noise", name, part))
    made = (
        RECIPES[name](draws.generator(str(number)), SECONDS * SAMPLE_RATE) for number in range(RECORDINGS)
    )
    return tuple((one / np.abs(one).max()).astype(np.float32) for one in made)
