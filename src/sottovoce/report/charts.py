"""The report's charts: Vega-Lite specifications, drawn in the page with colours from its style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sottovoce.auditing.results.summary import CellSummary
from sottovoce.metrics.distortion import ACCEPTED_DB
from sottovoce.report.model_reading import LEAD_TITLES
from sottovoce.report.report_tables import Panel, boxes
from sottovoce.report.shown_words import form_title, number
from sottovoce.report.trial_columns import Trials
from sottovoce.report.vega import PERCENT, Spec, channel, finish, layered, mark

COLOURS = 8
"""How many colours the style sheet has; a ninth attack starts over with another shape."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES = {"transfer": (2, 3), "plain": (), "adaptive": (), "black-box": ()}
NOISE_DASH = (6, 5)
PARTS = {"": "whole clip", "-vocal": "vocal part", "-background": "background"}


@dataclass(frozen=True)
class Series:
    """How one attack is drawn, in every chart alike.

    dash: lengths of line and gap; empty for a line without gaps.
    """

    name: str
    colour: str
    shape: str
    dash: tuple[int, ...]


@dataclass(frozen=True)
class Chart:
    id: str
    spec: Spec
    description: str


def make_series(panels: Sequence[Panel]) -> list[Series]:
    """A colour and a shape for every attack, dotted where it does not know the defense; white noise is grey
    and dashed and comes last."""
    items = [item for panel in panels for item in panel.cells]
    places: dict[str, int] = {}
    found, noises = {}, {}
    for item in items:
        name = form_title(item.cell)
        if not item.attacks:
            noises[name] = Series(name, "var(--noise)", "circle", NOISE_DASH)
            continue
        place = places.setdefault(str(item.cell.attack), len(places))
        look = f"var(--c{place % COLOURS + 1})", SHAPES[place % len(SHAPES)]
        found[name] = Series(name, *look, DASHES[item.cell.attacker])
    return [*found.values(), *noises.values()]


def shown_in(panel: Panel, series: Sequence[Series]) -> list[Series]:
    """Those of the series that a panel has."""
    names = {form_title(item.cell) for item in panel.cells}
    return [item for item in series if item.name in names]


@dataclass(frozen=True)
class RateAxis:
    """The figure on the upright axis: a share that ends at 1, or an error rate that may pass it.

    clean: its value before any attack, drawn as a line, where there is one to compare with.
    """

    metric: str
    top: float = 1.0
    clean: float | None = None

    @classmethod
    def of(cls, panel: Panel, clean: float | None) -> RateAxis:
        if panel.lead == "success":
            return cls(panel.lead)
        found = [item.estimates[panel.lead] for item in panel.cells if panel.led(item)]
        ends = [end for each in found for end in (each.value, each.high) if math.isfinite(end)]
        return cls(panel.lead, max([1.0, *ends]), clean)

    @property
    def title(self) -> str:
        return LEAD_TITLES[self.metric]

    def axis(self, field: str = "") -> Spec:
        top = 1 if self.top == 1.0 else math.ceil(10 * self.top) / 10
        return channel(
            f"{field or self.metric}:Q", title=self.title, scale={"domain": [0, top]}, axis=PERCENT
        )

    def before(self) -> list[Spec]:
        """The line of the clean clips, where there is one."""
        if self.clean is None or not math.isfinite(self.clean):
            return []
        tooltip = channel("before:Q", format=".1%", title="clean clips")
        encoding = {"y": self.axis("before"), "tooltip": tooltip}
        rows = [{"before": round(self.clean, 4)}]
        return [mark("rule", encoding, rows=rows, strokeWidth=1.5, color="var(--good)")]


def budget_chart(panel: Panel, series: Sequence[Series], rate: RateAxis, name: str) -> Chart | None:
    """The leading figure against the budget asked for: lines over SNR, else points side by side."""
    rows = [_row(item, rate) for item in panel.cells if panel.led(item)]
    if not rows:
        return None
    lines = all(row["asked"] is not None for row in rows) and len({row["asked"] for row in rows}) > 1
    for row in rows:
        row.pop("snr", None)
    chart = _lines(rows, series, rate) if lines else _points(rows, series, rate, panel.budgets)
    worded = f"{_capital(rate.title)} by budget{', ' + panel.title if panel.title else ''}: " + "; ".join(
        f"{row['attack']} at {row['budget']} {number(row[rate.metric], '%')} %" for row in rows
    )
    return Chart(name, finish(chart, worded), worded)


def measured_chart(panel: Panel, series: Sequence[Series], rate: RateAxis, name: str) -> Chart | None:
    """The leading figure against the mean SNR of the saved files, one point a cell."""
    rows = [row for item in panel.cells if panel.led(item) and (row := _row(item, rate))["snr"] is not None]
    if not rows:
        return None
    x, y, colour = snr_axis("snr:Q", "measured SNR"), rate.axis(), colour_by(series)
    wide = {"x": snr_axis("snr_low:Q", "measured SNR"), "x2": channel("snr_high"), "y": y, "color": colour}
    tall = {"x": x, "y": rate.axis("low"), "y2": channel("high"), "color": colour}
    across, upright = (mark("rule", each, strokeWidth=1.2, opacity=0.45) for each in (wide, tall))
    looks = {"color": colour, "shape": shape_by(series), "tooltip": _tooltip(rate, measured=True)}
    points = mark("point", {"x": x, "y": y, **looks}, filled=True, size=70, opacity=1)
    title = f"{_capital(rate.title)} by measured mean SNR{', ' + panel.title if panel.title else ''}"
    worded = f"{title}: " + "; ".join(
        f"{row['attack']} {number(row[rate.metric], '%')} % at {row['snr']:.1f} dB" for row in rows
    )
    return Chart(name, finish(layered(rows, *rate.before(), across, upright, points), worded), worded)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


@dataclass(frozen=True)
class DistortionCharts:
    """The charts of distortion by part, and the groups of cells one may choose from."""

    charts: list[tuple[str, Chart]]
    groups: list[str]


def distortion_charts(
    panels: Sequence[Panel], trials: Trials, series: Sequence[Series], first: str
) -> DistortionCharts | None:
    """Quantile boxes of dB_max and dB_mean on the whole clip, its vocal part and its background."""
    cells = {
        f"{panel.title} · {budget}" if panel.title else budget: panel.at(budget)
        for panel in panels
        for budget in panel.budgets
    }
    charts, shown = [], set()
    for level in ("max", "mean"):
        metrics = {f"db-{level}{suffix}": title for suffix, title in PARTS.items()}
        rows = [
            {"group": group, "part": metrics[box.metric], "attack": box.attack, "n": box.n}
            | {f"q{k}": round(float(value), 2) for k, value in enumerate(box.quantiles)}
            for group, members in cells.items()
            for box in boxes(members, trials, metrics)
        ]
        if rows:
            shown |= {row["group"] for row in rows}
            chart = _boxes(rows, series, level, first if first in cells else next(iter(cells)))
            words = f"dB {level} of the perturbation relative to the clip, by part and attack"
            charts.append((f"dB {level}", Chart(f"distortion-{level}", finish(chart, words), words)))
    if not charts:
        return None
    return DistortionCharts(charts, [group for group in cells if group in shown])


def _row(item: CellSummary, rate: RateAxis) -> dict[str, Any]:
    found, snr = item.estimates[rate.metric], item.estimates.get("snr")
    budget = item.cell.budget
    row: dict[str, Any] = {
        "attack": form_title(item.cell),
        "budget": item.cell.budget_title,
        "asked": float(budget.settings["db"]) if budget.name == "snr" else None,
        rate.metric: round(found.value, 4),
        # One clip alone has a value and no interval.
        "low": round(found.low if math.isfinite(found.low) else found.value, 4),
        "high": round(found.high if math.isfinite(found.high) else found.value, 4),
        "n": found.n,
        "snr": None,
    }
    if snr is not None and item.has("snr"):
        row |= {"snr": round(snr.value, 2)}
        bounds = (snr.low, snr.high) if snr.low == snr.low else (snr.value, snr.value)
        row |= {"snr_low": round(bounds[0], 2), "snr_high": round(bounds[1], 2)}
    return row


def _lines(rows: Sequence[Spec], series: Sequence[Series], rate: RateAxis) -> Spec:
    base = {"x": snr_axis("asked:Q", "SNR asked for"), "color": colour_by(series)}
    ends = {"y": rate.axis("low"), "y2": channel("high"), "detail": channel("attack:N")}
    dots = {"y": rate.axis(), "shape": shape_by(series), "tooltip": _tooltip(rate)}
    return layered(
        rows,
        *rate.before(),
        mark("area", {**base, **ends}, opacity=0.14),
        mark("line", {**base, "y": rate.axis(), "strokeDash": dash_by(series)}, strokeWidth=2.2),
        mark("point", {**base, **dots}, filled=True, size=64, opacity=1),
    )


def _points(rows: Sequence[Spec], series: Sequence[Series], rate: RateAxis, budgets: Sequence[str]) -> Spec:
    base = side_by_side(series, budgets)
    dots = {"y": rate.axis(), "shape": shape_by(series), "tooltip": _tooltip(rate)}
    return layered(
        rows,
        *rate.before(),
        mark("rule", {**base, "y": rate.axis("low"), "y2": channel("high")}, strokeWidth=2, opacity=0.5),
        mark("point", {**base, **dots}, filled=True, size=80, opacity=1),
    )


def side_by_side(series: Sequence[Series], budgets: Sequence[str]) -> Spec:
    """Places of points: budgets in their order, in each of them the series."""
    names = [item.name for item in series]
    return {
        "x": channel("budget:N", title="budget", sort=list(budgets), axis={"labelAngle": 0}),
        "xOffset": channel("attack:N", sort=names, scale={"domain": names, "padding": 0.6}),
        "color": colour_by(series),
    }


def _boxes(rows: list[Spec], series: Sequence[Series], level: str, first: str) -> Spec:
    names, groups = [item.name for item in series], {row["group"] for row in rows}
    values = [row[f"q{k}"] for row in rows for k in (0, 4)]
    edges = [min(values) - 2, max(*values, ACCEPTED_DB if level == "max" else max(values)) + 2]
    base = {
        "y": channel("part:N", title=None, sort=list(PARTS.values())),
        "yOffset": channel("attack:N", sort=names, scale={"padding": 0.3}),
        "color": colour_by(series),
        "tooltip": _box_tooltip(),
    }
    axis = {"labelExpr": "replace(datum.label, '-', '−')", "tickCount": 7, "labelFlush": False}
    scale = {"domain": edges, "nice": True}
    x = channel("q0:Q", title=f"dB {level}, quieter ←", scale=scale, axis=axis)
    layers = [
        mark("rule", {**base, "x": x, "x2": channel("q4")}, strokeWidth=1.4),
        mark("bar", {**base, "x": channel("q1:Q"), "x2": channel("q3")}, opacity=0.35, cornerRadius=2),
        mark("tick", {**base, "x": channel("q2:Q")}, thickness=2.5, bandSize=12),
    ]
    for layer in layers:
        layer["transform"] = [{"filter": "datum.group === group"}]
    if level == "max":
        layers.append(rule_at([ACCEPTED_DB], 1.5))
    most = max(len({row["attack"] for row in rows if row["group"] == group}) for group in groups)
    height = max(180, 22 * len(PARTS) * max(2, most))
    return layered(rows, *layers, params=[{"name": "group", "value": first}], height=height)


def rule_at(places: Sequence[float], width: float) -> Spec:
    """Dashed lines across a chart, at values of its x axis."""
    rows = [{"at": place} for place in places]
    style = {"strokeDash": [5, 4], "color": "var(--mark)", "strokeWidth": width}
    return mark("rule", {"x": channel("at:Q")}, rows=rows, **style)


def snr_axis(field: str, what: str) -> Spec:
    scale, axis = {"zero": False, "padding": 14}, {"tickCount": 6, "labelFlush": False}
    return channel(field, title=f"{what} (dB), quieter →", scale=scale, axis=axis)


def colour_by(series: Sequence[Series]) -> Spec:
    return _looks(series, [item.colour for item in series])


def shape_by(series: Sequence[Series]) -> Spec:
    return _looks(series, [item.shape for item in series])


def dash_by(series: Sequence[Series]) -> Spec:
    return _looks(series, [list(item.dash or (1, 0)) for item in series])


def _looks(series: Sequence[Series], looks: Sequence[Any]) -> Spec:
    scale = {"domain": [item.name for item in series], "range": list(looks)}
    return channel("attack:N", scale=scale, legend=None)


def _tooltip(rate: RateAxis, *, measured: bool = False) -> list[Spec]:
    found = [
        channel("attack:N"),
        channel("budget:N"),
        channel(f"{rate.metric}:Q", format=".1%"),
        *interval_tooltip(),
        channel("n:Q", title="clips"),
    ]
    return [*found, channel("snr:Q", format=".1f", title="measured SNR (dB)")] if measured else found


def interval_tooltip() -> list[Spec]:
    return [channel("low:Q", format=".1%", title="95 % from"), channel("high:Q", format=".1%", title="to")]


def _box_tooltip() -> list[Spec]:
    titles = {"q2": "median (dB)", "q1": "25 %", "q3": "75 %", "q0": "5 %", "q4": "95 %"}
    shown = [channel(f"{key}:Q", format=".1f", title=title) for key, title in titles.items()]
    return [channel("attack:N"), channel("part:N"), *shown, channel("n:Q", title="clips")]
