"""What a paper says of its tables, held against ours: yes, no, or not known, with the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sottovoce.core.statistics import Interval
from sottovoce.studies.study import StudyTable


class Trend(NamedTuple):
    """holds: None where the runs that would tell are not there."""

    claim: str
    holds: bool | None
    numbers: str


def lower(claim: str, difference: Interval | None, unit: str = "points") -> Trend:
    """A claim that one rate is lower than another, from their difference, a share."""
    return compare(claim, difference, difference is not None and difference.value < 0, unit)


def higher(claim: str, difference: Interval | None, unit: str = "points") -> Trend:
    return compare(claim, difference, difference is not None and difference.value > 0, unit)


def compare(claim: str, difference: Interval | None, holds: bool, unit: str) -> Trend:
    if difference is None or math.isnan(difference.value):
        return Trend(claim, None, "not run")
    value, low, high = (100 * one for one in difference[:3])
    return Trend(claim, holds, f"{value:+.1f} {unit} [{low:+.0f}, {high:+.0f}], {difference.n} clips")


def at_least(db: float | None, edge: tuple[float, float]) -> str:
    """An SNR that was looked for between two others."""
    if db is None:
        return f"below {edge[0]:g} dB"
    return f"above {edge[1]:g} dB" if math.isinf(db) else f"{db:.1f} dB"


BY_VALUE = "Yes and no refer to the value; if the interval includes zero, these clips do not decide it."


def trend_sheet(trends: Sequence[Trend], note: str = BY_VALUE) -> StudyTable:
    words = {True: "yes", False: "NO", None: "–"}
    return StudyTable(
        title="Trends that the paper reports",
        columns=("trend", "here", "numbers"),
        rows=[(one.claim, words[one.holds], one.numbers) for one in trends],
        note=note,
        claims=True,
    )
