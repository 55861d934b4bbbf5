"""Tables that may be wider than the terminal: shown in parts, each of which begins with the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

GAP = 2
"""Letters between two columns."""


@dataclass(frozen=True)
class WideTable:
    """heads: names of the columns that every part repeats, and how wide each is at least. No cell is cut as
    long as these and one other column find room."""

    heads: Sequence[tuple[str, int]]
    columns: Sequence[str]
    rows: Sequence[Sequence[Text]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = [width for _, width in self.heads] + [0] * len(self.columns)
        names = [name for name, _ in self.heads] + list(self.columns)
        widths = [
            max(least[place], len(name), *(row[place].cell_len for row in self.rows), 0) + GAP
            for place, name in enumerate(names)
        ]
        fixed = len(self.heads)
        # One letter is left free on either side, and no gap is needed after the last column.
        for places in fit_columns(widths, fixed, options.max_width - 2 + GAP):
            table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
            for place in places:
                justify: JustifyMethod = "left" if place < fixed else "right"
                table.add_column(names[place], no_wrap=True, min_width=least[place], justify=justify)
            for row in self.rows:
                table.add_row(*(row[place] for place in places))
            yield table


def fit_columns(widths: Sequence[int], fixed: int, room: int) -> list[list[int]]:
    """The columns of each part: the first `fixed`, and as many of the others as find room, at least one."""
    parts: list[list[int]] = [[]]
    left = room - sum(widths[:fixed])
    for place in range(fixed, len(widths)):
        if parts[-1] and sum(widths[other] for other in parts[-1]) + widths[place] > left:
            parts.append([])
        parts[-1].append(place)
    return [[*range(fixed), *part] for part in parts]
