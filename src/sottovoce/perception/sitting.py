"""A simulated person in a session of the listening test: the adaptive rule, sentinels and lapses included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.draws import Draws
from sottovoce.perception.jnd import RULE, Jnd, Rule
from sottovoce.perception.listeners import Listener
from sottovoce.perception.session import SessionPlan, Slot, Verdict, judge_session

OBVIOUS = 100.0
"""The strength at which listeners are asked about a sentinel."""


class Heard(NamedTuple):
    """One answer in a session. strength: None of a sentinel."""

    slot: Slot
    strength: float | None
    different: bool


class Sitting(NamedTuple):
    """A whole session: the answers in order, the search along each reference, and whether it counts."""

    heard: list[Heard]
    searches: list[Jnd]
    verdict: Verdict


def sit(
    listeners: Sequence[Listener],
    sentinels: Sequence[Listener],
    plan: SessionPlan,
    draws: Draws,
    *,
    levels: Sequence[float] | None = None,
    explore: int = 0,
    rule: Rule = RULE,
) -> Sitting:
    """Let one person answer a session.

    listeners, sentinels: that person along each reference's path, and before each reference's sentinel.
    levels: the strengths that can be played; None: any. explore: comparisons of each reference that are
    drawn evenly from all strengths before the rule takes over.
    """
    searches = [Jnd(rule=rule) for _ in listeners]
    heard: list[Heard] = []
    slots = [slot for slot in plan.slots(draws.turn("slots")) if slot.kind != "teaching"]
    for trial, slot in enumerate(slots):
        place, search = slot.reference, searches[slot.reference]
        if slot.kind == "sentinel":
            heard.append(Heard(slot, None, sentinels[place].answer(OBVIOUS, trial)))
            continue
        source = draws.turn("reference", place)
        if len(search.answers) < explore:
            strength = _anywhere(source.generator(f"explore {len(search.answers)}"), levels)
        else:
            strength = search.next(source, levels)
        different = listeners[place].answer(strength, trial)
        heard.append(Heard(slot, strength, different))
        searches[place] = search.add(strength, different)
    return Sitting(heard, searches, judge_session(slots, [one.different for one in heard]))


def _anywhere(source: np.random.Generator, levels: Sequence[float] | None) -> float:
    choices: NDArray[np.float64] | None = None if levels is None else np.asarray(levels, dtype=np.float64)
    return float(100.0 * source.random() if choices is None else source.choice(choices))
