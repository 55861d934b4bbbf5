"""What is shown of tests that are counted: naming, naturalness, ABX, and choices between two clips."""

from __future__ import annotations

from collections.abc import Sequence

from sottovoce.listening.analysis import result_figures as figures
from sottovoce.listening.analysis.answer_rows import AnswerRow, Who
from sottovoce.listening.analysis.counted_answers import (
    CONFIDENCES,
    RATINGS,
    Confidence,
    HitRate,
    RatingComparison,
    RatingCounts,
    abx_confidence,
    abx_success,
    choices,
    compare_naturalness,
    name_accuracy,
    naturalness,
    side_bias,
)
from sottovoce.listening.analysis.result_tables import Found, ResultColumn, ResultFigure, ResultTable

CLUSTERED = (
    "95 % intervals after Clopper and Pearson. Answers are treated as independent, as in the paper, although "
    "each listener gave several."
)
PAPER_ABX = (
    "The paper (Vadillo and Santana 2020, n = 36 a level): 97.2 [85, 99] at low, 91.7 [78, 98] at medium and "
    "55.6 [38, 72] at high intensity, p = .31 one-sided and .62 two-sided there."
)
PAPER_NAMING = "The paper: 203 of 216 named correctly; 9 clean and 4 adversarial clips were not."
CHOICE_TITLES = {
    "preference": "Preference: how often one was chosen over the other",
    "closer": "Which is closer to the reference: how often one was chosen over the other",
}


def show_naming(rows: Sequence[AnswerRow], who: Who, published: bool) -> list[Found]:
    """Figs. 5 and 6. published: whether the study follows the paper, so that its values are shown too."""
    rates = name_accuracy(rows)
    if not rates:
        return []
    scores = naturalness(rows)
    found: list[Found] = [
        ResultTable(
            name="naming",
            title="Commands named correctly",
            columns=(
                ResultColumn("condition"),
                ResultColumn("level"),
                ResultColumn("right", "count"),
                ResultColumn("answers", "count"),
                ResultColumn("right, %", "percent"),
            ),
            rows=[(*rate.group, rate.hits, rate.n, rate.interval) for rate in rates],
            note=f"{CLUSTERED} {PAPER_NAMING}" if published else CLUSTERED,
        ),
        ResultFigure(
            name="naming",
            title="Commands named correctly, with 95 % intervals",
            figure=figures.accuracy_figure(rates, who),
        ),
        _naturalness_table(scores),
        ResultFigure(
            name="naturalness",
            title="Naturalness by condition, in % of the answers",
            figure=figures.naturalness_figure(scores, who),
        ),
    ]
    compared = compare_naturalness(scores)
    return [*found, _compared_table(compared)] if compared else found


def show_abx(rows: Sequence[AnswerRow], who: Who, published: bool) -> list[Found]:
    """Fig. 7."""
    rates = abx_success(rows)
    if not rates:
        return []
    confidences = abx_confidence(rows)
    table = ResultTable(
        name="abx",
        title="ABX: how often X was found",
        columns=(
            ResultColumn("condition"),
            ResultColumn("level"),
            ResultColumn("found", "count"),
            ResultColumn("trials", "count"),
            ResultColumn("found, %", "percent"),
            ResultColumn("p, more than chance", "p"),
            ResultColumn("p, two-sided", "p"),
        ),
        rows=[(*r.group, r.hits, r.n, r.interval, r.p_greater, r.p_two_sided) for r in rates],
        note=f"Exact binomial tests. {CLUSTERED}" + (f" {PAPER_ABX}" if published else ""),
    )
    drawing = ResultFigure(
        name="abx",
        title="ABX: X found, with 95 % intervals and chance dashed (top); confidence of the answers (bottom)",
        figure=figures.abx_figure(rates, confidences, who),
    )
    return [table, _confidence_table(confidences), drawing]


def show_choices(rows: Sequence[AnswerRow], who: Who, kind: str) -> list[Found]:
    """Preference or closer, by pair of conditions and tranche."""
    rates = choices(rows, kind)
    if not rates:
        return []
    bias = side_bias(rows, kind)
    table = ResultTable(
        name=kind,
        title=CHOICE_TITLES[kind],
        columns=(
            ResultColumn("chosen"),
            ResultColumn("over"),
            ResultColumn("level"),
            ResultColumn("times", "count"),
            ResultColumn("trials", "count"),
            ResultColumn("chosen, %", "percent"),
            ResultColumn("p, two-sided", "p"),
        ),
        rows=[(*rate.group, rate.hits, rate.n, rate.interval, rate.p_two_sided) for rate in rates],
        note=f"Exact binomial tests. {CLUSTERED} A was chosen {100 * bias.interval.value:.1f} % of the time.",
    )
    drawing = ResultFigure(
        name=kind,
        title=f"{CHOICE_TITLES[kind]}, with 95 % intervals and chance dashed",
        figure=figures.choice_figure(rates, who),
    )
    return [table, drawing]


def _naturalness_table(scores: Sequence[RatingCounts]) -> ResultTable:
    return ResultTable(
        name="naturalness",
        title="Naturalness, from 1 (clearly perturbed) to 5 (clearly not)",
        columns=(
            ResultColumn("level"),
            ResultColumn("condition"),
            *(ResultColumn(str(rating), "count") for rating in RATINGS),
            ResultColumn("4 or 5, %", "percent"),
        ),
        rows=[(one.level, one.condition, *one.counts, one.natural.interval) for one in scores],
    )


def _compared_table(compared: Sequence[RatingComparison]) -> ResultTable:
    lines = []
    for one in compared:
        first, second = one.multinomial, one.two_rows
        method = " / ".join(dict.fromkeys((first.method, second.method)))
        errors = [None if each.method == "exact" else each.error for each in (first, second)]
        lines.append((one.level, one.condition, first.p, errors[0], second.p, errors[1], method))
    return ResultTable(
        name="naturalness-tests",
        title="Naturalness against clean clips",
        columns=(
            ResultColumn("level"),
            ResultColumn("condition"),
            ResultColumn("multinomial p", "p"),
            ResultColumn("its standard error", "p"),
            ResultColumn("two rows p", "p"),
            ResultColumn("standard error of that", "p"),
            ResultColumn("method"),
        ),
        rows=lines,
        note="Multinomial: tests whether the ratings follow the shares of the clean clips, taken as exact, "
        "as in the paper; half an answer is added to each share if one would be 0. Two rows (Freeman and "
        "Halton): tests whether both come from one distribution, and so allows for the clean shares being a "
        "sample too. Standard errors are those of Monte Carlo; an exact p has none.",
    )


def _confidence_table(confidences: Sequence[Confidence]) -> ResultTable:
    return ResultTable(
        name="abx-confidence",
        title="ABX: confidence of the listeners",
        columns=(
            ResultColumn("level"),
            ResultColumn("confidence"),
            ResultColumn("answers", "count"),
            ResultColumn("of the level, %", "percent"),
            ResultColumn("X found, %", "percent"),
        ),
        rows=[
            (
                one.level,
                name,
                one.answers[name],
                one.answers[name] / max(1, sum(one.answers.values())),
                HitRate((), one.right[name], one.answers[name]).interval,
            )
            for one in confidences
            for name in CONFIDENCES
        ],
    )
