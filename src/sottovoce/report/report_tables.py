"""The report's tables, as plain rows of shown figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.results.summary import CellSummary, Strongest, Summary, find_metric
from sottovoce.core.metric import Estimate
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.registry.part_text import Part
from sottovoce.report.model_reading import LEAD_TITLES, WORDS, ModelReading
from sottovoce.report.shown_words import ShownNumber, defense_title, form_title, goal_title, show
from sottovoce.report.trial_columns import Judged, Trials

LEVELS = {"low": "below 50 dB", "medium": "50 to 70 dB", "high": "above 70 dB"}
MOST_CLASSES = 60
"""With more labels than this they are sentences, not classes; with more speakers the table is no help."""
WORST = "any of them, clip by clip"
SHORT_TITLES = {
    "success": "success",
    "wer": "WER",
    "cer": "CER",
    "sentence-error": "sentence error",
    "accuracy": "accuracy",
    "snr": "SNR",
    "db-max": "dB max",
    "below-32db": "below −32 dB",
    "db-mean-background": "dB mean, background",
}


@dataclass(frozen=True)
class TableColumn:
    name: str
    title: str
    unit: str

    @classmethod
    def of(cls, metric: str) -> TableColumn:
        found = find_metric(metric)
        return cls(metric, SHORT_TITLES.get(metric, found.title), found.unit)


@dataclass(frozen=True)
class TableRow:
    heads: tuple[str, ...]
    figures: list[ShownNumber]
    counted: str
    failed: int
    lost: int | None
    kind: str
    """"noise", "top" for the strongest attack at its budget, "worst" for all attacks clip by clip, or ""."""
    span: int
    """How many rows the attack's head covers; 0 where the row above covers it."""


@dataclass(frozen=True)
class Panel:
    """All cells of one defense and one goal.

    lead: the metric by which its attacks are ranked.
    found: the strongest attack, and the worst of every clip, by the title of the budget.
    """

    title: str
    defense: str
    goal: Part
    cells: list[CellSummary]
    lead: str = "success"
    found: dict[str, Strongest] = field(default_factory=dict)

    def led(self, item: CellSummary) -> bool:
        """Whether the cell has the leading figure."""
        return item.has(self.lead)

    def gain(self, item: CellSummary) -> float:
        """What the attack did: its success, or what it added to the error rate of the clean clips."""
        before = item.estimates.get("clean-wer") if self.lead == "wer" else None
        return item.estimates[self.lead].value - (before.value if before else 0.0)

    def at(self, budget: str) -> list[CellSummary]:
        return [item for item in self.cells if item.cell.budget_title == budget]

    @property
    def budgets(self) -> list[str]:
        return list(dict.fromkeys(item.cell.budget_title for item in self.cells))

    def strongest(self, budget: str) -> CellSummary | None:
        """The attack with the most success or errors at a budget; among equals the quieter one."""
        return self.found[budget].item if budget in self.found else None

    def best(self, budget: str, attacker: str) -> CellSummary | None:
        """The strongest attack of one attacker."""
        items = [each for each in self.at(budget) if each.cell.attacker == attacker and each.attacks]
        return max(
            filter(self.led, items),
            key=lambda each: (each.estimates[self.lead].value, each.snr_db),
            default=None,
        )

    def noise(self, budget: str) -> CellSummary | None:
        found = [item for item in self.at(budget) if not item.attacks and self.led(item)]
        return found[0] if found else None

    @property
    def defended(self) -> bool:
        return self.defense != NO_DEFENSE


def make_panels(plan: Plan, summary: Summary) -> list[Panel]:
    """Panels in the plan's order, the undefended model first."""
    panels: dict[tuple[str, str], Panel] = {}
    for group in summary.groups:
        words = [defense_title(group.defense)] if plan.every_defense != (NO_DEFENSE,) else []
        words += [goal_title(group.goal)] if len(plan.every_goal) > 1 else []
        blank = Panel(", ".join(words), group.defense, group.goal, [], group.lead)
        panel = panels.setdefault((group.defense, str(group.goal)), blank)
        if group.strongest is not None:
            panel.found[group.budget_title] = group.strongest
    for item in (item for item in summary.cells if not item.cell.clean):
        panels[item.cell.defense, str(item.cell.goal)].cells.append(item)
    return sorted(panels.values(), key=lambda panel: panel.defense != NO_DEFENSE)


def measured(summary: Summary, wanted: Iterable[str]) -> list[TableColumn]:
    """Those of the wanted metrics that the run measured.

    Metrics of transcripts have a value for some goals and models only: where none has, they are left out.
    """
    known = {name for item in summary.cells for name in item.estimates}
    valued = {name for item in summary.cells for name in item.estimates if item.has(name)}
    return [
        TableColumn.of(name)
        for name in wanted
        if name in known and (name in valued or find_metric(name).says != "words")
    ]


def other_metrics(summary: Summary, reading: ModelReading) -> list[TableColumn]:
    """Metrics that are not in the main table."""
    known = dict.fromkeys(name for item in summary.cells for name in item.estimates)
    return measured(summary, [name for name in known if name not in (*reading.main, *reading.clean)])


def cell_rows(panel: Panel, columns: list[TableColumn], reading: ModelReading) -> list[TableRow]:
    spans = cover([form_title(item.cell) for item in panel.cells])
    top = {found.item.cell.id for found in panel.found.values() if found.attacks > 1}
    return [
        TableRow(
            heads=(form_title(item.cell), item.cell.budget_title),
            figures=[show(item.estimates.get(column.name), column.unit) for column in columns],
            counted=_counted(item, reading),
            failed=item.failed,
            lost=item.lost_by_rounding,
            kind="top" if item.cell.id in top else "" if item.attacks else "noise",
            span=span,
        )
        for item, span in zip(panel.cells, spans, strict=True)
    ] + _worst_rows(panel, columns)


def _worst_rows(panel: Panel, columns: list[TableColumn]) -> list[TableRow]:
    """Each clip under whichever attack harmed it most; nothing with only one attack."""
    found = {budget: each for budget, each in panel.found.items() if each.attacks > 1}
    if not any(column.name in each.per_clip for column in columns for each in found.values()):
        return []
    return [
        TableRow(
            heads=(WORST, budget),
            figures=[_worst_figure(each, column) for column in columns],
            counted="",
            failed=0,
            lost=0,
            kind="worst",
            span=len(found) if place == 0 else 0,
        )
        for place, (budget, each) in enumerate(found.items())
    ]


def _worst_figure(found: Strongest, column: TableColumn) -> ShownNumber:
    if column.name not in found.per_clip:
        return ShownNumber("", "", "")
    return show(found.per_clip[column.name], column.unit)


def _counted(item: CellSummary, reading: ModelReading) -> str:
    if reading is WORDS:
        return str(item.clips)
    return f"{item.estimates['success'].n if 'success' in item.estimates else '–'} / {item.clips}"


def cover(names: list[str]) -> list[int]:
    """At the start of each run of equal names its length, else 0."""
    return [length if place == 0 else 0 for length in _runs(names) for place in range(length)]


def _runs(names: list[str]) -> list[int]:
    return [len(list(members)) for _, members in groupby(names)]


@dataclass(frozen=True)
class GroupTable:
    """The leading figure by class, language or speaker: a row a group, a column a budget with its strongest
    attack."""

    head: str
    caption: str
    budgets: list[tuple[str, str]]
    rows: list[tuple[str, list[ShownNumber]]]


def group_tables(panel: Panel, trials: Trials, reading: ModelReading) -> list[GroupTable]:
    """By class, or for a recogniser by language and by speaker; a table wherever there are several."""
    heads = ("language", "speaker") if reading is WORDS else ("class",)
    found = (group_table(panel, trials, head) for head in heads)
    return [table for table in found if table is not None]


def group_table(panel: Panel, trials: Trials, head: str) -> GroupTable | None:
    found = [(budget, item) for budget in panel.budgets if (item := panel.strongest(budget)) is not None]
    tables = [_by_group(trials, item.cell.id, head, panel.lead) for _, item in found]
    groups = sorted({name for table in tables for name in table})
    if not 2 <= len(groups) <= MOST_CLASSES or len(trials.clips) < 2 * len(groups):
        return None
    title = LEAD_TITLES[panel.lead]
    caption = f"{title[0].upper()}{title[1:]} by {head} and budget"
    return GroupTable(
        head=head,
        caption=f"{caption}: {panel.title}" if panel.title else caption,
        budgets=[(budget, form_title(item.cell)) for budget, item in found],
        rows=[(name, [show(table.get(name), "%") for table in tables]) for name in groups],
    )


def clean_groups(plan: Plan, trials: Trials, reading: ModelReading) -> list[GroupTable]:
    """Where nothing was attacked: the clean figure by class, or by language and speaker."""
    metric = next(iter(reading.clean))
    cells = [cell for cell in plan.cells() if cell.id in trials.judged]
    found = []
    for head in ("language", "speaker") if reading is WORDS else ("class",):
        by_cell = [_by_group(trials, cell.id, head, metric) for cell in cells]
        groups = sorted({name for table in by_cell for name in table})
        if 2 <= len(groups) <= MOST_CLASSES and len(trials.clips) >= 2 * len(groups):
            rows = [(name, [show(table.get(name), "%") for table in by_cell]) for name in groups]
            heads = [(defense_title(cell.defense), "") for cell in cells]
            found.append(GroupTable(head, f"{find_metric(metric).title} by {head}", heads, rows))
    return found


def _by_group(trials: Trials, cell: str, head: str, metric: str) -> dict[str, Estimate]:
    judged = trials.judged[cell]
    names = {"class": judged.labels, "language": judged.languages, "speaker": judged.speakers}[head]
    known = [name for name in dict.fromkeys(names) if name or head == "class"]
    found = {name: judged.estimate(metric, np.array(names) == name) for name in known}
    return {name: estimate for name, estimate in found.items() if estimate is not None}


@dataclass(frozen=True)
class LevelGroup:
    """The strongest attack at one budget, by how loud the clips are."""

    title: str
    rows: list[tuple[str, int, list[ShownNumber]]]


def level_group(
    panel: Panel, item: CellSummary | None, trials: Trials, columns: list[TableColumn]
) -> LevelGroup | None:
    if item is None:
        return None
    judged = trials.judged[item.cell.id]
    levels = np.array(judged.levels)
    rows = []
    for level, members in ((level, levels == level) for level in LEVELS):
        if members.any():
            figures = [show(judged.estimate(column.name, members), column.unit) for column in columns]
            rows.append((level, int(members.sum()), figures))
    words = [panel.title, form_title(item.cell), item.cell.budget_title]
    return LevelGroup(" · ".join(word for word in words if word), rows) if rows else None


@dataclass(frozen=True)
class Box:
    """Quantiles of one measure on the clips of one cell."""

    metric: str
    attack: str
    n: int
    quantiles: NDArray[np.float64]
    """5, 25, 50, 75 and 95 %."""


def boxes(cells: Iterable[CellSummary], trials: Trials, metrics: Iterable[str]) -> list[Box]:
    found = []
    for item in cells:
        for metric in metrics:
            values = trials.judged.get(item.cell.id, Judged()).values(metric)
            if len(values):
                shares = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))
                found.append(Box(metric, form_title(item.cell), len(values), shares))
    return found
