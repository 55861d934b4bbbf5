"""`sottovoce study`: make a paper's tables and figures again, beside what it reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from sottovoce.studies.study import Sheet

app = typer.Typer(
    help="Make the tables and figures of papers again, beside what they report.", no_args_is_help=True
)


@app.command(name="list")
def list_studies() -> None:
    """List the studies: id, title, and what the paper reports."""
    from sottovoce import registry

    table = Table(show_header=False, box=None, pad_edge=False)
    for name in registry.names("study"):
        study = registry.find("study", name)
        table.add_row(f"[bold]{study.id}[/bold]", study.title, f"[dim]{study.paper}:[/dim] {study.reports}")
    Console(highlight=False).print(table)


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="Id of the study, such as V2.")],
    scale: Annotated[
        str,
        typer.Option(help="mini: minutes on two cores, not the paper's scale; full: the paper's numbers."),
    ] = "mini",
    data: Annotated[str, typer.Option(help="Clips: embedded, speechcommands:DIR, folder:DIR.")] = "embedded",
    model: Annotated[
        str, typer.Option(help="What to attack: a classifier, name or name:argument.")
    ] = "keyword",
    attack: Annotated[str, typer.Option(help="How to fit: uap-hc as in the paper, or uap.")] = "uap-hc",
    seed: Annotated[int, typer.Option(help="Every random number hangs on it.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results.", show_default="runs/study-V-<scale>-<id of the data>"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Run a study, print its tables beside the paper's, and write a page.

    Perturbations are kept in the folder: the next study with the same options does not fit them again, and
    the same command goes on where an interrupted one stopped.
    """
    from sottovoce.studies.page import notes_of, scope_of
    from sottovoce.studies.run import find_study, run_study
    from sottovoce.studies.study import Setting, find_scale

    chosen = find_study(study)
    setting = Setting(scale=find_scale(scale), data=data, model=model, attack=attack, seed=seed)
    console = Console(highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("opening", total=1.0)
        bench, result, page = run_study(
            chosen,
            setting,
            out,
            device=device,
            tell=lambda done, note: bar.update(task, completed=done, description=note),
        )
    console.print(f"[bold]{chosen.id}: {chosen.title}[/bold] ({chosen.paper})")
    for line in scope_of(chosen, bench):
        console.print(line, style="yellow", markup=False)
    for sheet in result.sheets:
        console.print(_table(sheet))
    for note in notes_of(bench, result):
        console.print(note, style="dim", markup=False)
    console.print(f"page: {page}", soft_wrap=True, markup=False)


def _table(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, caption=sheet.note or None, title_justify="left", caption_justify="left")
    for place, name in enumerate(sheet.columns):
        style = "yellow" if name == "paper" else None
        table.add_column(name, justify="left" if place == 0 else "right", style=style)
    for row in sheet.rows:
        # Intervals are written in brackets, which Rich would read as markup.
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    return table
