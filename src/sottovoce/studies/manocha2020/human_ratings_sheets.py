"""Tables and figures of M4."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import INK, OURS, PAPERS, SOFT, canvas
from sottovoce.studies.manocha2020.agreement import (
    Agreement,
    heard_shares,
    ratings_table,
    spearman_difference,
)
from sottovoce.studies.manocha2020.manocha_tables import TABLE_2
from sottovoce.studies.shown_numbers import MISSING, percent, percent_interval
from sottovoce.studies.study import StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sottovoce.studies.manocha2020.human_ratings import ValidationSetup

LEARNED = "learned-scratch"
RIVALS = ("mse", "snr", "stoi", "pesq", "visqol", "dpam-scratch")
NOTES = (
    "Ours, all variants: learned from answers of simulated listeners (the auditory model), not of people, "
    "and on other clips than these. The auditory model and the masking ear are made from published "
    "psychoacoustics. The shipped weights were not trained on ratings.",
    "Signs are chosen so that more is better: 1 is full agreement for every measure. By condition: means "
    "over items. By clip: every item in every condition. Brackets: 95 % interval, bootstrap over items.",
    "Pairs: two conditions of one item, and whether the measure orders them as the mean rating does; a tie "
    "counts half. Clear: the 95 % t interval of the listeners' difference excludes 0.",
    "Clips are aligned before they are measured: by the waveforms where these correlate by 0.7 or more, else "
    "by the spectrogram in steps of 1 ms, because a vocoder generates its own phases.",
    "A measure at a sample rate of 16 kHz (PESQ, ViSQOL, DNSMOS, ours) cannot distinguish a clip from its "
    "version band-limited to 8 kHz, which listeners can.",
)


def trends(bench: ValidationSetup) -> StudyTable:
    """Ours against what the paper compares with, by condition."""
    ratings = ratings_table(bench.test, bench.codecs)
    turned = {judge.id: bench.turned(judge, bench.codecs) for judge in bench.known}
    titles = {judge.id: judge.title for judge in bench.judges}
    rows = []
    for rival in RIVALS:
        claim = f"ours (learned from simulated listeners) agrees better with people than {titles[rival]}"
        if LEARNED in turned and rival in turned:
            gap = spearman_difference(turned[LEARNED], turned[rival], ratings, seed=bench.setting["seed"])
            numbers = f"Spearman by condition {gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]"
            rows.append(Trend(claim, None if math.isnan(gap.value) else gap.value > 0, numbers))
        else:
            rows.append(Trend(claim, None, "not run"))
    return trend_sheet(rows)


def agreements(bench: ValidationSetup, order: Sequence[str], found: Mapping[str, Agreement]) -> StudyTable:
    titles = {judge.id: judge.title for judge in bench.judges}
    first = found[order[0]] if order else None
    return StudyTable(
        title=f"Agreement with listeners: {len(bench.codecs)} conditions, without the hidden reference",
        columns=(
            "measure", "Spearman, conditions", "Pearson, conditions", "Spearman, clips", "Pearson, clips",
            "clear pairs, %", "other pairs, %", "clips",
        ),
        rows=[
            (
                titles[name],
                _interval(one.spearman_conditions),
                _interval(one.pearson_conditions),
                _interval(one.spearman_clips),
                _interval(one.pearson_clips),
                percent_interval(one.pairs),
                percent_interval(one.unclear),
                str(one.spearman_clips.n),
            )
            for name in order
            for one in (found[name],)
        ],
        note=f"{first.pairs.n} clear pairs and {first.unclear.n} others." if first else "",
    )  # fmt: skip


def with_reference(
    bench: ValidationSetup, order: Sequence[str], found: Mapping[str, Agreement]
) -> StudyTable:
    titles = {judge.id: judge.title for judge in bench.judges}
    return StudyTable(
        title="The same with the hidden reference",
        columns=("measure", "Spearman, conditions", "Spearman, clips", "clear pairs, %"),
        rows=[
            (
                titles[name],
                _interval(found[name].spearman_conditions),
                _interval(found[name].spearman_clips),
                percent_interval(found[name].pairs),
            )
            for name in order
        ],
        note="For the hidden reference, a measure with a reference has its best value by definition.",
    )


def beside_paper(bench: ValidationSetup, found: Mapping[str, Agreement]) -> StudyTable:
    titles = {judge.id: judge.title for judge in bench.judges}
    rows = []
    for name, paper in TABLE_2.items():
        here = found.get(name)
        rows.append(
            (
                titles[name],
                MISSING if here is None else _interval(here.spearman_conditions),
                MISSING if here is None else _interval(here.pearson_conditions),
                MISSING if here is None else percent(here.pairs.value),
                f"{paper.voco_spearman:.2f}, {paper.voco_pearson:.2f}",
                f"{paper.fftnet_spearman:.2f}, {paper.fftnet_pearson:.2f}, {paper.fftnet_2afc:g}",
                f"{paper.bwe_spearman:.2f}, {paper.bwe_pearson:.2f}, {paper.bwe_2afc:g}",
            )
        )
    return StudyTable(
        title="Beside Table 2 of the paper",
        columns=(
            "measure", "Spearman here", "Pearson here", "clear pairs here, %", "paper, VoCo", "paper, FFTnet",
            "paper, bandwidth",
        ),
        rows=rows,
        note="The paper's numbers are Spearman, Pearson and 2AFC accuracy in % on other listening tests: of "
        "the same kind, but with other clips. Its MSE is of spectrograms, ours of waveforms.",
    )  # fmt: skip


def calibration(bench: ValidationSetup) -> StudyTable:
    """P(heard) beside the share of listeners who seem to have heard it."""
    conditions = bench.conditions
    shares = heard_shares(bench.test, conditions)
    rows = []
    for judge in bench.known:
        chances = bench.measured[judge.id].heard
        if chances is None:
            continue
        table = bench.table(chances, conditions)
        errors = np.abs(table - shares)
        rows.append(
            (
                judge.title,
                f"{np.nanmean(table[:, :-1]):.2f}",
                f"{np.nanmean(shares[:, :-1]):.2f}",
                f"{np.nanmean(table[:, -1]):.2f}",
                f"{np.nanmean(shares[:, -1]):.2f}",
                f"{np.nanmean(errors):.3f}",
                f"{np.nanmean(table**2 - 2 * table * shares + shares):.3f}",
            )
        )
    return StudyTable(
        title="P(heard) beside a proxy from ratings",
        columns=(
            "ear", "P(heard), codecs", "listeners, codecs", "P(heard), reference", "listeners, reference",
            "mean gap", "Brier score",
        ),
        rows=rows,
        note="A proxy: MUSHRA does not ask whether a clip differs. A listener counts as having heard a "
        "difference if they rate the clip below 90, or below their own rating of the hidden reference. If "
        "nearly all do, this says little about clips near the threshold. Mean gap: between P(heard) and the "
        "share of listeners, over clips.",
    )  # fmt: skip


def conditions(bench: ValidationSetup) -> StudyTable:
    rows = []
    shares = heard_shares(bench.test, bench.test.conditions)
    ratings = ratings_table(bench.test, bench.test.conditions)
    for column, name in enumerate(bench.test.conditions):
        shifts = [one.shift for one in bench.pairs if one.rated.condition == name]
        late = [1000 * one.samples / bench.test.sample_rate for one in shifts]
        rows.append(
            (
                name,
                f"{np.nanmean(ratings[:, column]):.1f}",
                f"{np.nanmin(ratings[:, column]):.0f} to {np.nanmax(ratings[:, column]):.0f}",
                percent(float(np.nanmean(shares[:, column]))),
                f"{min(late):.1f} to {max(late):.1f}" if late else "no audio",
                ", ".join(sorted({one.by for one in shifts})) or MISSING,
            )
        )
    return StudyTable(
        title="Conditions: ratings, and delays that were undone",
        columns=("condition", "mean rating", "items", "heard (proxy), %", "delay, ms", "aligned by"),
        rows=rows,
    )


def not_run(bench: ValidationSetup) -> list[StudyTable]:
    titles = {judge.id: judge.title for judge in bench.judges}
    rows = [(titles[name], reason) for name, reason in bench.absent.items()]
    return [StudyTable(title="Not run", columns=("measure", "why"), rows=rows)] if rows else []


def drawings(
    bench: ValidationSetup, order: Sequence[str], found: Mapping[str, Agreement]
) -> list[StudyFigure]:
    return [
        StudyFigure(
            name="spearman",
            title="Spearman correlation with mean ratings by condition, with 95 % intervals over items; ours "
            "was learned from simulated listeners",
            figure=_bars(bench, order, found),
        ),
        StudyFigure(
            name="scatter",
            title="Each measure against ratings: clips (small) and means of conditions (large); ours was "
            "learned from simulated listeners",
            figure=_scatter(bench, order),
        ),
    ]


def _bars(bench: ValidationSetup, order: Sequence[str], found: Mapping[str, Agreement]) -> Figure:
    titles = {judge.id: judge.title for judge in bench.judges}
    known = [name for name in order if not math.isnan(found[name].spearman_conditions.value)]
    figure = canvas((9, 0.8 + 0.28 * len(known)))
    axes = figure.subplots()
    for place, name in enumerate(known):
        one = found[name].spearman_conditions
        colour = OURS if name.startswith("learned") else SOFT
        axes.barh(place, one.value, 0.7, color=colour)
        axes.plot([one.low, one.high], [place, place], color=INK, linewidth=1.2)
    axes.set(yticks=range(len(known)), yticklabels=[titles[name] for name in known], xlabel="Spearman")
    axes.set_xlim(-1.02, 1.02)
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _scatter(bench: ValidationSetup, order: Sequence[str]) -> Figure:
    ids = {judge.id: judge for judge in bench.judges}
    columns = 4
    lines = max(1, math.ceil(len(order) / columns))
    figure = canvas((11, 2.5 * lines))
    every = figure.subplots(lines, columns, squeeze=False)
    ratings = ratings_table(bench.test, bench.codecs)
    for axes, name in zip(every.flat, order, strict=False):
        values = bench.table(bench.measured[name].values, bench.codecs)
        axes.plot(ratings.ravel(), values.ravel(), ".", color=SOFT, markersize=4)
        axes.plot(np.nanmean(ratings, axis=0), np.nanmean(values, axis=0), "o", color=PAPERS, markersize=5)
        axes.set_title(f"{ids[name].title}, {ids[name].better} is better", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in every.flat[len(order) :]:
        axes.set_axis_off()
    figure.supxlabel("mean rating", fontsize=9)
    return figure


def _interval(found: Interval) -> str:
    if math.isnan(found.value):
        return MISSING
    if math.isnan(found.low):
        return f"{found.value:.2f}"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"
