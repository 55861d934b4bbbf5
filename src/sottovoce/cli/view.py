"""`sottovoce view`: look at a finished run."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def view(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    browser: Annotated[bool, typer.Option(help="Open the report in the browser.")] = True,
) -> None:
    """Print a run's table, write its report anew from the records, and open it."""
    from sottovoce.audit.sanity import examine
    from sottovoce.audit.store import RunFolder
    from sottovoce.audit.summary import summarise
    from sottovoce.cli.show import list_doubts, summary_table
    from sottovoce.report.heard import tell_heard
    from sottovoce.report.html import write_report
    from sottovoce.report.tables import make_panels

    folder = RunFolder(run)
    plan = folder.plan()
    console = Console()
    summary = summarise(plan, folder.records())
    console.print(summary_table(plan, summary))
    for sentence in tell_heard(summary, make_panels(plan, summary)):
        console.print(sentence, soft_wrap=True, highlight=False, markup=False)
    for line in list_doubts(plan, summary, examine(plan, summary, folder.probes())):
        console.print(line, soft_wrap=True)
    report = write_report(folder)
    console.print(f"report: {report}", soft_wrap=True)
    if browser:
        webbrowser.open(report.resolve().as_uri())
