"""`sottovoce listen results` and `simulate`: what listeners answered, and a dry run without people."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table as Shown

from sottovoce.errors import InputError, MissingExtra, UnknownName
from sottovoce.listening.analysis.answer_rows import TITLES, Who

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sottovoce.listening.analysis.answer_rows import AnswerRow
    from sottovoce.listening.analysis.result_tables import ResultTable
    from sottovoce.listening.analysis.results import Results
    from sottovoce.listening.study.stimuli import StimulusStore
    from sottovoce.listening.study.study_file import ListeningStudy

WIDTH = 120
STUDY = Annotated[Path, typer.Argument(help="The study file.")]
DB = Annotated[
    str | None,
    typer.Option(
        help="Database of the answers: sqlite:///FILE or postgresql://USER@HOST/NAME.",
        show_default="SQLite beside the study file",
        envvar="SOTTOVOCE_DB",
    ),
]


def results(
    study: STUDY,
    db: DB = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report, figures and CSV.", show_default="STUDY-results"),
    ] = None,
    who: Annotated[
        str | None,
        typer.Option(
            help="Whose answers: people, simulated, or mixed (labelled as such).",
            show_default="whichever there are; an error if there are both",
        ),
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also count sessions that were not finished.")
    ] = False,
    ear: Annotated[
        str, typer.Option(help="The ear whose P(heard) is compared with the answers, or none.")
    ] = "learned",
    export: Annotated[
        Path | None,
        typer.Option(
            help="Also write the same-different answers to this new folder, for `sottovoce metric train`."
        ),
    ] = None,
    any_version: Annotated[
        bool, typer.Option("--any-version", help="Also take answers to earlier versions of the study file.")
    ] = False,
) -> None:
    """Analyse the answers to a study: tables, figures, CSV and a report in one file.

    Only sessions that were finished and accepted count. Answers of simulated listeners are always marked as
    such, and never mixed with those of people unless you ask for it.

    Examples:

    sottovoce listen results study.yaml

    sottovoce listen results study.yaml --who simulated --ear none --out dry-run
    """
    from sottovoce.listening.analysis.jnd_searches import export as export_answers
    from sottovoce.listening.analysis.jnd_searches import sounds_of
    from sottovoce.listening.analysis.results import analyse
    from sottovoce.listening.analysis.results_page import write

    kind = _find_who(who)
    content, engine = _open(study, db, must_exist=True)
    from sottovoce.listening.server.database import read_visits

    try:
        version = None if any_version else content.digest
        rows, visits = _read(engine, version), read_visits(engine, version)
    finally:
        engine.dispose()
    console = _console()
    same_different = any(row.kind == "same-different" for row in rows)
    needed = same_different and (export is not None or ear != "none")
    sounds = sounds_of(_prepare(content, study, console), content) if needed else None
    found = analyse(
        content, rows, who=kind, unfinished=unfinished, sounds=sounds, ear=None if ear == "none" else ear
    )
    _print(console, found)
    page = write(found, out or study.expanduser().with_name(f"{study.stem}-results"), visits)
    console.print(f"report: {escape(str(page))}", soft_wrap=True)
    if export is not None:
        if sounds is None:
            raise InputError("--export: there are no same-different answers yet; collect some first.")
        console.print(f"{escape(str(export))}: {export_answers(found.rows, sounds, export)}", soft_wrap=True)


def simulate(
    study: STUDY,
    listeners: Annotated[int, typer.Option(min=1, help="Number of simulated listeners.")] = 18,
    db: DB = None,
    url: Annotated[
        str | None,
        typer.Option(help="Address of a running server, instead of one that is started for this."),
    ] = None,
    ear: Annotated[str, typer.Option(help="The ear they hear through.")] = "auditory",
    inattentive: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of listeners who answer at random, 0 to 1.")
    ] = 0.1,
    d_prime: Annotated[
        float | None, typer.Option(min=0.0, help="Sensitivity d' in ABX, instead of what the ear predicts.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
) -> None:
    """Let simulated listeners take a study through its server: a dry run before you invite people.

    Their sessions are marked as simulated in the database, take no places from people, and are kept apart
    from theirs in the results.

    Example:

    sottovoce listen simulate study.yaml --listeners 18 --inattentive 0.1
    """
    try:
        from sottovoce.listening.session import simulate as dry
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed; use: pip install 'sottovoce[listen]'.") from None
    if url is not None and db is not None:
        raise InputError("give either --url or --db: a running server has its own database.")
    console = Console(highlight=False)
    with (
        _address(study, db, url, console) as (content, shelf, place),
        Progress(console=console, transient=True) as bar,
    ):
        task = bar.add_task("listeners", total=1.0)
        sat = dry.simulate(
            content,
            shelf,
            place,
            listeners,
            ear=ear,
            inattentive=inattentive,
            d_prime=d_prime,
            seed=seed,
            tell=lambda done, note: bar.update(task, completed=done, description=note),
        )
    asleep = sum(not one.attentive for one in sat)
    console.print(
        f"{len(sat)} SIMULATED listeners, {asleep} of them inattentive, answered "
        f"{sum(one.screens for one in sat):,} screens; read them with: sottovoce listen results "
        f"{escape(str(study))} --who simulated",
        soft_wrap=True,
    )


@contextmanager
def _address(
    path: Path, db: str | None, url: str | None, console: Console
) -> Iterator[tuple[ListeningStudy, StimulusStore, str]]:
    """The study, its sounds, and a server that has it."""
    from sottovoce.listening.session.simulate import serving
    from sottovoce.listening.study.study_file import read_study

    if url is not None:
        content = read_study(path)
        yield content, _prepare(content, path, console), url
        return
    content, engine = _open(path, db, must_exist=False)
    from sottovoce.listening.server.app import make_app
    from sottovoce.listening.server.limits import Limits

    shelf = _prepare(content, path, console)
    free = Limits(session_rate=1e6, session_burst=1e6, address_rate=1e6, address_burst=1e6, joins_an_hour=1e9)
    try:
        with serving(
            make_app(content, shelf, engine, admin_token=secrets.token_urlsafe(24), limits=free)
        ) as place:
            yield content, shelf, place
    finally:
        engine.dispose()


def _open(path: Path, db: str | None, *, must_exist: bool) -> tuple[ListeningStudy, Engine]:
    from sottovoce.listening.study.study_file import read_study

    try:
        from sottovoce.listening.server.database import default_url, open_engine
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed; use: pip install 'sottovoce[listen]'.") from None
    content = read_study(path)
    url = db or default_url(path)
    file = Path(url.removeprefix("sqlite:///"))
    if must_exist and url.startswith("sqlite:///") and not file.is_file():
        raise InputError(
            f"{file}: there are no answers yet; run `sottovoce listen serve` first, or name the database "
            "with "
            "--db."
        )
    return content, open_engine(url)


def _read(engine: Engine, digest: str | None) -> list[AnswerRow]:
    from sottovoce.listening.server.database import read_answers

    rows = read_answers(engine, digest)
    if not rows and digest is not None and read_answers(engine):
        raise InputError(
            "all answers are to another version of the study file or its clips; restore that version, or add "
            "--any-version."
        )
    if not rows:
        raise InputError("there are no answers yet; serve the study, or try `sottovoce listen simulate`.")
    return rows


def _prepare(content: ListeningStudy, path: Path, console: Console) -> StimulusStore:
    from sottovoce.listening.study.stimuli import prepare

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("clips", total=1.0)
        folder = path.expanduser().resolve().with_suffix(".cache")
        return prepare(content, folder, lambda done, note: bar.update(task, completed=done, description=note))


def _console() -> Console:
    """Wide enough for every table: on a narrow screen lines wrap, but no number is cut."""
    return Console(highlight=False, width=max(WIDTH, Console().width))


def _find_who(who: str | None) -> Who | None:
    if who is not None and who not in get_args(Who):
        raise UnknownName("kind of listeners", who, get_args(Who))
    return cast("Who | None", who)


def _print(console: Console, found: Results) -> None:
    tail = "" if found.who == "people" else f" ({TITLES[found.who]})"
    for table in found.tables:
        # As a title of the table it would be broken to the table's width.
        console.print(f"[italic]{escape(table.title + tail)}[/italic]")
        console.print(_shown(table), "")
        if table.note:
            console.print(f"[dim]{escape(table.note)}[/dim]", "")
    for note in found.notes:
        console.print(f"note: {escape(note)}", style="yellow")
    if tail:
        console.print(f"Answers of {TITLES[found.who]}.", style="bold red")


def _shown(table: ResultTable) -> Shown:
    shown = Shown(pad_edge=False, box=None)
    for column in table.columns:
        shown.add_column(escape(column.name), justify="left" if column.kind == "text" else "right")
    for row in table.texts():
        shown.add_row(*(escape(cell) for cell in row))
    return shown
