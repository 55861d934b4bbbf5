"""Success against P(heard) in the report: the sentence on top, the chart and the table beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sottovoce.auditing.results.heard_curve import (
    FEW,
    JND,
    OPINIONS,
    HeardCurve,
    draw_curve,
    inaudible,
    opinion_of,
    why_unheard,
)
from sottovoce.auditing.results.heard_curve import worst_curve as worst
from sottovoce.auditing.results.summary import Summary, find_metric
from sottovoce.errors import SottovoceError
from sottovoce.metrics.audibility import EarMetric
from sottovoce.perception.audible_budget import open_ear
from sottovoce.perception.ears.learned import Learned
from sottovoce.report.charts import (
    Chart,
    Series,
    colour_by,
    dash_by,
    interval_tooltip,
    rule_at,
    shown_in,
)
from sottovoce.report.report_tables import WORST, Panel, TableColumn, TableRow, cover
from sottovoce.report.shown_words import form_title, number, plural, show, whole
from sottovoce.report.vega import PERCENT, Spec, channel, finish, layered, mark

ALL = Series(WORST, "var(--ink)", "circle", ())
SIMULATED = "learned metric, trained on simulated listeners"
STEPS = 100
"""Steps of P(heard) to which a curve is drawn."""


@dataclass(frozen=True)
class Audibility:
    """What the report says of hearing.

    ear: whose judgement P(heard) is, and what it rests on.
    sentence: how many clips are fooled with fewer than one listener in four noticing.
    missing: why P(heard) is not that of the learned ear; "" where it is.
    charts: the title, the curve and its legend, of every panel.
    """

    ear: str
    sentence: str
    missing: str
    charts: list[tuple[str, Chart, list[Series]]]
    columns: list[TableColumn]
    cells: list[tuple[str, list[TableRow]]]


def tell_heard(summary: Summary, panels: Sequence[Panel]) -> list[str]:
    """The sentence, and why P(heard) is not that of the learned ear, where either applies."""
    metric = opinion_of(summary)
    lines = [say_unnoticed(summary, panels[0], metric) if metric and panels else "", say_missing(summary)]
    return [line for line in lines if line]


def say_missing(summary: Summary) -> str:
    reason = why_unheard(summary)
    judged = any(item.has(OPINIONS[0]) for item in summary.cells)
    return f"The learned ear did not judge: {reason.rstrip('.')}." if reason and not judged else ""


def judge_audibility(
    summary: Summary, panels: Sequence[Panel], series: Sequence[Series]
) -> Audibility | None:
    """None where P(heard) was not asked for."""
    metric, missing = opinion_of(summary), say_missing(summary)
    if metric is None:
        return Audibility("", "", missing, [], [], []) if missing else None
    ear = describe_ear(metric)
    charts = [
        (panel.title, chart, shown)
        for place, panel in enumerate(panels)
        if (drawn := heard_chart(panel, summary, series, metric, ear, f"heard-{place}")) is not None
        for chart, shown in [drawn]
    ]
    return Audibility(
        ear=ear,
        sentence=say_unnoticed(summary, panels[0], metric),
        missing=missing,
        charts=charts,
        columns=[
            TableColumn("success", "success", "%"),
            TableColumn.of(metric),
            TableColumn("inaudible", "inaudible successes", "%"),
            *(TableColumn.of(name) for name in OPINIONS if name != metric and _measured(summary, name)),
        ],
        cells=[(panel.title, _rows(panel, summary, metric)) for panel in panels],
    )


def describe_ear(metric: str) -> str:
    """Whose P(heard) it is, and what that rests on, for every figure and sentence that shows it."""
    found = find_metric(metric)
    if not isinstance(found, EarMetric) or found.ear != Learned.name:
        return "psychoacoustic masking model, not tested with listeners"
    try:
        ear = open_ear(found.ear)
    except SottovoceError:
        return SIMULATED
    people = isinstance(ear, Learned) and ear.facts.get("listeners") == "people"
    return "learned metric, trained on the answers of people" if people else SIMULATED


def say_unnoticed(summary: Summary, panel: Panel, metric: str) -> str:
    """The main result of an audit in one sentence."""
    curve = worst(summary, panel.cells, metric)
    if not curve.clips:
        return ""
    share, ear = show(curve.below(FEW), "%"), describe_ear(metric)
    fooled = f"{whole(curve.fewer(FEW))} of {plural(curve.clips, 'clip')}"
    behind = f" behind {panel.defense}" if panel.defended else ""
    unknown = f" {plural(curve.unknown, 'fooled clip')} without a P(heard) count as noticed."
    return (
        f"{fooled}{behind} can be fooled with a perturbation that "
        f"fewer than one in four attentive listeners would notice: {share} ({ear})."
        f"{unknown if curve.unknown else ''}"
    )


def heard_chart(
    panel: Panel, summary: Summary, series: Sequence[Series], metric: str, ear: str, name: str
) -> tuple[Chart, list[Series]] | None:
    """Share of clips fooled with a P(heard) of at most x: a line an attack, and one for all of them."""
    cells: dict[str, list[str]] = {}
    for item in panel.cells:
        if item.has("success") and item.has(metric):
            cells.setdefault(form_title(item.cell), []).append(item.cell.id)
    if not cells:
        return None
    curves = {
        attack: draw_curve([summary.outcomes[cell] for cell in ids], metric) for attack, ids in cells.items()
    }
    shown = [each for each in shown_in(panel, series) if each.name in curves]
    if len({form_title(item.cell) for item in panel.cells if item.attacks}) > 1:
        shown, curves[WORST] = [ALL, *shown], worst(summary, panel.cells, metric)
    rows = [row for attack, curve in curves.items() for row in _steps(attack, curve)]
    where = f", {panel.title}" if panel.title else ""
    words = f"Share of clips fooled by P(heard){where} ({ear}): " + "; ".join(
        f"{attack} {number(curve.up_to(p).value, '%')} % up to {p:g}"
        for attack, curve in curves.items()
        for p in (FEW, JND)
    )
    return Chart(name, finish(_lines(rows, shown, ear), words), words), shown


def _steps(attack: str, curve: HeardCurve) -> list[dict[str, Any]]:
    """The points at which a curve rises, and its two ends."""
    rows: list[dict[str, Any]] = []
    for place in range(STEPS + 1):
        found = curve.up_to(place / STEPS)
        if place in (0, STEPS) or round(found.value, 4) != rows[-1]["share"]:
            bounds = {"low": round(found.low, 4), "high": round(found.high, 4)}
            rows.append({"attack": attack, "p": place / STEPS, "share": round(found.value, 4), **bounds})
    return rows


def _lines(rows: list[dict[str, Any]], series: Sequence[Series], ear: str) -> Spec:
    base = {"x": heard_axis("p:Q", f"P(heard), less heard ← ({ear})"), "color": colour_by(series)}
    title = "clips fooled with at most this P(heard)"
    band = {"y": heard_axis("low:Q", title), "y2": channel("high"), "detail": channel("attack:N")}
    line = {
        "y": heard_axis("share:Q", title),
        "strokeDash": dash_by(series),
        "tooltip": [channel("attack:N"), *share_tooltip(), *interval_tooltip()],
    }
    return layered(
        rows,
        rule_at([FEW, JND], 1.2),
        mark("area", {**base, **band}, opacity=0.1, interpolate="step-after"),
        mark("line", {**base, **line}, strokeWidth=2.2, interpolate="step-after"),
    )


def heard_axis(field: str, title: str) -> Spec:
    return channel(field, title=title, scale={"domain": [0, 1]}, axis=PERCENT)


def share_tooltip() -> list[Spec]:
    return [
        channel("p:Q", format=".0%", title="P(heard) up to"),
        channel("share:Q", format=".1%", title="clips fooled"),
    ]


def _rows(panel: Panel, summary: Summary, metric: str) -> list[TableRow]:
    other = [name for name in OPINIONS if name != metric and _measured(summary, name)]
    spans = cover([form_title(item.cell) for item in panel.cells])
    return [
        TableRow(
            heads=(form_title(item.cell), item.cell.budget_title),
            figures=[
                show(item.estimates.get("success"), "%"),
                show(item.estimates.get(metric), "%"),
                show(inaudible(summary.outcomes[item.cell.id], metric), "%"),
                *(show(item.estimates.get(name), "%") for name in other),
            ],
            counted="",
            failed=0,
            lost=0,
            kind="" if item.attacks else "noise",
            span=span,
        )
        for item, span in zip(panel.cells, spans, strict=True)
    ]


def _measured(summary: Summary, metric: str) -> bool:
    return any(item.has(metric) for item in summary.cells)
