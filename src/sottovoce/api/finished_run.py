"""A finished run, read from its folder: `Run` and `read_run`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, final

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.results.tidy_rows import summary_rows, trial_rows
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.run_grid import is_grid, run_folders
from sottovoce.errors import InputError, MissingExtra
from sottovoce.registry.part_text import split_list


@final
@dataclass(frozen=True)
class Run:
    """The results of an audit. Several models or seeds are one `Run` too, with a row's run in column "run".

    >>> import sottovoce as sv
    >>> run = sv.audit("keyword", attacks="noise", snr=40, limit=2, probe=0, out="runs/example")
    >>> [row["value"] for row in run.summary() if row["metric"] == "clean-accuracy"]
    [1.0]
    >>> run.report.name
    'report.html'
    """

    folder: Path

    @property
    def report(self) -> Path:
        """The page that shows it."""
        return self.folder / ("index.html" if is_grid(self.folder) else "report.html")

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of several models or seeds, one each; itself where it is one."""
        return tuple(Run(path) for path in run_folders(self.folder))

    @property
    def plan(self) -> Plan:
        """What was run."""
        return RunFolder(self.folder).plan()

    def summary(self) -> list[dict[str, Any]]:
        """A flat dict a cell and metric: target, defense, attacker, attack, goal, budget, metric, value, low,
        high, clips. low and high: the ends of the 95 % interval."""
        return self._rows("summary")

    def trials(self) -> list[dict[str, Any]]:
        """A flat dict a clip and cell: what was said before and after, whether the goal was reached, and the
        value of every metric."""
        return self._rows("trials")

    def to_pandas(self, what: Literal["summary", "trials"] = "summary") -> Any:
        """The rows as a pandas `DataFrame`."""
        if what not in ("summary", "trials"):
            raise InputError(f"to_pandas expected 'summary' or 'trials', got {what!r}.")
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise MissingExtra(
                "to_pandas needs pandas, which is not installed; run: pip install pandas. "
                "summary() and trials() give the same rows as dicts."
            ) from None
        return pandas.DataFrame(self._rows(what))

    def table(self, format: str = "md", metric: str | Iterable[str] | None = None) -> str:
        """A table for a paper, as `sottovoce table` prints it: a row a target, defense, attack and goal, a
        column a budget, and intervals.

        format: "md", "latex" or "csv".
        metric: names; None: the one by which the attacks are ranked.
        """
        names = split_list(metric) if isinstance(metric, str) else list(metric or ())
        from sottovoce.report.paper_table import make_table

        return make_table([self.folder], format, names)

    def _rows(self, what: str) -> list[dict[str, Any]]:
        if is_grid(self.folder):
            return [{"run": run.folder.name, **row} for run in self.runs for row in run._rows(what)]
        folder = RunFolder(self.folder)
        plan = folder.plan()
        if what == "trials":
            return trial_rows(plan, folder.records())
        return summary_rows(plan, summarise(plan, folder.records()))


def read_run(path: str | os.PathLike[str]) -> Run:
    """The results in the folder of an audit, or of several that were run together.

    >>> import sottovoce as sv
    >>> run = sv.audit("keyword", attacks="noise", snr=40, limit=2, probe=0, out="runs/example")
    >>> sv.read_run("runs/example").summary() == run.summary()
    True
    """
    folder = Path(path).expanduser()
    run_folders(folder)  # says what is wrong with a folder of something else
    return Run(folder)
