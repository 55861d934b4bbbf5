"""Tables and figures of results: numbers as they are, the text that is shown of them, and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

from sottovoce.core.statistics import Interval
from sottovoce.listening.analysis.answer_rows import TITLES, Who
from sottovoce.listening.analysis.exact_tests import show_p

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["text", "count", "percent", "number", "ratio", "p"]
MISSING = "–"


class ResultColumn(NamedTuple):
    """name: its heading. kind: how its cells are shown. percent: a share, or an interval of one."""

    name: str
    kind: Kind = "text"


@final
@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """One table. name: of its file. rows: cells are text, numbers or intervals; None: not known."""

    name: str
    title: str
    columns: tuple[ResultColumn, ...]
    rows: Sequence[tuple[Any, ...]]
    note: str = ""

    def texts(self) -> list[tuple[str, ...]]:
        """What is shown of the rows."""
        return [
            tuple(show(cell, column.kind) for cell, column in zip(row, self.columns, strict=True))
            for row in self.rows
        ]

    def to_csv(self, who: Who) -> str:
        """Unrounded; intervals take three columns. The first column says whose answers they are."""
        wide = [
            any(isinstance(row[place], Interval) for row in self.rows) for place in range(len(self.columns))
        ]
        header = ["listeners"]
        for column, spread in zip(self.columns, wide, strict=True):
            header += (
                [column.name, f"{column.name}, low", f"{column.name}, high"] if spread else [column.name]
            )
        lines = []
        for row in self.rows:
            line: list[Any] = [TITLES[who]]
            for cell, spread, column in zip(row, wide, self.columns, strict=True):
                scale = 100.0 if column.kind == "percent" else 1.0
                line += _spread(cell, scale) if spread else [_plain(cell, scale)]
            lines.append(line)
        return write_csv(header, lines)


@final
@dataclass(frozen=True, kw_only=True)
class ResultFigure:
    """A figure. name: of its file; title: a sentence that says what it shows."""

    name: str
    title: str
    figure: Figure


Found = ResultTable | ResultFigure | str
"""What a test adds to the results; text is a note."""


def write_csv(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return target.getvalue()


def show(cell: Any, kind: Kind) -> str:
    """A cell as a reader sees it."""
    if isinstance(cell, str):
        return cell
    if cell is None or math.isnan(cell.value if isinstance(cell, Interval) else cell):
        return MISSING
    if isinstance(cell, Interval):
        value, low, high = (_number(part, kind) for part in cell[:3])
        return value if math.isnan(cell.low) else f"{value} [{low}, {high}]"
    return _number(cell, kind)


def _number(value: float, kind: Kind) -> str:
    match kind:
        case "count":
            return f"{int(value):,}"
        case "percent":
            return f"{100 * value:.1f}"
        case "ratio":
            return f"{value:.3f}"
        case "p":
            return show_p(value)
        case _:
            return f"{value:.1f}"


def _spread(cell: Any, scale: float) -> list[Any]:
    parts = cell[:3] if isinstance(cell, Interval) else (cell, None, None)
    return [_plain(part, scale) for part in parts]


def _plain(cell: Any, scale: float) -> Any:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return scale * cell if isinstance(cell, float) else cell
