"""`sottovoce audit --dry-run`: what a plan would run, what that takes, and what is recorded already."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sottovoce.api.settings import Way

if TYPE_CHECKING:
    from sottovoce.auditing.estimate.run_estimate import EstimateLine, RunEstimate
    from sottovoce.auditing.estimate.trial_runs import MeasuredCosts
    from sottovoce.auditing.plan.plan_file import Plan
    from sottovoce.auditing.run.executor import Executor
    from sottovoce.targets.open_target import Openings

LONGEST_TABLE = 40
"""With more attacks and defenses than this, a table has one row per defense."""
MARKS = {"measured": "", "fewer steps": "~", "by comparison": "≈", "unknown": "?"}
LEGEND = {
    "~": "extrapolated from fewer steps; less if the attack stops early",
    "≈": "estimated from another defense",
    "?": "not measured: no time, or it failed",
}


def foretell(
    plans: Mapping[str, Plan],
    out: Path,
    way: Way,
    openings: Openings | None = None,
    *,
    many: bool = False,
) -> None:
    """Estimate every plan and print it. openings: models that are open already. many: if it is a grid."""
    from sottovoce.auditing.estimate.run_estimate import seconds_each
    from sottovoce.auditing.run.executor import Executor

    console = Console(stderr=way.as_json)
    with console.status("trying the attacks") as status:
        bench, seconds, found = Executor(way.device), seconds_each(plans.values()), []
        tried: dict[str, MeasuredCosts] = {}
        for name, plan in plans.items():
            status.update(f"trying the attacks on {name}")
            # Opened elsewhere than here it is of no use.
            target = openings.take(plan.model) if openings and openings.device == bench.device else None
            if target is not None:
                bench.offer(plan.model, target)
            place = out / "runs" / name if many else out
            found.append(_estimate(name, plan, place, way, bench, seconds, tried))
    if way.as_json:
        typer.echo(json.dumps(to_json(found, way.count)))
        return
    for one in found:
        show(console, one, way.count, many)
    if many:
        console.print(_totals(found, way.count))
    _sum_up(console, found, way.count)


def _estimate(
    name: str,
    plan: Plan,
    out: Path,
    way: Way,
    bench: Executor,
    seconds: float,
    tried: dict[str, MeasuredCosts],
) -> RunEstimate:
    from sottovoce.auditing.estimate.run_estimate import RunEstimate, estimate

    try:
        return estimate(
            name,
            plan,
            bench.target(plan),
            out,
            device=bench.device,
            workers=way.count,
            retry_failed=way.retry_failed,
            seconds=seconds,
            tried=tried,
        )
    except Exception as error:  # whatever someone's own model does on the way
        reason = str(error) or type(error).__name__
        return RunEstimate(name, plan.model, plan.data, plan.seed, error=reason)


def to_json(found: list[RunEstimate], workers: int) -> dict[str, Any]:
    runs = [one.to_json(workers) for one in found]
    total = {
        key: sum(run[key] for run in runs)
        for key in ("cells", "trials", "done", "failed", "todo", "forward", "backward", "seconds")
    }
    memory = max((run["memory_bytes"] for run in runs), default=0)
    complete = all(run["complete"] for run in runs)
    return {
        "workers": workers,
        "runs": runs,
        "total": {**total, "complete": complete, "memory_bytes": memory},
    }


def show(console: Console, one: RunEstimate, workers: int, many: bool) -> None:
    title = f"{one.name}: {one.model}" if many and one.name != one.model else one.model
    console.print(f"\n[bold]{_escape(title)}[/bold] on {_escape(one.data)}, seed {one.seed}", highlight=False)
    if one.error:
        console.print(f"[yellow]this run will fail[/yellow]: {_escape(one.error)}", soft_wrap=True)
        return
    recorded = one.recorded
    console.print(
        f"{one.clips} clips x {one.cells} cells = {one.trials} trials; recorded: {recorded.done} done, "
        f"{recorded.failed} failed; to do: {one.todo}",
        soft_wrap=True,
        highlight=False,
    )
    console.print(_table(one, workers))
    for item in one.unfit:
        rule = ", ".join(f"{key}: {json.dumps(text)}" for key, text in _rule(one, item.exclude, many).items())
        console.print(
            f"[yellow]will not run[/yellow]: {_count(len(item.cells), 'cell')}, such as {item.cells[0]}: "
            f"{_escape(item.reason)}\n  to leave it out, exclude: \\[{{{_escape(rule)}}}]",
            soft_wrap=True,
            highlight=False,
        )
    for line in one.lines:
        if line.cost.reason:
            console.print(
                f"[yellow]not tried[/yellow]: {_escape(f'{line.attack}, {line.defense}')}: "
                f"{_escape(line.cost.reason)}",
                soft_wrap=True,
                highlight=False,
            )
    for note in one.notes:
        console.print(f"[yellow]note[/yellow]: {_escape(note)}", soft_wrap=True, highlight=False)


def _rule(one: RunEstimate, rule: Mapping[str, str], many: bool) -> dict[str, str]:
    return {"model": one.model, **rule} if many else dict(rule)


def _table(one: RunEstimate, workers: int) -> Table:
    """A row an attack, below the defense that it meets."""
    recorded = one.recorded.done + one.recorded.failed > 0
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("attack", overflow="fold")
    table.add_column("attacker", no_wrap=True)
    for name in ("cells", *(("done", "failed") if recorded else ()), "to do", "forward", "back", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for defense, rows in _grouped(one).items():
        table.add_row(Text("no defense" if defense == "none" else f"behind {defense}", style="bold"))
        for heads, lines in rows:
            table.add_row(*heads, *_figures(lines, workers, recorded))
    if one.todo and one.probes.forward:
        probes = one.probes
        figures = [number(probes.forward), number(probes.backward), span(probes.seconds / workers)]
        table.add_row("sanity probes, at most", *[""] * (5 if recorded else 3), *figures, style="dim")
    if one.todo and one.twice.forward:
        figures = [number(one.twice.forward), "0", span(one.twice.seconds)]
        table.add_row("clips decoded twice first", *[""] * (5 if recorded else 3), *figures, style="dim")
    return table


def _grouped(one: RunEstimate) -> dict[str, list[tuple[tuple[Text, str], list[EstimateLine]]]]:
    """The rows of a table by defense: an attack each, or where they are many all attacks of a form."""
    few = len(one.lines) <= LONGEST_TABLE
    several = len({line.goal for line in one.lines}) > 1
    groups: dict[tuple[str, str, str], list[EstimateLine]] = {}
    for line in one.lines:
        name = f"{line.attack}, {line.goal}" if several else line.attack
        groups.setdefault((line.defense, name if few else "", line.attacker), []).append(line)
    rows: dict[str, list[tuple[tuple[Text, str], list[EstimateLine]]]] = {}
    for (defense, name, attacker), lines in groups.items():
        title = name or _count(len({line.attack for line in lines}), "attack")
        rows.setdefault(defense, []).append(((Text(title), attacker), lines))
    return rows


def _figures(lines: list[EstimateLine], workers: int, recorded: bool) -> list[str]:
    from sottovoce.auditing.estimate.attack_cost import NOTHING

    total = sum((line.total for line in lines), NOTHING)
    mark = max((MARKS[line.cost.how] for line in lines), key=list(MARKS.values()).index)
    costs = [number(total.forward), number(total.backward), span(total.seconds / workers)]
    costs = (
        ["?"] * 3 if all(line.cost.how == "unknown" for line in lines) else [mark + each for each in costs]
    )
    done, failed = (sum(getattr(line.recorded, name) for line in lines) for name in ("done", "failed"))
    counts = [sum(line.cells for line in lines), *([done, failed] if recorded else ())]
    return [*map(str, counts), str(sum(line.todo for line in lines)), *costs]


def _totals(found: list[RunEstimate], workers: int) -> Table:
    table = Table(title="all runs", box=None, pad_edge=False, header_style="dim", title_justify="left")
    table.add_column("run", overflow="fold")
    for name in ("cells", "trials", "done", "failed", "to do", "forward", "backward", "time", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        total, recorded, least = one.total, one.recorded, "" if one.known else ">"
        costs = [number(total.forward), number(total.backward), span(total.seconds / workers)]
        counts = [one.cells, one.trials, recorded.done, recorded.failed, one.todo]
        table.add_row(one.name, *map(str, counts), *(least + cost for cost in costs), size(one.memory_bytes))
    return table


def _sum_up(console: Console, found: list[RunEstimate], workers: int) -> None:
    used = {MARKS[line.cost.how] for one in found for line in one.lines}
    for mark, words in LEGEND.items():
        if mark in used:
            console.print(f"{mark} {words}", style="dim", highlight=False)
    total = sum(one.total.seconds for one in found) / workers
    forward, backward = (sum(getattr(one.total, name) for one in found) for name in ("forward", "backward"))
    least = "" if all(one.known for one in found) else "at least "
    memory = max((one.memory_bytes for one in found), default=0)
    where = ", ".join(dict.fromkeys(one.device for one in found))
    bound = least or ("at most " if "~" in used else "")
    console.print(
        f"in all {bound}{number(forward)} passes forward and {number(backward)} back, about {bound}"
        f"{span(total)} with {_count(workers, 'worker')} on {where}, {size(memory)} of memory each; measured "
        "on a clip or two, so the time may be off by a factor of two",
        soft_wrap=True,
        highlight=False,
    )


def number(value: float) -> str:
    """1234567 as 1.23 M."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return str(math.ceil(value))


def span(seconds: float) -> str:
    """Seconds, minutes, hours or days."""
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def size(count: int) -> str:
    """Bytes as MiB or GiB."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
