"""Records: one JSON line for each clip and cell. Reports are made from them alone."""

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
TRIALS = "trials.jsonl"
"""The name of the file in the folder of a run."""
SCHEMA = 3
"""The version of the lines that are written. 1: no `schema` in the line, all else as in 2. 2: no `judged_by`;
evading a recogniser meant any change of its transcript; `OLD_LOADING` and `OLD_EVERY`."""
LOADING = ""
"""The cell of a clip that could not be used in any cell. No cell and no clip has an empty name."""
EVERY = ""
"""The clip of a record that says why a cell could not be run at all. If the cell has other records, it is
outdated."""
OLD_LOADING, OLD_EVERY = "load", "*"
"""The same in records before schema 3, where they collide with possible names of clips."""
_BLOCK = 1 << 16
_BINARY = getattr(os, "O_BINARY", 0)  # exists only on Windows


@dataclass(frozen=True, kw_only=True)
class Record:
    """One clip in one cell of a plan. `failed` and `skipped` have a reason and no figures, never a zero.

    A line is checked against the types and ranges of the fields.
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
    """What success means: "errors", "change" or "goal" (`core.goal.JudgedBy`); "" in older records."""
    seconds: Positive | None = None
    sample_rate: Rate | None = None
    loaded: str = ""
    """What was done to the file when it was loaded, such as resampling."""
    facts: dict[str, str] = field(default_factory=dict)
    """Further facts about the clip, such as its intensity level."""
    parts: dict[str, Pair] = field(default_factory=dict)
    """From metric to additive parts; NaN (null in the file) if the clip has no value."""
    unscored: dict[str, str] = field(default_factory=dict)
    """From metric to the reason why it has no value for this clip."""
    audio: dict[Role, Below] = field(default_factory=dict)
    """Paths of audio files, relative to the records."""
    schema: Annotated[int, Field(ge=1, le=SCHEMA)] = SCHEMA

    @property
    def key(self) -> Key:
        """Its cell and clip."""
        return self.cell, self.clip

    def to_line(self) -> str:
        """The record as a line of JSON."""
        parts = {name: [part_to_json(part) for part in parts] for name, parts in self.parts.items()}
        return orjson.dumps({**vars(self), "parts": parts}).decode()

    def checked(self) -> Self:
        """The record itself; raises if its line could not be read again."""
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
        """The record of a line, converted to the newest schema. Raises `Mistake`."""
        text = line.encode() if isinstance(line, str) else line
        try:
            found: Record = _CHECKED.validator.validate_json(text)
        except ValidationError as error:
            _check_schema(text)
            refuse(error, text)
        # If writing it gives the same line, the line has every field exactly once.
        whole = orjson.dumps(vars(found), option=orjson.OPT_APPEND_NEWLINE) == text
        version = found.schema if whole else check_once(text).get("schema", 1)
        return _upgrade(found, version) if version < SCHEMA or not (found.cell and found.clip) else found


_CHECKED = TypeAdapter(Record)


def _check_schema(text: bytes) -> None:
    """Refuse an unknown version before its fields are checked."""
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
    """A record of an older schema in the newest one. A record with figures has a cell and a clip."""
    cell, clip = record.cell, record.clip
    if version < 3 and record.status == "failed":
        cell, clip = LOADING if cell == OLD_LOADING else cell, EVERY if clip == OLD_EVERY else clip
    if not cell and (record.status == "ok" or not clip):
        raise Mistake("expected a name, got none", ("cell",))
    if not clip and record.status == "ok":
        raise Mistake("expected a name, got none", ("clip",))
    # Changed in place: nothing else has it yet, and a new one would take half as long again as reading it.
    vars(record).update(cell=cell, clip=clip, schema=SCHEMA)
    return record


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file in order. A partial last line, left by a killed run, is dropped."""
    return read_lines(path, Record.from_line, "record")


def read_keys(path: Path) -> dict[Key, Status]:
    """The keys in a file with their status; the last record of a key counts."""
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
    """The keys that a record makes outdated: its own, and the failures of its whole cell and of its clip."""
    cell, clip = key
    return key, (cell, EVERY), (LOADING, clip)


def latest(records: Iterable[Record]) -> Iterator[Record]:
    """Each key once. Failures come last, and only if no later record replaced them.

    Only failures are ever repeated, so a later record of a key that did not fail is a copy.
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
    """Parse each line of a file, in order; a partial last one is dropped. what: what a line should be."""
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

    def to_line(self) -> str:
        """The line, without the end."""
        ...


class RecordWriter:
    """Appends records to a file and syncs it, so that a kill at any moment loses nothing recorded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Unbuffered: what a full disk refused must not be written later, on closing.
            self._file = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666
            )
            self._drop_torn_line()
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; choose a folder you may write to."
            ) from None

    def write(self, records: Sequence[JsonLine]) -> None:
        """Append and sync. On a full disk the file is cut back to whole lines before the error."""
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
                f"cannot write {self._path}: {error.strerror}; what was recorded before is safe. Free some "
                "space and give the same command again to continue."
            ) from None

    def _drop_torn_line(self) -> None:
        """Remove a partial last line, so that the next record starts on a new line."""
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
