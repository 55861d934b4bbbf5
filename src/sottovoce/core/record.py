"""What is kept of a trial: one JSON line a clip and cell, from which reports are made and nothing else."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self, TypeVar

from sottovoce.errors import StoreError

Status = Literal["ok", "failed", "skipped"]
Kept = TypeVar("Kept")


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

    @property
    def key(self) -> tuple[str, str]:
        return self.cell, self.clip

    def to_line(self) -> str:
        content = asdict(self)
        content["parts"] = {name: [_to_json(part) for part in parts] for name, parts in self.parts.items()}
        return json.dumps(content, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Record:
        content = json.loads(line)
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        known = {item.name for item in fields(cls)}
        content = {name: value for name, value in content.items() if name in known}
        content["parts"] = {
            name: [_from_json(part) for part in parts] for name, parts in content.get("parts", {}).items()
        }
        return cls(**content)


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file in order. A torn last line, left by a kill, is dropped."""
    return read_lines(path, Record.from_line, "record")


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
            except (ValueError, TypeError) as error:
                raise StoreError(
                    f"{path}, line {number}: expected a {what}, got something else ({error}); "
                    "mend or delete that line."
                ) from None


class Line(Protocol):
    """Anything that is kept as a line of JSON."""

    def to_line(self) -> str: ...


class RecordWriter:
    """Appends records, flushed and fsynced, so that a kill at any moment loses nothing recorded."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("ab")
            self._drop_torn_line()
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}; choose a folder you may write to."
            ) from None

    def write(self, records: Sequence[Line]) -> None:
        """Append and make durable. On a full disk the file is cut back to whole lines before the error."""
        end = self._file.tell()
        try:
            self._file.write("".join(record.to_line() + "\n" for record in records).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            os.truncate(self._path, end)
            raise StoreError(
                f"cannot write {self._path}: {error.strerror}; what was recorded before is safe: free some "
                "space and give the same command again to go on."
            ) from None

    def _drop_torn_line(self) -> None:
        """Cut what a kill left of a last line, so that the next record starts on a line of its own."""
        content = self._path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._file.close()
        except OSError:
            # A buffer that could not be flushed was already reported by `write`.
            return


def _to_json(part: float) -> float | str | None:
    """JSON has no NaN or infinity: NaN is null, infinity (the SNR of an untouched clip) is a word."""
    if math.isnan(part):
        return None
    return ("inf" if part > 0 else "-inf") if math.isinf(part) else part


def _from_json(part: float | str | None) -> float:
    return math.nan if part is None else float(part)
