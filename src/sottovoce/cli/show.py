"""What the verbs print: progress bars and the summary table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sottovoce.audit.plan import Plan
from sottovoce.audit.run import Advance
from sottovoce.audit.summary import Summary
from sottovoce.core.metric import Estimate


@contextmanager
def progress(console: Console) -> Iterator[tuple[Callable[[int], None], Advance]]:
    """A bar over trials that says what is under way: how to tell it their number, and how to move it on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading the model", total=None)

        def begin(trials: int) -> None:
            bar.update(task, total=trials)

        def advance(done: int, note: str) -> None:
            bar.update(task, advance=done, description=note)

        yield begin, advance


def summary_table(plan: Plan, summary: Summary) -> Table:
    """Success by attack and budget, with intervals, and how loud each attack was."""
    budgets = list(dict.fromkeys(item.cell.budget_title for item in summary.cells))
    title = f"Attack success on {plan.model} in %, with 95 % intervals"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    rows: dict[tuple[str, ...], dict[str, Estimate]] = {}
    for item in summary.cells:
        row = rows.setdefault((item.cell.defense, str(item.cell.attack), str(item.cell.goal)), {})
        row[item.cell.budget_title] = item.estimates.get("success") or Estimate(
            float("nan"), float("nan"), float("nan"), 0, "none"
        )
    columns = [("defense", len(plan.defenses) > 1), ("attack", True), ("goal", len(plan.goals) > 1)]
    for name, shown in columns:
        if shown:
            table.add_column(name, no_wrap=True)
    for budget in budgets:
        table.add_column(budget, justify="right", no_wrap=True)
    for key, row in rows.items():
        heads = [word for word, (_, shown) in zip(key, columns, strict=True) if shown]
        table.add_row(*heads, *(_percent(row.get(budget)) for budget in budgets))
    return table


def _percent(estimate: Estimate | None) -> str:
    if estimate is None or estimate.n == 0:
        return "–"
    return f"{100 * estimate.value:.0f} [dim][{100 * estimate.low:.0f},{100 * estimate.high:.0f}][/dim]"
