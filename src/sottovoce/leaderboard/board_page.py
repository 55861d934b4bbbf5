"""The page of the leaderboard, from claims alone."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sottovoce import __version__
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.leaderboard.attacks_behind import canonical
from sottovoce.leaderboard.board_charts import MOST_LINES, budget_chart, heard_chart, make_series
from sottovoce.leaderboard.claims.claim import Claim
from sottovoce.leaderboard.merged_rows import BoardRow, ClaimEntry, merge_rows
from sottovoce.leaderboard.ranking import Apart, Heat, find_met, rank_rows
from sottovoce.leaderboard.shown_rows import UNCHECKED, ShownRow, make_line, tell_passes
from sottovoce.registry.part_text import Part
from sottovoce.report.report_page import bundle, read, to_data
from sottovoce.report.shown_words import goal_title, plural

GENERATOR = '<meta name="generator" content="sottovoce leaderboard">'
MOST_NAMED = 4
TITLES = {"success": "Classes: attack success", "wer": "Transcripts: WER under attack"}
ABOUT = {
    "success": "Worst case: the share of clips classified correctly before the attack that any attack "
    "breaks at a budget. Lower is better.",
    "wer": "Worst case: the WER where each clip counts under the attack that harmed it most at a budget. "
    "It can exceed 100 % when words are added. Lower is better.",
}


@dataclass(frozen=True)
class RankedTable:
    """Rows that are ranked among each other; or all that are not ranked."""

    ranked: bool
    caption: str
    budgets: list[str]
    lines: list[ShownRow]
    charts: list[Any]
    legend: list[Any]
    left: int
    """Rows that are not drawn."""


@dataclass(frozen=True)
class BoardPage:
    """All rows with one leading figure."""

    lead: str
    title: str
    about: str
    tables: list[RankedTable]
    goals: bool
    certified: bool


def render(entries: Sequence[ClaimEntry], notes: Sequence[str], trials: int) -> str:
    boards = [
        board
        for lead in TITLES
        if (board := _board([each for each in entries if each.claim.lead == lead], lead)) is not None
    ]
    drawn = any(table.charts for board in boards for table in board.tables)
    script, own = bundle() if drawn else "", read_own("leaderboard.js")
    page: str = template("leaderboard.html").render(
        boards=boards,
        targets=len({each.claim.target for each in entries}),
        trials=trials,
        notes=list(notes),
        ears=sorted({each.claim.unheard.ear for each in entries if each.claim.unheard}),
        unchecked=UNCHECKED,
        version=__version__,
        style=Markup(read("style.css") + read_own("leaderboard.css")),
        script=Markup(script),
        own=Markup(own),
        policy=policy(script, own),
        generator=Markup(GENERATOR),
    )
    return page


def policy(*scripts: str) -> str:
    """A content security policy under which these scripts run and nothing is loaded from outside."""
    digests = " ".join(
        f"'sha256-{base64.b64encode(sha256(each.encode()).digest()).decode()}'" for each in scripts if each
    )
    return (
        f"default-src 'none'; script-src {digests or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def template(name: str) -> Any:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data"] = to_data
    environment.filters["plural"] = plural
    environment.filters["passes"] = tell_passes
    return environment.from_string(read_own(name))


@cache
def read_own(name: str) -> str:
    return (files("sottovoce.leaderboard") / name).read_text(encoding="utf-8")


def _board(entries: Sequence[ClaimEntry], lead: str) -> BoardPage | None:
    if not entries:
        return None
    rows = merge_rows(entries)
    heats, apart = rank_rows(rows)
    goals = len({row.claim.goal for row in rows}) > 1
    titles = dict(zip(map(id, rows), _titles([row.claim for row in rows], goals), strict=True))
    names = [f"{lead}-{number}" if number > 1 else lead for number in range(1, len(heats) + 2)]
    tables = [_ranked(heat, titles, name) for heat, name in zip(heats, names, strict=False)]
    if apart:
        tables.append(_apart(apart, titles, names[len(heats)]))
    return BoardPage(
        lead=lead,
        title=TITLES[lead],
        about=ABOUT[lead],
        tables=tables,
        goals=goals,
        certified=any(row.claim.certified for row in rows),
    )


def _ranked(heat: Heat, titles: Mapping[int, str], name: str) -> RankedTable:
    first = heat.rows[0].claim
    attacks = dict.fromkeys(met.words for row in heat.rows for met in find_met(row))
    caption = (
        f"{plural(len(heat.rows), 'row')} on the same {plural(first.clips, 'clip')} ({first.data}), goal "
        f"{goal_title(Part.parse(first.goal))}, under {_some(list(attacks))}; ordered by the mean worst "
        "case over the budgets"
    )
    places = [f"{place} of {len(heat.rows)}" for place in heat.places]
    return _table(True, caption, heat.rows, places, titles, name)


def _apart(apart: Sequence[Apart], titles: Mapping[int, str], name: str) -> RankedTable:
    caption = f"{plural(len(apart), 'row')}, by name, with the reason why they are not ranked"
    rows, reasons = [each.row for each in apart], [each.reason for each in apart]
    return _table(False, caption, rows, reasons, titles, name)


def _table(
    ranked: bool,
    caption: str,
    rows: Sequence[BoardRow],
    places: Sequence[str],
    titles: Mapping[int, str],
    name: str,
) -> RankedTable:
    budgets = {canonical("budget", worst.budget): worst.title for row in rows for worst in row.claim.worst}
    order = sorted(budgets, key=_loudness)
    # Lines in one chart are compared, so rows that are not alike are not drawn together.
    drawn = [row.claim for row in rows[:MOST_LINES]] if ranked or len(rows) == 1 else []
    series = make_series([titles[id(row)] for row in rows[: len(drawn)]])
    charts = [budget_chart(drawn, series, f"worst-{name}"), heard_chart(drawn, series, f"heard-{name}")]
    return RankedTable(
        ranked=ranked,
        caption=caption,
        budgets=[budgets[each] for each in order],
        lines=[
            make_line(row, place, titles[id(row)], order) for row, place in zip(rows, places, strict=True)
        ],
        charts=[chart for chart in charts if chart is not None],
        legend=series,
        left=max(0, len(rows) - MOST_LINES) if drawn else 0,
    )


def _loudness(budget: str) -> tuple[str, float]:
    """Budgets of a kind beside each other, the louder first."""
    part = Part.parse(budget)
    numbers = [float(each) for each in part.settings.values() if isinstance(each, int | float)]
    size = numbers[0] if numbers else 0.0
    return part.name, size if part.name == "snr" else -size


def _titles(claims: Sequence[Claim], goals: bool) -> list[str]:
    """Short names for charts; where two are alike, with the data or a number."""
    names = []
    for claim in claims:
        words = [claim.target]
        if claim.defense != NO_DEFENSE:
            words.append(f"behind {claim.defense}")
        if goals:
            words.append(goal_title(Part.parse(claim.goal)))
        names.append(", ".join(words))
    if len(set(names)) < len(names):
        names = [f"{name}, {claim.data}" for name, claim in zip(names, claims, strict=True)]
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return "; ".join(names[:MOST_NAMED]) + more
