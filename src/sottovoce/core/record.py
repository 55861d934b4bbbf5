"""What is kept of a trial: one JSON line a clip and cell, from which reports are made and nothing else."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

import orjson

from sottovoce.errors import StoreError

Status = Literal["ok", "failed", "skipped"]
Key = tuple[str, str]
"""A cell and a clip."""
Kept = TypeVar("Kept")
SCHEMA = 3
"""The version of the lines that are written. 1: no `schema` in the line, all else as in 2. 2: no `judged_by`,
and to evade a recogniser was to change its transcript, for better or worse."""
LOADING = "load"
"""The cell of a clip that could not be used in any."""
EVERY = "*"
"""The clip of a record that tells why a cell could not be run at all. Beside clips of the cell it says
nothing: those were run."""
_BLOCK = 1 << 16
_BINARY = getattr(os, "O_BINARY", 0)  # Windows alone has it


@dataclass(frozen=True, kw_only=True)
class Record:
    """One clip in one cell of a plan. `failed` and `skipped` carry a reason and no figures: never a zero."""

    cell: str
    clip: str
    status: Status
    reason: str = ""
    label: str = ""
    clean_text: str = ""
    adversarial_text: str = ""
    achieved: bool | None = None
    achieved_unrounded: bool | None = None
    judged_by: str = ""
    """What success means here: "errors", "change" or "goal" (`core.goal.JudgedBy`); "" in older records."""
    seconds: float | None = None
    sample_rate: int | None = None
    loaded: str = ""
    """What was done to the file on the way in, such as resampling."""
    facts: dict[str, str] = field(default_factory=dict)
    """What else is known of the clip, such as its intensity level."""
    parts: dict[str, list[float]] = field(default_factory=dict)
    """Metric name to additive parts; NaN (null in the file) where the clip has no value."""
    unscored: dict[str, str] = field(default_factory=dict)
    """Metric name to the reason why it has no value for this clip, where it says so."""
    audio: dict[str, str] = field(default_factory=dict)
    """"clean" and "adversarial" to files beside the records."""
    schema: int = SCHEMA

    @property
    def key(self) -> Key:
        return self.cell, self.clip

    def to_line(self) -> str:
        parts = {name: [_to_json(part) for part in parts] for name, parts in self.parts.items()}
        return orjson.dumps({**vars(self), "parts": parts}).decode()

    @classmethod
    def from_line(cls, line: str | bytes) -> Record:
        content = _read_line(line)
        content = {name: value for name, value in content.items() if name in _FIELDS}
        _check_kinds(content)
        content["parts"] = {
            name: [_from_json(part) for part in parts] for name, parts in content.get("parts", {}).items()
        }
        return cls(**content)


_FIELDS = frozenset(item.name for item in fields(Record))


def _check_kinds(content: dict[str, Any]) -> None:
    """Refuse what would be found out far from its line."""
    for name in ("cell", "clip", "status"):
        if not isinstance(content.get(name), str):
            raise ValueError(f"no text as {name!r}")
    for name in ("facts", "parts", "unscored", "audio"):
        if not isinstance(content.get(name, {}), dict):
            raise ValueError(f"no object as {name!r}")
    for name, pair in content.get("parts", {}).items():
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"no pair as {name!r} of 'parts'")


def _read_line(line: str | bytes) -> dict[str, Any]:
    """The content of a record's line, as the newest schema has it."""
    content = orjson.loads(line)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    version = content.get("schema", 1)
    if not isinstance(version, int) or not 1 <= version <= SCHEMA:
        raise StoreError(
            f"expected a record of schema 1 to {SCHEMA}, got schema {version!r}; read it with the version of "
            "sottovoce that wrote it, or a newer one."
        )
    content["schema"] = SCHEMA
    return content


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file in order. A torn last line, left by a kill, is dropped."""
    return read_lines(path, Record.from_line, "record")


def read_keys(path: Path) -> dict[Key, Status]:
    """What is on record in a file, and how it ended; the last record of a key counts."""
    found: dict[Key, Status] = {}
    begun: set[str] = set()
    for key, status in read_lines(path, _read_key, "record"):
        cell, clip = key
        if clip != EVERY:
            begun.add(cell)
        elif cell in begun:
            continue
        for old in outdated(key):
            found.pop(old, None)
        found[key] = status
    return found


def _read_key(line: str) -> tuple[Key, Status]:
    content = _read_line(line)
    try:
        return (sys.intern(content["cell"]), sys.intern(content["clip"])), content["status"]
    except KeyError as error:
        raise ValueError(f"no {error}") from None


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


def read_lines(path: Path, parse: Callable[[str], Kept], what: str) -> Iterator[Kept]:
    """What `parse` makes of each line of a file, in order; a torn last one is dropped. what: its name."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield parse(line.decode())
            except StoreError as error:
                raise StoreError(f"{path}, line {number}: {error}") from None
            except (ValueError, TypeError) as error:
                raise StoreError(
                    f"{path}, line {number}: expected a {what}, got something else ({error}); "
                    "mend or delete that line."
                ) from None


class Line(Protocol):
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

    def write(self, records: Sequence[Line]) -> None:
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


def _to_json(part: float) -> float | str | None:
    """JSON has no NaN or infinity: NaN is null, infinity (the SNR of an untouched clip) is a word."""
    if math.isnan(part):
        return None
    return ("inf" if part > 0 else "-inf") if math.isinf(part) else part


def _from_json(part: float | str | None) -> float:
    return math.nan if part is None else float(part)
