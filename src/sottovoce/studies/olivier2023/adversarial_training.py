"""O18: adversarial training (section 2.2.3), of a classifier and of a recogniser."""

from __future__ import annotations

from sottovoce.auditing.plan.plan_file import Cell
from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval
from sottovoce.registry.part_text import Part
from sottovoce.studies.draw import Sweep, curves
from sottovoce.studies.olivier2023.runs.hardening_plans import KEYWORDS, RECOGNISERS
from sottovoce.studies.olivier2023.runs.recogniser_figures import found, less
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup, opener
from sottovoce.studies.shown_numbers import percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, higher, lower, trend_sheet

TITLES = {"plain": "plain", "fgsm": "FGSM", "pgd": "PGD", "mixed": "PGD, 50 % then 80 %"}
Marks = dict[str, tuple[str, str, tuple[str, ...]]]
MODELS: Marks = {
    "keyword": ("accuracy", "clean-accuracy", KEYWORDS),
    "recogniser": ("wer", "clean-wer", RECOGNISERS),
}
"""What is measured under attack and before it, and the trainings, by model."""
NAMED = {"accuracy": "accuracy", "wer": "WER"}
Group = tuple[str, str]
"""An attack and a budget."""


def run(bench: AsrSetup) -> Result:
    return Result(
        sheets=[trend_sheet(_trends(bench)), *(_sheet(bench, model) for model in MODELS)],
        drawings=[
            StudyFigure(
                name=model,
                title=f"The {model} under the strongest attack, by its size",
                figure=curves([_sweep(bench, model)], label=f"{NAMED[MODELS[model][0]]}, %", top=None),
            )
            for model in MODELS
        ],
        values={
            model: {
                variant: {
                    "clean": found(_first(bench, model, variant), before),
                    **{
                        f"{attack} {budget}": found(records, after)
                        for (attack, budget), records in _groups(bench, model, variant).items()
                    },
                }
                for variant in variants
            }
            for model, (after, before, variants) in MODELS.items()
        },
        notes=[
            "FGSM trains with a random start; PGD with several steps; the mixed schedule is that of section "
            "7.5.2: half of the clips are attacked in the first half of training, four fifths in the second.",
            "The strongest attack is chosen for each model and size by its mean over clips.",
            "The thesis reports no table of this; section 7.5 has adversarial training of a speaker model "
            "(study O15).",
        ],
    )


def _cells(bench: AsrSetup, model: str, variant: str) -> list[tuple[Cell, list[Record]]]:
    run = bench.runs.get(f"{model}-{variant}")
    return [] if run is None else [(cell, run.records.get(cell.id, [])) for cell in run.plan.cells()]


def _groups(bench: AsrSetup, model: str, variant: str) -> dict[Group, list[Record]]:
    return {
        (str(cell.attack), str(cell.budget)): rows for cell, rows in _cells(bench, model, variant) if rows
    }


def _first(bench: AsrSetup, model: str, variant: str) -> list[Record]:
    """Each clip once."""
    return next(iter(_groups(bench, model, variant).values()), [])


def _strongest(bench: AsrSetup, model: str, variant: str, budget: str) -> list[Record]:
    """The records of the attack that does most at a size."""
    after = MODELS[model][0]
    sign = -1.0 if after == "accuracy" else 1.0
    groups = _groups(bench, model, variant)
    rows = [rows for (_, size), rows in groups.items() if size == budget]
    return max(rows, key=lambda one: sign * _value(found(one, after)), default=[])


def _value(one: Interval | None) -> float:
    return float("nan") if one is None else one.value


def _budgets(bench: AsrSetup, model: str) -> dict[str, str]:
    """The sizes that were run, and how people say them."""
    return {
        str(cell.budget): cell.budget_title
        for variant in MODELS[model][2]
        for cell, rows in _cells(bench, model, variant)
        if rows
    }


def _sheet(bench: AsrSetup, model: str) -> StudyTable:
    after, before, variants = MODELS[model]
    groups = {variant: _groups(bench, model, variant) for variant in variants}
    rows = [("clean", *(percent_interval(found(_first(bench, model, one), before)) for one in variants))]
    for budget, size in _budgets(bench, model).items():
        attacks = dict.fromkeys(
            attack for found_groups in groups.values() for attack, each in found_groups if each == budget
        )
        for attack in attacks:
            each = [found(groups[one].get((attack, budget), []), after) for one in variants]
            rows.append((f"{attack}, {size}", *map(percent_interval, each)))
        strongest = [found(_strongest(bench, model, one, budget), after) for one in variants]
        rows.append((f"strongest, {size}", *map(percent_interval, strongest)))
    count = max((len(_first(bench, model, one)) for one in variants), default=0)
    return StudyTable(
        title=f"The {model} by how it was trained, {NAMED[after]} in %",
        columns=("attack", *(TITLES[one] for one in variants)),
        rows=rows,
        note=f"{count} clips. Brackets: 95 % interval.",
    )


def _sweep(bench: AsrSetup, model: str) -> Sweep:
    after, _, variants = MODELS[model]
    lines = {}
    for variant in variants:
        pairs = [
            (_size(budget), found(_strongest(bench, model, variant, budget), after))
            for budget in _budgets(bench, model)
        ]
        known = sorted((size, 100 * rate.value) for size, rate in pairs if rate)
        lines[TITLES[variant]] = [size for size, _ in known], [rate for _, rate in known]
    return ("L-infinity radius", "log", lines) if model == "keyword" else ("SNR, dB", "linear", lines)


def _size(budget: str) -> float:
    """The one number of a budget: a radius, or an SNR in dB."""
    (size,) = Part.parse(budget).settings.values()
    return float(size)


def _trends(bench: AsrSetup) -> list[Trend]:
    trends = []
    for model, (after, before, variants) in MODELS.items():
        better, worse = (higher, lower) if after == "accuracy" else (lower, higher)
        pooled = {one: _pooled(bench, model, one) for one in variants}
        for one in variants[1:]:
            claim = f"{model}, {TITLES[one]}: better under the strongest attack than the plain model"
            trends.append(
                better(claim, less(pooled[one], pooled["plain"], after), "points, all sizes together")
            )
            clean, plain = (_first(bench, model, each) for each in (one, "plain"))
            claim = f"{model}, {TITLES[one]}: worse than the plain model on clean clips"
            trends.append(worse(claim, less(clean, plain, before)))
    claim = "keyword: PGD training beats FGSM training under the strongest attack"
    strong, weak = (_pooled(bench, "keyword", one) for one in ("pgd", "fgsm"))
    return [*trends, higher(claim, less(strong, weak, "accuracy"), "points, all sizes together")]


def _pooled(bench: AsrSetup, model: str, variant: str) -> list[Record]:
    """The strongest attack of every size."""
    return [record for size in _budgets(bench, model) for record in _strongest(bench, model, variant, size)]


STUDY = Study(
    id="O18",
    title="Adversarial training",
    paper="Olivier's thesis (2023), section 2.2.3",
    reports="training on FGSM is not robust to strong attacks, training on PGD is, at a price on clean "
    "clips; no table",
    open=opener("O18", model="keyword", data="embedded", one_model=False),
    run=run,
)
