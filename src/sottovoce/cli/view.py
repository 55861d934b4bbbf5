"""`sottovoce view`: look at a finished run, or browse a folder of many."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sottovoce.errors import InputError


def view(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="[RUN|FOLDER]",
            help="The folder of a run, or one with many; a path or a URL such as s3://bucket/run.",
        ),
    ] = "runs",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="For a folder of many: the port to serve at; 0: any free port."),
    ] = 8765,
    browser: Annotated[bool, typer.Option(help="Open the report, or the list, in the browser.")] = True,
) -> None:
    """Look at a run: print its table, rewrite its report from the records, and open it.

    A folder of many runs, such as runs/, is served to browsers on this machine only: a searchable list of
    runs, grids and studies, their reports, and their records with the sounds.

    Examples:

      sottovoce view runs/keyword-1f2e3d4c5b

      sottovoce view runs --port 9000 --no-browser
    """
    from sottovoce.auditing.remote.remote_folder import opened
    from sottovoce.leaderboard.named_folders import kind_of

    with opened(folder, write=False) as place:
        # A grid is a folder of many too.
        if place.is_dir() and kind_of(place) != "run":
            serve(place, port, browser)
        else:
            show(place, browser)


def show(run: Path, browser: bool) -> None:
    from sottovoce.auditing.checks.sanity import examine
    from sottovoce.auditing.results.summary import summarise
    from sottovoce.auditing.run.run_folder import RunFolder
    from sottovoce.cli.audit_run import tell_skipped
    from sottovoce.cli.summary_table import list_doubts, summary_table
    from sottovoce.report.heard_section import tell_heard
    from sottovoce.report.report_page import write_report
    from sottovoce.report.report_tables import make_panels

    folder = RunFolder(run)
    plan = folder.plan()
    folder.about()  # report a damaged file before anything is added up
    console = Console()
    summary = summarise(plan, folder.records())
    console.print(summary_table(plan, summary))
    for sentence in tell_heard(summary, make_panels(plan, summary)):
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)
    for line in list_doubts(plan, summary, examine(plan, summary, folder.probes(), folder.repeated())):
        console.print(line, soft_wrap=True)
    tell_skipped(console, summary)
    report = write_report(folder)
    console.print(f"report: {report}", soft_wrap=True)
    if browser:
        webbrowser.open(report.resolve().as_uri())


def serve(folder: Path, port: int, browser: bool) -> None:
    from sottovoce.leaderboard.viewer.folder_contents import FolderContents
    from sottovoce.leaderboard.viewer.view_server import HOST, make_server

    if not FolderContents(folder.resolve()).items():
        raise InputError(
            f"{str(folder)!r} is not the folder of a run: it has no plan.yaml, and there are no runs "
            "below it; check the path."
        )
    try:
        server = make_server(folder, port)
    except OSError as error:
        raise InputError(
            f"cannot serve at port {port}: {error.strerror}; choose another with --port."
        ) from None
    address = f"http://{HOST}:{server.server_address[1]}/"
    console = Console()
    console.print(
        f"serving {folder} at {address} until Ctrl-C", soft_wrap=True, highlight=False, markup=False
    )
    if browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        console.print("stopped serving")
    finally:
        server.server_close()
