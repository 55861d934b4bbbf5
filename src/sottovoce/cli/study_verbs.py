"""`sottovoce study`: reproduce a paper's tables and figures, beside the published values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sottovoce.cli.parts import describe
from sottovoce.cli.wide_table import fit_columns

if TYPE_CHECKING:
    from sottovoce.studies.study import Result, Stage, Study, StudyTable

FRAME = 3
"""Letters of a column's frame and padding."""
MOST = 32
"""Letters that a column needs: longer cells break between words."""

PAGES = Path("docs") / "studies"
"""Of a checkout."""

app = typer.Typer(
    help="Reproduce tables and figures of papers, beside the published values.", no_args_is_help=True
)


@app.command(name="list")
def list_studies() -> None:
    """List the studies: id, title, and what the paper reports."""
    from sottovoce import registry

    table = Table(show_header=False, box=None, pad_edge=False)
    for name in registry.names("study"):
        told = describe("study", name)
        table.add_row(f"[bold]{name}[/bold]", told["title"], f"[dim]{told['paper']}:[/dim] {told['reports']}")
    Console(highlight=False).print(table)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="Id of the study, such as V2, O7 or M4.")],
    scale: Annotated[
        str,
        typer.Option(help="mini: minutes on two cores, smaller than the paper; full: the paper's scale."),
    ] = "mini",
    data: Annotated[
        str | None,
        typer.Option(
            help="Clips: a corpus such as embedded, speechcommands:DIR, librispeech:DIR, prompts. M3 also "
            "takes a folder of answers; M4: mushra:DIR; M5 also takes CORPUS@NOISES; O3 takes WORDS@IMAGES; "
            "A: manifest.csv (columns path, speaker, and label such as control or PD), pcgita:DIR, "
            "torgo:DIR or proxy:CORPUS; O2: images such as mnist:DIR.",
            show_default="the study's own",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model to attack: name or name:argument. M3, M4: the folder of DPAM's weights; M5: the "
            "folder of the denoisers' weights; A: the encoder, such as wav2vec2:FOLDER or, for a layer other "
            "than the paper's, wav2vec2(model=FOLDER, layer=9).",
            show_default="the study's own",
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(help="V: the universal attack: uap-hc as in the paper, or uap.", show_default="uap-hc"),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            help="O8, O12: clips to fit universal attacks on. O1, O2: how networks are trained, such as "
            "sgd(rate=0.1).",
            show_default="every other clip of the data",
        ),
    ] = None,
    clips: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="O, M, A3: number of clips; A: number of clips per speaker; O1, O2: number of networks of "
            "each design.",
            show_default="the scale's own",
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="O: clips per batch.", show_default="8")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results.", show_default="runs/study-<study>-<scale>-<id>"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Run a study, print its tables beside the paper's, and write a page.

    Everything fitted and recorded is kept in the folder: the same command continues an interrupted one. V
    studies with the same options share their perturbations. `sottovoce study list` shows all studies.

    Examples:

    sottovoce study run V2

    sottovoce study run O13 --scale mini --out runs/o13
    """
    from sottovoce.studies.run_study import find_study, run_study
    from sottovoce.studies.study import Choice

    chosen = find_study(study)
    choice = Choice(
        scale=scale, data=data, model=model, attack=attack, fit=fit, clips=clips, batch=batch, seed=seed
    )
    console = Console(highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("opening", total=1.0)
        bench, result, page = run_study(
            chosen,
            choice,
            out,
            device=device,
            tell=lambda done, note: bar.update(task, completed=done, description=note),
        )
    _print(console, chosen, bench, result, page)


@app.command()
def table(
    study: Annotated[str, typer.Argument(help="Id of a study of recognisers, such as O7.")],
    folder: Annotated[
        Path, typer.Argument(help="Where its plans were run: FOLDER/plans/NAME or FOLDER/NAME.")
    ],
) -> None:
    """Make a study's tables and page from finished runs, wherever they were made.

    Example:

    sottovoce study table O7 runs/o7
    """
    from sottovoce.studies.run_study import find_study, tabulate

    chosen = find_study(study)
    _print(Console(highlight=False), chosen, *tabulate(chosen, folder))


@app.command()
def page(
    study: Annotated[str, typer.Argument(help="Id of a study, such as O1.")],
    results: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of a run, or its results.json: kept beside the pages first.",
            show_default="the results that are kept already",
        ),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="mini or full.", show_default="as the results say")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the pages.", show_default="docs/studies, where it exists")
    ] = None,
) -> None:
    """Make a study's published page, docs/studies/ID.md, from its kept results.

    With RESULTS, those are copied first, to results/ID-SCALE.json and figures/ID-SCALE-NAME.png beside the
    page. Without, the page is made again from what is kept, such as after a sentence of it was changed.
    """
    from sottovoce.studies.kept_results import keep
    from sottovoce.studies.markdown_page import write_page
    from sottovoce.studies.run_study import find_study

    chosen, pages = find_study(study), out or _pages()
    if results is not None:
        keep(chosen, results, pages, scale)
    Console(highlight=False).print(f"page: {write_page(chosen, pages)}", soft_wrap=True, markup=False)


def _pages() -> Path:
    from sottovoce.errors import InputError

    if not PAGES.is_dir():
        raise InputError(
            f"expected a folder {PAGES} here, got none; run this at the top of a checkout, or give "
            "--out FOLDER."
        )
    return PAGES


def _print(console: Console, study: Study[Any], bench: Stage, result: Result, page: Path) -> None:
    from sottovoce.studies.study_page import notes_of, scope_of

    console.print(f"[bold]{study.id}: {study.title}[/bold] ({study.paper})")
    for line in scope_of(study, bench):
        console.print(line, style="yellow", markup=False)
    for sheet in result.sheets:
        for part in split_columns(sheet, console.width):
            console.print(_table(part))
    for note in notes_of(bench, result):
        console.print(note, style="dim", markup=False)
    console.print(f"page: {page}", soft_wrap=True, markup=False)


def split_columns(sheet: StudyTable, width: int) -> Iterator[StudyTable]:
    """A sheet that is too wide for the terminal as several, each of which begins with the first column."""
    widths = [_column_width(sheet, place) for place in range(len(sheet.columns))]
    parts = fit_columns(widths, 1, width - 1)
    for number, kept in enumerate(parts, start=1):
        yield replace(
            sheet,
            title=sheet.title if number == 1 else f"{sheet.title}, continued",
            columns=tuple(sheet.columns[place] for place in kept),
            rows=[tuple(row[place] for place in kept) for row in sheet.rows],
            note=sheet.note if number == len(parts) else "",
        )


def _column_width(sheet: StudyTable, place: int) -> int:
    """Letters of a column with its frame; headings may break between words."""
    cells = [len(row[place]) for row in sheet.rows]
    heading = [len(word) for word in sheet.columns[place].split()]
    return min(max([*cells, *heading], default=0), MOST) + FRAME


def _table(sheet: StudyTable) -> Table:
    table = Table(title=sheet.title, caption=sheet.note or None, title_justify="left", caption_justify="left")
    for place, name in enumerate(sheet.columns):
        style = "yellow" if name == "paper" else None
        justify: Literal["left", "right"] = "left" if sheet.prose(place) else "right"
        table.add_column(name, justify=justify, style=style, overflow="fold")
    for row in sheet.rows:
        # Intervals are written in brackets, which Rich would read as markup.
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    return table
