"""The leaderboard's charts: worst case against budget, and success against P(heard), a line a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from sottovoce.audit.heard import FEW, JND
from sottovoce.audit.parts import Part
from sottovoce.leaderboard.claim import Claim
from sottovoce.report.figures import COLOURS, SHAPES, Chart, Layers, Rate, Series, colour_by, dash_by, finish
from sottovoce.report.words import number

MOST_LINES = 12
"""More than these cannot be told apart."""
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (2, 3))


def make_series(titles: Sequence[str]) -> list[Series]:
    """How each row is drawn, in every chart alike."""
    return [
        Series(
            title,
            f"var(--c{place % COLOURS + 1})",
            SHAPES[place % len(SHAPES)],
            DASHES[place // COLOURS % len(DASHES)],
        )
        for place, title in enumerate(titles)
    ]


def budget_chart(claims: Sequence[Claim], series: Sequence[Series], name: str) -> Chart | None:
    """The worst case against the budget: lines over SNR, else points side by side."""
    rows: list[dict[str, Any]] = [
        {
            "attack": each.name,
            "budget": worst.title,
            "asked": _asked(worst.budget),
            claim.lead: round(figure.value, 4),
            "low": round(figure.value if figure.low is None else figure.low, 4),
            "high": round(figure.value if figure.high is None else figure.high, 4),
            "n": figure.n,
        }
        for claim, each in zip(claims, series, strict=True)
        for worst in claim.worst
        if (figure := claim.figure(worst)) is not None
    ]
    if not rows:
        return None
    lead = claims[0].lead
    rate = Rate(lead, 1.0 if lead == "success" else max(1.0, *(row["high"] for row in rows)))
    lines = all(row["asked"] is not None for row in rows) and len({row["asked"] for row in rows}) > 1
    drawn = _lines(rows, series, rate) if lines else _points(rows, series, rate)
    words = "Worst case over all attacks, by budget: " + "; ".join(
        f"{row['attack']} at {row['budget']} {number(row[lead], '%')} %" for row in rows
    )
    return Chart(name, finish(drawn, words), words)


def _asked(budget: str) -> float | None:
    part = Part.parse(budget)
    return float(part.settings["db"]) if part.name == "snr" else None


def _lines(rows: list[dict[str, Any]], series: Sequence[Series], rate: Rate) -> Layers:
    axis = alt.Axis(tickCount=6, labelFlush=False)
    x = alt.X(
        "asked:Q", title="SNR asked for (dB), quieter →", scale=alt.Scale(zero=False, padding=14), axis=axis
    )
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, color=colour_by(series))
    bars = base.mark_rule(strokeWidth=1.3, opacity=0.4).encode(y=rate.axis("low"), y2="high:Q")
    line = base.mark_line(strokeWidth=2.2).encode(y=rate.axis(), strokeDash=dash_by(series))
    return alt.layer(bars, line, _dots(base, series, rate))


def _points(rows: list[dict[str, Any]], series: Sequence[Series], rate: Rate) -> Layers:
    names = [each.name for each in series]
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("budget:N", title="budget", sort=budgets, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("attack:N", sort=names, scale=alt.Scale(domain=names, padding=0.6)),
        color=colour_by(series),
    )
    bars = base.mark_rule(strokeWidth=2, opacity=0.5).encode(y=rate.axis("low"), y2="high:Q")
    return alt.layer(bars, _dots(base, series, rate))


def _dots(base: alt.Chart, series: Sequence[Series], rate: Rate) -> alt.Chart:
    names, shapes = [each.name for each in series], [each.shape for each in series]
    dots: alt.Chart = base.mark_point(filled=True, size=64, opacity=1).encode(
        y=rate.axis(),
        shape=alt.Shape("attack:N", scale=alt.Scale(domain=names, range=shapes), legend=None),
        tooltip=[
            alt.Tooltip("attack:N", title="target"),
            alt.Tooltip("budget:N"),
            alt.Tooltip(f"{rate.metric}:Q", format=".1%", title=rate.title),
            alt.Tooltip("low:Q", format=".1%", title="95 % from"),
            alt.Tooltip("high:Q", format=".1%", title="to"),
            alt.Tooltip("n:Q", title="clips"),
        ],
    )
    return dots


def heard_chart(claims: Sequence[Claim], series: Sequence[Series], name: str) -> Chart | None:
    """The share of clips fooled with a P(heard) of at most x, a line a row."""
    known = [(each, claim.unheard.curve) for claim, each in zip(claims, series, strict=True) if claim.unheard]
    rows = [
        {"attack": each.name, "p": place / (len(curve) - 1), "share": share}
        for each, curve in known
        if len(curve) > 1
        for place, share in enumerate(curve)
        if place in (0, len(curve) - 1) or share != curve[place - 1]
    ]
    if not rows:
        return None
    shown = [each for each, _ in known]
    percent = alt.Axis(format=".0%", tickCount=5, labelExpr="replace(datum.label, '%', ' %')")
    scale = alt.Scale(domain=[0, 1])
    line = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(strokeWidth=2.2, interpolate="step-after")
        .encode(
            x=alt.X("p:Q", title="P(heard), less heard ←", scale=scale, axis=percent),
            y=alt.Y("share:Q", title="clips fooled with at most this P(heard)", scale=scale, axis=percent),
            color=colour_by(shown),
            strokeDash=dash_by(shown),
            tooltip=[
                alt.Tooltip("attack:N", title="target"),
                alt.Tooltip("p:Q", format=".0%", title="P(heard) up to"),
                alt.Tooltip("share:Q", format=".1%", title="clips fooled"),
            ],
        )
    )
    marks = alt.Chart(alt.InlineData(values=[{"at": FEW}, {"at": JND}]))
    rules = marks.mark_rule(strokeDash=[5, 4], color="var(--mark)", strokeWidth=1.2).encode(x="at:Q")
    words = "Share of clips fooled by P(heard): " + "; ".join(
        f"{each.name} {number(curve[round(FEW * (len(curve) - 1))], '%')} % up to {FEW:g}"
        for each, curve in known
        if curve
    )
    return Chart(name, finish(alt.layer(rules, line), words), words)
