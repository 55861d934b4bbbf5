"""Vega-Lite specifications as plain data: channels, marks and layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Spec = dict[str, Any]
VERSION = "6.4"
"""Of Vega-Lite: the specifications are written for it, and the page carries its script."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
PERCENT = {"format": ".0%", "tickCount": 5, "labelExpr": "replace(datum.label, '%', ' %')"}
"""An axis of shares, with a space before the sign."""
_TYPES = {"Q": "quantitative", "N": "nominal"}


def channel(column: str, **settings: Any) -> Spec:
    """A column of the data: `snr:Q` is a number, `attack:N` a name; the far end of a range has no type."""
    field, _, kind = column.partition(":")
    return {"field": field, **({"type": _TYPES[kind]} if kind else {}), **settings}


def mark(kind: str, encoding: Spec, *, rows: Sequence[Spec] | None = None, **style: Any) -> Spec:
    """One layer. rows: its own data, where they are not those of the chart."""
    own = {} if rows is None else {"data": {"values": list(rows)}}
    return {**own, "mark": {"type": kind, **style}, "encoding": encoding}


def layered(rows: Sequence[Spec], *layers: Spec, **settings: Any) -> Spec:
    """Layers over the same data."""
    return {"data": {"values": list(rows)}, "layer": list(layers), **settings}


def finish(chart: Spec, description: str) -> Spec:
    """Width of the page, and colours as CSS variables, so that a chart follows light, dark and print."""
    ink, faint = "var(--muted)", "var(--rule)"
    axis = {
        "labelColor": ink, "titleColor": ink, "gridColor": faint, "domainColor": faint, "tickColor": faint,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 10,
        "labelPadding": 6, "domain": False, "ticks": False, "labelLimit": 160,
    }  # fmt: skip
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VERSION}.json",
        "width": "container",
        "height": 280,
        "background": "transparent",
        "description": description,
        "config": {"font": FONT, "axis": axis, "view": {"stroke": None}},
        **chart,
    }
