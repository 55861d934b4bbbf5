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
    """The results of an audit, as `audit` and `read_run` return them.

    Several models or seeds are one `Run` too: `runs` has each, and rows have a column "run".

    folder: where the results are: plan, records, audio, tables and the report.

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
        """The path of the report, an HTML page."""
        return self.folder / ("index.html" if is_grid(self.folder) else "report.html")

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of several models or seeds; itself alone if it is a single run."""
        return tuple(Run(path) for path in run_folders(self.folder))

    @property
    def plan(self) -> Plan:
        """The plan: what was run."""
        return RunFolder(self.folder).plan()

    def summary(self) -> list[dict[str, Any]]:
        """A flat dict for each combination and metric.

        Keys: target, defense, attacker, attack, goal, budget, metric, value, low, high, clips. low and high
        are the ends of the 95 % interval.
        """
        return self._rows("summary")

    def trials(self) -> list[dict[str, Any]]:
        """A flat dict for each clip and combination.

        It holds what the model said before and after, whether the goal was reached, and every metric's value.
        """
        return self._rows("trials")

    def to_pandas(self, what: Literal["summary", "trials"] = "summary") -> Any:
        """The rows of `summary()` or `trials()` as a pandas `DataFrame`; needs pandas."""
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
        """A table for a paper, as `sottovoce table` prints it, with intervals.

        It has a row for each target, defense, attack and goal, and a column for each budget.

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
    """Read the results of an audit from its folder. Returns a `Run`.

    path: a folder that `audit` or `sottovoce audit` wrote, finished or not.

    >>> import sottovoce as sv
    >>> run = sv.audit("keyword", attacks="noise", snr=40, limit=2, probe=0, out="runs/example")
    >>> sv.read_run("runs/example").summary() == run.summary()
    True
    """
    folder = Path(path).expanduser()
    run_folders(folder)  # raises if it is no folder of a run
    return Run(folder)
