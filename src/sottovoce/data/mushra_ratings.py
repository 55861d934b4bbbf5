"""A listening test of the MUSHRA kind (ITU-R BS.1534): what listeners said of each item in each condition.

A folder holds `ratings.csv` with the columns signal, condition, ratings, participant_ids and file, one row
an item and condition, and the audio in `audio/`, where `file` points. Ratings and participants are lists
such as `[41.0, 90.0]`. A condition without a file was rated but cannot be measured.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import soundfile
from numpy.typing import NDArray

from sottovoce.errors import InputError

Floats = NDArray[np.float64]
RATINGS = "ratings.csv"
COLUMNS = ("signal", "condition", "ratings", "participant_ids", "file")
REFERENCE, ANCHOR = "reference", "anchor"
"""How the names of the hidden reference and of anchors begin, in any case."""


@final
@dataclass(frozen=True)
class RatedItem:
    """One item in one condition. ratings: 0 to 100, one a listener. path: None where audio is missing."""

    item: str
    condition: str
    ratings: tuple[float, ...]
    listeners: tuple[str, ...]
    path: Path | None

    @property
    def mean(self) -> float:
        return float(np.mean(self.ratings))

    @property
    def is_reference(self) -> bool:
        return self.condition.lower().startswith(REFERENCE)

    def by_listener(self) -> dict[str, float]:
        return dict(zip(self.listeners, self.ratings, strict=True))


@final
@dataclass(frozen=True)
class MushraRatings:
    """A whole test. stimuli: in the order of the table. sample_rate: of all audio."""

    folder: Path
    stimuli: tuple[RatedItem, ...]
    sample_rate: int

    @property
    def items(self) -> list[str]:
        return list(dict.fromkeys(one.item for one in self.stimuli))

    @property
    def conditions(self) -> list[str]:
        return list(dict.fromkeys(one.condition for one in self.stimuli))

    @property
    def listeners(self) -> list[str]:
        return sorted({name for one in self.stimuli for name in one.listeners})

    @property
    def heard(self) -> list[RatedItem]:
        """Those with audio."""
        return [one for one in self.stimuli if one.path is not None]

    @property
    def unheard(self) -> list[str]:
        """Conditions that were rated and of which some audio is not there."""
        return list(dict.fromkeys(one.condition for one in self.stimuli if one.path is None))

    def reference(self, item: str) -> RatedItem:
        """The hidden reference of an item."""
        return next(one for one in self.stimuli if one.item == item and one.is_reference)

    def read(self, rated: RatedItem) -> Floats:
        """Samples `(time,)`, mixed down to one channel."""
        if rated.path is None:
            raise InputError(
                f"{rated.item}, {rated.condition}: expected an audio file, got none; leave the condition out."
            )
        samples, _ = soundfile.read(rated.path, dtype="float64", always_2d=True)
        mono: Floats = samples.mean(axis=1)
        return mono


def open_mushra(path: str | Path) -> MushraRatings:
    """A listening test from its folder, checked before anything is measured."""
    folder = Path(path).expanduser()
    table = folder / RATINGS
    if not table.is_file():
        got = "no such folder" if not folder.is_dir() else f"no {RATINGS} in it"
        raise InputError(
            f"{path}: expected the folder of a MUSHRA test with {RATINGS} and audio/, got {got}; check the "
            "path."
        )
    stimuli = tuple(_rated(table, line, row) for line, row in _rows(table))
    _check_design(table, stimuli)
    return MushraRatings(folder, stimuli, _common_rate(table, stimuli))


def _rows(table: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            absent = [name for name in COLUMNS if name not in (reader.fieldnames or [])]
            if absent:
                raise InputError(
                    f"{table}: expected the columns {', '.join(COLUMNS)}, got none called "
                    f"{', '.join(absent)}; name them in the first line."
                )
            rows = [(reader.line_num, {name: row[name] or "" for name in COLUMNS}) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{table}: expected CSV in UTF-8, got other bytes ({error}); save it as UTF-8."
        ) from error
    if not rows:
        raise InputError(f"{table}: expected a row for each item and condition, got none; fill it in.")
    return rows


def _rated(table: Path, line: int, row: dict[str, str]) -> RatedItem:
    place = f"{table}, line {line}"
    item, condition = row["signal"].strip(), row["condition"].strip()
    if not item or not condition:
        raise InputError(f"{place}: expected a signal and a condition, got none; fill them in.")
    ratings = [_rating(place, one) for one in _list(place, "ratings", row["ratings"])]
    listeners = [str(one) for one in _list(place, "participant_ids", row["participant_ids"])]
    if not ratings or len(ratings) != len(listeners) or len(set(listeners)) != len(listeners):
        raise InputError(
            f"{place}: expected one rating of each participant, got {len(ratings)} ratings of "
            f"{len(set(listeners))} participants; correct the row."
        )
    file = row["file"].strip()
    path = table.parent / "audio" / file if file else None
    if path is not None and not path.is_file():
        raise InputError(f"{place}: expected audio at {path}, got no such file; add it, or clear the cell.")
    return RatedItem(item, condition, tuple(ratings), tuple(listeners), path)


def _list(place: str, column: str, cell: str) -> list[Any]:
    try:
        values = json.loads(cell)
    except json.JSONDecodeError:
        values = None
    if not isinstance(values, list):
        raise InputError(f"{place}: expected {column} such as [41.0, 90.0], got {cell!r}; write a list.")
    return values


def _rating(place: str, value: Any) -> float:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not math.isfinite(value) or not 0 <= value <= 100:
        raise InputError(f"{place}: expected ratings from 0 to 100, got {value!r}; correct the row.")
    return float(value)


def _check_design(table: Path, stimuli: Sequence[RatedItem]) -> None:
    seen: set[tuple[str, str]] = set()
    for one in stimuli:
        if (one.item, one.condition) in seen:
            raise InputError(
                f"{table}: expected one row for {one.item}, {one.condition}, got two; drop or rename one."
            )
        seen.add((one.item, one.condition))
    for item in dict.fromkeys(one.item for one in stimuli):
        known = [one for one in stimuli if one.item == item and one.is_reference and one.path is not None]
        if len(known) != 1:
            raise InputError(
                f"{table}: expected one condition called Reference with audio for {item}, got {len(known)}; "
                "add its row."
            )


def _common_rate(table: Path, stimuli: Sequence[RatedItem]) -> int:
    rates: dict[int, Path] = {}
    for one in stimuli:
        if one.path is not None:
            try:
                rates.setdefault(int(soundfile.info(one.path).samplerate), one.path)
            except soundfile.SoundFileError as error:
                raise InputError(
                    f"{one.path}: expected audio that libsndfile reads, got a file it rejects; convert it."
                ) from error
    if len(rates) != 1:
        found = ", ".join(f"{rate} Hz ({path.name})" for rate, path in sorted(rates.items()))
        raise InputError(f"{table}: expected audio at one rate, got {found}; resample to the reference's.")
    return next(iter(rates))
