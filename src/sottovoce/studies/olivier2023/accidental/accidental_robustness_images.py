"""O2: accidental robustness on images (sections 3.5.4 and A.2.2, figures 3.4 and A.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.studies.olivier2023.accidental.chapter_three_tables import TAU
from sottovoce.studies.olivier2023.accidental.image_figures import draw_image_areas, draw_image_robustness
from sottovoce.studies.olivier2023.accidental.image_runs import (
    GRID,
    JUDGES,
    TESTS,
    ImageBench,
    ImageFound,
    open_bench,
)
from sottovoce.studies.olivier2023.accidental.network_batch import Design
from sottovoce.studies.olivier2023.accidental.rxor_areas import (
    FEWEST,
    area,
    difference,
    oracle,
    oracle_area,
    probabilities,
)
from sottovoce.studies.shown_numbers import MISSING, percent, percent_interval
from sottovoce.studies.study import Reading, Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

Found = Mapping[Design, list[ImageFound]]
"""Of each design, one for each margin of training."""
CLAIMS = (
    "Areas of networks trained on images as they are, judged by the strong attacks, at margins .01 to .1. "
    "Yes and no where the 95 % interval of the difference leaves out zero; not known where it does not, or "
    f"where a design has fewer than {FEWEST} valid networks."
)
NOTES = [
    f"Valid: right on at least {TAU:.0%} of the training's images, under PGD of the training's margin where "
    f"it has one. Robust at a margin: valid, and right on at least {TAU:.0%} of the test images attacked. "
    "In the thesis's text only margins above that of the training count.",
    "Judges: plain is PGD of 20 steps on the cross-entropy; strong also PGD of 100 steps and AutoPGD of 100 "
    "steps on the margin; score also a search by random squares that uses no gradient. An image counts as "
    "right if it is right under all of them.",
    "Gradients near zero: images on which the largest entry of the gradient of the cross-entropy is below "
    "1e-8. Against such images plain PGD stands still.",
    "Biases, and the scale and shift of batch normalisation, are drawn from the ball with the weights. "
    "Running statistics move in the steps of training alone, not in those of attacks.",
    "Exact binomial intervals of probabilities; normal ones of areas (trapezoid rule, divided by the range, "
    "so that 1 is the most). P* is the number of valid networks at a training margin to that at the first.",
]


def run(bench: ImageBench) -> Result:
    bench.train()
    designs = bench.designs()
    found = {
        design: [bench.main(design, margin) for margin in bench.size.margins]
        for each in designs.values()
        for design in each
    }
    return Result(
        sheets=[
            trend_sheet(_claims(bench, found), note=CLAIMS),
            _main_sheet(bench, found),
            _judge_sheet(bench, found),
            *([_trained_sheet(bench, found)] if len(bench.size.margins) > 1 else []),
            _grid_sheet(bench),
        ],
        drawings=_drawings(bench, found),
        values=_values(bench, found),
        notes=NOTES,
        seconds=sum(bench.parts.seconds.values()),
    )


def _area(one: ImageFound, judge: str = "strong") -> Interval:
    return area(one.flags(judge), TESTS)


def _valid(row: Sequence[ImageFound]) -> list[Interval]:
    return [one.valid_share for one in row]


def _star(bench: ImageBench, row: Sequence[ImageFound]) -> Interval:
    if len(row) < 2:
        return Interval(math.nan, math.nan, math.nan, 0)
    return oracle_area(_valid(row), 0, bench.size.margins)


def _values(bench: ImageBench, found: Found) -> dict[str, Any]:
    tests = [f"{eps:g}" for eps in TESTS]
    return {
        "networks": bench.size.networks,
        "refuted": _refuted(found),
        "quiet": {str(design): _mean(row[0].quiet) for design, row in found.items()},
        "designs": {
            str(design): {
                "parameters": design.parameters,
                "area_star": _star(bench, row),
                "trained_at": {
                    f"{margin:g}": {
                        "valid": one.valid_share,
                        "clean": _mean(one.clean),
                        "robust": {
                            judge: dict(zip(tests, probabilities(one.flags(judge)), strict=True))
                            for judge in JUDGES
                        },
                        "area": {judge: _area(one, judge) for judge in JUDGES},
                    }
                    for margin, one in zip(bench.size.margins, row, strict=True)
                },
            }
            for design, row in found.items()
        },
        "grid": [
            {
                "rate": one.rate,
                "radius": one.radius,
                "designs": {
                    str(design): {
                        "valid": cell.valid_share,
                        "clean": _mean(cell.clean),
                        "area": _area(cell),
                    }
                    for design in bench.grid_designs()
                    for cell in [bench.found([bench.cell(design, one)])]
                },
            }
            for one in GRID
        ],
    }


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    return float(values.mean()) if len(values) else None


def _refuted(found: Found) -> dict[str, Interval]:
    """By activation: of the cases of network and margin that are robust to plain PGD, those refuted."""
    groups: dict[str, list[ImageFound]] = {"relu": [], "tanh": [], "sigmoid": []}
    for design, row in found.items():
        groups[design.activation].extend(row)
    return {
        name: clopper_pearson(
            sum(int((one.flags("plain") & ~one.flags("score")).sum()) for one in each),
            sum(int(one.flags("plain").sum()) for one in each),
        )
        for name, each in groups.items()
    }


def _claims(bench: ImageBench, found: Found) -> list[Trend]:
    designs = bench.designs()
    narrow, middle, wide = designs["3.4a: width"]
    shallow, deep = designs["3.4b: depth"]
    first, second, third = designs["3.4c: which layer is wide"]
    relu, tanh, sigmoid = designs["A.2a: activation, with biases"]
    (normed,) = designs["A.2b: batch normalisation"]
    dropped, dropped_more = designs["A.2c: dropout"]
    plain, skips = designs["A.2d: skip connection"]

    def robust(claim: str, one: Design, other: Design) -> Trend:
        return _compare(claim, found, one, other, lambda row: _area(row[0]))

    def oracles(claim: str, one: Design, other: Design) -> Trend:
        return _compare(claim, found, one, other, lambda row: _star(bench, row))

    return [
        robust("the area of P(robust) grows with width (16 to 32)", middle, narrow),
        robust("the area of P(robust) grows with width (32 to 64)", wide, middle),
        oracles("the area of P* grows with width (16 to 64)", wide, narrow),
        robust("deeper is worse at about equal weights (one layer against two)", middle, shallow),
        robust("deeper is worse at about equal weights (two layers against three)", shallow, deep),
        robust("widening the first of three layers helps more than the second", first, second),
        robust("widening the first of three layers helps more than the third", first, third),
        robust("Sigmoid has a larger area of P(robust) than ReLU", sigmoid, relu),
        robust("Sigmoid has a larger area of P(robust) than Tanh", sigmoid, tanh),
        _compare(
            "Sigmoid beats ReLU for plain PGD",
            found,
            sigmoid,
            relu,
            lambda row: _area(row[0], "plain"),
        ),
        _masked(found, sigmoid),
        robust("batch normalisation lowers the area of P(robust)", middle, normed),
        oracles("batch normalisation raises the area of P*", normed, middle),
        robust("dropout of .3 raises the area of P(robust) (as on RXOR)", dropped, middle),
        robust("dropout of .6 lowers the area of P(robust) (as on RXOR)", middle, dropped_more),
        robust("the skip connection raises the area of P(robust)", skips, plain),
        *_trained_claims(bench, found),
    ]


def _compare(
    claim: str,
    found: Found,
    one: Design,
    other: Design,
    measure: Callable[[Sequence[ImageFound]], Interval],
) -> Trend:
    left, right = measure(found[one]), measure(found[other])
    gap = difference(left, right)
    holds = None if math.isnan(gap.low) or gap.low <= 0 <= gap.high else gap.value > 0
    counts = " and ".join(str(int(found[design][0].valid.sum())) for design in (one, other))
    return Trend(claim, holds, f"{_shown(left)} against {_shown(right)}; {counts} valid")


def _masked(found: Found, sigmoid: Design) -> Trend:
    """Whether the robustness of Sigmoid networks is of vanishing gradients."""
    rows = found[sigmoid]
    plain = sum(int(one.flags("plain").sum()) for one in rows)
    refuted = sum(int((one.flags("plain") & ~one.flags("score")).sum()) for one in rows)
    quiet = _mean(np.concatenate([one.quiet for one in rows]))
    return Trend(
        "(ours) Sigmoid networks look robust because their gradients vanish",
        None if quiet is None or not plain else quiet > 0.05 and refuted / plain > 0.05,
        f"gradients near zero on {percent(quiet)} % of the images; {refuted} of {plain} cases that plain PGD "
        "calls robust are refuted by stronger attacks",
    )


def _trained_claims(bench: ImageBench, found: Found) -> Iterable[Trend]:
    """Adversarial training against training on images as they are."""
    if len(bench.size.margins) < 2:
        return
    design = bench.designs()["3.4a: width"][2]
    gap = difference(_area(found[design][1]), _area(found[design][0]))
    yield Trend(
        f"{design}: training at {bench.size.margins[1]:g} makes valid networks more robust",
        None if math.isnan(gap.low) or gap.low <= 0 <= gap.high else gap.value > 0,
        f"{_shown(_area(found[design][1]))} against {_shown(_area(found[design][0]))}; "
        f"{int(found[design][1].valid.sum())} and {int(found[design][0].valid.sum())} valid",
    )


def _shown(one: Interval) -> str:
    if math.isnan(one.value):
        return MISSING
    return f"{one.value:.3f}" + ("" if math.isnan(one.low) else f" [{one.low:.3f}, {one.high:.3f}]")


def _main_sheet(bench: ImageBench, found: Found) -> StudyTable:
    rows = []
    for figure, designs in bench.designs().items():
        for design in designs:
            first = found[design][0]
            rows.append(
                (
                    figure,
                    str(design),
                    f"{design.parameters:,}",
                    percent_interval(first.valid_share),
                    percent(_mean(first.clean)),
                    *(percent_interval(one) for one in probabilities(first.flags("score"))),
                    _shown(_area(first)),
                    _number(_star(bench, found[design])),
                )
            )
    return StudyTable(
        title=f"Networks trained on images as they are: robust for all judges, {TAU:.0%} of the images, %",
        columns=(
            "figure", "design", "parameters", "P(valid)", "test accuracy",
            *(f"P(robust) {eps:g}" for eps in TESTS), "area", "P* area",
        ),
        rows=rows,
        note="Brackets: 95 % interval. The thesis's figures have no numbers.",
    )  # fmt: skip


def _number(one: Interval) -> str:
    return MISSING if math.isnan(one.value) else f"{one.value:.3f}"


def _judge_sheet(bench: ImageBench, found: Found) -> StudyTable:
    rows = []
    for design, row in found.items():
        for margin, one in zip(bench.size.margins, row, strict=True):
            called = [int(one.flags(judge).sum()) for judge in JUDGES]
            rows.append(
                (
                    str(design),
                    f"{margin:g}",
                    f"{int(one.valid.sum())}",
                    *(str(count) for count in called),
                    percent(_mean(one.quiet)),
                )
            )
    return StudyTable(
        title="Who calls them robust: cases of valid network and margin, of five margins each",
        columns=(
            "design", "trained at", "valid", "plain PGD", "strong attacks", "and score",
            "gradients near zero, %",
        ),
        rows=rows,
    )  # fmt: skip


def _trained_sheet(bench: ImageBench, found: Found) -> StudyTable:
    margins = bench.size.margins
    rows = []
    for design, row in found.items():
        stars = oracle(_valid(row), 0)
        rows.append(
            (
                str(design),
                *(percent_interval(one.valid_share) for one in row),
                *(_shown(_area(one)) for one in row),
                *(percent(star) for star in stars[1:]),
            )
        )
    return StudyTable(
        title="By the margin of training",
        columns=(
            "design",
            *(f"P(valid) at {margin:g}, %" for margin in margins),
            *(f"area, trained at {margin:g}" for margin in margins),
            *(f"P* {margin:g}, %" for margin in margins[1:]),
        ),
        rows=rows,
    )


def _grid_sheet(bench: ImageBench) -> StudyTable:
    rows = []
    for one in GRID:
        cells = [bench.found([bench.cell(design, one)]) for design in bench.grid_designs()]
        shown = [f"{int(cell.valid.sum())} of {len(cell.valid)}: {_number(_area(cell))}" for cell in cells]
        rows.append((f"rate {one.rate:g}, radius {one.radius:g}", *shown))
    return StudyTable(
        title="What the thesis leaves out: valid networks, and the area of P(robust)",
        columns=("training", *(str(design) for design in bench.grid_designs())),
        rows=rows,
        note="Trained on images as they are.",
    )


def _drawings(bench: ImageBench, found: Found) -> list[StudyFigure]:
    designs = bench.designs()
    shown = {
        "width": designs["3.4a: width"],
        "depth": (designs["3.4a: width"][1], *designs["3.4b: depth"]),
        "activation": designs["A.2a: activation, with biases"],
    }
    return [
        StudyFigure(
            name="robustness",
            title="P(robust) by the margin of the test, trained on images as they are: all judges (lines), "
            "plain PGD alone (dots)",
            figure=draw_image_robustness(
                {title: {str(one): found[one][0] for one in each} for title, each in shown.items()}
            ),
        ),
        StudyFigure(
            name="areas",
            title="Areas under P(robust) by judge, and under P* (figures 3.4 and A.2)",
            figure=draw_image_areas(
                {
                    figure: {
                        str(one): (
                            *(_area(found[one][0], judge) for judge in JUDGES), _star(bench, found[one]),
                        )
                        for one in each
                    }
                    for figure, each in designs.items()
                }
            ),
        ),
    ]  # fmt: skip


READINGS = (
    Reading(
        text="Stronger attacks take back {refuted[relu]:percent} % of what plain PGD calls robust with ReLU "
        "units, {refuted[tanh]:percent} % with Tanh and {refuted[sigmoid]:percent} % with Sigmoid units "
        "(cases of network and margin)."
    ),
    Reading(
        text="The gradients of Sigmoid networks are near zero on {quiet[MLP-32-Sigmoid with biases]:.1%} of "
        "the test images, so vanishing gradients do not explain their robustness here.",
        when=lambda values: (values["quiet"]["MLP-32-Sigmoid with biases"] or 0.0) < 0.01,
    ),
    Reading(
        text="The gradients of Sigmoid networks are near zero on {quiet[MLP-32-Sigmoid with biases]:.1%} of "
        "the test images: against those plain PGD stands still.",
        when=lambda values: (values["quiet"]["MLP-32-Sigmoid with biases"] or 0.0) >= 0.01,
    ),
    Reading(
        figure="areas",
        text="Bars without an interval are of fewer than "
        f"{FEWEST} valid networks, and pale; where plain PGD's bar is longer than the others, it flatters.",
    ),
)
STUDY = Study(
    id="O2",
    title="Accidental robustness on images",
    paper="Olivier 2023, sections 3.5.4 and A.2.2, figures 3.4 and A.2",
    reports="on MNIST as on RXOR, wide networks are robust more often and deep ones less; batch "
    "normalisation lowers robustness, and Sigmoid units raise it",
    open=open_bench,
    run=run,
    readings=READINGS,
)
