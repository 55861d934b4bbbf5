"""What is kept of a trial: one JSON line a clip and cell, from which reports are made and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, ClassVar, Literal, Protocol, Self, TypeVar

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from sottovoce.core.files.field_ranges import Below, Pair, Positive, Rate, part_to_json
from sottovoce.core.files.strict_json import STRICT, Mistake, check_once, refuse
from sottovoce.errors import DamagedFile, InputError, StoreError

Status = Literal["ok", "failed", "skipped"]
Role = Literal["clean", "adversarial"]
"""Of a kept sound: before the attack, or after it."""
Key = tuple[str, str]
"""A cell and a clip."""
Kept = TypeVar("Kept")
SCHEMA = 3
"""The version of the lines that are written. 1: no `schema` in the line, all else as in 2. 2: no `judged_by`,
and to evade a recogniser was to change its transcript, for better or worse; `OLD_LOADING` and `OLD_EVERY`."""
LOADING = ""
"""The cell of a clip that could not be used in any. No cell and no clip has an empty name."""
EVERY = ""
"""The clip of a record that tells why a cell could not be run at all. Beside clips of the cell it says
nothing: those were run."""
OLD_LOADING, OLD_EVERY = "load", "*"
"""The same, of failures in records before schema 3: names that a clip may have."""
_BLOCK = 1 << 16
_BINARY = getattr(os, "O_BINARY", 0)  # Windows alone has it


@dataclass(frozen=True, kw_only=True)
class Record:
    """One clip in one cell of a plan. `failed` and `skipped` carry a reason and no figures: never a zero.

    A line is checked against the types, and the ranges beside them, that the fields have here.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    cell: str
    clip: str
    status: Status
    reason: str = ""
    label: str = ""
    clean_text: str = ""
    adversarial_text: str = ""
    achieved: bool | None = None
    achieved_unrounded: bool | None = None
    judged_by: Literal["", "errors", "change", "goal"] = ""
    """What success means here: "errors", "change" or "goal" (`core.goal.JudgedBy`); "" in older records."""
    seconds: Positive | None = None
    sample_rate: Rate | None = None
    loaded: str = ""
    """What was done to the file on the way in, such as resampling."""
    facts: dict[str, str] = field(default_factory=dict)
    """What else is known of the clip, such as its intensity level."""
    parts: dict[str, Pair] = field(default_factory=dict)
    """Metric name to additive parts; NaN (null in the file) where the clip has no value."""
    unscored: dict[str, str] = field(default_factory=dict)
    """Metric name to the reason why it has no value for this clip, where it says so."""
    audio: dict[Role, Below] = field(default_factory=dict)
    """To files beside the records."""
    schema: Annotated[int, Field(ge=1, le=SCHEMA)] = SCHEMA

    @property
    def key(self) -> Key:
        return self.cell, self.clip

    def to_line(self) -> str:
        parts = {name: [part_to_json(part) for part in parts] for name, parts in self.parts.items()}
        return orjson.dumps({**vars(self), "parts": parts}).decode()

    def checked(self) -> Self:
        """Itself; raises where its line could not be read again, whoever's part gave what it holds."""
        try:
            Record.from_line(self.to_line())
        except (Mistake, TypeError) as error:
            where = f"field {error.name!r}: " if isinstance(error, Mistake) else ""
            raise InputError(
                f"{where}{error}; correct the model, the attack or the metric that gave it."
            ) from None
        return self

    @classmethod
    def from_line(cls, line: str | bytes) -> Record:
        """The record of a line, as the newest schema has it. Raises `Mistake`."""
        text = line.encode() if isinstance(line, str) else line
        try:
            found: Record = _CHECKED.validator.validate_json(text)
        except ValidationError as error:
            _check_schema(text)
            refuse(error, text)
        # A line that is written again as it stands has every field, and each once.
        whole = orjson.dumps(vars(found), option=orjson.OPT_APPEND_NEWLINE) == text
        version = found.schema if whole else check_once(text).get("schema", 1)
        return _upgrade(found, version) if version < SCHEMA or not (found.cell and found.clip) else found


_CHECKED = TypeAdapter(Record)


def _check_schema(text: bytes) -> None:
    """Refuse a version that nobody here knows before its fields are looked at."""
    try:
        content = orjson.loads(text)
    except ValueError:
        return
    version = content.get("schema", 1) if isinstance(content, dict) else 1
    if type(version) is not int or not 1 <= version <= SCHEMA:
        raise Mistake(
            f"expected a record of schema 1 to {SCHEMA}, got schema {version!r}",
            ("schema",),
            "read it with the version of sottovoce that wrote it, or a newer one",
        )


def _upgrade(record: Record, version: int) -> Record:
    """A record of an older schema as the newest has it. What has figures has a cell and a clip."""
    cell, clip = record.cell, record.clip
    if version < 3 and record.status == "failed":
        cell, clip = LOADING if cell == OLD_LOADING else cell, EVERY if clip == OLD_EVERY else clip
    if not cell and (record.status == "ok" or not clip):
        raise Mistake("expected a name, got none", ("cell",))
    if not clip and record.status == "ok":
        raise Mistake("expected a name, got none", ("clip",))
    # Nobody has seen it yet, and to make another takes half as long again as to read a line.
    vars(record).update(cell=cell, clip=clip, schema=SCHEMA)
    return record


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file in order. A torn last line, left by a kill, is dropped."""
    return read_lines(path, Record.from_line, "record")


def read_keys(path: Path) -> dict[Key, Status]:
    """What is on record in a file, and how it ended; the last record of a key counts."""
    found: dict[Key, Status] = {}
    begun: set[str] = set()
    for record in read_records(path):
        key = sys.intern(record.cell), sys.intern(record.clip)
        cell, clip = key
        if clip != EVERY:
            begun.add(cell)
        elif cell in begun:
            continue
        for old in outdated(key):
            found.pop(old, None)
        found[key] = record.status
    return found


def outdated(key: Key) -> tuple[Key, ...]:
    """What a record makes out of date: an older one of the same key, and the failures that said that its
    cell could not be run, or that its clip could not be loaded."""
    cell, clip = key
    return key, (cell, EVERY), (LOADING, clip)


def latest(records: Iterable[Record]) -> Iterator[Record]:
    """Each key once. What failed comes last, and only if nothing later took its place.

    Nothing but a failure is ever done again, so a later record of a key that did not fail is a copy.
    """
    seen: dict[str, set[str]] = {}
    failed: dict[Key, Record] = {}
    for record in records:
        if record.clip == EVERY:
            if record.cell not in seen:
                failed[record.key] = record
            continue
        if failed:
            for old in outdated(record.key):
                failed.pop(old, None)
        clips = seen.setdefault(record.cell, set())
        if record.clip in clips:
            continue
        if record.status == "failed":
            failed[record.key] = record
        else:
            clips.add(sys.intern(record.clip))
            yield record
    yield from failed.values()


def read_lines(path: Path, parse: Callable[[bytes], Kept], what: str) -> Iterator[Kept]:
    """What `parse` makes of each line of a file, in order; a torn last one is dropped. what: its name."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield parse(line)
            except Mistake as error:
                where, fix = f"{path}, line {number}", "restore that line from a copy, or delete it"
                raise error.in_file(where, f"a {what}", fix) from None
            except (ValueError, TypeError) as error:
                raise DamagedFile(
                    f"{path}, line {number}: expected a {what}, got something else ({error}); "
                    "restore that line from a copy, or delete it."
                ) from None


class JsonLine(Protocol):
    """Anything that is kept as a line of JSON."""

    def to_line(self) -> str: ...


class RecordWriter:
    """Appends records, fsynced, so that a kill at any moment loses nothing recorded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Not buffered: what a full disk refused must not be written later, when it is closed.
            self._file = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666
            )
            self._drop_torn_line()
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; choose a folder you may write to."
            ) from None

    def write(self, records: Sequence[JsonLine]) -> None:
        """Append and make durable. On a full disk the file is cut back to whole lines before the error."""
        if not records:
            return
        content = memoryview("".join(record.to_line() + "\n" for record in records).encode())
        end = os.lseek(self._file, 0, os.SEEK_END)
        try:
            while content:
                content = content[os.write(self._file, content) :]
            os.fsync(self._file)
        except OSError as error:
            os.truncate(self._path, end)
            raise StoreError(
                f"cannot write {self._path}: {error.strerror}; what was recorded before is safe: free some "
                "space and give the same command again to go on."
            ) from None

    def _drop_torn_line(self) -> None:
        """Cut what a kill left of a last line, so that the next record starts on a line of its own."""
        size = end = os.lseek(self._file, 0, os.SEEK_END)
        whole = 0
        while end > 0 and not whole:
            start = max(0, end - _BLOCK)
            os.lseek(self._file, start, os.SEEK_SET)
            whole = start + found + 1 if (found := os.read(self._file, end - start).rfind(b"\n")) >= 0 else 0
            end = start
        if whole < size:
            os.truncate(self._path, whole)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
