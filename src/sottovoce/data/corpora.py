"""Corpora by name: folders and CSV tables, and what other corpora share with them."""

from __future__ import annotations

import csv
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from sottovoce import registry
from sottovoce.core.record import TRIALS, latest, read_records
from sottovoce.data.load import Corpus, Entry, readable
from sottovoce.errors import InputError, MissingExtra, UnknownName

SUFFIXES = (".flac", ".mp3", ".ogg", ".wav")
FACTS = ("speaker", "language", "split")
"""Columns of a table that are kept as facts of a clip."""


def open_corpus(spec: str) -> Corpus:
    """A corpus as `--data` names it: a registered name, NAME:ARGUMENT, a folder, a CSV file, or a URL.

    "embedded", "prompts:en" and "strings" are shipped; "folder:DIR" and a mere path expect CLASS/clip.wav;
    a .csv file has the columns path and label; a URL is one that fsspec knows, such as s3://BUCKET/DIR (see
    `sottovoce.data.remote_corpora`). `sottovoce parts corpus` lists all names.

    >>> corpus = sv.data.open_corpus("prompts:en")
    >>> {entry.facts["language"] for entry in corpus}
    {'en'}
    """
    if "://" in spec:
        # Imported here: it opens what is described below.
        from sottovoce.data.remote_corpora import open_remote

        return open_remote(spec)
    name, colon, argument = spec.partition(":")
    if name in registry.names("corpus"):
        return call_corpus(name, [argument] if argument else [])
    path = Path(spec).expanduser()
    # os.path says no to a name that is too long, where Path raises.
    if os.path.isdir(path):
        return folder(spec)
    there = os.path.exists(path)
    if there and path.suffix.lower() == ".csv":
        return table(spec)
    if there or os.sep in spec or (path.suffix and not colon):
        got = "another kind of file" if there else "no such path"
        raise InputError(f"{spec}: expected a folder or a .csv file, got {got}; check the path.")
    if not colon and not get_close_matches(name, registry.names("corpus"), cutoff=0.7):
        raise InputError(
            f"unknown corpus {name!r}: there is neither a corpus nor a folder of that name; check the "
            "path, or list the corpora with `sottovoce parts corpus`."
        )
    raise UnknownName("corpus", name, registry.names("corpus"))


def folder(path: str) -> Corpus:
    """A folder of class folders, `CLASS/*.wav` (or FLAC, Ogg, MP3); a class folder's name is the label."""
    root = existing_folder(path)
    classes = folders_in(root)
    found = [file for one in classes for file in audio_in(one)]
    if not found:
        raise InputError(
            f"{root}: expected CLASS/clip.wav (or {', '.join(SUFFIXES)}) in it, got {inventory(root)}; "
            "make one folder per label, or list the files in a CSV with the columns path and label."
        )
    deeper = [one for sub in classes for one in folders_in(sub) if any(audio_in(one))]
    if deeper:
        raise InputError(
            f"{root}: expected audio in CLASS/ only, got some in {deeper[0].relative_to(root)}/; "
            "name the folder above the classes, or list the files in a CSV with the columns path and label."
        )
    entries = [Entry(id_of(file, root), file, readable(file.parent.name)) for file in found]
    return Corpus(root.resolve().name, tuple(entries), _left_out(root, classes))


def table(path: str) -> Corpus:
    """A CSV with the columns path and label, and id, speaker, language and split if wanted.

    Paths count from the CSV's folder. A label is a class, or for a recogniser the transcript.
    """
    return read_table(Path(path).expanduser(), Path(path).stem)


def run(folder: str) -> Corpus:
    """The clean clips that a run saved, with their labels: what its examples are tried again on."""
    root = existing_folder(folder)
    if not (root / TRIALS).is_file():
        raise InputError(
            f"run:{folder}: expected the folder of a run, got one without {TRIALS}; check the path."
        )
    entries: dict[str, Entry] = {}
    for record in latest(read_records(root / TRIALS)):
        if record.status == "ok" and "clean" in record.audio and record.clip not in entries:
            facts = {name: record.facts[name] for name in FACTS if name in record.facts}
            place = root / record.audio["clean"]
            entries[record.clip] = Entry(record.clip, place, record.label, facts=facts)
    if not entries:
        raise InputError(
            f"run:{folder}: expected saved clips, got none; run the audit with --audio all and an attack."
        )
    return Corpus(Path(folder).name, tuple(entries.values()), f"the clips of the run {Path(folder).name}")


def read_table(path: Path, name: str, note: str = "") -> Corpus:
    """The corpus of a CSV file, named `name`."""
    if not os.path.isfile(path):
        raise InputError(f"{path}: expected a CSV file, got no such file; check the path.")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return of_lines(path, name, entries_of(file, path), note)


def entries_of(file: Iterable[str], path: Path, place: str = "") -> Iterator[tuple[int, Entry]]:
    """The rows of a table with their line numbers. path: the table's own; place: what messages call it."""
    place = place or str(path)
    return ((line, _entry_of_row(path, place, line, row)) for line, row in _rows(file, place))


def files_absent(entries: Sequence[Entry]) -> list[str]:
    """The files of a list that do not exist."""
    return [str(entry.path) for entry in entries if not _may_be_there(entry.path)]


def _may_be_there(path: Path) -> bool:
    """Whether there is a file, or nobody can tell: a name that is too long fails once its clip is loaded."""
    try:
        return path.is_file()
    except OSError:
        return True


def of_lines(
    path: Path | str,
    name: str,
    lines: Iterable[tuple[int, Entry]],
    note: str = "",
    absent: Callable[[Sequence[Entry]], list[str]] = files_absent,
) -> Corpus:
    """The corpus that a file lists line by line; ids must differ, and the files must exist."""
    entries = []
    places: dict[str, int] = {}
    for line, entry in lines:
        if entry.id in places:
            raise InputError(
                f"{path}: expected different ids, got {entry.id!r} in lines {places[entry.id]} and {line}; "
                "drop one row, or tell them apart in an id column."
            )
        places[entry.id] = line
        entries.append(entry)
    if not entries:
        raise InputError(f"{path}: expected one row per clip, got none; fill in the columns path and label.")
    missing = absent(entries)
    if missing:
        raise InputError(
            f"{path}: no such file at {len(missing)} of {len(entries)} paths ({some(missing)}); write paths "
            f"relative to the folder of {Path(path).name}."
        )
    return Corpus(name, tuple(entries), note)


def lhotse_module(module: str) -> Any:
    """A module of lhotse, or an error that says what to install."""
    try:
        # A module of a package that failed to load can be found all the same; the package fails each time.
        import_module("lhotse")
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"LibriSpeech and Speech Commands as downloaded need the package lhotse, got {error}; pip "
            'install "sottovoce[corpora]".'
        ) from error


def call_corpus(name: str, arguments: list[str]) -> Corpus:
    """The corpus of a registered name, called with the arguments that follow its name."""
    maker = registry.find("corpus", name)
    try:
        inspect.signature(maker).bind(*arguments)
    except TypeError:
        takes = list(inspect.signature(maker).parameters)
        usage = f"{name}:{takes[0].upper()}" if takes else name
        raise InputError(
            f"corpus {name!r}: expected {usage!r}, got {':'.join([name, *arguments])!r}."
        ) from None
    corpus: Corpus = maker(*arguments)
    return corpus


def _rows(file: Iterable[str], place: str) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        reader = csv.DictReader(file, skipinitialspace=True)
        columns = [column.strip() for column in reader.fieldnames or []]
        if not {"path", "label"} <= set(columns):
            raise InputError(
                f"{place}: expected the columns path and label, separated by commas, got "
                f"{', '.join(columns) or 'no header'}; name them in the first line."
            )
        reader.fieldnames = columns
        for row in reader:
            yield reader.line_num, {key: value for key, value in row.items() if isinstance(value, str)}
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{place}: expected a CSV file in UTF-8, got something else ({error}); save it as UTF-8."
        ) from error


def _entry_of_row(path: Path, place: str, line: int, row: dict[str, str]) -> Entry:
    values = {key: row.get(key, "").strip() for key in ("path", "label", "id")}
    for key in ("path", "label"):
        if not values[key]:
            raise InputError(f"{place}, line {line}: expected a {key}, got none; fill it in or drop the row.")
    name = os.path.splitext(_below(Path(values["path"]), path.parent).as_posix())[0]
    facts = {key: row[key].strip() for key in FACTS if row.get(key, "").strip()}
    return Entry(values["id"] or name, path.parent / values["path"], values["label"], facts=facts)


def _below(file: Path, root: Path) -> Path:
    """The path of a file relative to a folder that holds it, however the two are written."""
    if file.is_absolute():
        for one, other in ((file, root.absolute()), (file.resolve(), root.resolve())):
            if one.is_relative_to(other):
                return one.relative_to(other)
    return file


def existing_folder(path: str) -> Path:
    """A folder by its path, or `InputError` where it is none."""
    root = Path(path).expanduser()
    if not os.path.isdir(root):
        got = "a file" if os.path.isfile(root) else "no such folder"
        raise InputError(f"{path or 'corpus'}: expected a folder of clips, got {got}; check the path.")
    return root


def _visible(root: Path) -> list[Path]:
    return sorted(one for one in root.iterdir() if not one.name.startswith("."))


def folders_in(root: Path) -> list[Path]:
    """The folders in a folder, in order, but for hidden ones."""
    return [one for one in _visible(root) if one.is_dir()]


def audio_in(root: Path) -> list[Path]:
    """The audio files of a folder, in order."""
    return [one for one in _visible(root) if one.suffix.lower() in SUFFIXES and one.is_file()]


def id_of(file: Path, root: Path) -> str:
    """The path from the root on, without a suffix."""
    return readable(file.relative_to(root).with_suffix("").as_posix())


def inventory(root: Path) -> str:
    """What is in a folder, in a few words."""
    kinds = Counter("folder" if one.is_dir() else f"{one.suffix or 'other'} file" for one in _visible(root))
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in kinds.most_common(4)) or "nothing"


def _left_out(root: Path, classes: list[Path]) -> str:
    """A remark on files that are not clips of a class."""
    others = [one for place in (root, *classes) for one in _visible(place) if one.is_file()]
    clips = {file for one in classes for file in audio_in(one)}
    names = [readable(one.relative_to(root).as_posix()) for one in others if one not in clips]
    return f"left out {len(names)} files that are not clips of a class ({some(names)})" if names else ""


def some(names: Iterable[str]) -> str:
    """The first five names as text, and how many more there are."""
    names = list(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
