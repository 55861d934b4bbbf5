"""Measuring pairs of clips: loading them, and the figures of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from sottovoce import registry
from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.metric import Metric, clip_values, lend, trial_of_pairs
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.data.corpora import SUFFIXES
from sottovoce.data.load import Clip, load_clip
from sottovoce.errors import InputError, MissingExtra, SottovoceError
from sottovoce.metrics.alignment import cut_to_overlap
from sottovoce.metrics.vocal_parts import intensity_level

FIRST = ("p-heard",)
MAX_SHIFT_SECONDS = 1.0
PAIRS_AT_ONCE = 16


class Paths(NamedTuple):
    """Two files that belong together."""

    name: str
    clean: Path
    changed: Path


@final
@dataclass(frozen=True, eq=False)
class MeasuredPair:
    """Two clips of the same length and rate.

    shift: the samples by which the changed one was late, if that was undone; else None.
    notes: what was done to the files when they were loaded.
    """

    name: str
    clean: Clip
    changed: Clip
    shift: int | None
    notes: tuple[str, ...]


@final
@dataclass(frozen=True, eq=False)
class PairFigures:
    """The figures of pairs.

    parts: `(pairs, 2)` of every metric.
    reasons: for every metric, why a pair has no value.
    intensities: the loudness of each clean clip.
    notes: what was done to each pair's files.
    """

    names: tuple[str, ...]
    metrics: tuple[Metric, ...]
    parts: dict[str, NDArray[np.float64]]
    reasons: dict[str, dict[str, str]]
    intensities: tuple[str, ...]
    notes: tuple[tuple[str, ...], ...]

    def value(self, metric: str, row: int) -> float:
        """The value of a metric for a pair."""
        return float(clip_values(self.parts[metric][row : row + 1])[0])

    def unscored(self, row: int) -> dict[str, str]:
        """Why metrics have no finite value for a pair."""
        name = self.names[row]
        return {
            each.name: self.reasons[each.name].get(name, "no finite value")
            for each in self.metrics
            if not np.isfinite(self.value(each.name, row))
        }


def find_metrics(names: Sequence[str]) -> list[Metric]:
    """Metrics of audio by name; without names all that are measured by default."""
    found: list[Metric] = [registry.find("metric", name)() for name in names or registry.names("metric")]
    if not names:
        audio = [each for each in found if each.of == "audio" and each.measured != "named"]
        return sorted(audio, key=lambda each: each.name not in FIRST)
    for each in found:
        if each.of != "audio":
            raise InputError(
                f"expected metrics of audio, got {each.name!r}, which needs a model's answers; see "
                "`sottovoce parts metric`."
            )
    return found


def find_pairs(clean: Path, changed: Path) -> tuple[list[Paths], list[str]]:
    """Two files, or the files of one name in two folders; and the names that only one folder has."""
    if clean.is_dir() != changed.is_dir():
        raise InputError(
            f"expected two files or two folders, got one of each: {str(clean)!r} and {str(changed)!r}."
        )
    if not clean.is_dir():
        return [Paths(clean.stem, clean, changed)], []
    files = [_audio_files(folder) for folder in (clean, changed)]
    shared = sorted(files[0].keys() & files[1].keys())
    if not shared:
        raise InputError(
            f"expected files of the same names in two folders, got {len(files[0])} in {str(clean)!r} and "
            f"{len(files[1])} in {str(changed)!r}, none in both; rename them."
        )
    return (
        [Paths(name, files[0][name], files[1][name]) for name in shared],
        sorted(files[0].keys() ^ files[1].keys()),
    )


def load_pair(paths: Paths, *, align: bool) -> MeasuredPair:
    """Both clips at the clean one's rate. Different lengths or rates are accepted only with `align`."""
    rates = _rate(paths.clean), _rate(paths.changed)
    if rates[0] != rates[1] and not align:
        raise InputError(
            f"{paths.name}: expected two clips at one rate, got {rates[0]} and {rates[1]} Hz; resample one, "
            "or give --align (in Python align=True)."
        )
    # Only resampling can give more samples than the files have.
    longest = math.inf if rates[0] == rates[1] else LONGEST_SECONDS
    clips = [
        load_clip(path, rates[0], id=paths.name, label="", longest_seconds=longest) for path in paths[1:]
    ]
    notes = tuple(
        f"{path.name}: {clip.loaded}" for path, clip in zip(paths[1:], clips, strict=True) if clip.loaded
    )
    if align:
        return _aligned(paths.name, clips[0], clips[1], notes)
    lengths = [len(clip.waveform) for clip in clips]
    if lengths[0] != lengths[1]:
        raise InputError(
            f"{paths.name}: expected clips of one length, got {lengths[0]} and {lengths[1]} samples; cut "
            "one, or give --align (in Python align=True)."
        )
    return MeasuredPair(paths.name, clips[0], clips[1], None, notes)


def measure_pairs(pairs: Iterable[MeasuredPair], metrics: Sequence[Metric], *, asked: bool) -> PairFigures:
    """The figures of all pairs; only a few are in memory at a time.

    A metric whose package is missing has no value, and raises if it was `asked` for by name.
    """
    parts: dict[str, list[NDArray[np.float64]]] = {each.name: [] for each in metrics}
    reasons: dict[str, dict[str, str]] = {each.name: {} for each in metrics}
    intensities: list[str] = []
    names: list[str] = []
    notes: list[tuple[str, ...]] = []
    for some in _batches(pairs):
        trial = _trial(some)
        intensities += intensity_level(trial.clean.waveforms, trial.clean.lengths)
        shown = lend(trial)
        for each in metrics:
            try:
                found = each.measure(shown())
                reasons[each.name] |= each.reasons(shown(), found)
                parts[each.name].append(found.numpy())
            except SottovoceError as error:
                if asked and isinstance(error, MissingExtra):
                    raise
                reasons[each.name] |= dict.fromkeys(trial.clean.ids, str(error))
                parts[each.name].append(np.full((len(some), 2), np.nan))
        if "shift" in parts:
            parts["shift"][-1] = parts["shift"][-1] + _undone(some)
        names += [pair.name for pair in some]
        notes += [pair.notes for pair in some]
    joined = {name: np.concatenate([np.empty((0, 2)), *rows]) for name, rows in parts.items()}
    return PairFigures(tuple(names), tuple(metrics), joined, reasons, tuple(intensities), tuple(notes))


def pair_to_json(figures: PairFigures) -> dict[str, Any]:
    """The figures of one pair."""
    return {"intensity": figures.intensities[0], **finite_values(figures, 0), "unscored": figures.unscored(0)}


def all_to_json(figures: PairFigures, failed: dict[str, str]) -> dict[str, Any]:
    """The figures of several pairs, and their means with intervals. failed: why some pairs have none."""
    pairs = {
        name: {**finite_values(figures, row), "unscored": figures.unscored(row)}
        for row, name in enumerate(figures.names)
    }
    summary = {}
    for each in figures.metrics:
        found = each.summarise(figures.parts[each.name])
        ends = {"value": found.value, "low": found.low, "high": found.high}
        summary[each.name] = {
            **{key: value if math.isfinite(value) else None for key, value in ends.items()},
            "n": found.n,
            "method": found.method,
        }
    return {"summary": summary, "pairs": pairs, "failed": failed}


def finite_values(figures: PairFigures, row: int) -> dict[str, float | None]:
    """The figures of a pair; None for one without a finite value."""
    values = {each.name: figures.value(each.name, row) for each in figures.metrics}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _undone(pairs: Sequence[MeasuredPair]) -> NDArray[np.float64]:
    """The shifts that were undone, in ms, as parts `(pairs, 2)` to add."""
    late = [1000.0 * (pair.shift or 0) / pair.clean.sample_rate for pair in pairs]
    return np.array([[shift, 0.0] for shift in late])


def _aligned(name: str, clean: Clip, changed: Clip, notes: tuple[str, ...]) -> MeasuredPair:
    rate = clean.sample_rate
    before = len(clean.waveform), len(changed.waveform)
    one, two, shift = cut_to_overlap(
        clean.waveform, changed.waveform, sample_rate=rate, max_shift_seconds=MAX_SHIFT_SECONDS
    )
    if before != (len(one), len(two)):
        cut = (
            f"aligned: {len(one) / rate:.3g} s shared of {before[0] / rate:.3g} and {before[1] / rate:.3g} s"
        )
        notes = (*notes, cut)
    return MeasuredPair(
        name, Clip(name, one, rate, "", clean.loaded), Clip(name, two, rate, "", changed.loaded), shift, notes
    )


def _batches(pairs: Iterable[MeasuredPair]) -> Iterator[list[MeasuredPair]]:
    """Neighbours of one rate, a few at a time."""
    some: list[MeasuredPair] = []
    for pair in pairs:
        if some and (len(some) == PAIRS_AT_ONCE or some[0].clean.sample_rate != pair.clean.sample_rate):
            yield some
            some = []
        some.append(pair)
    if some:
        yield some


def _trial(pairs: Sequence[MeasuredPair]) -> Trial:
    rate, names = pairs[0].clean.sample_rate, [pair.name for pair in pairs]
    clean = AudioBatch.of([pair.clean.waveform.numpy() for pair in pairs], rate, names)
    changed = AudioBatch.of([pair.changed.waveform.numpy() for pair in pairs], rate, names)
    return trial_of_pairs(clean, changed)


def _audio_files(folder: Path) -> dict[str, Path]:
    """Files below a folder by their path without its suffix."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file()]
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def _rate(path: Path) -> int:
    import soundfile

    if not path.exists():
        raise InputError(f"{path}: expected an audio file, got no such file; check the path.")
    try:
        return int(soundfile.info(path).samplerate)
    except (OSError, soundfile.LibsndfileError) as error:
        reason = str(error).rpartition(": ")[2].rstrip(".")
        raise InputError(
            f"{path}: expected an audio file such as WAV, FLAC, Ogg or MP3, got: {reason}."
        ) from None
