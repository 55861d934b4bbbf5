"""What analyses read: one row an answer, as the database gives it, and whose answers they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, final

from sottovoce.errors import InputError

Who = Literal["people", "simulated", "mixed"]
TITLES: Mapping[Who, str] = {
    "people": "people",
    "simulated": "SIMULATED listeners, not people",
    "mixed": "people and SIMULATED listeners, mixed",
}
"""Whose answers they are, in words that are shown with every figure."""
VISIT_COLUMNS = (
    "listeners", "session", "seat", "state", "accepted", "reason", "notes", "arrived_with", "code", "created",
    "finished",
)  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """One screen that was answered.

    session: which one, an id that leads to nobody. accepted: whether the session counts; None: not finished.
    place: of the screen in the session. kind: of the screen. block: of the study; -1 outside blocks.
    roles: clip keys by the labels of the slots. truth, facts: as kept of the screen; given: the answer.
    seconds: that it took. plays: how often each slot was played. reason: why a session does not count.
    notes: checks that the listener failed and was let through. dither: whether each slot had noise of
    its own.
    """

    session: str
    seat: int
    simulated: bool
    accepted: bool | None
    place: int
    kind: str
    block: int
    teaching: bool
    sentinel: bool
    roles: Mapping[str, str]
    truth: Mapping[str, Any]
    facts: Mapping[str, str]
    given: Mapping[str, Any]
    seconds: float
    plays: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    notes: str = ""
    dither: bool = False

    @property
    def asked(self) -> bool:
        """Whether the answer is about what the study asks: neither teaching nor a test of the listener."""
        return not self.teaching and not self.sentinel

    @property
    def right(self) -> bool | None:
        """Whether the answer is the right one; None where none is."""
        if self.kind == "same-different":
            different = self.truth.get("different")
            return None if different is None else bool(self.given["different"] == different)
        choice = self.truth.get("choice")
        return None if choice is None else bool(self.given.get("choice") == choice)

    def fact(self, name: str) -> str:
        """What analyses group by; "" where it is not known."""
        return str(self.facts.get(name, ""))

    def clip(self, role: str) -> str:
        """The key of the clip in a slot, by its role or its label: "first", "First"."""
        for label, key in self.roles.items():
            if label.lower() == role.lower():
                return key
        raise InputError(
            f"session {self.session!r}, screen {self.place}: expected a slot {role!r}, got "
            f"{', '.join(self.roles) or 'none'}; was the answer given to another version of the study?"
        )


@final
@dataclass(frozen=True, kw_only=True)
class Visit:
    """One session, whether anything was answered or not.

    state: "open", "abandoned" or "finished". accepted, reason, notes: as of its answers. arrived_with: what
    the recruiting site put in the address. code: what the listener was given at the end. Times are UTC.
    """

    session: str
    seat: int
    simulated: bool
    state: str
    accepted: bool | None
    reason: str
    notes: str
    arrived_with: Mapping[str, str]
    code: str
    created: datetime
    finished: datetime | None

    def line(self) -> list[Any]:
        """For a CSV with VISIT_COLUMNS; what has parts is JSON."""
        known: dict[str, Any] = {
            "listeners": TITLES["simulated" if self.simulated else "people"],
            "arrived_with": json.dumps(dict(self.arrived_with), ensure_ascii=False, sort_keys=True),
            "created": self.created.isoformat(timespec="seconds"),
            "finished": "" if self.finished is None else self.finished.isoformat(timespec="seconds"),
        }
        return [known[name] if name in known else getattr(self, name) for name in VISIT_COLUMNS]


def choose(rows: Iterable[AnswerRow], who: Who | None = None) -> tuple[list[AnswerRow], Who]:
    """The rows of one kind of listener, and which kind. Both in one analysis only where `who` is "mixed".

    Without `who`: that of all rows; where there are both, this raises.
    """
    every = list(rows)
    kinds = {row.simulated for row in every}
    if who is None:
        if len(kinds) > 1:
            count = len({row.session for row in every if row.simulated})
            raise InputError(
                f"there are answers of people and of simulated listeners ({count} of "
                f"{len({row.session for row in every})} sessions are simulated): choose --who people, "
                "simulated "
                "or mixed."
            )
        return every, "simulated" if True in kinds else "people"
    if who == "mixed":
        return every, "mixed" if len(kinds) > 1 else "simulated" if True in kinds else "people"
    wanted = who == "simulated"
    return [row for row in every if row.simulated == wanted], who


def counted(rows: Iterable[AnswerRow], *, unfinished: bool = False) -> list[AnswerRow]:
    """The answers that count: of accepted sessions, without teaching and sentinels.

    unfinished: whether those of sessions that were not finished count as well.
    """
    return [row for row in rows if row.asked and (row.accepted or (unfinished and row.accepted is None))]


def order_levels(levels: Iterable[str]) -> list[str]:
    """Tranches as a reader expects them: low, medium, high; numbers by size; else as they came."""
    names = list(dict.fromkeys(levels))
    known = ("low", "medium", "high")
    if all(name in known for name in names):
        return sorted(names, key=known.index)
    numbers = [_number(name) for name in names]
    if all(number is not None for number in numbers):
        return [name for _, name in sorted(zip(numbers, names, strict=True))]
    return names


def order_conditions(conditions: Iterable[str]) -> list[str]:
    """The clean one first, else as they came in sorted order."""
    return sorted(set(conditions), key=lambda name: (name.lower() != "clean", name))


def sessions(rows: Sequence[AnswerRow]) -> dict[str, list[AnswerRow]]:
    """Rows by session, each in the order of its screens."""
    found: dict[str, list[AnswerRow]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        found.setdefault(row.session, []).append(row)
    return dict(sorted(found.items()))


def _number(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None
