"""The report's charts: Vega-Lite specifications, drawn in the page with colours from its style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from sottovoce.audit.summary import CellSummary
from sottovoce.metrics.distortion import ACCEPTED_DB
from sottovoce.report.reading import LEAD_TITLES
from sottovoce.report.tables import Panel, boxes
from sottovoce.report.trials import Trials
from sottovoce.report.words import form_title, number

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
COLOURS = 8
"""How many colours the style sheet has; a ninth attack starts over with another shape."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES = {"transfer": (2, 3), "plain": (), "adaptive": (), "black-box": ()}
NOISE_DASH = (6, 5)
PARTS = {"": "whole clip", "-vocal": "vocal part", "-background": "background"}
Spec = dict[str, Any]
Layers = alt.LayerChart | alt.FacetChart


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
class Rate:
    """The figure on the upright axis: a share that ends at 1, or an error rate that may pass it.

    clean: its value before any attack, drawn as a line, where there is one to compare with.
    """

    metric: str
    top: float = 1.0
    clean: float | None = None

    @classmethod
    def of(cls, panel: Panel, clean: float | None) -> Rate:
        if panel.lead == "success":
            return cls(panel.lead)
        found = [item.estimates[panel.lead] for item in panel.cells if panel.led(item)]
        ends = [end for each in found for end in (each.value, each.high) if math.isfinite(end)]
        return cls(panel.lead, max([1.0, *ends]), clean)

    @property
    def title(self) -> str:
        return LEAD_TITLES[self.metric]

    def axis(self, field: str = "") -> alt.Y:
        return alt.Y(
            f"{field or self.metric}:Q",
            title=self.title,
            scale=alt.Scale(domain=[0, 1] if self.top == 1.0 else [0, math.ceil(10 * self.top) / 10]),
            axis=alt.Axis(format=".0%", tickCount=5, labelExpr="replace(datum.label, '%', ' %')"),
        )

    def before(self) -> list[alt.Chart]:
        """The line of the clean clips, where there is one."""
        if self.clean is None or not math.isfinite(self.clean):
            return []
        line = alt.Chart(alt.InlineData(values=[{"before": round(self.clean, 4)}]))
        tooltip = alt.Tooltip("before:Q", format=".1%", title="clean clips")
        return [
            line.mark_rule(strokeWidth=1.5, color="var(--good)").encode(
                y=self.axis("before"), tooltip=tooltip
            )
        ]


def budget_chart(panel: Panel, series: Sequence[Series], rate: Rate, name: str) -> Chart | None:
    """The leading figure against the budget asked for: lines over SNR, else points side by side."""
    rows = [_row(item, rate) for item in panel.cells if panel.led(item)]
    if not rows:
        return None
    lines = all(row["asked"] is not None for row in rows) and len({row["asked"] for row in rows}) > 1
    for row in rows:
        row.pop("snr", None)
    data = alt.InlineData(values=rows)
    chart = _lines(data, series, rate) if lines else _points(data, series, rate, panel.budgets)
    worded = f"{_capital(rate.title)} by budget{', ' + panel.title if panel.title else ''}: " + "; ".join(
        f"{row['attack']} at {row['budget']} {number(row[rate.metric], '%')} %" for row in rows
    )
    return Chart(name, finish(chart, worded), worded)


def measured_chart(panel: Panel, series: Sequence[Series], rate: Rate, name: str) -> Chart | None:
    """The leading figure against the mean SNR of the saved files, one point a cell."""
    rows = [row for item in panel.cells if panel.led(item) and (row := _row(item, rate))["snr"] is not None]
    if not rows:
        return None
    base = alt.Chart(alt.InlineData(values=rows))
    x, y = _snr_axis("snr:Q", "measured SNR"), rate.axis()
    across = base.mark_rule(strokeWidth=1.2, opacity=0.45).encode(
        x=_snr_axis("snr_low:Q", "measured SNR"), x2="snr_high:Q", y=y, color=colour_by(series)
    )
    upright = base.mark_rule(strokeWidth=1.2, opacity=0.45).encode(
        x=x, y=rate.axis("low"), y2="high:Q", color=colour_by(series)
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=x, y=y, color=colour_by(series), shape=_shape(series), tooltip=_tooltip(rate, measured=True)
    )
    title = f"{_capital(rate.title)} by measured mean SNR{', ' + panel.title if panel.title else ''}"
    worded = f"{title}: " + "; ".join(
        f"{row['attack']} {number(row[rate.metric], '%')} % at {row['snr']:.1f} dB" for row in rows
    )
    return Chart(name, finish(alt.layer(*rate.before(), across, upright, points), worded), worded)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


@dataclass(frozen=True)
class Distortion:
    """The charts of distortion by part, and the groups of cells one may choose from."""

    charts: list[tuple[str, Chart]]
    groups: list[str]


def distortion_charts(
    panels: Sequence[Panel], trials: Trials, series: Sequence[Series], first: str
) -> Distortion | None:
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
    return Distortion(charts, [group for group in cells if group in shown])


def _row(item: CellSummary, rate: Rate) -> dict[str, Any]:
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


def _lines(data: alt.InlineData, series: Sequence[Series], rate: Rate) -> Layers:
    base = alt.Chart(data).encode(x=_snr_axis("asked:Q", "SNR asked for"), color=colour_by(series))
    band = base.mark_area(opacity=0.14).encode(y=rate.axis("low"), y2="high:Q", detail="attack:N")
    line = base.mark_line(strokeWidth=2.2).encode(y=rate.axis(), strokeDash=dash_by(series))
    dots = base.mark_point(filled=True, size=64, opacity=1).encode(
        y=rate.axis(), shape=_shape(series), tooltip=_tooltip(rate)
    )
    return alt.layer(*rate.before(), band, line, dots)


def _points(data: alt.InlineData, series: Sequence[Series], rate: Rate, budgets: Sequence[str]) -> Layers:
    names = [item.name for item in series]
    base = alt.Chart(data).encode(
        x=alt.X("budget:N", title="budget", sort=list(budgets), axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("attack:N", sort=names, scale=alt.Scale(domain=names, padding=0.6)),
        color=colour_by(series),
    )
    rules = base.mark_rule(strokeWidth=2, opacity=0.5).encode(y=rate.axis("low"), y2="high:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(
        y=rate.axis(), shape=_shape(series), tooltip=_tooltip(rate)
    )
    return alt.layer(*rate.before(), rules, dots)


def _boxes(rows: list[Spec], series: Sequence[Series], level: str, first: str) -> Layers:
    names, groups = [item.name for item in series], {row["group"] for row in rows}
    values = [row[f"q{k}"] for row in rows for k in (0, 4)]
    edges = [min(values) - 2, max(*values, ACCEPTED_DB if level == "max" else max(values)) + 2]
    base = (
        alt.Chart(alt.InlineData(values=rows))
        .transform_filter("datum.group === group")
        .encode(
            y=alt.Y("part:N", title=None, sort=list(PARTS.values())),
            yOffset=alt.YOffset("attack:N", sort=names, scale=alt.Scale(padding=0.3)),
            color=colour_by(series),
            tooltip=_box_tooltip(),
        )
    )
    axis = alt.Axis(labelExpr="replace(datum.label, '-', '−')", tickCount=7, labelFlush=False)
    x = alt.X("q0:Q", title=f"dB {level}, quieter ←", scale=alt.Scale(domain=edges, nice=True), axis=axis)
    whisker = base.mark_rule(strokeWidth=1.4).encode(x=x, x2="q4:Q")
    box = base.mark_bar(opacity=0.35, cornerRadius=2).encode(x=alt.X("q1:Q"), x2="q3:Q")
    middle = base.mark_tick(thickness=2.5, bandSize=12).encode(x=alt.X("q2:Q"))
    layers = [whisker, box, middle]
    if level == "max":
        mark = alt.Chart(alt.InlineData(values=[{"at": ACCEPTED_DB}]))
        layers.append(
            mark.mark_rule(strokeDash=[5, 4], color="var(--mark)", strokeWidth=1.5).encode(x="at:Q")
        )
    most = max(len({row["attack"] for row in rows if row["group"] == group}) for group in groups)
    rows_shown = len(PARTS) * max(2, most)
    return (
        alt.layer(*layers)
        .add_params(alt.param(name="group", value=first))
        .properties(height=max(180, 22 * rows_shown))
    )


def _snr_axis(field: str, what: str) -> alt.X:
    axis = alt.Axis(tickCount=6, labelFlush=False)
    return alt.X(field, title=f"{what} (dB), quieter →", scale=alt.Scale(zero=False, padding=14), axis=axis)


def colour_by(series: Sequence[Series]) -> alt.Color:
    domain, colours = [item.name for item in series], [item.colour for item in series]
    return alt.Color("attack:N", scale=alt.Scale(domain=domain, range=colours), legend=None)


def _shape(series: Sequence[Series]) -> alt.Shape:
    domain, shapes = [item.name for item in series], [item.shape for item in series]
    return alt.Shape("attack:N", scale=alt.Scale(domain=domain, range=shapes), legend=None)


def dash_by(series: Sequence[Series]) -> alt.StrokeDash:
    domain = [item.name for item in series]
    dashes = [list(item.dash or (1, 0)) for item in series]
    return alt.StrokeDash("attack:N", scale=alt.Scale(domain=domain, range=dashes), legend=None)


def _tooltip(rate: Rate, *, measured: bool = False) -> list[alt.Tooltip]:
    found = [
        alt.Tooltip("attack:N"),
        alt.Tooltip("budget:N"),
        alt.Tooltip(f"{rate.metric}:Q", format=".1%"),
        alt.Tooltip("low:Q", format=".1%", title="95 % from"),
        alt.Tooltip("high:Q", format=".1%", title="to"),
        alt.Tooltip("n:Q", title="clips"),
    ]
    return [*found, alt.Tooltip("snr:Q", format=".1f", title="measured SNR (dB)")] if measured else found


def _box_tooltip() -> list[alt.Tooltip]:
    titles = {"q2": "median (dB)", "q1": "25 %", "q3": "75 %", "q0": "5 %", "q4": "95 %"}
    shown = [alt.Tooltip(f"{key}:Q", format=".1f", title=title) for key, title in titles.items()]
    return [alt.Tooltip("attack:N"), alt.Tooltip("part:N"), *shown, alt.Tooltip("n:Q", title="clips")]


def finish(chart: Layers, description: str) -> Spec:
    """Width of the page, and colours as CSS variables, so that a chart follows light, dark and print."""
    ink, faint = "var(--muted)", "var(--rule)"
    axis = {
        "labelColor": ink, "titleColor": ink, "gridColor": faint, "domainColor": faint, "tickColor": faint,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10,
        "labelPadding": 6, "domain": False, "ticks": False, "labelLimit": 160,
    }  # fmt: skip
    sized = chart.properties(width="container", background="transparent", description=description)
    if sized.height is alt.Undefined:
        sized = sized.properties(height=280)
    spec: Spec = sized.configure(font=FONT, axis=axis, view={"stroke": None}).to_dict()
    return spec
