"""Runs as a table for a paper: a row a target, defense, attack and goal, a column a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results.clean_decisions import LEADS as CLEAN_LEADS
from sottovoce.auditing.results.csv_tables import csv_text
from sottovoce.auditing.results.summary import CellSummary, Summary, find_metric, plain, summarise
from sottovoce.auditing.results.tidy_rows import SUMMARY_COLUMNS
from sottovoce.auditing.run.hide_paths import roots_of
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.run_grid import run_folders
from sottovoce.core.files.private_paths import hide_paths
from sottovoce.core.metric import Estimate
from sottovoce.errors import InputError
from sottovoce.report.shown_words import DASH, FORMS, number
from sottovoce.report.table_formats import TextTable, to_latex, to_markdown

Format = Literal["md", "latex", "csv"]
FORMATS: tuple[Format, ...] = ("md", "latex", "csv")
ANY = "any"
"""The attack of a row that counts each clip under the attack that did it most harm, noise left out."""
CLEAN = "clean"
"""The column of a run that attacked nothing."""


@dataclass(frozen=True)
class PaperFigure:
    """One value of a table, and where it belongs."""

    run: str
    target: str
    defense: str
    attacker: str
    attack: str
    goal: str
    budget: str
    title: str
    """The budget in words."""
    metric: str
    estimate: Estimate

    @property
    def part(self) -> tuple[str, ...]:
        """Rows with the same are together."""
        return self.run, self.target, self.defense, self.goal, self.metric

    @property
    def row(self) -> tuple[str, ...]:
        return (*self.part, self.attack, self.attacker)


def make_table(folders: Sequence[Path], form: str = "md", metrics: Sequence[str] = ()) -> str:
    """The text of a table of runs. folders: of runs or of grids.

    metrics: their names; none: the one by which the attacks of each run are ranked.
    """
    if form not in FORMATS:
        raise InputError(f"format expected one of {', '.join(FORMATS)}, got {form!r}.")
    for name in metrics:
        find_metric(name)
    runs = _named(dict.fromkeys(run for folder in folders for run in run_folders(folder)))
    figures = [figure for name, run in runs.items() for figure in _figures(name, RunFolder(run), metrics)]
    missing = set(metrics) - {figure.metric for figure in figures}
    if missing or not figures:
        raise InputError(_nothing(list(runs.values()), [name for name in metrics if name in missing]))
    if form == "csv":
        return _to_csv(figures, many=len(runs) > 1)
    table = _lay_out(figures)
    return to_markdown(table) if form == "md" else to_latex(table)


def _named(runs: Iterable[Path]) -> dict[str, Path]:
    """Each run by the name of its folder, or by its whole path where two have the same name."""
    paths = {path.resolve(): path for path in runs}.values()
    names = [path.resolve().name for path in paths]
    return {
        name if names.count(name) == 1 else str(path): path for name, path in zip(names, paths, strict=True)
    }


def _nothing(runs: Sequence[Path], metrics: Sequence[str]) -> str:
    if not runs:
        return "expected runs with results, got a grid in which none has begun; run it first."
    measured = dict.fromkeys(
        name for run in runs for item in _summary(RunFolder(run))[1].cells for name in item.estimates
    )
    where = ", ".join(str(run) for run in runs)
    if not measured:
        return f"expected a run with figures, got none in {where}: nothing is on record, or all clips failed."
    known = ", ".join(measured)
    if metrics:
        return f"metric expected one that was measured in {where} ({known}), got {', '.join(metrics)}."
    return f"no attack in {where} has a value; name a metric: {known}."


def _summary(folder: RunFolder) -> tuple[Plan, Summary]:
    plan = folder.plan()
    return plan, summarise(plan, folder.records())


def _figures(name: str, folder: RunFolder, metrics: Sequence[str]) -> Iterator[PaperFigure]:
    plan, summary = _summary(folder)
    roots = roots_of(plan.data, plan.fit)

    def figure(cell: Cell, metric: str, estimate: Estimate, attack: str, attacker: str) -> PaperFigure:
        clean = cell.clean
        return PaperFigure(
            name,
            hide_paths(plan.model, roots),
            hide_paths(cell.defense, roots),
            attacker,
            hide_paths(attack, roots),
            "" if clean else hide_paths(str(cell.goal), roots),
            "" if clean else str(cell.budget),
            CLEAN if clean else cell.budget_title,
            metric,
            estimate,
        )

    leads = {(group.defense, str(group.goal), str(group.budget)): group.lead for group in summary.groups}
    for item in summary.cells:
        cell = item.cell
        own = leads.get((cell.defense, str(cell.goal), str(cell.budget)), "")
        for metric in metrics or _default(item, own):
            if metric in item.estimates:
                yield figure(cell, metric, item.estimates[metric], str(cell.attack), cell.attacker)
    for group in summary.groups:
        best = group.strongest
        for metric in metrics or [group.lead]:
            if best is not None and best.attacks > 1 and metric in best.per_clip:
                yield figure(best.item.cell, metric, best.per_clip[metric], ANY, "")


def _default(item: CellSummary, lead: str) -> list[str]:
    """The metric that says most of a cell."""
    return [lead] if lead else [name for name in CLEAN_LEADS if name in item.estimates]


def _to_csv(figures: Sequence[PaperFigure], many: bool) -> str:
    """The rows of `summary.csv`, and of all attacks together. many: with the name of the run."""
    rows = [
        {
            **({"run": each.run} if many else {}),
            "target": each.target,
            "defense": each.defense,
            "attacker": each.attacker or None,
            "attack": each.attack,
            "goal": each.goal or None,
            "budget": each.budget or None,
            "metric": each.metric,
            **plain({"value": each.estimate.value, "low": each.estimate.low, "high": each.estimate.high}),
            "clips": each.estimate.n,
        }
        for each in figures
    ]
    return csv_text([*(["run"] if many else []), *SUMMARY_COLUMNS], rows)


def _lay_out(figures: Sequence[PaperFigure]) -> TextTable:
    """Columns of names that say nothing are left out: one metric is named in the caption, attackers where
    something is defended, runs where two of them have the same row."""
    metrics = list(dict.fromkeys(each.metric for each in figures))
    heads = ["target", "defense", "attack", "attacker", "goal", "metric"]
    if len(metrics) == 1:
        heads.remove("metric")
    if all(each.attacker in ("", "plain") for each in figures):
        heads.remove("attacker")
    if len({(each.row[1:], each.title) for each in figures}) < len(figures):
        heads.insert(0, "run")
    budgets = _titles(figures)
    parts: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, PaperFigure]]] = {}
    for each in figures:
        parts.setdefault(each.part, {}).setdefault(each.row, {})[each.budget] = each
    rows, starts = list[list[str]](), set[int]()
    for part in parts.values():
        starts.add(len(rows))
        for found in part.values():
            first = next(iter(found.values()))
            names = [_head(first, head) for head in heads]
            rows.append([*names, *(_show(found.get(budget)) for budget in budgets)])
    return TextTable(_caption(figures, metrics), heads, list(budgets.values()), rows, frozenset(starts - {0}))


def _titles(figures: Sequence[PaperFigure]) -> dict[str, str]:
    """Each budget in words, or as it is written where two have the same words."""
    titles = {each.budget: each.title for each in figures}
    words = list(titles.values())
    return {budget: title if words.count(title) == 1 else budget for budget, title in titles.items()}


def _head(figure: PaperFigure, head: str) -> str:
    if head == "attacker":
        return FORMS.get(figure.attacker, figure.attacker)
    return _metric_title(figure.metric) if head == "metric" else str(getattr(figure, head))


def _metric_title(name: str) -> str:
    metric = find_metric(name)
    return f"{metric.title} in {metric.unit}" if metric.unit else metric.title


def _show(figure: PaperFigure | None) -> str:
    if figure is None or not math.isfinite(figure.estimate.value):
        return DASH
    unit, found = find_metric(figure.metric).unit, figure.estimate
    value, low, high = (number(each, unit) for each in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]" if math.isfinite(found.low) else value


def _caption(figures: Sequence[PaperFigure], metrics: Sequence[str]) -> str:
    methods = dict.fromkeys(
        each.estimate.method.removesuffix(" 95%") for each in figures if math.isfinite(each.estimate.low)
    )
    counts = sorted({each.estimate.n for each in figures if each.estimate.n})
    words = [_metric_title(metrics[0]) if len(metrics) == 1 else ""]
    words += [f"95 % intervals by {' and '.join(methods)}"] if methods else []
    words += [_count(counts)] if counts else []
    words += [f"{ANY}: each clip under the attack that did it most harm"] * any(
        each.attack == ANY for each in figures
    )
    return "; ".join(filter(None, words)) + "."


def _count(counts: Sequence[int]) -> str:
    low, high = counts[0], counts[-1]
    clips = f"{low}" if low == high else f"{low} to {high}"
    return f"{clips} clip{'' if high == 1 else 's'} a value"
