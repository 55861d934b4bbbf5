"""What is shown of tests that find a place on a scale: same or different, what an ear makes of it, MUSHRA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sottovoce import registry
from sottovoce.errors import SottovoceError, UnknownName
from sottovoce.listening.analysis import result_figures as figures
from sottovoce.listening.analysis.answer_rows import AnswerRow, Who
from sottovoce.listening.analysis.ear_calibration import Calibration, Known, calibrate, predict, read_pairs
from sottovoce.listening.analysis.jnd_searches import Jnds, Sounds, read_searches, summarise
from sottovoce.listening.analysis.mushra_stats import (
    Difference,
    Screened,
    differences,
    means,
    read_ratings,
    screen_listeners,
)
from sottovoce.listening.analysis.result_tables import Found, ResultColumn, ResultFigure, ResultTable
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.ears.learned import Learned
from sottovoce.perception.jnd.jnd_rule import PUBLISHED_AGREEMENT, PUBLISHED_BALANCE


def show_searches(rows: Sequence[AnswerRow], who: Who) -> list[Found]:
    """Balance, agreement and JNDs of same/different."""
    searches = read_searches(rows)
    if not searches:
        return []
    drawing = ResultFigure(
        name="jnd",
        title="Just noticeable strengths: one dot per search, open if it is not determined; lines are "
        "medians",
        figure=figures.jnd_figure(searches, who),
    )
    found = summarise(searches)
    return [_balance_table(found), _jnd_table(found), drawing]


def show_calibration(
    rows: Sequence[AnswerRow], who: Who, sounds: Sounds | None, ear: str | None, known: Known | None = None
) -> list[Found]:
    """What an ear predicts beside the answers; a note where it cannot be asked."""
    pairs = read_pairs(rows)
    if not pairs or sounds is None or ear is None:
        return []
    try:
        judge: Ear = registry.build("ear", ear, {})
        found = calibrate(pairs, predict(judge, pairs, sounds, known))
    except UnknownName:
        raise
    except SottovoceError as error:
        return [f"The ear {ear!r} was not compared with the answers: {error}"]
    drawing = ResultFigure(
        name="calibration",
        title=f"Answers of listeners against the predictions of the {judge.title}: calibrated on the "
        "diagonal",
        figure=figures.calibration_figure(found, judge.title, who),
    )
    return [*_calibration_tables(found, judge.title), drawing, *_taught(judge)]


def show_mushra(rows: Sequence[AnswerRow], who: Who) -> list[Found]:
    """Post-screening, means and differences."""
    screened = screen_listeners(rows)
    if not screened:
        return []
    out = frozenset(one.listener for one in screened if not one.kept)
    ratings = read_ratings(rows, out)
    if not ratings:
        return [
            _screening_table(screened),
            "MUSHRA: post-screening excluded all listeners, so there is no mean.",
        ]
    found = means(ratings)
    table = ResultTable(
        name="mushra",
        title="MUSHRA: mean ratings",
        columns=(
            ResultColumn("condition"),
            ResultColumn("listeners", "count"),
            ResultColumn("mean, t interval", "number"),
            ResultColumn("mean, bootstrap over listeners", "number"),
        ),
        rows=[(mean.condition, mean.by_t.n, mean.by_t, mean.by_bootstrap) for mean in found],
        note="95 % intervals. Each listener counts once, with the mean over items.",
    )
    drawing = ResultFigure(
        name="mushra",
        title="MUSHRA: all ratings as boxes; diamonds are means with 95 % intervals over listeners",
        figure=figures.mushra_figure(found, who),
    )
    return [_screening_table(screened), table, _difference_table(differences(ratings)), drawing]


def _balance_table(found: Sequence[Jnds]) -> ResultTable:
    same, different = PUBLISHED_BALANCE
    return ResultTable(
        name="same-different",
        title="Same or different: balance and agreement",
        columns=(
            ResultColumn("direction"),
            ResultColumn("reference"),
            ResultColumn("same", "count"),
            ResultColumn("different", "count"),
            ResultColumn("same, %", "percent"),
            ResultColumn("agreement, %", "percent"),
        ),
        rows=[(o.direction, o.reference, *o.balance, o.balance.share, o.agreement) for o in found],
        note="Agreement: share of answers that fit the listener's own JND. Published (Manocha et al. 2020): "
        f"{same:,} same to {different:,} different, {100 * PUBLISHED_AGREEMENT:.1f} % agreement.",
    )


def _jnd_table(found: Sequence[Jnds]) -> ResultTable:
    # Strengths of two directions are two scales: there is no mean over them.
    lines: list[tuple[Any, ...]] = []
    for one in found:
        if one.pooled is not None:
            pooled = (None, None) if one.pooled.undetermined else (one.pooled.mu, one.pooled.mu_error)
            lines.append((one.direction, one.reference, one.searches, one.undetermined, one.mu, *pooled))
    return ResultTable(
        name="jnd",
        title="Just noticeable differences, on a scale of strengths from 0 to 100",
        columns=(
            ResultColumn("direction"),
            ResultColumn("reference"),
            ResultColumn("searches", "count"),
            ResultColumn("undetermined", "count"),
            ResultColumn("mean JND", "number"),
            ResultColumn("JND of all answers", "number"),
            ResultColumn("its standard error", "number"),
        ),
        rows=lines,
        note="Means are over the searches that determine a JND, with 95 % intervals of a bootstrap over "
        "listeners. The JND of all answers treats them as those of one listener.",
    )


def _calibration_tables(found: Sequence[Calibration], title: str) -> list[ResultTable]:
    overall = ResultTable(
        name="calibration",
        title=f"P(heard) of the {title} against the answers",
        columns=(
            ResultColumn("direction"),
            ResultColumn("pairs", "count"),
            ResultColumn("answers", "count"),
            ResultColumn("predicted, %", "percent"),
            ResultColumn("called different, %", "percent"),
            ResultColumn("calibration error, %", "percent"),
            ResultColumn("AUC", "ratio"),
        ),
        rows=[
            (o.direction, o.pairs, o.heard.n, o.predicted, o.heard, o.figures.calibration, o.figures.auc)
            for o in found
        ],
        note="Shares of 'different' are not corrected for guessing or lapses; sentinels are left out. "
        "Calibration error: mean distance between prediction and share over ten bins, weighted by answers.",
    )
    bins = ResultTable(
        name="calibration-bins",
        title=f"The same by predicted P(heard) of the {title}",
        columns=(
            ResultColumn("direction"),
            ResultColumn("P from, %", "percent"),
            ResultColumn("P to, %", "percent"),
            ResultColumn("answers", "count"),
            ResultColumn("predicted, %", "percent"),
            ResultColumn("called different, %", "percent"),
        ),
        rows=[(c.direction, b.low, b.high, b.heard.n, b.predicted, b.heard) for c in found for b in c.bins],
    )
    return [overall, bins]


def _taught(ear: Ear) -> list[str]:
    if isinstance(ear, Learned) and ear.facts.get("listeners") != "people":
        return ["The learned ear was itself trained on answers of simulated listeners."]
    return []


def _screening_table(screened: Sequence[Screened]) -> ResultTable:
    return ResultTable(
        name="mushra-screening",
        title="MUSHRA: post-screening (ITU-R BS.1534-3)",
        columns=(
            ResultColumn("session"),
            ResultColumn("items", "count"),
            ResultColumn("reference below 90", "count"),
            ResultColumn("mid anchor above 90", "count"),
            ResultColumn("kept"),
        ),
        rows=[
            (o.listener, o.items, o.low_references, o.high_anchors, "yes" if o.kept else "; ".join(o.reasons))
            for o in screened
        ],
        note="Listeners who fail either rule on more than 15 % of the items are left out below.",
    )


def _difference_table(found: Sequence[Difference]) -> ResultTable:
    return ResultTable(
        name="mushra-differences",
        title="MUSHRA: which conditions differ",
        columns=(
            ResultColumn("condition"),
            ResultColumn("against"),
            ResultColumn("listeners", "count"),
            ResultColumn("median difference", "number"),
            ResultColumn("p", "p"),
            ResultColumn("p, Holm", "p"),
        ),
        rows=[(o.first, o.second, o.listeners, o.median, o.p, o.p_holm) for o in found],
        note="Exact two-sided Wilcoxon signed-rank tests of the listeners' means, Holm-corrected over all "
        "pairs.",
    )
