"""Numbers as a study's tables show them."""

from __future__ import annotations

import math

from sottovoce.core.statistics import Interval

MISSING = "–"


def percent(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else f"{100 * value:.1f}"


def percent_interval(found: Interval | None) -> str:
    if found is None or math.isnan(found.value):
        return MISSING
    return f"{100 * found.value:.1f} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def db_interval(found: Interval | None) -> str:
    if found is None or math.isnan(found.value):
        return MISSING
    if math.isnan(found.low):
        return f"{found.value:.1f}"
    return f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"


def printed(value: float | None) -> str:
    """A number of the paper, with the two decimals it is printed with."""
    return MISSING if value is None else f"{value:.2f}"


def as_printed(value: float | None, unit: str = "") -> str:
    """A number of a paper whose tables keep as many decimals as they need."""
    return MISSING if value is None else f"{value:g}{unit}"
