"""What `sottovoce audit` does with a plan or a grid: run it, write the reports, print the results."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from sottovoce.api.settings import Way
from sottovoce.errors import Stopped

if TYPE_CHECKING:
    from sottovoce.auditing.plan.plan_file import Plan
    from sottovoce.auditing.plan.plan_grid import Grid
    from sottovoce.auditing.results.summary import Summary
    from sottovoce.auditing.run.run_folder import RunFolder
    from sottovoce.core.record import Record
    from sottovoce.core.target import Target
    from sottovoce.targets.open_target import Openings

MOST_FAILURES = 20
LONGEST_NAME = 200


def run(plan: Plan, out: Path, target: Target | None, way: Way, place: str = "") -> None:
    """One plan. place: how the user calls its folder, where that is not its path."""
    from sottovoce.api.progress import progress
    from sottovoce.api.running import run_plan
    from sottovoce.auditing.checks.sanity import examine
    from sottovoce.cli.summary_table import list_doubts, speaker_table, summary_table
    from sottovoce.report.heard_section import tell_heard
    from sottovoce.report.report_tables import make_panels
    from sottovoce.report.speaker_table import tell_speakers

    console = Console(stderr=way.as_json)
    with stoppable(console, place or str(out)), progress(console) as (begin, advance):
        folder, summary = run_plan(plan, out, target, way, begin, advance)
    shown = f"{place}/report.html" if place else str(folder.report_path)
    checks = examine(plan, summary, folder.probes(), folder.repeated())
    if way.as_json:
        typer.echo(json.dumps({"run": plan.run_id, "report": shown, **_to_json(folder, summary)}))
    else:
        console.print(summary_table(plan, summary))
        told = tell_speakers(summary, folder.records())
        if told is not None:
            console.print(speaker_table(plan, summary, told))
        for sentence in tell_heard(summary, make_panels(plan, summary)):
            console.print(sentence, soft_wrap=True, highlight=False, markup=False)
        for line in list_doubts(plan, summary, checks):
            console.print(line, soft_wrap=True)
        console.print(f"report: {shown}", soft_wrap=True)
    tell_skipped(console, summary)
    tell_failures(console, summary.failures, "", place or str(out))
    if summary.failures:
        raise typer.Exit(1)


def run_many(grid: Grid, out: Path, way: Way, place: str = "", openings: Openings | None = None) -> None:
    """A grid that is resolved: every run, its report, and a page to compare them all.

    openings: models of it that are open already.
    """
    from sottovoce.api.progress import progress
    from sottovoce.api.running import run_plans
    from sottovoce.cli.summary_table import grid_table

    console = Console(stderr=way.as_json)
    with stoppable(console, place or str(out)), progress(console) as (begin, advance):
        compared = run_plans(grid, out, openings, way, begin, advance)
    found, refused, index = compared.runs, compared.refused, compared.index
    if compared.no_index:
        console.print(f"[yellow]no page of all runs[/yellow]: {_escape(compared.no_index)}", soft_wrap=True)
    if way.as_json:
        runs = {name: _to_json(folder, summary) for name, (folder, summary) in found.items()}
        content = {"grid": grid.run_id, "folder": place or str(out), "runs": runs, "refused": refused}
        typer.echo(json.dumps(content))
    elif found:
        console.print(
            grid_table({name: (folder.plan(), summary) for name, (folder, summary) in found.items()})
        )
        if index is not None:
            console.print(f"all runs: {f'{place}/index.html' if place else index}", soft_wrap=True)
    for name, reason in refused.items():
        console.print(f"[yellow]not run[/yellow]: {name}: {_escape(reason)}", soft_wrap=True, highlight=False)
    for name, (_, summary) in found.items():
        tell_skipped(console, summary, f"{name}: ")
        tell_failures(console, summary.failures, f"{name}: ", place or str(out))
    if refused or any(summary.failures for _, summary in found.values()):
        raise typer.Exit(1)


def _to_json(folder: RunFolder, summary: Summary) -> dict[str, Any]:
    from sottovoce.auditing.checks.sanity import examine
    from sottovoce.auditing.results.heard_curve import heard_to_json
    from sottovoce.report.speaker_table import speakers_to_json, tell_speakers

    checks = examine(folder.plan(), summary, folder.probes(), folder.repeated())
    doubts = [check.to_json() for check in checks]
    speakers = speakers_to_json(tell_speakers(summary, folder.records()))
    return {**summary.to_json(), "speakers": speakers, "heard": heard_to_json(summary), "checks": doubts}


def tell_skipped(console: Console, summary: Summary, before: str = "") -> None:
    """How many clips were tried in no cell, and why."""
    for reason, count in list(summary.skipped.items())[:MOST_FAILURES]:
        clips = f"{count} clip{'' if count == 1 else 's'}"
        console.print(
            f"[yellow]skipped[/yellow]: {before}{clips}: {_escape(reason)}", soft_wrap=True, highlight=False
        )
    if len(summary.skipped) > MOST_FAILURES:
        left = sum(list(summary.skipped.values())[MOST_FAILURES:])
        console.print(f"skipped: {left} more clips; see the report", highlight=False)


def tell_failures(console: Console, failures: list[Record], before: str, place: str) -> None:
    """What failed and why, not all of it where that is much, and how to try it again."""
    from sottovoce.core.record import EVERY

    groups: dict[tuple[str, str], list[Record]] = {}
    for record in failures:
        groups.setdefault((record.clip, record.reason), []).append(record)
    for (clip, reason), members in list(groups.items())[:MOST_FAILURES]:
        name = clip if len(clip) <= LONGEST_NAME else f"{clip[: LONGEST_NAME - 3]}..."
        what = name if clip != EVERY else f"{members[0].cell}{_others(len(members) - 1)}"
        console.print(
            f"[yellow]failed[/yellow]: {before}{what}: {_escape(reason)}", soft_wrap=True, highlight=False
        )
    if len(groups) > MOST_FAILURES:
        console.print(f"and {len(groups) - MOST_FAILURES} more; see the report", highlight=False)
    if failures:
        console.print(
            f"to try these again: sottovoce audit --resume {shlex.quote(place)} --retry-failed",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )


def _others(count: int) -> str:
    return f" and {count} other cell{'' if count == 1 else 's'}" if count else ""


@contextmanager
def stoppable(console: Console, place: str) -> Iterator[None]:
    """A run that was stopped says how to continue, and ends with exit code 130."""
    try:
        yield
    except Stopped as reason:
        if not str(reason).startswith("stopped"):
            console.print(str(reason), soft_wrap=True, highlight=False, markup=False)
        console.print(
            "stopped; everything that was finished is kept. To continue: "
            f"sottovoce audit --resume {shlex.quote(place)}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
        raise typer.Exit(130) from None


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
