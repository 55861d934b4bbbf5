"""O1: accidental robustness on RXOR (sections 3.2 to 3.5 and A.2.1, figures 3.2, 3.3 and A.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from sottovoce.core.statistics import Interval
from sottovoce.studies.olivier2023.accidental.chapter_three_tables import PERCENT, TRAININGS
from sottovoce.studies.olivier2023.accidental.network_batch import Design
from sottovoce.studies.olivier2023.accidental.rxor_areas import (
    FEWEST,
    difference,
    exact_area,
    oracle,
    oracle_area,
    probabilities,
    sampled_area,
)
from sottovoce.studies.olivier2023.accidental.rxor_figures import (
    draw_areas,
    draw_decisions,
    draw_flattery,
    draw_robustness,
)
from sottovoce.studies.olivier2023.accidental.rxor_runs import (
    DESIGNS,
    FIGURES,
    GRID,
    GRID_DESIGNS,
    MARGINS,
    RxorBench,
    RxorFound,
    open_bench,
)
from sottovoce.studies.shown_numbers import MISSING, percent, percent_interval
from sottovoce.studies.study import Reading, Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

Found = Mapping[Design, list[RxorFound]]
"""Of each design, one for each of `MARGINS` that it was trained at."""
THREE, SIX, NINE = FIGURES["3.3a: width"]
TWO_DEEP, THREE_DEEP = FIGURES["3.3b: depth"]
FIRST_WIDE, MIDDLE_WIDE, LAST_WIDE = FIGURES["3.3c: which layer is wide"]
RELU, TANH, SIGMOID = FIGURES["A.1a: activation, with biases"]
(NORMED,) = FIGURES["A.1b: batch normalisation"]
DROPPED, DROPPED_MORE = FIGURES["A.1c: dropout"]
PLAIN, SKIPS = FIGURES["A.1d: skip connection"]
LOW = MARGINS.index(0.2)
"""The margin at which the effect of sampling is shown."""


def run(bench: RxorBench) -> Result:
    bench.train()
    found = {design: [bench.main(design, margin) for margin in MARGINS] for design in DESIGNS}
    values = _values(bench, found)
    return Result(
        sheets=[
            trend_sheet(_claims(found), note=CLAIMS),
            _text_sheet(found),
            _main_sheet(found),
            _flattery_sheet(found),
            _area_sheet(found),
            _grid_sheet(bench),
        ],
        drawings=_drawings(found),
        values=values,
        notes=NOTES,
        seconds=sum(bench.parts.seconds.values()),
    )


CLAIMS = (
    "Areas as the thesis takes them, by 1,000 points a test, of networks trained at .4; exact areas beside. "
    "Yes and no where the 95 % interval of the difference leaves out zero; not known where it does not, or "
    f"where a design has fewer than {FEWEST} valid networks."
)
NOTES = [
    "Valid: right on all 1,000 points of its training. Robust at a margin: valid, and right on 1,000 fresh "
    "points of that margin (as the thesis tests it), or on all points of it (exact). An output of 0 says "
    "that the signs are the same.",
    "Exact margins of ReLU networks without biases by closed form. Networks with biases, of Tanh and Sigmoid "
    "units or with batch normalisation are judged on a grid of 23,716 points of the square, which may miss "
    "mistakes between its points.",
    "P(robust) is the share of valid networks; the thesis divides all robust networks by the valid ones, and "
    "robust ones need not be valid there. P* is the number of valid networks at the test's margin to that at "
    "the training's.",
    "Areas: trapezoid rule over the margins .05, .1, .2, .3 and .4, divided by .35, so that 1 is the most. "
    "The thesis does not say how its areas are taken.",
    "Biases, and the scale and shift of batch normalisation, are drawn from the ball with the weights.",
    "Exact binomial intervals of probabilities; normal ones of areas.",
    "The thesis's propositions 3.1 to 3.3 and A.1 write the margin as 1 - eps; in the convention of its "
    "section 3.3 two threshold units solve RXOR from eps = 1/3 on. Its network A.8 should say > 0, not >= 0.",
]


def _valid(row: list[RxorFound]) -> list[Interval]:
    return [one.valid for one in row]


def _star(row: list[RxorFound]) -> Interval:
    return oracle_area(_valid(row), 0)


def _values(bench: RxorBench, found: Found) -> dict[str, Any]:
    ratios = _flattery(found)
    return {
        "networks": bench.count,
        "designs": {str(design): _design_values(design, row) for design, row in found.items()},
        "flattery": {f"{margin:g}": ratio for margin, ratio in ratios.items()},
        "passed_wrongly": _passed_wrongly(found),
        "most_robust_in_grid": _most_in_grid(bench),
        "grid": [
            {
                "loss": one.loss, "batch": one.batch, "rate": one.rate,
                "designs": {str(design): _cell_values(bench.varied(design, one)) for design in GRID_DESIGNS},
            }
            for one in GRID
        ],
    }  # fmt: skip


def _design_values(design: Design, row: list[RxorFound]) -> dict[str, Any]:
    return {
        "parameters": design.parameters,
        "judged": "exact" if design.homogeneous else "grid",
        "trained_at": {
            f"{margin:g}": {
                "valid": one.valid,
                "exact": dict(zip(map("{:g}".format, MARGINS), probabilities(one.exact), strict=True)),
                "sampled": dict(zip(map("{:g}".format, MARGINS), probabilities(one.passed), strict=True)),
                "star": dict(zip(map("{:g}".format, MARGINS), oracle(_valid(row), place), strict=True)),
                "area_exact": exact_area(one),
                "area_sampled": sampled_area(one),
                "area_star": oracle_area(_valid(row), place),
            }
            for place, (margin, one) in enumerate(zip(MARGINS, row, strict=True))
        },
    }


def _cell_values(one: RxorFound) -> dict[str, Any]:
    return {
        "valid": len(one.margins),
        "trained": one.trained,
        "exact": [float(share) if len(one.margins) else None for share in _shares(one.exact)],
        "sampled": [float(share) if len(one.margins) else None for share in _shares(one.passed)],
    }


def _shares(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> list[float]:
    return [float("nan")] * len(MARGINS) if not len(flags) else flags.mean(axis=0).tolist()


def _most_in_grid(bench: RxorBench) -> dict[str, Any]:
    """The cell of the grid with six units in which most of the valid networks pass 1,000 points of .1."""
    place = MARGINS.index(0.1)
    known = [one for one in GRID if len(bench.varied(SIX, one).margins) >= FEWEST]
    if not known:
        return {"sampled": None}
    best = max(known, key=lambda one: bench.varied(SIX, one).passed[:, place].mean())
    cell = bench.varied(SIX, best)
    return {
        "loss": best.loss,
        "batch": best.batch,
        "rate": best.rate,
        "sampled": probabilities(cell.passed)[place],
        "exact": probabilities(cell.exact)[place],
    }


def _flattery(found: Found) -> dict[float, float]:
    """By margin below .4: how many networks pass 1,000 points to how many are robust, one hidden layer."""
    pooled = [found[design][0] for design in (THREE, SIX, NINE)]
    ratios = {}
    for place, margin in enumerate(MARGINS):
        passed, robust = (
            sum(int(getattr(one, name)[:, place].sum()) for one in pooled) for name in ("passed", "exact")
        )
        ratios[margin] = passed / robust if robust else math.nan
    return ratios


def _passed_wrongly(found: Found) -> Interval:
    """Of the networks that pass 1,000 points of margin .2, those that are not robust there."""
    pooled = [found[design][0] for design in (THREE, SIX, NINE)]
    wrong = np.concatenate([~one.exact[one.passed[:, LOW], LOW] for one in pooled])
    return probabilities(wrong[:, None])[0]


def _claims(found: Found) -> list[Trend]:
    return [*_falling(found), *_width_claims(found), *_depth_claims(found), *_other_claims(found)]


def _falling(found: Found) -> Iterable[Trend]:
    row = found[THREE]
    robust = [one.value for one in probabilities(row[0].passed)]
    star = oracle(_valid(row), 0)
    shown = [percent(value) for value in robust], [percent(value) for value in star]
    enough = len(row[0].margins) >= FEWEST
    both = all(one[place] > one[place + 1] or one[place] == 0 for one in (robust, star) for place in range(4))
    yield Trend(
        "three units: P(robust) and P* fall as the margin of the test falls",
        both if enough else None,
        f"trained at .4, tests at .4 to .05: {' '.join(shown[0])} %; P* {' '.join(shown[1])} %",
    )
    yield Trend(
        "P(robust) falls faster than P*",
        all(robust[place] <= star[place] for place in range(1, 5)) if enough else None,
        "the same numbers",
    )
    rising = [probabilities(one.passed)[LOW] for one in row[:3]]
    yield Trend(
        "P(robust) at a margin grows as the margin of training falls",
        rising[0].high < rising[2].low if enough else None,
        f"at .2, trained at .4, .3, .2: {', '.join(map(_percents, rising))} %",
    )
    same, exact = (
        [_shares(getattr(one, name))[place] for place, one in enumerate(found[SIX])]
        for name in ("passed", "exact")
    )
    yield Trend(
        "models trained at a margin are robust at that margin",
        min(same) > 0.995,
        f"six units, 1,000 fresh points of their own margin, .4 to .05: {' '.join(map(percent, same))} %; "
        f"exact {' '.join(map(percent, exact))} %",
    )
    above = [
        (design, margin)
        for design, each in found.items()
        for place, one in enumerate(each)
        if len(one.margins) >= FEWEST
        for margin, robust, star in zip(
            MARGINS, _shares(one.passed), oracle(_valid(each), place), strict=True
        )
        if robust > star and margin != MARGINS[place]
    ]
    yield Trend(
        "P* is an upper bound of P(robust)",
        not above,
        f"P(robust) is above it in {len(above)} cells of design, training and test"
        + (f", such as {above[0][0]} at {above[0][1]:g}" if above else ""),
    )


def _compare(
    claim: str, found: Found, one: Design, other: Design, area: Callable[[list[RxorFound]], Interval]
) -> Trend:
    """That an area of `one` is larger than that of `other`."""
    gap = difference(area(found[one]), area(found[other]))
    numbers = f"{_shown(area(found[one]))} against {_shown(area(found[other]))}"
    if area is not _star:
        exact = [exact_area(found[design][0]) for design in (one, other)]
        numbers += f"; exact {_number(exact[0])} against {_number(exact[1])}"
    holds = None if math.isnan(gap.low) or gap.low <= 0 <= gap.high else gap.value > 0
    return Trend(claim, holds, f"{numbers}; {_networks(found, one, other)}")


def _networks(found: Found, *designs: Design) -> str:
    return f"{' and '.join(f'{len(found[design][0].margins):,}' for design in designs)} valid"


def _shown(one: Interval) -> str:
    if math.isnan(one.value):
        return MISSING
    return f"{one.value:.3f}" + ("" if math.isnan(one.low) else f" [{one.low:.3f}, {one.high:.3f}]")


def _robust(row: list[RxorFound]) -> Interval:
    return sampled_area(row[0])


def _width_claims(found: Found) -> Iterable[Trend]:
    yield _compare("the area of P(robust) grows from 3 units to 6", found, SIX, THREE, _robust)
    narrow, wide = _robust(found[THREE]), _robust(found[SIX])
    yield Trend(
        "and almost doubles",
        None if math.isnan(narrow.low) else wide.high / narrow.low > 1.8,
        f"{_shown(narrow)} to {_shown(wide)}: {wide.value / narrow.value:.2f} times",
    )
    yield _compare("the area of P(robust) grows from 6 units to 9", found, NINE, SIX, _robust)
    yield _compare("the area of P* grows from 3 units to 6", found, SIX, THREE, _star)
    yield _compare("the area of P* grows from 6 units to 9", found, NINE, SIX, _star)
    for margin in (0.05, 0.1):
        place = MARGINS.index(margin)
        narrow, wide = (probabilities(found[design][0].passed)[place] for design in (THREE, SIX))
        thesis = float(PERCENT["6", margin]) / 100
        yield Trend(
            f"P(robust|{margin:g}, .4) rises from {PERCENT['3', margin]} % with 3 units to "
            f"{PERCENT['6', margin]} % with 6",
            None if not wide.n else bool(wide.low <= thesis <= wide.high),
            f"{_percents(narrow)} to {_percents(wide)} %",
        )


def _depth_claims(found: Found) -> Iterable[Trend]:
    for wide, deep in ((SIX, TWO_DEEP), (NINE, THREE_DEEP)):
        claim = f"of {wide.parameters} weights, {wide} has a larger area of P(robust) than {deep}"
        yield _compare(claim, found, wide, deep, _robust)
        claim = f"of {wide.parameters} weights, {wide} has a larger area of P* than {deep}"
        yield _compare(claim, found, wide, deep, _star)
        few, many = found[deep][0].valid, found[wide][0].valid
        yield Trend(
            f"valid networks are harder to find with {deep} than with {wide}",
            few.high < many.low,
            f"{_percents(few)} and {_percents(many)} %",
        )
    for other in (MIDDLE_WIDE, LAST_WIDE):
        claim = f"widening the first of three layers helps more than {other}"
        yield _compare(claim, found, FIRST_WIDE, other, _robust)


def _other_claims(found: Found) -> Iterable[Trend]:
    for other, name in ((TANH, "Tanh"), (SIGMOID, "Sigmoid")):
        yield _compare(f"ReLU has a larger area of P(robust) than {name}", found, RELU, other, _robust)
        yield _compare(f"ReLU has a larger area of P* than {name}", found, RELU, other, _star)
    yield _compare("batch normalisation lowers the area of P(robust)", found, NINE, NORMED, _robust)
    yield _compare("batch normalisation lowers the area of P*", found, NINE, NORMED, _star)
    yield _compare("dropout of .3 raises the area of P(robust)", found, DROPPED, NINE, _robust)
    yield _compare("dropout of .3 lowers the area of P*", found, NINE, DROPPED, _star)
    yield _compare("dropout of .6 lowers the area of P(robust)", found, NINE, DROPPED_MORE, _robust)
    yield _compare("dropout of .6 lowers the area of P*", found, NINE, DROPPED_MORE, _star)
    yield _compare("the skip connection raises the area of P(robust)", found, SKIPS, PLAIN, _robust)
    yield _compare("the skip connection raises the area of P*", found, SKIPS, PLAIN, _star)


def _text_sheet(found: Found) -> StudyTable:
    rows = []
    for units, design in (("3", THREE), ("6", SIX)):
        for margin in (0.1, 0.05):
            place = MARGINS.index(margin)
            one = found[design][0]
            rows.append(
                (
                    f"P(robust|{margin:g}, .4), {units} units",
                    PERCENT[units, margin],
                    _percents(probabilities(one.passed)[place]),
                    _percents(probabilities(one.exact)[place]),
                )
            )
    return StudyTable(
        title="Numbers in the text of section 3.5.3, %",
        columns=("", "paper", "1,000 points", "exact"),
        rows=rows,
        note=f"The thesis trains {TRAININGS:,} networks. Brackets: exact 95 % interval.",
    )


def _main_sheet(found: Found) -> StudyTable:
    rows = []
    for figure, designs in FIGURES.items():
        for design in designs:
            first = found[design][0]
            exact, star = probabilities(first.exact), oracle(_valid(found[design]), 0)
            rows.append(
                (
                    figure,
                    str(design),
                    str(design.parameters),
                    _percents(first.valid),
                    *(_percents(one) for one in exact[1:4]),
                    percent(star[LOW]),
                    _number(exact_area(first)),
                    _number(_robust(found[design])),
                    _number(_star(found[design])),
                )
            )
    return StudyTable(
        title="Networks trained at margin .4, %",
        columns=(
            "figure", "design", "parameters", "P(valid)", "exact P(robust) .3", ".2", ".1", "P* .2",
            "area, exact", "by 1,000 points", "P*",
        ),
        rows=rows,
        note="Brackets: exact 95 % interval. Designs that are not homogeneous are judged on a grid.",
    )  # fmt: skip


def _percents(one: Interval) -> str:
    """In per cent with the interval; with two decimals where all of it is below 2 %."""
    if math.isnan(one.value) or one.high >= 0.02:
        return percent_interval(one)
    return f"{100 * one.value:.2f} [{100 * one.low:.2f}, {100 * one.high:.2f}]"


def _number(one: Interval) -> str:
    return MISSING if math.isnan(one.value) else f"{one.value:.3f}"


def _flattery_sheet(found: Found) -> StudyTable:
    rows = []
    for design in (THREE, SIX, NINE):
        one = found[design][0]
        for name, flags in (("1,000 points", one.passed), ("exact", one.exact)):
            rows.append((str(design), name, *(_percents(each) for each in probabilities(flags))))
    ratios = [MISSING if math.isnan(one) else f"{one:.2f}" for one in _flattery(found).values()]
    rows.append(("the three", "times as many", *ratios))
    return StudyTable(
        title="How far 1,000 points flatter: P(robust) of networks trained at .4, %",
        columns=("design", "judged by", *(f"at {margin:g}" for margin in MARGINS)),
        rows=rows,
    )


def _area_sheet(found: Found) -> StudyTable:
    rows = [
        (
            str(design),
            *(
                f"{_number(exact_area(one))} / {_number(sampled_area(one))} / "
                f"{_number(oracle_area(_valid(row), place))}"
                for place, one in enumerate(row)
            ),
        )
        for design, row in found.items()
    ]
    return StudyTable(
        title="Areas by the margin of training: exact / by 1,000 points / P*",
        columns=("design", *(f"trained at {margin:g}" for margin in MARGINS)),
        rows=rows,
        note="At small margins few networks are valid, and the area is of what those few can do.",
    )


def _grid_sheet(bench: RxorBench) -> StudyTable:
    rows = []
    for one in GRID:
        cells = [bench.varied(design, one) for design in GRID_DESIGNS]
        shown = [
            f"{len(cell.margins)}: {percent(_shares(cell.passed)[2])} / {percent(_shares(cell.passed)[3])}"
            for cell in cells
        ]
        rows.append((f"{one.loss}, batch {one.batch}, rate {one.rate:g}", *shown))
    return StudyTable(
        title="What the thesis leaves out: valid networks, and P(robust) by 1,000 points at .2 / .1, %",
        columns=("training", *(str(design) for design in GRID_DESIGNS)),
        rows=rows,
        note=f"{bench.grid_count:,} networks a cell, trained at .4. The thesis has 0.5 % (3 units) and 12 % "
        "(6 units) at .1.",
    )


def _drawings(found: Found) -> list[StudyFigure]:
    areas = {
        figure: {
            str(design): (exact_area(found[design][0]), _robust(found[design]), _star(found[design]))
            for design in designs
        }
        for figure, designs in FIGURES.items()
    }
    return [
        StudyFigure(
            name="robustness",
            title="P(robust) by the margin of the test: exact (curves), by 1,000 points (dots), P* (dashed)",
            figure=draw_robustness({str(design): found[design] for design in (THREE, SIX, NINE)}),
        ),
        StudyFigure(
            name="decisions",
            title="Valid networks of six units trained at .4 (dotted), from the smallest exact margin to the "
            "largest: mistakes are dark",
            figure=draw_decisions(SIX, found[SIX][0], MARGINS[0]),
        ),
        StudyFigure(
            name="flattery",
            title="Networks that pass 1,000 points of margin .2, by their exact margin",
            figure=draw_flattery([found[design][0] for design in (THREE, SIX, NINE)], LOW),
        ),
        StudyFigure(
            name="areas",
            title="Areas under P(robust) and P*, networks trained at .4 (figures 3.3 and A.1)",
            figure=draw_areas(areas, MARGINS[0]),
        ),
    ]


_AT = "designs[MLP-6-ReLU][trained_at][0.4]"
READINGS = (
    Reading(
        text="Accidental robustness exists, and is rarer than a test on 1,000 points says. Of the valid "
        f"networks with six units trained at margin .4, {{{_AT}[sampled][0.2]:percent}} % pass 1,000 fresh "
        f"points of margin .2, and {{{_AT}[exact][0.2]:percent}} % are right on all points of it. Of the "
        "networks with one hidden layer that pass, {passed_wrongly:percent} % make mistakes there."
    ),
    Reading(
        text="What grows with width is the chance to find a valid network at all: P(valid) is "
        "{designs[MLP-3-ReLU][trained_at][0.4][valid]:percent} % with three units, "
        f"{{{_AT}[valid]:percent}} % with six and "
        "{designs[MLP-9-ReLU][trained_at][0.4][valid]:percent} % with nine. How robust the "
        "valid ones are grows far less: their exact areas are "
        "{designs[MLP-3-ReLU][trained_at][0.4][area_exact]:.3f}, "
        f"{{{_AT}[area_exact]:.3f}} and {{designs[MLP-9-ReLU][trained_at][0.4][area_exact]:.3f}}."
    ),
    Reading(
        text="The thesis's 12 % of six-unit networks that are robust at .1 were not met at any learning "
        f"rate, loss and batch of the grid (cells with {FEWEST} or more valid networks): the most is "
        "{most_robust_in_grid[sampled]:percent} %, with {most_robust_in_grid[loss]}, batch "
        "{most_robust_in_grid[batch]} and rate {most_robust_in_grid[rate]:g}.",
        when=lambda values: (values["most_robust_in_grid"]["sampled"] or {}).get("high", 1.0) < 0.12,
    ),
    Reading(
        figure="flattery",
        text="A network with an exact margin above .2 makes mistakes at .2, but they fill so small an angle "
        "that 1,000 points often miss it; the numbers on the bars count networks.",
    ),
    Reading(
        figure="decisions",
        text="Light: right; dark: wrong. All were right on their 1,000 points, whose coordinates are at "
        "least .4 in size; those with a margin above .4 are wrong on others there.",
    ),
)
STUDY = Study(
    id="O1",
    title="Accidental robustness on RXOR",
    paper="Olivier 2023, sections 3.2 to 3.5 and A.2.1, figures 3.2, 3.3 and A.1",
    reports="networks trained far from the boundary are sometimes right close to it: wide ones more often, "
    "deep ones less",
    open=open_bench,
    run=run,
    readings=READINGS,
)
