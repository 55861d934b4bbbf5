"""Public corpora for classifiers of speakers and sounds: AudioMNIST, UrbanSound8K and ESC-50.

lhotse has no recipe for the last two. Its recipe for AudioMNIST opens all 30,000 files and knows nothing of
takes, by which the corpus is split here; the names of the files tell the rest.

Recordings differ a lot in level, and those of AudioMNIST are faint: each clip is scaled to the same peak, so
that a budget in absolute amplitude means the same on all. The clip says so in `loaded`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from sottovoce.data.corpora import SUFFIXES, existing_folder, inventory, of_lines
from sottovoce.data.load import Corpus, Entry, Recording, Source
from sottovoce.errors import InputError, UnknownName

_NUMBERS: tuple[int, ...] = (1, 3, 4, 6, 10, 11, 12, 13, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 27, 30)
_NUMBERS += (33, 34, 35, 36, 38, 39, 40, 41, 43, 44, 45, 46, 48, 50, 51, 53, 54, 58, 59, 60)
SPEAKERS = tuple(f"{number:02d}" for number in _NUMBERS)
"""The speakers of AudioMNIST that the shipped classifier knows."""
PEAK = 0.9
# Of every four takes in a row two are for training, the third for validation, the fourth for the test.
SPLITS = {"train": (0, 1), "valid": (2,), "test": (3,)}
_LEVEL = f"each clip scaled to a peak of {PEAK:g}"


def audiomnist(path: str = "") -> Corpus:
    """AudioMNIST (Becker et al. 2018) as the task of telling 40 speakers apart by a spoken digit.

    path is one of: the download, with data/SPEAKER/DIGIT_SPEAKER_TAKE.wav; a folder of the folders train,
    valid and test with SPEAKER/DIGIT_TAKE.flac; or one of those three. `DIR#train` and so on choose a split
    of the first two, `test` if not said. Of all 60 speakers the 40 are taken that the embedded model knows;
    folder:DIR/data has everyone.
    """
    if not path:
        raise InputError(
            "audiomnist needs a folder, because its clips are not part of sottovoce; get them from "
            "github.com/soerenab/AudioMNIST (MIT) and give --data audiomnist:DIR."
        )
    root, chosen = _parted(path)
    split = chosen or "test"
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    note = f"40 speakers; {_LEVEL}"
    if (root / split).is_dir():
        return _speakers(root / split, f"audiomnist-{split}", note)
    root = root / "data" if (root / "data").is_dir() else root
    if any(root.glob("*/?_??_*.wav")):
        note += "; of every four takes two are train, one valid, one test"
        return _speakers(root, f"audiomnist-{split}", note, takes=SPLITS[split])
    if chosen:
        raise InputError(
            f"{root}: expected a folder {split} or SPEAKER/DIGIT_SPEAKER_TAKE.wav, got {inventory(root)}; "
            "name the folder above the splits."
        )
    return _speakers(root, f"audiomnist-{root.resolve().name}", note)


def urbansound8k(path: str) -> Corpus:
    """UrbanSound8K (Salamon et al. 2014): ten sounds of a city in ten folds. `DIR#10` takes one fold of them.

    path: the unpacked download, with metadata/UrbanSound8K.csv and audio/fold1 to fold10.
    """
    return _folds(
        path, "urbansound8k", "metadata/UrbanSound8K.csv", ("slice_file_name", "class"), nested=True
    )


def esc50(path: str) -> Corpus:
    """ESC-50 (Piczak 2015): fifty everyday sounds, 5 s each, in five folds. `DIR#5` takes one fold of them.

    path: the unpacked download, with meta/esc50.csv and audio.
    """
    return _folds(path, "esc50", "meta/esc50.csv", ("filename", "category"), nested=False)


def _speakers(root: Path, name: str, note: str, takes: tuple[int, ...] | None = None) -> Corpus:
    """SPEAKER/DIGIT_..._TAKE of the speakers that the model knows; takes: remainders of four, all if None."""
    found = []
    for speaker in SPEAKERS:
        place = root / speaker
        files = sorted(place.iterdir()) if place.is_dir() else []
        for file in files:
            take = file.stem.rpartition("_")[2]
            if file.suffix.lower() not in SUFFIXES or not take.isdigit():
                continue
            if takes is None or int(take) % 4 in takes:
                id = f"{speaker}/{file.stem}"
                found.append(_entry(id, file, speaker, {"speaker": speaker, "language": "en"}))
    if not found:
        raise InputError(
            f"{root}: expected AudioMNIST (SPEAKER/DIGIT_TAKE.flac, or data/SPEAKER/DIGIT_SPEAKER_TAKE.wav), "
            f"got {inventory(root)}; name the unpacked download, or a folder of splits."
        )
    return Corpus(name, tuple(found), note)


def _folds(path: str, name: str, table: str, columns: tuple[str, str], *, nested: bool) -> Corpus:
    """A corpus that a CSV lists with a fold for each file. nested: whether every fold has its own folder."""
    root, fold = _parted(path)
    if not (root / table).is_file():
        raise InputError(
            f"{root}: expected {table} in it, got {inventory(root)}; name the unpacked download."
        )
    rows = list(_rows(root / table, (*columns, "fold")))
    folds = sorted({row[2] for _, row in rows}, key=lambda one: (len(one), one))
    if fold and fold not in folds:
        raise UnknownName(f"fold of {name}", fold, folds)
    entries = [
        (line, _entry(Path(file).stem, root / "audio" / (f"fold{own}" if nested else "") / file, label, {}))
        for line, (file, label, own) in rows
        if fold in ("", own)
    ]
    chosen = f"fold {fold}" if fold else f"{len(folds)} folds"
    full_name = f"{name}-fold{fold}" if fold else name
    return of_lines(root / table, full_name, entries, f"{chosen}; {_LEVEL}")


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [column for column in columns if column not in (reader.fieldnames or [])]
        if missing:
            raise InputError(
                f"{path}: expected the columns {', '.join(columns)}, got no {', '.join(missing)}; unpack the "
                "download again."
            )
        for row in reader:
            values = tuple((row[column] or "").strip() for column in columns)
            if not all(values):
                raise InputError(
                    f"{path}, line {reader.line_num}: expected {', '.join(columns)}, got an empty one; "
                    "correct that line."
                )
            yield reader.line_num, values


def _parted(path: str) -> tuple[Path, str]:
    """A folder, and what comes after its `#`."""
    folder, mark, chosen = path.rpartition("#")
    if not mark or Path(path).expanduser().is_dir():
        return existing_folder(path), ""
    return existing_folder(folder), chosen


def _entry(id: str, path: Path, label: str, facts: dict[str, str]) -> Entry:
    return Entry(id, path, label, facts=facts, source=levelled(path))


def levelled(path: Path) -> Source:
    """A file with its largest sample at `PEAK`; digital silence stays."""
    return partial(_read_levelled, path)


def _read_levelled(path: Path) -> Recording:
    recording = Entry("", path, "").read()
    # Of all channels together, as a clip is mixed down.
    peak = float(np.abs(recording.samples.mean(axis=1)).max(initial=0.0))
    if not 0.0 < peak < np.inf:
        return recording
    gain = PEAK / peak
    scaled = f"scaled by {gain:.4g} to a peak of {PEAK:g}"
    return Recording(recording.samples * gain, recording.sample_rate, (*recording.remarks, scaled))
