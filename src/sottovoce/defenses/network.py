"""Transcripts in a network of slots, the first half of ROVER (Fiscus 1997, section 2.1).

They are laid into it one after another by dynamic programming; a slot holds what each of them says in one
place, a word or silence. Costs of words and the order of ties are those of NIST's program; but with times no
word counts as shorter than `SHORTEST`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from sottovoce.core.target import Word
from sottovoce.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., Any])
Hypotheses = Sequence[Sequence[str | Word]]
"""One list of words a pass; an empty one is a pass that heard nothing."""
Align = Literal["mean", "nearest"]

SILENCE = 0
INTO, PAST, NEW = 0, 1, 2
"""Steps of an alignment: a word into a slot, past a slot with no word, a word into a slot of its own."""
# SCLITE's costs, and with times what it adds to a difference in seconds; a thousandfold, so that sums without
# times are exact and ties are ties.
INDEL, SUBSTITUTION = 3000.0, 4000.0
OTHER_WORD = 1.0
# In seconds. SCLITE has words beside silence cost their duration: two that last 20 ms would rather be alone
# than meet 60 ms apart, though times of noisy passes differ by as much.
SHORTEST = 0.25
# NIST's costs of a slot in which some pass is silent: passed over, and given a word that is new to it.
SILENT_PAST, SILENT_OTHER = 1.0, 1000.0


class Arc(NamedTuple):
    """What some passes say in a slot: a word, or "" for silence."""

    word: str
    votes: int
    confidence: float
    """The mean over those passes; of no meaning for silence."""


def network(
    hypotheses: Hypotheses, *, timed: bool = False, align: Align = "mean", same: Callable[[str], str] = str
) -> list[list[Arc]]:
    """The word transition network: one list of arcs a slot, in the order in which they came.

    The votes of a slot add up to the number of hypotheses.

    timed: align by when words were said; then hypotheses are lists of `Word`.
    align: what a word costs in a slot: the mean over the passes that are in it, or, as in NIST's program, the
        cost to the nearest of them. With the nearest, one odd pass opens a slot to its word, or to silence,
        for all that follow: where passes err much, hundreds of them then elect worse than dozens.
    same: words that it maps to one text are one; the commonest spelling stands for them.
    """
    check_align(align)
    if timed:
        check_words(hypotheses, "times")
    said = list(chain.from_iterable(hypotheses))
    if not said:
        return []
    numbers, spellings = _number([word.text if isinstance(word, Word) else word for word in said], same)
    facts = np.array([_facts(word) for word in said])
    lengths = np.array([len(words) for words in hypotheses])
    order, slot_of, word_of, votes, confidences = _lay(numbers, facts, lengths, timed, align == "nearest")
    slots: list[list[Arc]] = [[] for _ in order]
    places, means = np.argsort(order)[slot_of].tolist(), (confidences / votes).tolist()
    for place, word, count, mean in zip(places, word_of.tolist(), votes.tolist(), means, strict=True):
        slots[place].append(Arc(spellings[word], count, mean))
    return slots


def _number(texts: Sequence[str], same: Callable[[str], str]) -> tuple[Ints, list[str]]:
    """A number from 1 on for every word, and how each number is spelled; 0 is silence."""
    counts = Counter(texts)
    if "" in counts:
        raise InputError("expected words, got an empty text among them; leave it out.")
    numbers: dict[str, int] = {}
    spellings, number_of = [""], {}
    for text, count in counts.items():
        # A word whose canonical form is empty ("um", say) was still said: it stands for itself.
        number = number_of[text] = numbers.setdefault(same(text) or text, 1 + len(numbers))
        if number == len(spellings):
            spellings.append(text)
        elif count > counts[spellings[number]]:
            spellings[number] = text
    return np.array([number_of[text] for text in texts]), spellings


def _facts(word: str | Word) -> tuple[float, float, float]:
    """Start, end and confidence."""
    if isinstance(word, Word):
        return word.start_seconds, word.end_seconds, word.confidence
    return 0.0, 0.0, 1.0


def check_words(hypotheses: Hypotheses, what: str) -> None:
    if not all(isinstance(word, Word) for word in chain.from_iterable(hypotheses)):
        raise InputError(f"expected words with {what}, got bare texts; give sottovoce.core.target.Word.")


def check_align(align: str) -> None:
    if align not in ("mean", "nearest"):
        raise InputError(f"expected align mean or nearest, got {align!r}; nearest is NIST's.")


def _compiled(function: Function) -> Function:
    """Machine code, kept for later runs where there is a place to keep it."""
    code: Any
    try:
        code = numba.njit(cache=True)(function)
    except RuntimeError:
        code = numba.njit(function)
    return code  # type: ignore[no-any-return]


class _Network(NamedTuple):
    """What grows: arcs `(arcs,)` and slots `(slots,)`, both in the order in which they came."""

    size: Ints
    """How many arcs there are, and how many slots."""
    slot: Ints
    word: Ints
    votes: Ints
    confidence: Floats
    before: Ints
    """The last arc before this one with the same word, in whatever slot; -1: none."""
    last: Ints
    """The last arc of each word, `(words,)`."""
    first: Ints
    """The first arc of each slot."""
    silence: Ints
    """The arc of silence in each slot; -1: no pass is silent there."""
    said: Floats
    """How many words, and the sums of their starts and ends in seconds, `(slots, 3)`."""


# Plain loops below: expressions of whole arrays would more than double the time that compiling takes.


@_compiled
def _lay(
    words: Ints, facts: Floats, lengths: Ints, timed: bool, nearest: bool
) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    """Lay hypotheses, one after another in `words (total,)`, into a network.

    facts: start and end in seconds and confidence of each word, `(total, 3)`.
    Returns the slots in the order of time, and of every arc its slot, word, votes and sum of confidences.
    """
    total = len(words)
    arcs = 2 * total  # each word brings one at most, and each slot one of silence
    net = _Network(
        np.zeros(2, np.int64),
        np.zeros(arcs, np.int64),
        np.zeros(arcs, np.int64),
        np.zeros(arcs, np.int64),
        np.zeros(arcs, np.float64),
        np.full(arcs, -1, np.int64),
        np.full(words.max() + 1, -1, np.int64),
        np.zeros(total, np.int64),
        np.full(total, -1, np.int64),
        np.zeros((total, 3), np.float64),
    )
    order = np.zeros(0, np.int64)
    first = 0
    for turn in range(len(lengths)):
        end = first + lengths[turn]
        order = _merge(net, order, words[first:end], facts[first:end], turn, timed, nearest)
        first = end
    count = net.size[0]
    return order, net.slot[:count], net.word[:count], net.votes[:count], net.confidence[:count]


@_compiled
def _merge(
    net: _Network, order: Ints, words: Ints, facts: Floats, turn: int, timed: bool, nearest: bool
) -> Ints:
    """Lay one hypothesis into the network of `turn` others; the new order of slots."""
    arcs = _arcs(net, order, words)
    if nearest:
        steps = _steps_by_nearest(net, order, arcs, facts, timed)
    else:
        steps = _steps_by_mean(net, order, arcs, facts, turn, timed)
    grown = np.zeros(len(steps), np.int64)
    slot_place, word_place = 0, 0
    for place in range(len(steps)):
        if steps[place] == NEW:
            slot = net.size[1]
            net.size[1] += 1
            arc = net.first[slot] = _add(net, slot, words[word_place])
            if turn > 0:
                net.votes[_add(net, slot, SILENCE)] = turn
        else:
            slot = order[slot_place]
            past = steps[place] == PAST
            arc = net.silence[slot] if past else arcs[slot_place, word_place]
            if arc < 0:
                arc = _add(net, slot, SILENCE if past else words[word_place])
            slot_place += 1
        net.votes[arc] += 1
        if steps[place] != PAST:
            start, end, confidence = facts[word_place]
            net.confidence[arc] += confidence
            net.said[slot, 0] += 1.0
            net.said[slot, 1] += start
            net.said[slot, 2] += end
            word_place += 1
        grown[place] = slot
    return grown


@_compiled
def _add(net: _Network, slot: int, word: int) -> int:
    """A new arc, without votes yet."""
    arc: int = net.size[0]
    net.size[0] += 1
    net.slot[arc], net.word[arc] = slot, word
    if word == SILENCE:
        net.silence[slot] = arc
    else:
        net.before[arc], net.last[word] = net.last[word], arc
    return arc


@_compiled
def _arcs(net: _Network, order: Ints, words: Ints) -> Ints:
    """Which arc of each slot has each word, `(slots, words)`; -1: none."""
    places = np.zeros(len(order), np.int64)
    for place in range(len(order)):
        places[order[place]] = place
    found = np.full((len(order), len(words)), -1, np.int64)
    for column in range(len(words)):
        arc = net.last[words[column]]
        while arc >= 0:
            found[places[net.slot[arc]], column] = arc
            arc = net.before[arc]
    return found


@_compiled
def _steps_by_mean(net: _Network, order: Ints, arcs: Ints, facts: Floats, turn: int, timed: bool) -> Ints:
    """The cheapest steps through slots and words. Costs are sums over the `turn` passes before.

    Of equals a word goes into a slot before it opens a new one, and opens one before a slot is passed.
    """
    slots, words = arcs.shape
    cost, step = np.zeros((slots + 1, words + 1), np.float64), np.zeros((slots + 1, words + 1), np.int64)
    for column in range(words):
        cost[0, column + 1] = cost[0, column] + turn * _alone(facts, column, timed)
        step[0, column + 1] = NEW
    for row in range(slots):
        said, start, end = net.said[order[row]]
        start, end, silent = start / said, end / said, turn - said
        past = said * (_lasting(start, end) if timed else INDEL)
        cost[row + 1, 0], step[row + 1, 0] = cost[row, 0] + past, PAST
        for column in range(words):
            arc, alone = arcs[row, column], _alone(facts, column, timed)
            other = said - (net.votes[arc] if arc >= 0 else 0)
            into = silent * alone + other * (OTHER_WORD if timed else SUBSTITUTION)
            if timed:
                into += said * _apart(facts, column, start, end)
            best, move = cost[row, column] + into, INTO
            if cost[row + 1, column] + turn * alone < best:
                best, move = cost[row + 1, column] + turn * alone, NEW
            if cost[row, column + 1] + past < best:
                best, move = cost[row, column + 1] + past, PAST
            cost[row + 1, column + 1], step[row + 1, column + 1] = best, move
    return _trace(step)


@_compiled
def _steps_by_nearest(net: _Network, order: Ints, arcs: Ints, facts: Floats, timed: bool) -> Ints:
    """The cheapest steps as NIST's program finds them: to the nearest arc of each slot.

    Of equals it takes the way over the arc that came first. `over (slots + 1, words + 1)` is that arc; a word
    that opens a slot behind another keeps the arc of that one.
    """
    slots, words = arcs.shape
    cost, step = np.zeros((slots + 1, words + 1), np.float64), np.zeros((slots + 1, words + 1), np.int64)
    over = np.full((slots + 1, words + 1), -1, np.int64)
    for column in range(words):
        cost[0, column + 1] = cost[0, column] + _alone(facts, column, timed)
        step[0, column + 1] = NEW
    for row in range(slots):
        said, start, end = net.said[order[row]]
        start, end = start / said, end / said
        first, silence = net.first[order[row]], net.silence[order[row]]
        past, passed = _lasting(start, end) if timed else INDEL, first
        into_other, other = OTHER_WORD if timed else SUBSTITUTION, first
        if silence >= 0:
            past, passed = SILENT_PAST, silence
            if not timed:
                into_other, other = SILENT_OTHER, silence
        cost[row + 1, 0], step[row + 1, 0], over[row + 1, 0] = cost[row, 0] + past, PAST, passed
        for column in range(words):
            best, arc, move = cost[row, column], arcs[row, column], INTO
            if arc < 0:
                best, arc = best + into_other, other
            if timed:
                best += _apart(facts, column, start, end)
            new, behind = cost[row + 1, column] + _alone(facts, column, timed), over[row + 1, column]
            if new < best or (new == best and behind < arc):
                best, arc, move = new, behind, NEW
            skip = cost[row, column + 1] + past
            if skip < best or (skip == best and passed < arc):
                best, arc, move = skip, passed, PAST
            cost[row + 1, column + 1], over[row + 1, column + 1] = best, arc
            step[row + 1, column + 1] = move
    return _trace(step)


@_compiled
def _alone(facts: Floats, column: int, timed: bool) -> float:
    """What a word costs beside silence."""
    return _lasting(facts[column, 0], facts[column, 1]) if timed else INDEL


@_compiled
def _lasting(start: float, end: float) -> float:
    return 1000.0 * max(end - start, SHORTEST)


@_compiled
def _apart(facts: Floats, column: int, start: float, end: float) -> float:
    """How far in time a word is from the mean of a slot."""
    far: float = abs(facts[column, 0] - start) + abs(facts[column, 1] - end)
    return 1000.0 * far


@_compiled
def _trace(step: Ints) -> Ints:
    """The steps that lead to the last corner of `(slots + 1, words + 1)`."""
    row, column = step.shape[0] - 1, step.shape[1] - 1
    steps = np.zeros(row + column, np.int64)
    place = len(steps)
    while row + column > 0:
        place -= 1
        steps[place] = step[row, column]
        row, column = row - (steps[place] != NEW), column - (steps[place] != PAST)
    return steps[place:]
