"""Recorded noises and responses: a file, or a folder of which every clip gets one of its own."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.corpora import SUFFIXES
from sottovoce.data.load import Entry
from sottovoce.errors import InputError

Waveform = NDArray[np.float64]

# A piece of a recording is taken where there is sound: at least this share of the loudest piece's energy.
_LOUD = 0.25


@lru_cache(maxsize=64)
def list_files(place: str) -> tuple[Path, ...]:
    """The file itself, or the audio files in a folder by name."""
    path = Path(place)
    if not path.exists():
        raise InputError(
            f"{path}: expected an audio file or a folder of them, but nothing is there; check the path."
        )
    found = (
        tuple(sorted(one for one in path.iterdir() if one.suffix.lower() in SUFFIXES))
        if path.is_dir()
        else (path,)
    )
    if not found:
        raise InputError(
            f"{path}: expected audio files ({', '.join(SUFFIXES)}), got none; name another folder."
        )
    return found


def pick_file(place: str, chance: float) -> Path:
    """One of the files; `chance` is in [0, 1)."""
    files = list_files(place)
    return files[int(chance * len(files))]


@lru_cache(maxsize=64)
def read_recording(path: Path, sample_rate: int) -> Waveform:
    """A file mixed down at a rate, `(time,)`; read-only, because it is read once."""
    recording = Entry(path.stem, path, "").read(math.inf)
    samples = recording.samples if recording.samples.ndim == 1 else recording.samples.mean(axis=1)
    if not np.isfinite(samples).all() or not samples.any():
        raise InputError(f"{path}: expected sound, got silence, NaN or infinity; name another file.")
    return to_rate(samples, recording.sample_rate, sample_rate)


def to_rate(samples: Waveform, from_hz: int, to_hz: int) -> Waveform:
    """`(time,)` at another rate, read-only."""
    if from_hz != to_hz:
        import soxr

        samples = soxr.resample(samples, from_hz, to_hz, quality="HQ")
    samples.setflags(write=False)
    return samples


def cut(recording: Waveform, samples: int, chance: float) -> Waveform:
    """So many samples of a recording from a place that `chance` in [0, 1) chooses where there is sound.

    One that is too short comes again and again.
    """
    count = len(recording)
    if samples >= count:
        return np.resize(np.roll(recording, -int(chance * count)), samples)
    total = np.concatenate([[0.0], np.cumsum(recording**2)])
    energy = total[samples:] - total[:-samples]
    loud = np.flatnonzero(energy >= _LOUD * energy.max())
    start = int(loud[int(chance * len(loud))])
    return recording[start : start + samples]
