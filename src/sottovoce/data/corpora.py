"""Corpora by name: folders, CSV tables and Google Speech Commands."""

from __future__ import annotations

import csv
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from sottovoce import registry
from sottovoce.core.draws import Draws
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError, MissingExtra, UnknownName

Split = Literal["train", "valid", "test"]

SUFFIXES = (".flac", ".mp3", ".ogg", ".wav")
WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
NOISE = "_background_noise_"
FACTS = ("speaker", "language", "split")
"""Columns of a table that are kept as facts of a clip."""

_LISTS = {"valid": "validation_list.txt", "test": "testing_list.txt"}
# The minutes of background noise are shared out by time, so that no split hears another's.
_SHARES = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0)}


def open_corpus(spec: str) -> Corpus:
    """A corpus as the command line names it: "embedded", "folder:DIR", "speechcommands:DIR", or a path.

    A path may be a URL that fsspec knows, such as s3://BUCKET/DIR; see `sottovoce.data.remote`.
    """
    if "://" in spec:
        # Imported here: it opens what is described below.
        from sottovoce.data.remote import open_remote

        return open_remote(spec)
    name, colon, argument = spec.partition(":")
    if name in registry.names("corpus"):
        return call_corpus(name, [argument] if argument else [])
    path = Path(spec).expanduser()
    if path.is_dir():
        return folder(spec)
    if path.is_file() and path.suffix.lower() == ".csv":
        return table(spec)
    if path.exists() or os.sep in spec or (path.suffix and not colon):
        got = "another kind of file" if path.exists() else "no such path"
        raise InputError(f"{spec}: expected a folder or a .csv file, got {got}; check the path.")
    if not colon and not get_close_matches(name, registry.names("corpus"), cutoff=0.7):
        raise InputError(
            f"unknown corpus {name!r}: no such folder, and no corpus of that name; check the path."
        )
    raise UnknownName("corpus", name, registry.names("corpus"))


def folder(path: str) -> Corpus:
    """A folder of class folders, `CLASS/*.wav` (or FLAC, Ogg, MP3); a class folder's name is the label."""
    root = existing_folder(path)
    classes = _visible_folders(root)
    found = [file for one in classes for file in _audio_in(one)]
    if not found:
        raise InputError(
            f"{root}: expected CLASS/clip.wav (or {', '.join(SUFFIXES)}) in it, got {inventory(root)}; "
            "make one folder per label, or list the files in a CSV with the columns path and label."
        )
    deeper = [one for sub in classes for one in _visible_folders(sub) if any(_audio_in(one))]
    if deeper:
        raise InputError(
            f"{root}: expected audio in CLASS/ only, got some in {deeper[0].relative_to(root)}/; "
            "name the folder above the classes, or list the files in a CSV with the columns path and label."
        )
    entries = [Entry(id_of(file, root), file, file.parent.name) for file in found]
    return Corpus(root.resolve().name, tuple(entries), _left_out(root, classes))


def table(path: str) -> Corpus:
    """A CSV with the columns path and label, and id, speaker, language and split if wanted.

    Paths count from the CSV's folder. A label is a class, or for a recogniser the transcript.
    """
    return read_table(Path(path).expanduser(), Path(path).stem)


def read_table(path: Path, name: str, note: str = "") -> Corpus:
    if not path.is_file():
        raise InputError(f"{path}: expected a CSV file, got no such file; check the path.")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return of_lines(path, name, entries_of(file, path), note)


def entries_of(file: Iterable[str], path: Path, place: str = "") -> Iterator[tuple[int, Entry]]:
    """The rows of a table with their line numbers. path: the table's own; place: what messages call it."""
    place = place or str(path)
    return ((line, _entry_of_row(path, place, line, row)) for line, row in _rows(file, place))


def files_absent(entries: Sequence[Entry]) -> list[str]:
    """Files of a list that are not there."""
    return [str(entry.path) for entry in entries if not entry.path.is_file()]


def of_lines(
    path: Path | str,
    name: str,
    lines: Iterable[tuple[int, Entry]],
    note: str = "",
    absent: Callable[[Sequence[Entry]], list[str]] = files_absent,
) -> Corpus:
    """The corpus that a file lists, line by line, with ids that differ and files that are there."""
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
            f"{path}: expected files at all {len(entries)} paths, got {len(missing)} without one "
            f"({some(missing)}); paths count from the folder of {Path(path).name}."
        )
    return Corpus(name, tuple(entries), note)


def speech_commands(path: str, split: Split = "test", seed: int = 0) -> Corpus:
    """Google Speech Commands (Warden 2018) as the task of 12 classes: ten words, unknown and silence.

    path is one of: lhotse's download (both archives side by side), the training archive by itself
    (`WORD/*.wav` with its two lists), or `train|valid|test/WORD/*`. Other words are `unknown`. `silence` is
    the test archive's own, or else pieces of one second from `_background_noise_`, one for every ten clips
    of the ten words; which pieces is drawn from `seed`.
    """
    if split not in _SHARES:
        raise UnknownName("split", split, _SHARES)
    root = existing_folder(path)
    name = f"speechcommands-{split}"
    archives = sorted(root.glob("speech_commands_v0.0?"))
    if archives:
        version = archives[-1].name[-1]
        if (root / f"speech_commands_test_set_v0.0{version}").is_dir():
            return _from_lhotse(root, version, split, name, seed)
        root = archives[-1]
    if all((root / one).is_file() for one in _LISTS.values()):
        files, note = _listed(root, split)
        noise, share = root / NOISE, _SHARES[split]
    elif (root / split).is_dir():
        files, note = _words_in(root / split), ""
        inner = root / split / NOISE
        noise, share = (inner, (0.0, 1.0)) if inner.is_dir() else (root / NOISE, _SHARES[split])
    else:
        raise InputError(
            f"{root}: expected Speech Commands ({' and '.join(_LISTS.values())} beside the words, "
            f"or a folder {split}), got {inventory(root)}; name the unpacked archive."
        )
    words = [Entry(id_of(file, file.parent.parent), file, _label_of(file.parent.name)) for file in files]
    recordings = [_recording(file) for file in _audio_in(noise)] if noise.is_dir() else []
    return _with_silence(name, words, recordings, share, Draws(seed).turn(split), note)


def _from_lhotse(root: Path, version: str, split: str, name: str, seed: int) -> Corpus:
    recipe = lhotse_module("lhotse.recipes.speechcommands")
    try:
        manifest = recipe.prepare_speechcommands(version, root)[split]
    except (lhotse_module("lhotse.audio.utils").AudioLoadingError, OSError, AssertionError) as error:
        reason = str(error).splitlines()[0].removesuffix(" Details:").rstrip(".")
        raise InputError(
            f"{root}: expected Speech Commands v0.0{version} that lhotse can read, got: {reason}; "
            "mend or drop that file."
        ) from error
    texts = {segment.recording_id: segment.text for segment in manifest["supervisions"]}
    words, noise = [], []
    for recording in sorted(manifest["recordings"], key=lambda one: str(one.sources[0].source)):
        source = Path(recording.sources[0].source)
        if source.parent.name == NOISE:
            noise.append(recording)
        else:
            word = texts[recording.id] or "silence"
            words.append(Entry(id_of(source, source.parent.parent), source, _label_of(word)))
    return _with_silence(name, words, noise, (0.0, 1.0), Draws(seed).turn(split), "")


def _with_silence(
    name: str,
    words: list[Entry],
    noise: list[Any],
    share: tuple[float, float],
    draws: Draws,
    note: str,
) -> Corpus:
    """The corpus of some words, with silence cut from lhotse recordings of noise if there is none yet."""
    notes = [note] if note else []
    silence: list[Entry] = []
    if not any(entry.label == "silence" for entry in words):
        count = max(1, round(sum(entry.label in WORDS for entry in words) / len(WORDS)))
        silence = list(_pieces(noise, count, share, draws))
        made = f"silence: {len(silence)} pieces of {NOISE}"
        notes.append(made if silence else f"no silence: {NOISE} is missing or too short")
    return Corpus(name, (*words, *silence), "; ".join(notes))


def _pieces(recordings: list[Any], count: int, share: tuple[float, float], draws: Draws) -> Iterator[Entry]:
    """One second at a time from each recording in turn, at places drawn inside its share of time."""
    spans = [(one, *(round(part * one.num_samples) for part in share)) for one in recordings]
    spans = [(one, first, last) for one, first, last in spans if last - first >= one.sampling_rate]
    for number in range(count if spans else 0):
        recording, first, last = spans[number % len(spans)]
        source, rate = Path(recording.sources[0].source), recording.sampling_rate
        id = f"silence/{source.stem}_{number:05d}"
        start = int(draws.generator(id).integers(first, last - rate, endpoint=True))
        cut = recording.to_cut().truncate(offset=start / rate, duration=1.0)
        yield Entry(id, source, "silence", round(cut.start * rate), cut.num_samples)


def _recording(file: Path) -> Any:
    audio = lhotse_module("lhotse.audio")
    try:
        return audio.Recording.from_file(file)
    except lhotse_module("lhotse.audio.utils").AudioLoadingError as error:
        raise InputError(f"{file}: expected background noise, got no audio; unpack it again.") from error


def lhotse_module(module: str) -> Any:
    """A module of lhotse, or what to install."""
    try:
        # A module of a package that failed to load can be found all the same; the package fails each time.
        import_module("lhotse")
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"expected lhotse to read a public corpus, got {error}; pip install lhotse urllib3."
        ) from error


def _listed(root: Path, split: str) -> tuple[list[Path], str]:
    """The files on a split's list, or for training those on none; and a remark on what is listed in vain."""
    lists = {key: set((root / file).read_text("utf-8").split()) for key, file in _LISTS.items()}
    found = {file.relative_to(root).as_posix(): file for file in _words_in(root)}
    if split == "train":
        return [found[one] for one in found if not any(one in listed for listed in lists.values())], ""
    absent = len(lists[split] - set(found))
    note = f"{absent} on {_LISTS[split]} without a file" if absent else ""
    return [file for one, file in found.items() if one in lists[split]], note


def _words_in(root: Path) -> list[Path]:
    return [file for sub in _visible_folders(root) if sub.name != NOISE for file in _audio_in(sub)]


def _label_of(word: str) -> str:
    bare = word.strip("_")
    return bare if bare in (*WORDS, "silence") else "unknown"


def call_corpus(name: str, arguments: list[str]) -> Corpus:
    maker = registry.find("corpus", name)
    try:
        inspect.signature(maker).bind(*arguments)
    except TypeError:
        takes = list(inspect.signature(maker).parameters)
        usage = f"{name}:{takes[0].upper()}" if takes else name
        raise InputError(
            f"corpus {name!r}: expected {usage!r}, got {':'.join([name, *arguments])!r}; write it so."
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
            f"{place}: expected CSV in UTF-8, got other bytes ({error}); save it as UTF-8."
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
    """A file by its way from a folder on, where it lies below it, however the two are written."""
    if file.is_absolute():
        for one, other in ((file, root.absolute()), (file.resolve(), root.resolve())):
            if one.is_relative_to(other):
                return one.relative_to(other)
    return file


def existing_folder(path: str) -> Path:
    root = Path(path).expanduser()
    if not root.is_dir():
        got = "a file" if root.is_file() else "no such folder"
        raise InputError(f"{path or 'corpus'}: expected a folder of clips, got {got}; check the path.")
    return root


def _visible(root: Path) -> list[Path]:
    return sorted(one for one in root.iterdir() if not one.name.startswith("."))


def _visible_folders(root: Path) -> list[Path]:
    return [one for one in _visible(root) if one.is_dir()]


def _audio_in(root: Path) -> list[Path]:
    return [one for one in _visible(root) if one.suffix.lower() in SUFFIXES and one.is_file()]


def id_of(file: Path, root: Path) -> str:
    """The path from the root on, without a suffix."""
    return file.relative_to(root).with_suffix("").as_posix()


def inventory(root: Path) -> str:
    """What is in a folder, in a few words."""
    kinds = Counter("folders" if one.is_dir() else f"{one.suffix or 'other'} files" for one in _visible(root))
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(4)) or "nothing"


def _left_out(root: Path, classes: list[Path]) -> str:
    """A remark on files that are not clips of a class."""
    others = [one for place in (root, *classes) for one in _visible(place) if one.is_file()]
    clips = {file for one in classes for file in _audio_in(one)}
    names = [one.relative_to(root).as_posix() for one in others if one not in clips]
    return f"left out {len(names)} files that are no clips of a class ({some(names)})" if names else ""


def some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
