"""The page of the leaderboard, from claims alone."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Literal
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from sottovoce import __version__
from sottovoce.audit.defense import NO_DEFENSE
from sottovoce.audit.parts import Part
from sottovoce.leaderboard.charts import MOST_LINES, budget_chart, heard_chart, make_series
from sottovoce.leaderboard.claim import Claim, Figure, Worst
from sottovoce.report.html import bundle, read, to_data
from sottovoce.report.words import DASH, FORMS, GAP, goal_title, number, plural

GENERATOR = '<meta name="generator" content="sottovoce leaderboard">'
UNCHECKED = "not checked"
TITLES = {"success": "Classes: attack success", "wer": "Transcripts: WER under attack"}
ABOUT = {
    "success": "Worst case: the share of clips heard right before that any attack of the run breaks at a "
    "budget. Lower is better.",
    "wer": "Worst case: the WER where every clip counts under the attack that did it most harm at a budget. "
    "It passes 100 % where words are added. Lower is better.",
}


@dataclass(frozen=True)
class Link:
    title: str
    path: str

    @property
    def address(self) -> str:
        return quote(self.path, safe="/")


Trusted = Literal["unheard", "certified", "doubts"]


@dataclass(frozen=True)
class Entry:
    """A row and where to read more of it.

    trusted: what is shown as someone claims it: nothing here can check it.
    """

    claim: Claim
    links: list[Link]
    trusted: frozenset[Trusted] = frozenset()


@dataclass(frozen=True)
class Cell:
    """A figure as it is shown. order: what it is sorted by, "" where there is none."""

    value: str
    small: tuple[str, ...]
    note: str
    order: str
    share: float | None = None


@dataclass(frozen=True)
class Row:
    entry: Entry
    title: str
    words: str
    """All that the filter looks at."""
    clean: Cell
    worst: list[Cell]
    unheard: Cell
    certified: Cell


@dataclass(frozen=True)
class Board:
    """All rows with one leading figure."""

    lead: str
    title: str
    about: str
    budgets: list[str]
    rows: list[Row]
    goals: bool
    certified: bool
    charts: list[Any]
    legend: list[Any]
    left: int
    """Rows that are not drawn."""


def render(entries: Sequence[Entry], notes: Sequence[str], trials: int) -> str:
    boards = [
        board
        for lead in TITLES
        if (board := _board([each for each in entries if each.claim.lead == lead], lead)) is not None
    ]
    script, own = bundle() if any(board.charts for board in boards) else "", read_own("leaderboard.js")
    page: str = template("leaderboard.html").render(
        boards=boards,
        targets=len({each.claim.target for each in entries}),
        rows=len(entries),
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
    return environment.from_string(read_own(name))


@cache
def read_own(name: str) -> str:
    return (files("sottovoce.leaderboard") / name).read_text(encoding="utf-8")


def _board(entries: Sequence[Entry], lead: str) -> Board | None:
    if not entries:
        return None
    ranked = sorted(entries, key=lambda each: _mean(each.claim))
    budgets = {worst.budget: worst.title for each in ranked for worst in each.claim.worst}
    order = sorted(budgets, key=_loudness)
    goals = len({each.claim.goal for each in ranked}) > 1
    titles = _titles([each.claim for each in ranked], goals)
    drawn = [each.claim for each in ranked[:MOST_LINES]]
    series = make_series(titles[:MOST_LINES])
    charts = [budget_chart(drawn, series, f"worst-{lead}"), heard_chart(drawn, series, f"heard-{lead}")]
    return Board(
        lead=lead,
        title=TITLES[lead],
        about=ABOUT[lead],
        budgets=[budgets[name] for name in order],
        rows=[_row(each, title, order) for each, title in zip(ranked, titles, strict=True)],
        goals=goals,
        certified=any(each.claim.certified for each in ranked),
        charts=[chart for chart in charts if chart is not None],
        legend=series,
        left=max(0, len(ranked) - MOST_LINES),
    )


def _mean(claim: Claim) -> float:
    """The mean worst case over the budgets of a row: the order in which rows stand at first."""
    found = [figure.value for worst in claim.worst if (figure := claim.figure(worst)) is not None]
    return sum(found) / len(found)


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


def _row(entry: Entry, title: str, budgets: Sequence[str]) -> Row:
    claim = entry.claim
    worst = {each.budget: each for each in claim.worst}
    attacks = {rival.attack for each in claim.worst for rival in each.cells}
    words = [
        claim.target, claim.description, claim.defense, claim.goal, claim.data, claim.who, claim.notes,
        claim.id, claim.run, *sorted(attacks),
    ]  # fmt: skip
    return Row(
        entry=entry,
        title=title,
        words=" ".join(word for word in words if word).lower(),
        clean=_cell(claim.clean.wer or claim.clean.accuracy, "not measured"),
        worst=[_worst(claim, worst.get(budget)) for budget in budgets],
        unheard=_doubtful(_unheard(claim), "unheard" in entry.trusted),
        certified=_doubtful(_certified(claim), "certified" in entry.trusted),
    )


def _worst(claim: Claim, worst: Worst | None) -> Cell:
    if worst is None:
        return _cell(None, "not attacked at this budget")
    strongest = worst.cells[0]
    form = FORMS[strongest.attacker]
    name = f"{strongest.attack}, {form}" if form else strongest.attack
    other = worst.success if claim.lead == "wer" else None
    words = [f"{plural(len(worst.cells), 'attack')}, the strongest {name} ({_percent(strongest.value)})"]
    if other is not None:
        words.append(f"more word errors than before in {_percent(other.value)} of the clips")
    return _cell(claim.figure(worst), "", words, bar=True)


def _unheard(claim: Claim) -> Cell:
    if claim.unheard is None:
        return _cell(None, "P(heard) was not measured")
    few = f"fooled with a P(heard) below {claim.unheard.below:g} ({claim.unheard.ear})"
    return _cell(claim.unheard.share, "", [few], bar=True)


def _certified(claim: Claim) -> Cell:
    if claim.certified is None:
        return _cell(None, "no certificates")
    found = claim.certified
    levels = ", ".join(f"{_percent(each.right.value)} at {each.snr_db:g} dB" for each in found.levels)
    words = [f"{found.defense}, {found.passes} passes, alpha {found.alpha:g}"]
    return _cell(found.share, "", [*words, *([f"by SNR: {levels}"] if levels else [])], bar=True)


def _doubtful(cell: Cell, trusted: bool) -> Cell:
    return replace(cell, small=(*cell.small, UNCHECKED)) if trusted and cell.order else cell


def _cell(figure: Figure | None, why: str, words: Sequence[str] = (), *, bar: bool = False) -> Cell:
    if figure is None:
        return Cell(DASH, (), why, "")
    small = []
    if figure.low is not None and figure.high is not None:
        small.append(f"[{number(figure.low, '%')}, {number(figure.high, '%')}]")
    if len(figure.seeds) > 1:
        low, high = number(min(figure.seeds), "%"), number(max(figure.seeds), "%")
        small.append(f"{len(figure.seeds)} seeds: {low} to {high}")
    note = "; ".join([f"n = {figure.n}", *([figure.method] if figure.method else []), *words])
    share = min(figure.value, 1.0) if bar else None
    return Cell(_percent(figure.value), tuple(small), note, f"{figure.value:.6f}", share)


def _percent(value: float) -> str:
    return f"{number(value, '%').removesuffix('.0')}{GAP}%"
