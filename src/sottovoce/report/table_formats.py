"""A table of texts as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

_MARKDOWN = {ord(letter): f"\\{letter}" for letter in "\\`*_|<~"}
_LATEX = {
    **{ord(letter): f"\\{letter}" for letter in "{}$&#_%"},
    ord("\\"): r"\textbackslash{}",
    ord("~"): r"\textasciitilde{}",
    ord("^"): r"\textasciicircum{}",
    ord("<"): r"\textless{}",
    ord(">"): r"\textgreater{}",
    ord("|"): r"\textbar{}",
    # Some languages of babel give it a meaning, and old fonts have no straight one.
    ord('"'): r"\symbol{34}",
    ord("–"): "--",
    ord("−"): "$-$",
    ord("\N{NO-BREAK SPACE}"): "~",
}


@dataclass(frozen=True)
class TextTable:
    """caption: one line. heads: columns of names, on the left. columns: those of figures. rows: heads and
    figures. parts: where a new part of the table begins, as numbers of rows."""

    caption: str
    heads: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    parts: frozenset[int] = frozenset()


def to_markdown(table: TextTable) -> str:
    """A caption and a table whose columns are aligned in the source as well."""
    lines = [
        [_one_line(cell).translate(_MARKDOWN) for cell in row]
        for row in ([*table.heads, *table.columns], *table.rows)
    ]
    widths = [max(3, *(cell_len(row[place]) for row in lines)) for place in range(len(lines[0]))]
    left = len(table.heads)
    rule = [
        f":{'-' * (width - 1)}" if place < left else f"{'-' * (width - 1)}:"
        for place, width in enumerate(widths)
    ]
    shown = [_aligned(row, widths, left) for row in lines]
    body = [shown[0], rule, *shown[1:]]
    caption = _one_line(table.caption).translate(_MARKDOWN)
    return "\n".join([caption, "", *(f"| {' | '.join(row)} |" for row in body)]) + "\n"


def to_latex(table: TextTable) -> str:
    """A `tabular` with the rules of booktabs, for `\\input` inside a `table`. The caption is a comment."""
    cells = [[_latex(cell) for cell in row] for row in ([*table.heads, *table.columns], *table.rows)]
    widths = [max(cell_len(row[place]) for row in cells) for place in range(len(cells[0]))]
    left = len(table.heads)
    head, *rows = [" & ".join(_aligned(row, widths, left)) + r" \\" for row in cells]
    body = [
        line
        for number, row in enumerate(rows)
        for line in ([r"\midrule", row] if number in table.parts else [row])
    ]
    return (
        "\n".join(
            [
                f"% {_one_line(table.caption)}",
                r"% Needs \usepackage{booktabs}.",
                rf"\begin{{tabular}}{{{'l' * left}{'r' * len(table.columns)}}}",
                r"\toprule",
                head,
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
            ]
        )
        + "\n"
    )


def _latex(text: str) -> str:
    # Two hyphens in a row would become a dash, and a bracket after the end of a row its option.
    found = _one_line(text).replace("--", "-\0-").translate(_LATEX).replace("\0", "{}")
    return f"{{[}}{found[1:]}" if found.startswith("[") else found


def _aligned(row: Sequence[str], widths: Sequence[int], left: int) -> list[str]:
    """Cells as wide as their columns: the first ones from the left, the others from the right."""
    gaps = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
    return [
        cell + gap if place < left else gap + cell
        for place, (cell, gap) in enumerate(zip(row, gaps, strict=True))
    ]


def _one_line(text: str) -> str:
    """A cell has no line breaks, and no other control characters either."""
    keep: Callable[[str], bool] = str.isprintable
    return "".join(letter if keep(letter) or letter == "\N{NO-BREAK SPACE}" else " " for letter in text)
