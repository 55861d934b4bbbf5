"""The sanity checks in words: one paragraph per check, with its figures and what to run next."""

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
    """One check of the run and its result; items say where.

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
        "The model is deterministic",
        f"Decoded twice before the run, {plural(check.asked, 'clip')} got the same answers.",
    ),
    "attackers": lambda check, context: (
        "Every defense was attacked in three ways",
        "Through the defense, from the bare model, and by scores alone, at every budget.",
    ),
    "averaging": lambda check, context: (
        "Attacks on random targets use averaged gradients",
        f"Each gradient is the mean over {context.plan.average or 16} passes.",
    ),
    "adaptive": lambda check, context: (
        "Knowing the defense makes no attack weaker",
        f"In {_comparisons(check)} no transferred attack beats the same attack made adaptive ({TEST}).",
    ),
    "black-box": lambda check, context: (
        "No black-box attack beats the gradient attacks",
        f"In {_comparisons(check)} of the strongest of each kind ({TEST}).",
    ),
    "steps": lambda check, context: (
        "More attack steps would not help",
        "With twice as many steps, the attack does not break notably more of the probed clips.",
    ),
    "passes": lambda check, context: (
        "More passes per gradient would not help",
        "With gradients averaged over twice as many passes, the attack does not break notably more of the "
        "probed clips.",
    ),
    "gradients": lambda check, context: (
        "Gradients do not vanish",
        "On every probed clip the attack has a gradient to follow.",
    ),
    "failures": lambda check, context: (
        "No clip failed",
        "Every clip that was tried has figures.",
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
        f"They succeed as floats but not in a {context.plan.bits}-bit file; the rates count the files.",
    )


def _wavers(check: SanityCheck, context: Context) -> tuple[str, str]:
    return (
        "The model answers the same clip in different ways",
        "It is treated as random: gradients are averaged, and clips and examples are judged by the majority "
        "of "
        f"{check.flags[0].evidence['judged_over']} passes. These passes do not follow the seed: another run "
        "gives "
        "other figures, and losses by rounding cannot be distinguished from chance.",
    )


_RAISED: dict[str, Sentence] = {
    "repeats": _wavers,
    "unasked": lambda check, context: (
        "Not tested: does the model answer the same clip alike?",
        "Every request costs, so no clip was sent twice: the first answer to each sound counts, and whether "
        "another one would be the same is not known.",
    ),
    "attackers": lambda check, context: (
        "A defense was not attacked in all three ways",
        "The missing attackers may be stronger; how well the defense holds against them is not known.",
    ),
    "averaging": lambda check, context: (
        "A random target is attacked without averaged gradients",
        "Each gradient comes from a single random pass, which weakens the attack and makes the defense look "
        "better.",
    ),
    "adaptive": lambda check, context: (
        f"Knowing the defense makes the attack weaker in {len(check.flags)} of {_comparisons(check)}",
        f"The gradient through the defense misleads the attack, so it does not measure the defense ({TEST}).",
    ),
    "black-box": lambda check, context: (
        f"A black-box attack beats the gradient attacks in {len(check.flags)} of {_comparisons(check)}",
        f"An attacker who sees less does better: the defense hides its gradient, not its weakness ({TEST}).",
    ),
    "one-step": lambda check, context: (
        "No attack takes more than one step",
        "One step finds far less than many steps do: robustness against it says little.",
    ),
    "unprobed": lambda check, context: (
        "Not tested: would more attack steps succeed more often?",
        "No attack was repeated with more steps on enough clips: the rates may be too low.",
    ),
    "steps": lambda check, context: (
        "More attack steps succeed more often",
        "With twice as many steps, more of the probed clips break: the rates are too low.",
    ),
    "passes": lambda check, context: (
        "More passes per gradient succeed more often",
        "With gradients averaged over twice as many passes, more of the probed clips break: the rates are "
        "too low.",
    ),
    "gradients": lambda check, context: (
        "Gradients vanish",
        "An attack without a gradient to follow says nothing about the target.",
    ),
    "unfinished": lambda check, context: (
        "The run is not finished",
        f"{len(check.flags)} of {plural(check.asked, 'cell')} of the plan have no record yet.",
    ),
    "failures": lambda check, context: (
        plural(sum(flag.evidence["failures"] for flag in check.flags), "failure"),
        "Failed clips are left out of all rates and means; they never count as zero.",
    ),
    "floats": lambda check, context: (
        "Examples are floats",
        "Nothing was rounded: whether the examples survive in a 16-bit file is not known.",
    ),
    "rounding": _lost,
    "no-noise": lambda check, context: (
        "No white noise to compare with",
        "Without it, it is not known whether an attack does more than any noise of its level.",
    ),
    "noise": lambda check, context: (
        f"No better than white noise in {len(check.flags)} of {_comparisons(check)}",
        f"There the attack does not do significantly more than noise of its level ({TEST}).",
    ),
    "ears": lambda check, context: (
        f"Two ears disagree in {len(check.flags)} of {plural(check.asked, 'cell')}",
        "On at least a quarter of the clips, one predicts that fewer than one listener in four would hear "
        "the "
        "perturbation and the other more than three in four: the attack may have fooled an ear as well.",
    ),
    "few-clips": lambda check, context: (
        "Few clips",
        f"Some rates are measured on {plural(check.flags[0].evidence['clips'], 'clip')}; read the intervals, "
        "not "
        "the values.",
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
        return "the model declares itself random"
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
