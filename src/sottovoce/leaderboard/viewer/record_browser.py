"""The records of a run a page at a time, filtered while they are read: a run can hold millions."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from sottovoce.core.files.strict_json import Mistake
from sottovoce.core.record import LOADING, Record, read_lines

PAGE = 50
MOST_KEPT = 16


@dataclass(frozen=True)
class Filter:
    """Each that is not empty must fit. text: words, all of them somewhere in the clip's name or the texts."""

    cell: str = ""
    status: str = ""
    label: str = ""
    text: str = ""

    @property
    def words(self) -> list[str]:
        return self.text.lower().split()

    def fits(self, content: dict[str, object]) -> bool:
        exact = (("cell", self.cell), ("status", self.status), ("label", self.label))
        if any(wanted and content.get(name) != wanted for name, wanted in exact):
            return False
        if not self.text:
            return True
        names = ("clip", "label", "clean_text", "adversarial_text", "reason")
        text = " ".join(str(content.get(name, "")) for name in names).lower()
        return all(word in text for word in self.words)


@dataclass(frozen=True)
class MatchingLines:
    """Where the lines that fit begin, and the choices that the records offer."""

    places: array[int]
    cells: list[str]
    statuses: list[str]
    labels: list[str]


@dataclass(frozen=True)
class RecordPage:
    """One page of records; the first is number 1."""

    records: list[Record]
    number: int
    pages: int
    total: int
    found: MatchingLines


MOST_LABELS = 500


@dataclass
class Browser:
    """Caches the last search; a file that has grown is read again."""

    _kept: OrderedDict[tuple[object, ...], MatchingLines] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def sheet(self, path: Path, wanted: Filter, number: int = 1) -> RecordPage:
        found = self._find(path, wanted)
        pages = max(1, math.ceil(len(found.places) / PAGE))
        number = min(max(1, number), pages)
        records = _read(path, found.places[(number - 1) * PAGE : number * PAGE])
        return RecordPage(records, number, pages, len(found.places), found)

    def _find(self, path: Path, wanted: Filter) -> MatchingLines:
        state = path.stat()
        key = path, state.st_mtime_ns, state.st_size, wanted
        with self._lock:
            known = self._kept.get(key)
        if known is None:
            known = scan(path, wanted)
        with self._lock:
            self._kept[key] = known
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return known


def scan(path: Path, wanted: Filter) -> MatchingLines:
    """One pass over a file of records; an incomplete last line is dropped."""
    places, start = array("q"), 0
    cells, statuses, labels = dict[str, None](), dict[str, None](), dict[str, None]()
    for record, size in read_lines(path, lambda line: (Record.from_line(line), len(line)), "record"):
        cells[record.cell] = statuses[record.status] = labels[record.label] = None
        if wanted.fits(vars(record)):
            places.append(start)
        start += size
    names = sorted(label for label in labels if label)
    cells.pop(LOADING, None)
    return MatchingLines(places, list(cells), sorted(statuses), names if len(names) <= MOST_LABELS else [])


def _read(path: Path, places: Sequence[int]) -> list[Record]:
    records = []
    with path.open("rb") as file:
        for place in places:
            file.seek(place)
            try:
                records.append(Record.from_line(file.readline()))
            except Mistake as error:
                raise error.in_file(f"{path}, at byte {place}", "a record", "look at it again") from None
    return records
