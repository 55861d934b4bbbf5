"""`sottovoce table`: runs as a table for a paper."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError

SUFFIXES = {".md": "md", ".tex": "latex", ".csv": "csv"}


def table(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs or of grids, as sottovoce audit wrote them; paths or URLs.",
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="md: Markdown. latex: a tabular with booktabs. csv: tidy, a row a value.",
            show_default="by the ending of --out (.md, .tex, .csv), otherwise md",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What to show, such as success, wer or snr; several by commas.",
            show_default="what ranks the attacks: success, or wer of a recogniser that is to be misled",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write it to this file.", show_default="print it")] = None,
) -> None:
    """Print runs as a table for a paper: a row a target, defense, attack and goal, a column a budget.

    Each value has its 95 % interval. Where several attacks were run at one budget, the row "any" counts each
    clip under the attack that did it most harm: report that one.

    Several runs become one table. Where two of them have the same row, as two seeds do, a column "run" tells
    them apart.

    A table in LaTeX is a tabular without a float: \\input it in a table of your own, with
    \\usepackage{booktabs}. Its first line, a comment, says what the caption should.

    Examples:

      sottovoce table runs/keyword-1f2e3d4c5b

      sottovoce table runs/plain runs/hardened --format latex --out attacks.tex

      sottovoce table runs/words --metric wer,snr --format csv --out attacks.csv
    """
    from sottovoce.auditing.remote.remote_folder import opened
    from sottovoce.registry.part_text import split_list
    from sottovoce.report.paper_table import make_table

    chosen = form or (SUFFIXES.get(out.suffix.lower(), "md") if out else "md")
    with ExitStack() as stack:
        folders = [stack.enter_context(opened(run, write=False)) for run in runs]
        text = make_table(folders, chosen, split_list(metric or ""))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        with out.open("w", newline="", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(
            f"--out expected a file that can be written, got {str(out)!r} ({error.strerror}); choose another."
        ) from None
    typer.echo(f"table: {out}", err=True)
