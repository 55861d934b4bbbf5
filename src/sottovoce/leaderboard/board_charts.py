"""The leaderboard's charts: worst case against budget, and success against P(heard), a line a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sottovoce.auditing.results.heard_curve import FEW, JND
from sottovoce.leaderboard.claims.claim import Claim
from sottovoce.registry.part_text import Part
from sottovoce.report.charts import (
    COLOURS,
    SHAPES,
    Chart,
    RateAxis,
    Series,
    colour_by,
    dash_by,
    interval_tooltip,
    rule_at,
    shape_by,
    side_by_side,
    snr_axis,
)
from sottovoce.report.heard_section import heard_axis, share_tooltip
from sottovoce.report.shown_words import number
from sottovoce.report.vega import Spec, channel, finish, layered, mark

MOST_LINES = 12
"""More lines than this cannot be distinguished."""
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
    rate = RateAxis(lead, 1.0 if lead == "success" else max(1.0, *(row["high"] for row in rows)))
    lines = all(row["asked"] is not None for row in rows) and len({row["asked"] for row in rows}) > 1
    drawn = _lines(rows, series, rate) if lines else _points(rows, series, rate)
    words = "Worst case over all attacks, by budget: " + "; ".join(
        f"{row['attack']} at {row['budget']} {number(row[lead], '%')} %" for row in rows
    )
    return Chart(name, finish(drawn, words), words)


def _asked(budget: str) -> float | None:
    part = Part.parse(budget)
    return float(part.settings["db"]) if part.name == "snr" else None


def _lines(rows: list[dict[str, Any]], series: Sequence[Series], rate: RateAxis) -> Spec:
    base = {"x": snr_axis("asked:Q", "SNR asked for"), "color": colour_by(series)}
    return layered(
        rows,
        mark("rule", {**base, "y": rate.axis("low"), "y2": channel("high")}, strokeWidth=1.3, opacity=0.4),
        mark("line", {**base, "y": rate.axis(), "strokeDash": dash_by(series)}, strokeWidth=2.2),
        _dots(base, series, rate),
    )


def _points(rows: list[dict[str, Any]], series: Sequence[Series], rate: RateAxis) -> Spec:
    base = side_by_side(series, list(dict.fromkeys(row["budget"] for row in rows)))
    bars = {**base, "y": rate.axis("low"), "y2": channel("high")}
    return layered(rows, mark("rule", bars, strokeWidth=2, opacity=0.5), _dots(base, series, rate))


def _dots(base: Spec, series: Sequence[Series], rate: RateAxis) -> Spec:
    tooltip = [
        channel("attack:N", title="target"),
        channel("budget:N"),
        channel(f"{rate.metric}:Q", format=".1%", title=rate.title),
        *interval_tooltip(),
        channel("n:Q", title="clips"),
    ]
    encoding = {**base, "y": rate.axis(), "shape": shape_by(series), "tooltip": tooltip}
    return mark("point", encoding, filled=True, size=64, opacity=1)


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
    encoding = {
        "x": heard_axis("p:Q", "P(heard), less heard ←"),
        "y": heard_axis("share:Q", "clips fooled with at most this P(heard)"),
        "color": colour_by(shown),
        "strokeDash": dash_by(shown),
        "tooltip": [channel("attack:N", title="target"), *share_tooltip()],
    }
    line = mark("line", encoding, strokeWidth=2.2, interpolate="step-after")
    words = "Share of clips fooled by P(heard): " + "; ".join(
        f"{each.name} {number(curve[round(FEW * (len(curve) - 1))], '%')} % up to {FEW:g}"
        for each, curve in known
        if curve
    )
    return Chart(name, finish(layered(rows, rule_at([FEW, JND], 1.2), line), words), words)
