"""Tables and figures of A3."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import INK, SOFT, canvas
from sottovoce.studies.shown_numbers import MISSING, percent_interval
from sottovoce.studies.study import StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sottovoce.studies.amiri2024.attack_quality import BudgetQuality, QualitySetup

NO_DIFFERENCE = {"stoi": 1.0, "pesq": 4.64, "cd": 0.0, "fwssnr": 35.0, "auditory": 0.0, "learned": 0.0}
"""What equal clips read; the paper prints 1, 4.6, 0 dB and 35 dB."""
NEAR = {"stoi": 0.01, "pesq": 0.1, "cd": 0.5, "fwssnr": 1.0}
"""How far off still counts as no difference here; the paper says it of its curves without a number."""
CLAIMED_DB = 60.0
DIGITS = {"stoi": 3, "pesq": 2, "cd": 2, "fwssnr": 1, "auditory": 3, "learned": 3}
STYLES = {"attack": "-", "attack, 16 bits": "--", "white noise": ":"}
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e")
NOTES = (
    "Attack: in floats, as in the paper. 16 bits: the same examples as 16-bit files; a perturbation below "
    "half a step is rounded away. White noise: at exactly the requested SNR.",
    "Concatenated clips, such as strings of commands, have pauses of digital zeros. Nothing masks a "
    "perturbation there: CD and fwSSNR count such frames as distorted at any SNR, and ears hear it first.",
    "P(heard): probability that a listener can tell a clip from the clean one, predicted by models of "
    "hearing; no listening test was made. The learned model was trained on answers of simulated listeners.",
    "Brackets: 95 % interval, bootstrap over clips; of success: exact. A clip that a measure cannot score is "
    "left out of its mean.",
)


def trends(bench: QualitySetup) -> StudyTable:
    rows = []
    for model, curves in bench.curves.items():
        at = {level: point for level, point in curves["attack"].items() if level >= CLAIMED_DB}
        for judge in bench.judges:
            if judge.id in NEAR and all(judge.id in point.measures for point in at.values()):
                values = [point.measures[judge.id].value for point in at.values()]
                near = all(abs(one - NO_DIFFERENCE[judge.id]) <= NEAR[judge.id] for one in values)
                shown = at[CLAIMED_DB].measures[judge.id].value
                claim = f"{model}: {judge.title} reads no difference from 60 dB on"
                numbers = (
                    f"{shown:.{DIGITS[judge.id]}f} at 60 dB; equal clips read {NO_DIFFERENCE[judge.id]:g}, "
                    f"and within {NEAR[judge.id]:g} counts"
                )
                known = not any(math.isnan(one) for one in values)
                rows.append(Trend(claim, near if known else None, numbers))
        success = at[CLAIMED_DB].success
        claim = f"{model}: the attack succeeds on most clips at 60 dB"
        rows.append(Trend(claim, success.value > 0.5, f"{percent_interval(success)} %, {success.n} clips"))
    return trend_sheet(rows)


def curve(bench: QualitySetup, model: str, series: str) -> StudyTable:
    points = bench.curves[model][series]
    return StudyTable(
        title=f"{model}, {series}",
        columns=(
            "SNR, dB", "reached", *(one.title for one in bench.judges), "success, %", "clips changed, %",
        ),
        rows=[
            (
                "clean" if math.isinf(level) else f"{level:g}",
                MISSING if math.isinf(point.snr_db) else f"{point.snr_db:.1f}",
                *(_cell(point, one.id) for one in bench.judges),
                percent_interval(point.success),
                f"{100 * point.changed:.0f}",
            )
            for level, point in sorted(points.items())
        ],
        note=f"{bench.clips[model]} clips of {bench.data[model]}.",
    )  # fmt: skip


def not_run(bench: QualitySetup) -> list[StudyTable]:
    rows = [(bench.titles[name], reason) for name, reason in bench.absent.items()]
    return [StudyTable(title="Not run", columns=("measure", "why"), rows=rows)] if rows else []


def drawings(bench: QualitySetup) -> list[StudyFigure]:
    return [
        StudyFigure(
            name="quality",
            title="Quality of the clips by SNR: the attack in floats (solid), in 16 bits (dashed) and white "
            "noise (dotted); the thin line means no difference. P(heard) is predicted by a model",
            figure=_figure(bench),
        )
    ]


def _figure(bench: QualitySetup) -> Figure:
    panels = bench.judges
    columns = 3
    lines = max(1, math.ceil((len(panels) + 1) / columns))
    figure = canvas((11, 3.0 * lines))
    every = figure.subplots(lines, columns, squeeze=False).flat
    for axes, judge in zip(every, panels, strict=False):
        axes.axhline(NO_DIFFERENCE[judge.id], color=INK, linewidth=0.6)
        axes.set_title(judge.title, fontsize=9)
    for axes in figure.axes[len(panels) + 1 :]:
        axes.set_axis_off()
    figure.axes[len(panels)].set_title("success, %", fontsize=9)
    for colour, (model, curves) in zip(COLOURS * len(bench.curves), bench.curves.items(), strict=False):
        for series, points in curves.items():
            levels = sorted(level for level in points if math.isfinite(level))
            style: dict[str, Any] = {"linestyle": STYLES[series], "color": colour, "linewidth": 1.4}
            for place, judge in enumerate(panels):
                values = [_value(points[level], judge.id) for level in levels]
                figure.axes[place].plot(levels, values, label=f"{model}, {series}", **style)
            rates = [100 * points[level].success.value for level in levels]
            figure.axes[len(panels)].plot(levels, rates, label=f"{model}, {series}", **style)
    for axes in figure.axes[: len(panels) + 1]:
        axes.set_xlabel("SNR, dB", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=SOFT, alpha=0.3, linewidth=0.6)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _value(point: BudgetQuality, judge: str) -> float:
    return point.measures[judge].value if judge in point.measures else math.nan


def _cell(point: BudgetQuality, judge: str) -> str:
    found: Interval | None = point.measures.get(judge)
    if found is None or math.isnan(found.value):
        return MISSING
    value, low, high = (f"{one:.{DIGITS[judge]}f}" for one in found[:3])
    return value if math.isnan(found.low) or low == high else f"{value} [{low}, {high}]"
