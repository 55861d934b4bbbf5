"""From settings to finished runs: shared by `sottovoce audit` and `sottovoce.audit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sottovoce.api.settings import Way, default_folder, grid_folder
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.plan.plan_grid import Grid, make_grid
from sottovoce.auditing.results.summary import Summary, summarise
from sottovoce.auditing.run import driver as runs
from sottovoce.auditing.run.driver import Advance, run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.run_grid import run_grid
from sottovoce.core.target import Target
from sottovoce.errors import SottovoceError
from sottovoce.targets.open_target import Openings, declared_kind, look_at

Begin = Callable[[int], None]


@dataclass(frozen=True)
class OnePlan:
    """A plan and its opened model."""

    name: str
    plan: Plan
    target: Target

    @property
    def folder(self) -> Path:
        """The default folder for the results."""
        return default_folder(self.plan)


@dataclass(frozen=True)
class ManyPlans:
    """A grid with all defaults filled in, and the models that were opened for that."""

    grid: Grid
    openings: Openings

    @property
    def folder(self) -> Path:
        """The default folder for the results."""
        return grid_folder(self.grid)


@dataclass(frozen=True)
class GridResults:
    """The runs of a grid: each with its summary, the reasons of those refused, and the page of all.

    no_index: why there is no such page.
    """

    runs: dict[str, tuple[RunFolder, Summary]]
    refused: dict[str, str] = field(default_factory=dict)
    index: Path | None = None
    no_index: str = ""


def resolve(
    settings: Mapping[str, Any], way: Way, known: Mapping[str, Target] | None = None
) -> OnePlan | ManyPlans:
    """The plan or plans of some settings. Mistakes raise before a model is loaded. known: opened models."""
    grid = make_grid(settings)
    known = known or {}
    if not grid.single:
        openings = Openings(way.home(), known)
        return ManyPlans(grid.resolved(openings.kind), openings)
    model = grid.models[0]
    # Called through its module, where tests replace it.
    target = known[model] if model in known else runs.open_target(model, way.home())
    ((name, plan),) = grid.plans(lambda model: declared_kind(model) or look_at(target)).items()
    return OnePlan(name, plan, target)


def run_plan(
    plan: Plan, out: Path, target: Target | None, way: Way, begin: Begin, advance: Advance
) -> tuple[RunFolder, Summary]:
    """Run what is left of a plan, and write its report."""
    with way.open() as engine:
        folder = run_audit(
            plan, out, target=target, engine=engine, retry_failed=way.retry_failed,
            max_requests=way.max_requests, begin=begin, advance=advance,
        )  # fmt: skip
        advance(0, "writing the report")
        return folder, write_report(plan, folder)


def run_plans(
    grid: Grid, out: Path, openings: Openings | None, way: Way, begin: Begin, advance: Advance
) -> GridResults:
    """Run what is left of every plan of a resolved grid, and write the reports and a page of all."""
    plan_of = grid.plans()
    names = list(plan_of)
    refused: dict[str, str] = {}
    summaries: dict[str, Summary] = {}
    at = ""

    def started(name: str, plan: Plan) -> None:
        nonlocal at
        at = f"{names.index(name) + 1}/{len(names)} {name}: "
        advance(0, f"{at}loading the model")

    def finished(name: str, folder: RunFolder) -> None:
        advance(0, f"{at}writing the report")
        summaries[name] = write_report(plan_of[name], folder)

    with way.open() as engine:
        folders = run_grid(
            grid, out, engine=engine, retry_failed=way.retry_failed, max_requests=way.max_requests,
            openings=openings, begin=begin, advance=lambda done, note: advance(done, at + note),
            started=started, finished=finished, refused=refused.__setitem__,
        )  # fmt: skip
        advance(0, "comparing the runs")
        found = {folder.path.name: (folder, summaries[folder.path.name]) for folder in folders}
        # Runs without attacks have nothing to rank.
        if all(plan.clean for plan in plan_of.values()):
            return GridResults(found, refused)
        from sottovoce.leaderboard.static_site import write_site

        try:
            return GridResults(found, refused, write_site([folder.path for folder in folders], out))
        except SottovoceError as error:
            return GridResults(found, refused, no_index=str(error))


def write_report(plan: Plan, folder: RunFolder) -> Summary:
    """The summary of the records. The report is rewritten, unless no record was added since."""
    from sottovoce.report.report_page import summarise_and_write

    report = folder.report_path
    if report.exists() and report.stat().st_mtime > folder.records_path.stat().st_mtime:
        return summarise(plan, folder.records())
    return summarise_and_write(folder)
