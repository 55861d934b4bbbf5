"""Rows as they are shown: figures with their intervals, the attacks behind them, and what to say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sottovoce.leaderboard.attacks_behind import canonical
from sottovoce.leaderboard.claims.claim import Claim, Figure, Worst
from sottovoce.leaderboard.merged_rows import BoardRow, Try
from sottovoce.report.shown_words import DASH, FORMS, GAP, number, plural, whole

UNCHECKED = "not checked"


@dataclass(frozen=True)
class ShownFigure:
    """A figure as it is shown. order: what it is sorted by, "" where there is none."""

    value: str
    small: tuple[str, ...]
    note: str
    order: str
    share: float | None = None


@dataclass(frozen=True)
class ShownAttack:
    """An attack behind the figures of a row: as it is written, at most how many passes, and what it did."""

    title: str
    passes: int
    note: str


@dataclass(frozen=True)
class ShownRow:
    """A row as it is shown. place: its rank among those like it, or why it has none."""

    row: BoardRow
    title: str
    words: str
    """All that the filter looks at."""
    place: str
    clean: ShownFigure
    worst: list[ShownFigure]
    unheard: ShownFigure
    certified: ShownFigure
    attacks: list[ShownAttack]
    sources: str


def make_line(row: BoardRow, place: str, title: str, budgets: Sequence[str]) -> ShownRow:
    claim = row.claim
    worst = {canonical("budget", each.budget): each for each in claim.worst}
    attacks = _attacks(row)
    told = [text for entry in row.entries for text in (entry.claim.who, entry.claim.notes, entry.claim.id)]
    words = [
        claim.target, claim.description, claim.defense, claim.goal, claim.data, claim.run, *told,
        *(each.title for each in attacks),
    ]  # fmt: skip
    return ShownRow(
        row=row,
        title=title,
        words=" ".join(word for word in words if word).lower(),
        place=place,
        clean=_cell(claim.clean.wer or claim.clean.accuracy, "not measured"),
        worst=[_worst(row, worst.get(budget)) for budget in budgets],
        unheard=_doubtful(_unheard(row), "unheard" in row.trusted),
        certified=_doubtful(_certified(claim), "certified" in row.trusted),
        attacks=attacks,
        sources=_sources(row),
    )


def _attacks(row: BoardRow) -> list[ShownAttack]:
    """All attacks of a row, each once, those with the most passes first."""
    found: dict[str, list[tuple[str, Try]]] = {}
    for worst in row.claim.worst:
        for each in row.behind[worst.budget]:
            found.setdefault(_form(each), []).append((worst.title, each))
    attacks = [
        ShownAttack(
            title,
            max(each.passes for _, each in tries),
            "; ".join(f"{_percent(each.value)} at {budget}" for budget, each in tries),
        )
        for title, tries in found.items()
    ]
    return sorted(attacks, key=lambda each: -each.passes)


def _form(found: Try) -> str:
    form = FORMS[found.attacker]
    return f"{found.attack}, {form}" if form else found.attack


def _sources(row: BoardRow) -> str:
    """What a row is put together from; nothing where that is one run or claim."""
    claims = sum(entry.submitted for entry in row.entries)
    runs = len(row.entries) - claims
    counts = [plural(count, noun) for count, noun in ((runs, "run"), (claims, "claim")) if count]
    return f"combined from {' and '.join(counts)}" if len(row.entries) > 1 else ""


def _worst(row: BoardRow, worst: Worst | None) -> ShownFigure:
    if worst is None:
        return _cell(None, "not attacked at this budget")
    tries, other = row.behind[worst.budget], worst.success if row.claim.lead == "wer" else None
    words = [f"the strongest {_form(tries[0])} ({_percent(tries[0].value)})"]
    if other is not None:
        words.append(f"more word errors than before in {_percent(other.value)} of the clips")
    cell = _cell(row.claim.figure(worst), "", words, bar=True)
    passes = sum(each.passes for each in tries)
    return replace(cell, small=(*cell.small, f"{plural(len(tries), 'attack')}, {tell_passes(passes)}"))


def tell_passes(count: int) -> str:
    return f"{whole(count)} {'pass' if count == 1 else 'passes'}"


def _unheard(row: BoardRow) -> ShownFigure:
    found = row.claim.unheard
    if found is None:
        return _cell(None, "P(heard) was not measured")
    words = [f"fooled with a P(heard) below {found.below:g} ({found.ear})"]
    if len(row.entries) > 1:
        words.append("a lower bound: from one of the runs that the row combines")
    return _cell(found.share, "", words, bar=True)


def _certified(claim: Claim) -> ShownFigure:
    if claim.certified is None:
        return _cell(None, "no certificates")
    found = claim.certified
    levels = ", ".join(f"{_percent(each.right.value)} at {each.snr_db:g} dB" for each in found.levels)
    words = [f"{found.defense}, {found.passes} passes, alpha {found.alpha:g}"]
    return _cell(found.share, "", [*words, *([f"by SNR: {levels}"] if levels else [])], bar=True)


def _doubtful(cell: ShownFigure, trusted: bool) -> ShownFigure:
    return replace(cell, small=(*cell.small, UNCHECKED)) if trusted and cell.order else cell


def _cell(figure: Figure | None, why: str, words: Sequence[str] = (), *, bar: bool = False) -> ShownFigure:
    if figure is None:
        return ShownFigure(DASH, (), why, "")
    small = []
    if figure.low is not None and figure.high is not None:
        small.append(f"[{number(figure.low, '%')}, {number(figure.high, '%')}]")
    if len(figure.seeds) > 1:
        low, high = number(min(figure.seeds), "%"), number(max(figure.seeds), "%")
        small.append(f"{len(figure.seeds)} seeds: {low} to {high}")
    note = "; ".join([f"n = {figure.n}", *([figure.method] if figure.method else []), *words])
    share = min(figure.value, 1.0) if bar else None
    return ShownFigure(_percent(figure.value), tuple(small), note, f"{figure.value:.6f}", share)


def _percent(value: float) -> str:
    return f"{number(value, '%').removesuffix('.0')}{GAP}%"
