"""What the verbs print: the summary table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group as RichGroup
from rich.console import RenderableType
from rich.text import Text

from sottovoce.auditing.checks.flags import SanityCheck
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.results.clean_decisions import CLEAN
from sottovoce.auditing.results.clean_decisions import LEADS as LEADS_CLEAN
from sottovoce.auditing.results.summary import LEADS, CellSummary, ComparableCells, Summary, find_metric
from sottovoce.cli.wide_table import WideTable
from sottovoce.core.metric import Estimate
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.report.doubts import word_checks
from sottovoce.report.model_reading import WORDS, read_as
from sottovoce.report.report_tables import make_panels
from sottovoce.report.shown_words import FORMS, replay_title
from sottovoce.report.speaker_table import NO_SCORES, Told, as_summary
from sottovoce.report.verdict import say_wer

ANY = "any"
"""The row of all attacks together, as short as the names of attacks: five budgets fill a terminal."""

NONE = Text("–")


def summary_table(plan: Plan, summary: Summary) -> RenderableType:
    """Success by attack and budget, with intervals; for a recogniser its error rate too. Where nothing was
    attacked, the figures of clean clips alone."""
    if plan.clean:
        return clean_table(plan, summary)
    if read_as(name for item in summary.cells for name in item.estimates) is WORDS:
        lines = [Text(line, style="bold") for line in say_wer(make_panels(plan, summary))]
        return RichGroup(*lines, *_word_tables(plan, summary))
    title = f"Attack success on {plan.model} in %, with 95 % intervals"
    if plan.every_defense == (NO_DEFENSE,):
        title += f"; clean accuracy {_clean(plan, summary.clean, 'clean-accuracy')}"
    return RichGroup(Text(title, style="table.title"), *_tables(plan, summary, "success"))


def _word_tables(plan: Plan, summary: Summary) -> list[RenderableType]:
    """Error rate and success, the one that fits the goals first. Titles are printed above, so as not to "
    "wrap."""
    goals = {part.name for part in plan.every_goal}
    worse = any(item.has("wer") for item in summary.cells)
    evaded = "with more word errors than before" if worse else "whose transcript changes"
    deed = evaded if goals == {"evade"} else "on which the goal is reached"
    titles = {
        "wer": f"WER of {plan.model} under attack in %, with 95 % intervals; clean "
        f"{_clean(plan, summary.clean, 'clean-wer')}",
        "success": f"Attack success on {plan.model} in %: clips {deed}",
    }
    order = ["wer", "success"] if "evade" in goals else ["success", "wer"]
    measured = [name for name in order if any(name in item.estimates for item in summary.cells)]
    return [
        shown
        for name in measured
        for shown in (Text(titles[name], style="table.title"), *_tables(plan, summary, name))
    ]


def speaker_table(plan: Plan, summary: Summary, told: Told) -> RenderableType:
    """Accuracy by speaker, by the votes of their clips, or why it is not known."""
    voted = as_summary(summary, told)
    if plan.clean:
        known = _clean(plan, _by_defense(voted), "clean-chance")
        return Text(
            f"Speakers classified correctly, by the mean probability of their clips (clean-chance), in %: "
            f"{known}"
        )
    if not any("chance" in item.estimates for item in voted.cells):
        return Text(NO_SCORES, style="dim")
    title = (
        f"Speakers that {plan.model} classifies correctly under attack in %, by the mean probability of "
        "their clips; "
        f"clean {_clean(plan, _by_defense(voted), 'clean-chance')}"
    )
    return RichGroup(Text(title, style="table.title"), *_tables(plan, voted, "chance"))


def clean_table(plan: Plan, summary: Summary) -> RenderableType:
    """What the model makes of clean clips behind each defense."""
    names = [name for name in CLEAN if any(name in found for found in summary.clean.values())]
    columns = [find_metric(name).title for name in names]
    rows = [
        [
            Text("no defense" if defense == NO_DEFENSE else defense),
            *(_percent(summary.clean.get(defense, {}).get(name)) for name in names),
            Text(str(sum(item.clips for item in summary.cells if item.cell.defense == defense))),
        ]
        for defense in plan.every_defense
    ]
    title = f"{plan.model} on clean clips in %, with 95 % intervals; nothing was attacked"
    table = WideTable([("defense", 0)], [*columns, "clips"], rows)
    return RichGroup(Text(title, style="table.title"), table)


def _by_defense(summary: Summary) -> dict[str, dict[str, Estimate]]:
    """The estimates behind each defense of its cell with the most clips."""
    most: dict[str, CellSummary] = {}
    for item in summary.cells:
        if item.cell.defense not in most or item.clips > most[item.cell.defense].clips:
            most[item.cell.defense] = item
    return {defense: item.estimates for defense, item in most.items()}


def _clean(plan: Plan, found: Mapping[str, Mapping[str, Estimate]], metric: str) -> str:
    """A figure before any attack, behind each defense."""
    words = []
    for defense in plan.every_defense:
        known = found.get(defense, {}).get(metric)
        if known is not None and known.n:
            behind = f" behind {defense}" if defense != NO_DEFENSE else ""
            words.append(f"{_plain(known)}{behind}")
    return ", ".join(words) or "not measured"


def _tables(plan: Plan, summary: Summary, metric: str) -> list[RenderableType]:
    """One table per defense, with its clean accuracy; their columns line up."""
    rows = _rows(summary, metric)
    widths = [max((len(row.heads[place]) for row in rows), default=0) for place in range(3)]
    shown: list[RenderableType] = []
    for defense in plan.every_defense:
        if plan.every_defense != (NO_DEFENSE,):
            head = f"behind {defense}" if defense != NO_DEFENSE else "no defense"
            known = summary.clean.get(defense, {}).get("clean-accuracy")
            before = f"; clean accuracy {_plain(known)}" if known is not None and known.n else ""
            shown.append(Text.assemble((head, "bold"), before))
        shown.append(_table(plan, summary, [row for row in rows if row.defense == defense], widths))
    if any(row.heads[0] == ANY for row in rows):
        shown.append(
            Text(f"{ANY}: each clip under the attack that harmed it most, without noise", style="dim")
        )
    return shown


@dataclass
class SummaryRow:
    """heads: attack, attacker and goal."""

    defense: str
    heads: tuple[str, str, str]
    figures: dict[str, Text] = field(default_factory=dict)


def _table(plan: Plan, summary: Summary, rows: list[SummaryRow], widths: list[int]) -> WideTable:
    """One metric by attack and budget."""
    budgets = list(dict.fromkeys(item.cell.budget_title for item in summary.cells))
    defended = plan.every_defense != (NO_DEFENSE,)
    columns = [("attack", True), ("attacker", defended), ("goal", len(plan.every_goal) > 1)]
    kept = [place for place, (_, shown) in enumerate(columns) if shown]
    return WideTable(
        heads=[(columns[place][0], widths[place]) for place in kept],
        columns=budgets,
        rows=[
            [*(Text(row.heads[place]) for place in kept), *(row.figures.get(name, NONE) for name in budgets)]
            for row in rows
        ],
    )


def _rows(summary: Summary, metric: str) -> list[SummaryRow]:
    """Every attack, the strongest at each budget in bold, and after them all attacks clip by clip."""
    rows: dict[tuple[str, ...], SummaryRow] = {}
    found = [group for group in summary.groups if group.strongest is not None and group.strongest.attacks > 1]
    top = {each.strongest.item.cell.id for each in found if each.strongest and each.lead == metric}
    for item in summary.cells:
        cell = item.cell
        heads = replay_title(cell.attack) or str(cell.attack), FORMS[cell.attacker], str(cell.goal)
        row = rows.setdefault((cell.defense, *heads), SummaryRow(cell.defense, heads))
        row.figures[cell.budget_title] = _percent(item.estimates.get(metric), bold=cell.id in top)
    for group in found if metric in LEADS else ():
        heads = ANY, "", str(group.goal)
        row = rows.setdefault((group.defense, *heads), SummaryRow(group.defense, heads))
        if group.strongest is not None:
            row.figures[group.budget_title] = _percent(group.strongest.per_clip.get(metric))
    return list(rows.values())


def grid_table(runs: Mapping[str, tuple[Plan, Summary]]) -> RenderableType:
    """The worst case of several runs at each budget: a row a run and defense (and goal)."""
    budgets = list(dict.fromkeys(group.budget_title for _, one in runs.values() for group in one.groups))
    goals = {str(group.goal) for _, one in runs.values() for group in one.groups}
    heads = ["run", "defense", *(["goal"] if len(goals) > 1 else []), "of"]
    rows: list[list[Text]] = []
    for name, (plan, summary) in runs.items():
        if not any(item.clips for item in summary.cells):
            words = [Text(name), Text("nothing could be run", style="yellow")]
            rows.append(words + [Text("")] * (len(heads) + 1 + len(budgets) - len(words)))
            continue
        for (defense, goal, lead), groups in _side_by_side(plan, summary).items():
            worst = {
                group.budget_title: _percent(group.strongest.per_clip.get(lead))
                for group in groups
                if group.strongest is not None
            }
            said = [name, defense, *([goal] if len(goals) > 1 else []), "WER" if lead == "wer" else lead]
            before = [known for each in LEADS_CLEAN if (known := summary.clean.get(defense, {}).get(each))]
            clean = _percent(before[0] if before else None)
            rows.append([*map(Text, said), clean, *(worst.get(budget, NONE) for budget in budgets)])
    title = "Worst case in %: each clip under the attack that harmed it most, with 95 % intervals"
    if not budgets:
        title = "Clean accuracy or WER in %, with 95 % intervals; nothing was attacked"
    table = WideTable([(name, 0) for name in heads], ["clean", *budgets], rows)
    legend = Text("clean: accuracy of a classifier, WER of a recogniser, before any attack", style="dim")
    return RichGroup(Text(title, style="table.title"), table, legend)


def _side_by_side(plan: Plan, summary: Summary) -> dict[tuple[str, str, str], list[ComparableCells]]:
    """The cells of one row: groups that differ only in the budget. A run without attacks has none."""
    rows: dict[tuple[str, str, str], list[ComparableCells]] = {}
    if plan.clean:
        return {(defense, "", "clean"): [] for defense in plan.every_defense}
    for group in summary.groups:
        rows.setdefault((group.defense, str(group.goal), group.lead), []).append(group)
    return rows


def list_doubts(plan: Plan, summary: Summary, checks: Sequence[SanityCheck]) -> list[Text]:
    """One line a doubt, with its figures where it is about the strength of the attacks."""
    lines = []
    for doubt in word_checks(plan, summary, [check for check in checks if not check.passed]):
        lines.append(Text.assemble(("doubt", "yellow"), f": {doubt.title}"))
        if doubt.weighty:
            lines += [Text(f"  {item}", style="dim") for item in doubt.items]
        if doubt.advice:
            lines.append(Text(f"  next: {doubt.advice}", style="dim"))
    return lines


def _percent(estimate: Estimate | None, bold: bool = False) -> Text:
    if estimate is None or not math.isfinite(estimate.value):
        return NONE
    value, _, interval = _plain(estimate).partition(" ")
    return Text.assemble((f"{value} ", "bold" if bold else ""), (interval, "dim"))


def _plain(estimate: Estimate) -> str:
    """Without an interval, as of one clip, the value alone."""
    value, low, high = (100 * each for each in (estimate.value, estimate.low, estimate.high))
    return f"{value:.0f} [{low:.0f},{high:.0f}]" if math.isfinite(low) else f"{value:.0f}"
