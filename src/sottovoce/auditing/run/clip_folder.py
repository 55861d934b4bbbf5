"""A folder with a plan and one record a clip, for what is run over a corpus and is no grid of attacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sottovoce.auditing.run.run_folder import prepare_folder
from sottovoce.core.record import RecordWriter, read_lines


class KeptClip(Protocol):
    """What such a folder keeps of a clip."""

    @property
    def key(self) -> Hashable:
        """What it is about: of two records with one key the later counts."""
        ...

    def to_line(self) -> str: ...


Kept = TypeVar("Kept", bound=KeptClip)


@dataclass(frozen=True)
class ClipFolder(ABC, Generic[Kept]):
    """Where the records of one plan live. The same plan goes on; another is refused."""

    path: Path

    plan_name: ClassVar[str]
    records_name: ClassVar[str]
    called: ClassVar[str]
    """What a record is, in messages."""

    @staticmethod
    @abstractmethod
    def read(line: str | bytes) -> Kept:
        """The record of a line. Raises `sottovoce.core.files.strict_json.Mistake`."""

    @property
    def records_path(self) -> Path:
        return self.path / self.records_name

    def prepare(self, plan: str, about: dict[str, Any]) -> None:
        """Make the folder, or check that it holds this plan."""
        prepare_folder(self.path, self.plan_name, plan, about)

    def records(self) -> Iterator[Kept]:
        """Each key once, as it ended the last time; a torn last line, left by a kill, is dropped."""
        lines = read_lines(self.records_path, self.read, self.called)
        return iter({record.key: record for record in lines}.values())

    def writer(self) -> RecordWriter:
        return RecordWriter(self.records_path)
