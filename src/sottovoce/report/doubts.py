"""The sanity pass in words: one paragraph a question, with its figures and what to run next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sottovoce.auditing.checks.flags import STRENGTH, Flag, SanityCheck
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.results.summary import CellSummary, Summary
from sottovoce.registry.part_text import Part
from sottovoce.report.shown_words import (
    FORMS,
    cell_title,
    defense_title,
    form_title,
    goal_title,
    number,
    plural,
    show,
)


@dataclass(frozen=True)
class ReportDoubt:
    """One question asked of the run, and the answer; items say where.

    weighty: whether it is about the strength of the attacks, and so about every figure of the run.
    """

    title: str
    passed: bool
    text: str
    items: list[str]
    advice: str
    weighty: bool


@dataclass(frozen=True)
class Context:
    """What the words need besides a check."""

    plan: Plan
    titles: Mapping[str, str]
    cells: Mapping[str, CellSummary]


def word_checks(plan: Plan, summary: Summary, checks: Sequence[SanityCheck]) -> list[ReportDoubt]:
    """Doubts first among each other in the order of the checks; the report shows what passed as well."""
    context = Context(
        plan,
        {cell.id: cell_title(cell) for cell in plan.cells()},
        {item.cell.id: item for item in summary.cells},
    )
    return [_word(check, context) for check in checks]


def _word(check: SanityCheck, context: Context) -> ReportDoubt:
    title, text = (_PASSED if check.passed else _RAISED)[check.kind](check, context)
    line = _ITEMS.get(check.kind)
    items = [line(flag, context) for flag in check.flags] if line else []
    advice = "; or ".join(dict.fromkeys(flag.advice for flag in check.flags))
    return ReportDoubt(title, check.passed, text, items, advice, check.kind in STRENGTH)


Sentence = Callable[[SanityCheck, Context], tuple[str, str]]
TEST = "exact sign test over clips, 5 %"


def _comparisons(check: SanityCheck) -> str:
    return plural(check.asked, "comparison")


_PASSED: dict[str, Sentence] = {
    "repeats": lambda check, context: (
        "The model repeats itself",
        f"Before the run {plural(check.asked, 'clip')} got the same answers twice.",
    ),
    "attackers": lambda check, context: (
        "Every defense met three attackers",
        "Through the defense, from the bare model and by scores alone, at every budget.",
    ),
    "averaging": lambda check, context: (
        "Random targets are attacked with averaged gradients",
        f"Each gradient is the mean over {context.plan.average or 16} passes.",
    ),
    "adaptive": lambda check, context: (
        "No attack loses by knowing the defense",
        f"In {_comparisons(check)} no transferred attack beats its adaptive twin ({TEST}).",
    ),
    "black-box": lambda check, context: (
        "No black-box attack beats the gradients",
        f"In {_comparisons(check)} of the strongest of each kind ({TEST}).",
    ),
    "steps": lambda check, context: (
        "More steps do not help",
        "Twice as many, on the probed clips, break no more of them to speak of.",
    ),
    "passes": lambda check, context: (
        "More passes do not help",
        "Gradients averaged over twice as many, on the probed clips, break no more of them to speak of.",
    ),
    "gradients": lambda check, context: (
        "Gradients do not vanish",
        "On every probed clip the attack has a gradient to follow.",
    ),
    "failures": lambda check, context: (
        "No clip failed",
        "Every clip that was tried has its figures.",
    ),
    "rounding": lambda check, context: (
        "No success was lost by rounding",
        f"Every success in floats is a success in the {context.plan.bits}-bit file too.",
    ),
    "ears": lambda check, context: (
        "Both ears agree",
        "In no cell do the learned ear and the masking model disagree strongly on a quarter of the clips.",
    ),
    "noise": lambda check, context: (
        "Every attack beats white noise",
        f"In all {_comparisons(check)} more clips fare worse under the attack ({TEST}).",
    ),
}


def _lost(check: SanityCheck, context: Context) -> tuple[str, str]:
    total = sum(flag.evidence["lost"] for flag in check.flags)
    return (
        f"{total} {'success' if total == 1 else 'successes'} lost by rounding",
        f"They held as floats and do not hold in a {context.plan.bits}-bit file; the rates count the files.",
    )


def _wavers(check: SanityCheck, context: Context) -> tuple[str, str]:
    return (
        "The model answers the same clip in different ways",
        "It is treated as random: gradients are averaged, and clips and examples are judged by what most of "
        f"{check.flags[0].evidence['judged_over']} passes say. No seed leads these passes: another run gives "
        "other figures, and what was lost by rounding cannot be told from chance.",
    )


_RAISED: dict[str, Sentence] = {
    "repeats": _wavers,
    "attackers": lambda check, context: (
        "A defense has not met every attacker",
        "What it is worth under the others is not known, and they may be stronger.",
    ),
    "averaging": lambda check, context: (
        "A random target is attacked without averaging",
        "Each gradient is that of one draw: the attack walks in circles, and the defense gets the credit.",
    ),
    "adaptive": lambda check, context: (
        f"Knowing the defense makes the attack weaker in {len(check.flags)} of {_comparisons(check)}",
        f"The gradient through the defense misleads it, so it is no measure of the defense ({TEST}).",
    ),
    "black-box": lambda check, context: (
        f"A black-box attack beats the gradients in {len(check.flags)} of {_comparisons(check)}",
        f"Whoever sees less does better: the defense hides its gradient and not its weakness ({TEST}).",
    ),
    "one-step": lambda check, context: (
        "No attack takes more than one step",
        "One step finds little of what many find: that the target holds against it says little.",
    ),
    "unprobed": lambda check, context: (
        "Whether more steps help was not asked",
        "No attack was tried again with more of them on enough clips: the rates may be too low.",
    ),
    "steps": lambda check, context: (
        "More steps still help",
        "On the probed clips twice as many break more of them: the rates are too low.",
    ),
    "passes": lambda check, context: (
        "More passes still help",
        "On the probed clips gradients over twice as many passes break more of them: the rates are too low.",
    ),
    "gradients": lambda check, context: (
        "Gradients vanish",
        "An attack that has no gradient to follow says nothing of the target.",
    ),
    "unfinished": lambda check, context: (
        "The run is not finished",
        f"{len(check.flags)} of {plural(check.asked, 'cell')} of the plan have no record yet.",
    ),
    "failures": lambda check, context: (
        plural(sum(flag.evidence["failures"] for flag in check.flags), "failure"),
        "What failed is in no rate and no mean; a failed clip never counts as a zero.",
    ),
    "floats": lambda check, context: (
        "Examples are floats",
        "Nothing was rounded: whether the examples survive in a 16-bit file is not known.",
    ),
    "rounding": _lost,
    "no-noise": lambda check, context: (
        "No white noise to compare with",
        "Without it an attack cannot be told from any noise of its level.",
    ),
    "noise": lambda check, context: (
        f"Not told apart from white noise in {len(check.flags)} of {_comparisons(check)}",
        f"There the attack may do little more than noise of its level ({TEST}).",
    ),
    "ears": lambda check, context: (
        f"Two ears disagree in {len(check.flags)} of {plural(check.asked, 'cell')}",
        "On a quarter of the clips or more, one says that fewer than one in four would hear it and the other "
        "more than three in four: the attack may have fooled an ear as well.",
    ),
    "few-clips": lambda check, context: (
        "Few clips",
        f"Some rates rest on {plural(check.flags[0].evidence['clips'], 'clip')}; read the intervals, not the "
        "values.",
    ),
}


def _where(flag: Flag, context: Context) -> str:
    return context.titles.get(flag.cell, flag.cell)


def _named(metric: str) -> str:
    return "WER " if metric == "wer" else ""


def _share(value: float) -> str:
    return f"{number(value, '%').removesuffix('.0')} %"


def _missing(flag: Flag, context: Context) -> str:
    attacker, budgets = flag.evidence["attacker"], ", ".join(flag.evidence["budgets"])
    return f"{flag.evidence['defense']}: no {FORMS[attacker]} attack at {budgets}"


def _beaten(flag: Flag, context: Context) -> str:
    seen, cell = flag.evidence, context.cells[flag.evidence["stronger"]].cell
    return (
        f"{_where(flag, context)}: {_named(seen['metric'])}{_share(seen['weaker_value'])}, but "
        f"{form_title(cell)} {_share(seen['stronger_value'])}; of "
        f"{plural(seen['clips'], 'clip')} {seen['worse_under_stronger']} fare worse under the latter and "
        f"{seen['worse_under_weaker']} under the former, p = {seen['p']:.2g}"
    )


def _rising(flag: Flag, context: Context) -> str:
    seen = flag.evidence
    (low, high), (before, after), objective = seen[flag.kind], seen["values"], seen["objective"]
    return (
        f"{_where(flag, context)}: {_named(seen['metric'])}{_share(before)} with {low} {flag.kind}, "
        f"{_share(after)} with {high}, on {plural(seen['clips'], 'clip')}; the objective goes from "
        f"{objective[0]:.3g} to {objective[1]:.3g} and rises on {seen['rose']} of them, p = {seen['p']:.2g}"
    )


def _flat(flag: Flag, context: Context) -> str:
    seen = flag.evidence
    tiny = f", nearly zero on {seen['tiny']}" if seen["tiny"] else ""
    return f"{_where(flag, context)}: zero on {seen['zero']} of {plural(seen['clips'], 'clip')}{tiny}"


def _drowned(flag: Flag, context: Context) -> str:
    seen = flag.evidence
    metric = seen["metric"]
    item, noise = context.cells[flag.cell], context.cells[seen["noise"]]
    found, held = show(item.estimates[metric], "%"), show(noise.estimates[metric], "%")
    return (
        f"{_where(flag, context)}: {_named(metric)}{found}, noise {held}; of {plural(seen['clips'], 'clip')} "
        f"{seen['worse_under_attack']} fare worse under the attack, {seen['worse_under_noise']} under noise"
    )


def _about(flag: Flag, context: Context) -> str:
    goal = Part.parse(flag.evidence["goal"])
    many = len(context.plan.every_goal) > 1
    return defense_title(flag.evidence["defense"]) + (f", {goal_title(goal)}" if many else "")


def _unprobed(flag: Flag, context: Context) -> str:
    clips = flag.evidence["clips"]
    return f"{_about(flag, context)}: {plural(clips, 'clip') + ' probed' if clips else 'not probed'}"


def _differed(flag: Flag, context: Context) -> str:
    seen = flag.evidence
    if seen["said"]:
        return "it says so of itself"
    return (
        f"of {plural(seen['clips'], 'clip')} decoded twice before the run, {seen['texts']} got another text "
        f"and {seen['scores']} other scores"
    )


_ITEMS: dict[str, Callable[[Flag, Context], str]] = {
    "repeats": _differed,
    "attackers": _missing,
    "one-step": lambda flag, context: f"{_about(flag, context)}: {', '.join(flag.evidence['budgets'])}",
    "unprobed": _unprobed,
    "averaging": lambda flag, context: (
        f"{defense_title(flag.evidence['defense'])}: {plural(flag.evidence['passes'], 'pass')} a gradient"
    ),
    "adaptive": _beaten,
    "black-box": _beaten,
    "steps": _rising,
    "passes": _rising,
    "gradients": _flat,
    "unfinished": _where,
    "failures": lambda flag, context: (
        f"{_where(flag, context) or plural(flag.evidence['failures'], 'clip')}: {flag.evidence['reason']}"
    ),
    "rounding": lambda flag, context: (
        f"{_where(flag, context)}: {flag.evidence['lost']} of {flag.evidence['clips']}"
    ),
    "noise": _drowned,
    "ears": lambda flag, context: (
        f"{_where(flag, context)}: of {plural(flag.evidence['clips'], 'clip')} "
        f"{flag.evidence['learned_deaf']} are heard by the masking model alone, "
        f"{flag.evidence['masking_deaf']} by the learned ear alone"
    ),
}
