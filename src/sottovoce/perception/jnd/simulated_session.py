"""A simulated person in a session of the listening test: the adaptive rule, sentinels and lapses included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.draws import Draws
from sottovoce.perception.jnd.jnd_rule import RULE, Jnd, JndRule
from sottovoce.perception.jnd.session_plan import PlannedTrial, SessionCheck, SessionPlan, judge_session
from sottovoce.perception.jnd.simulated_listeners import Listener

OBVIOUS = 100.0
"""The strength at which listeners are asked about a sentinel."""


class SessionAnswer(NamedTuple):
    """One answer in a session. strength: None of a sentinel."""

    slot: PlannedTrial
    strength: float | None
    different: bool


class SimulatedSession(NamedTuple):
    """A whole session: the answers in order, the search along each reference, and whether it counts."""

    heard: list[SessionAnswer]
    searches: list[Jnd]
    verdict: SessionCheck


def sit(
    listeners: Sequence[Listener],
    sentinels: Sequence[Listener],
    plan: SessionPlan,
    draws: Draws,
    *,
    levels: Sequence[float] | None = None,
    explore: int = 0,
    rule: JndRule = RULE,
) -> SimulatedSession:
    """Let one person answer a session.

    listeners, sentinels: that person along each reference's path, and before each reference's sentinel.
    levels: the strengths that can be played; None: any. explore: comparisons of each reference that are
    drawn evenly from all strengths before the rule takes over.
    """
    searches = [Jnd(rule=rule) for _ in listeners]
    heard: list[SessionAnswer] = []
    slots = [slot for slot in plan.slots(draws.turn("slots")) if slot.kind != "teaching"]
    for trial, slot in enumerate(slots):
        place, search = slot.reference, searches[slot.reference]
        if slot.kind == "sentinel":
            heard.append(SessionAnswer(slot, None, sentinels[place].answer(OBVIOUS, trial)))
            continue
        source = draws.turn("reference", place)
        if len(search.answers) < explore:
            strength = _anywhere(source.generator(f"explore {len(search.answers)}"), levels)
        else:
            strength = search.next(source, levels)
        different = listeners[place].answer(strength, trial)
        heard.append(SessionAnswer(slot, strength, different))
        searches[place] = search.add(strength, different)
    return SimulatedSession(heard, searches, judge_session(slots, [one.different for one in heard]))


def _anywhere(source: np.random.Generator, levels: Sequence[float] | None) -> float:
    choices: NDArray[np.float64] | None = None if levels is None else np.asarray(levels, dtype=np.float64)
    return float(100.0 * source.random() if choices is None else source.choice(choices))
