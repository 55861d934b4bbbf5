"""Wide tables by hand: a name of 8, five figures of 11, gaps of 2 and a blank at each end take 75 letters."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from sottovoce.cli.wide_table import WideTable, fit_columns

TABLE = WideTable(
    heads=[("attack", 0)],
    columns=[f"SNR {level} dB" for level in (20, 30, 40, 50, 60)],
    rows=[[Text(name), *[Text("98 [91,100]")] * 5] for name in ("noise", "deepfool")],
)


@pytest.mark.parametrize(
    ("room", "parts"),
    [
        (32, [[0, 1, 2, 3]]),
        (31, [[0, 1, 2], [0, 3]]),
        (20, [[0, 1], [0, 2], [0, 3]]),
        (1, [[0, 1], [0, 2], [0, 3]]),
    ],
)
def test_every_part_begins_with_the_fixed_columns(room: int, parts: list[list[int]]) -> None:
    assert fit_columns([5, 9, 9, 9], 1, room) == parts


@pytest.mark.parametrize(("width", "parts", "widest"), [(75, 1, 75), (74, 2, 62), (61, 2, 49), (48, 3, 36)])
def test_a_table_is_broken_and_never_cut(width: int, parts: int, widest: int) -> None:
    file = io.StringIO()
    Console(file=file, width=width).print(TABLE)
    shown = file.getvalue()
    assert "…" not in shown
    assert shown.count("attack") == shown.count("deepfool") == parts
    assert shown.count("98 [91,100]") == 10
    assert max(map(len, shown.splitlines())) == widest
