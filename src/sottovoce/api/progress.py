"""A progress bar over trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from sottovoce.auditing.run.driver import Advance

Bar = tuple[Callable[[int], None], Advance]


class RateColumn(ProgressColumn):
    """The recent rate, in trials a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.3g}/s" if speed else "", style="progress.data.speed")


@contextmanager
def progress(console: Console) -> Iterator[Bar]:
    """A progress bar over trials: a function that sets their number, and one that advances it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading the model", total=None)

        def begin(trials: int) -> None:
            bar.reset(task, total=trials)

        def advance(done: int, note: str) -> None:
            bar.update(task, advance=done, description=note)

        yield begin, advance


@contextmanager
def shown(show: bool) -> Iterator[Bar]:
    """A progress bar on standard error, or none."""
    if not show:
        yield (lambda trials: None), (lambda done, note: None)
        return
    with progress(Console(stderr=True)) as bar:
        yield bar
