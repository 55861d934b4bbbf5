"""Sounds that are made when they are asked for: ten classes, no files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from sottovoce.core.draws import Draws
from sottovoce.data.load import Corpus, Entry, Recording
from sottovoce.data.sound_recipes import RECIPES, SAMPLE_RATE, Waveform, noise, tilt
from sottovoce.errors import UnknownName

EACH = {"train": 200, "valid": 30, "test": 10}
"""Clips of a class in each split."""
PEAK = 0.9
SECONDS = (2.0, 4.0)
_DRAWS = Draws(0, ("sounds",))


def sounds(split: str = "test") -> Corpus:
    """Ten sounds of a street and a home, synthesised: 100 clips of 2 to 4 s, or the split train or valid.

    A clip is made from its id alone, so that it is the same on every machine; no id is in two splits.
    """
    if split not in EACH:
        raise UnknownName("split", split, EACH)
    return made(split, EACH[split])


def made(split: str, each: int) -> Corpus:
    """So many clips of every class; a larger number adds clips and changes none."""
    entries = tuple(
        _entry(f"{split}/{label}-{number:03d}", label) for label in RECIPES for number in range(each)
    )
    return Corpus(f"sounds-{split}", entries, "synthesised by sottovoce")


def synthesise(id: str, label: str) -> Waveform:
    """The clip of an id and a class, `(time,)` at 16 kHz, with a peak of 0.9."""
    source = _DRAWS.generator(id)
    # Whole twentieths of a second: Fourier transforms of such lengths are fast.
    samples = int(source.uniform(*SECONDS) * 20) * SAMPLE_RATE // 20
    sound = tilt(RECIPES[label](source, samples), source.uniform(-1.5, 1.5))
    floor = np.abs(sound).max() * 10 ** (-source.uniform(40, 65) / 20)
    sound += floor * noise(source, samples, source.uniform(-5, 0), 50, 7_500)
    return sound * (PEAK / float(np.abs(sound).max()))


def _entry(id: str, label: str) -> Entry:
    return Entry(id, Path("sounds"), label, source=partial(_record, id, label))


def _record(id: str, label: str) -> Recording:
    return Recording(synthesise(id, label), SAMPLE_RATE)
