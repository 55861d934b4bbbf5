"""What the verbs print: progress bars and the summary table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sottovoce.audit.plan import NO_DEFENSE, Plan
from sottovoce.audit.run import Advance
from sottovoce.audit.summary import Summary
from sottovoce.core.metric import Estimate
from sottovoce.report.reading import WORDS, read_as


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


def summary_table(plan: Plan, summary: Summary) -> RenderableType:
    """Success by attack and budget, with intervals; for a recogniser its error rate too."""
    if read_as(name for item in summary.cells for name in item.estimates) is WORDS:
        return Group(*_word_tables(plan, summary))
    title = f"Attack success on {plan.model} in %, with 95 % intervals"
    return _table(plan, summary, "success", title)


def _word_tables(plan: Plan, summary: Summary) -> list[RenderableType]:
    """Error rate and success, first the one that answers the goals. Titles stand above, not to wrap."""
    goals = {part.name for part in plan.goals}
    deed = "whose transcript changes" if goals == {"evade"} else "on which the goal is reached"
    titles = {
        "wer": f"WER of {plan.model} under attack in %, with 95 % intervals; {_clean(plan, summary)}",
        "success": f"Attack success on {plan.model} in %: clips {deed}",
    }
    order = ["wer", "success"] if "evade" in goals else ["success", "wer"]
    measured = [name for name in order if any(name in item.estimates for item in summary.cells)]
    return [
        shown
        for name in measured
        for shown in (Text(titles[name], style="table.title"), _table(plan, summary, name))
    ]


def _clean(plan: Plan, summary: Summary) -> str:
    """The error rate before any attack, behind each defense, from its cell with the most clips."""
    words = []
    for defense in plan.defenses:
        cells = [item for item in summary.cells if item.cell.defense == defense]
        most = max(cells, key=lambda item: item.clips, default=None)
        found = most.estimates.get("clean-wer") if most else None
        if found is not None and found.n:
            behind = f" behind {defense}" if defense != NO_DEFENSE else ""
            words.append(f"{_plain(found)}{behind}")
    return f"clean {', '.join(words)}" if words else "clean not measured"


def _table(plan: Plan, summary: Summary, metric: str, title: str | None = None) -> Table:
    """One metric by attack and budget."""
    budgets = list(dict.fromkeys(item.cell.budget_title for item in summary.cells))
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    rows: dict[tuple[str, ...], dict[str, Estimate | None]] = {}
    for item in summary.cells:
        row = rows.setdefault((item.cell.defense, str(item.cell.attack), str(item.cell.goal)), {})
        row[item.cell.budget_title] = item.estimates.get(metric)
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


def _percent(estimate: Estimate | None) -> Text:
    if estimate is None or not math.isfinite(estimate.value):
        return Text("–")
    value, _, interval = _plain(estimate).partition(" ")
    return Text.assemble(f"{value} ", (interval, "dim"))


def _plain(estimate: Estimate) -> str:
    """Without an interval, as of one clip, the value alone."""
    value, low, high = (100 * each for each in (estimate.value, estimate.low, estimate.high))
    return f"{value:.0f} [{low:.0f},{high:.0f}]" if math.isfinite(low) else f"{value:.0f}"
