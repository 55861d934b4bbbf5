"""The word transition network of ROVER: transcripts that are aligned slot by slot (Fiscus 1997, section 2.1).

Transcripts are added one after another by dynamic programming; a slot holds what each of them says in one
place, a word or silence. Costs of words and the order of ties are those of NIST's program; but with times no
word counts as shorter than `SHORTEST`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.target import TimedWord
from sottovoce.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Hypotheses = Sequence[Sequence[str | TimedWord]]
"""One list of words a pass; an empty one is a pass that heard nothing."""
Align = Literal["mean", "nearest"]

SILENCE = 0
INTO, PAST, NEW = 0, 1, 2
"""Steps of an alignment: a word into a slot, past a slot with no word, a word into a slot of its own."""
# SCLITE's costs, and with times what it adds to a difference in seconds; a thousandfold, and with times to
# the nearest of `GRAINS`, so that sums are exact and ties are ties.
INDEL, SUBSTITUTION = 3000.0, 4000.0
OTHER_WORD = 1.0
GRAINS = 2.0**20
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


def build_network(
    hypotheses: Hypotheses, *, timed: bool = False, align: Align = "mean", same: Callable[[str], str] = str
) -> list[list[Arc]]:
    """The word transition network: one list of arcs a slot, in the order in which they came.

    The votes of a slot add up to the number of hypotheses.

    timed: align by when words were said; then hypotheses are lists of `TimedWord`.
    align: what a word costs in a slot: the mean over the passes that are in it, or, as in NIST's program, the
        cost to the nearest of them. With the nearest, one odd pass opens a slot to its word, or to silence,
        for all that follow: where passes err much, hundreds of them then elect worse than dozens.
    same: words that it maps to one text count as one; the commonest spelling is written.
    """
    check_align(align)
    if timed:
        check_words(hypotheses, "times")
    said = list(chain.from_iterable(hypotheses))
    if not said:
        return []
    numbers, spellings = _number([word.text if isinstance(word, TimedWord) else word for word in said], same)
    facts = np.array([_facts(word) for word in said])
    net = _Network(len(said), timed, align == "nearest")
    ends = np.cumsum([len(words) for words in hypotheses]).tolist()
    for start, end in pairwise([0, *ends]):
        net.lay(numbers[start:end], facts[start:end])
    return net.slots(spellings)


def _number(texts: Sequence[str], same: Callable[[str], str]) -> tuple[Ints, list[str]]:
    """A number from 1 on for every word, and how each number is spelled; 0 is silence."""
    counts = Counter(texts)
    if "" in counts:
        raise InputError("expected words, got an empty text among them; leave it out.")
    numbers: dict[str, int] = {}
    spellings, number_of = [""], {}
    for text, count in counts.items():
        # A word whose canonical form is empty, such as "um", was still said, and counts as itself.
        number = number_of[text] = numbers.setdefault(same(text) or text, 1 + len(numbers))
        if number == len(spellings):
            spellings.append(text)
        elif count > counts[spellings[number]]:
            spellings[number] = text
    return np.array([number_of[text] for text in texts]), spellings


def _facts(word: str | TimedWord) -> tuple[float, float, float]:
    """Start, end and confidence."""
    if isinstance(word, TimedWord):
        return word.start_seconds, word.end_seconds, word.confidence
    return 0.0, 0.0, 1.0


def check_words(hypotheses: Hypotheses, what: str) -> None:
    """Refuse plain texts where words with times or confidences are needed."""
    if not all(isinstance(word, TimedWord) for word in chain.from_iterable(hypotheses)):
        raise InputError(
            f"expected words with {what}, got plain texts; give sottovoce.core.target.TimedWord."
        )


def check_align(align: str) -> None:
    """Refuse an unknown way of alignment."""
    if align not in ("mean", "nearest"):
        raise InputError(f"align: expected 'mean' or 'nearest' (as in NIST's program), got {align!r}.")


class _Network:
    """What grows: slots and arcs, numbered in the order in which they came.

    total: words of all hypotheses. Each brings one arc at most, and each slot one of silence.
    """

    def __init__(self, total: int, timed: bool, nearest: bool) -> None:
        self.timed, self.nearest = timed, nearest
        self.laid = 0
        """How many hypotheses are in it."""
        self.opened = 0
        """How many slots there are."""
        self.order: list[int] = []
        """The slots in the order of time."""
        self.arcs: list[tuple[int, int]] = []
        """Slot and word of each arc."""
        self.votes = np.zeros(2 * total, np.int64)
        self.confidence = np.zeros(2 * total)
        """The sum over the votes of each arc."""
        self.arcs_of: dict[int, list[int]] = {}
        """All arcs of each word, in whatever slot."""
        self.first = np.zeros(total, np.int64)
        """The first arc of each slot."""
        self.silence = np.full(total, -1, np.int64)
        """The arc of silence in each slot; -1: no pass is silent there."""
        self.said = np.zeros((total, 3))
        """Of each slot how many words, and the sums of their starts and ends in seconds."""

    def slots(self, spellings: Sequence[str]) -> list[list[Arc]]:
        """All arcs, slot by slot."""
        places = {slot: place for place, slot in enumerate(self.order)}
        found: list[list[Arc]] = [[] for _ in self.order]
        count = len(self.arcs)
        votes, sums = self.votes[:count].tolist(), self.confidence[:count].tolist()
        for (slot, word), vote, total in zip(self.arcs, votes, sums, strict=True):
            found[places[slot]].append(Arc(spellings[word], vote, total / vote))
        return found

    def lay(self, words: Ints, facts: Floats) -> None:
        """Lay a hypothesis in. facts: start and end in seconds and confidence of each word, `(words, 3)`."""
        order = np.array(self.order, np.int64)
        known = self._find(order, words)
        steps = self._steps_by_nearest if self.nearest else self._steps_by_mean
        names, silences, rows = words.tolist(), self.silence[order].tolist(), known.tolist()
        past: list[int] = []
        into: list[int] = []
        grown: list[int] = []
        place = 0
        for step in steps(order, known, facts):
            column = len(into)
            if step == NEW:
                grown.append(self._open(names[column]))
                into.append(int(self.first[grown[-1]]))
                continue
            slot, arc = self.order[place], silences[place] if step == PAST else rows[place][column]
            if arc < 0:
                arc = self._add(slot, SILENCE if step == PAST else names[column])
            (past if step == PAST else into).append(arc)
            grown.append(slot)
            place += 1
        # Each slot was met once, and so no arc twice.
        self.votes[past + into] += 1
        self.confidence[into] += facts[:, 2]
        slots = [self.arcs[arc][0] for arc in into]
        self.said[slots, 0] += 1.0
        self.said[slots, 1:] += facts[:, :2]
        self.order = grown
        self.laid += 1

    def _open(self, word: int) -> int:
        """A new slot that begins with a word; the passes before are silent there."""
        slot = self.opened
        self.opened += 1
        self.first[slot] = self._add(slot, word)
        if self.laid:
            self.votes[self._add(slot, SILENCE)] = self.laid
        return slot

    def _add(self, slot: int, word: int) -> int:
        """A new arc, without votes yet."""
        arc = len(self.arcs)
        self.arcs.append((slot, word))
        if word == SILENCE:
            self.silence[slot] = arc
        else:
            self.arcs_of.setdefault(word, []).append(arc)
        return arc

    def _find(self, order: Ints, words: Ints) -> Ints:
        """Which arc of each slot has each word, `(slots, words)`; -1: none."""
        found = np.full((len(order), len(words)), -1, np.int64)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        for column, word in enumerate(words.tolist()):
            arcs = self.arcs_of.get(word)
            if arcs:
                found[places[[self.arcs[arc][0] for arc in arcs]], column] = arcs
        return found

    def _steps_by_mean(self, order: Ints, arcs: Ints, facts: Floats) -> list[int]:
        """The cheapest steps through slots and words. Costs are sums over the passes before.

        Of equals a word goes into a slot before it opens a new one, and opens one before a slot is passed.
        """
        said, start, end = self._times(order)
        alone = self._alone(facts[:, 0], facts[:, 1])
        other = said[:, None] - np.where(arcs >= 0, self.votes[arcs], 0)
        into = (self.laid - said)[:, None] * alone + other * (OTHER_WORD if self.timed else SUBSTITUTION)
        if self.timed:
            into += said[:, None] * _apart(facts, start, end)
        past = said * self._alone(start, end)
        into, past, new = _exact(into), _exact(past), _exact(self.laid * alone)
        through = np.concatenate([[0.0], np.cumsum(past)])
        cost, moves = through, [[PAST] * (len(order) + 1)]
        for column in range(len(facts)):
            opened = cost + new[column]
            entered = np.concatenate([[np.inf], cost[:-1] + into[:, column]])
            best = np.minimum(entered, opened)
            # From slot to slot: the cheapest way to one of those before, and past all between.
            cost = np.minimum.accumulate(best - through) + through
            move = np.where(entered <= opened, INTO, NEW)
            move[cost < best] = PAST
            moves.append(move.tolist())
        return _trace(moves)

    def _steps_by_nearest(self, order: Ints, arcs: Ints, facts: Floats) -> list[int]:
        """The cheapest steps as NIST's program finds them: to the nearest arc of each slot.

        Of equals it takes the way over the arc that came first. `over (slots + 1,)` is that arc; a word that
        opens a slot behind another keeps the arc of that one.
        """
        _, start, end = self._times(order)
        first, silence = self.first[order], self.silence[order]
        hushed = silence >= 0
        past = np.where(hushed, SILENT_PAST, _exact(self._alone(start, end)))
        passed = np.where(hushed, silence, first)
        into_other = np.full(len(order), OTHER_WORD if self.timed else SUBSTITUTION)
        other = first
        if not self.timed:
            into_other[hushed] = SILENT_OTHER
            other = np.where(hushed, silence, first)
        new = _exact(self._alone(facts[:, 0], facts[:, 1]))
        into = np.where(arcs >= 0, 0.0, into_other[:, None])
        if self.timed:
            into += _exact(_apart(facts, start, end))
        met = np.where(arcs >= 0, arcs, other[:, None])
        through = np.concatenate([[0.0], np.cumsum(past)])
        cost, over = through, np.concatenate([[-1], passed])
        moves = [[PAST] * (len(order) + 1)]
        for column in range(len(facts)):
            opened = cost + new[column]
            entered = np.concatenate([[np.inf], cost[:-1] + into[:, column]])
            arc = np.concatenate([[-1], met[:, column]])
            opens = (opened < entered) | ((opened == entered) & (over < arc))
            best, arc = np.where(opens, opened, entered), np.where(opens, over, arc)
            cost = np.minimum.accumulate(best - through) + through
            skips = cost < best
            skips[1:] |= (cost[:-1] + past == best[1:]) & (passed < arc[1:])
            over = np.where(skips, np.concatenate([[-1], passed]), arc)
            move = np.where(opens, NEW, INTO)
            move[skips] = PAST
            moves.append(move.tolist())
        return _trace(moves)

    def _times(self, order: Ints) -> tuple[Floats, Floats, Floats]:
        """Of each slot how many words it has, and the means of their starts and ends."""
        said = self.said[order]
        return said[:, 0], said[:, 1] / said[:, 0], said[:, 2] / said[:, 0]

    def _alone(self, start: Floats, end: Floats) -> Floats:
        """What words cost beside silence."""
        if not self.timed:
            return np.full(len(start), INDEL)
        return 1000.0 * np.maximum(end - start, SHORTEST)


def _apart(facts: Floats, start: Floats, end: Floats) -> Floats:
    """How far in time each word is from the mean of each slot, `(slots, words)`."""
    return 1000.0 * (np.abs(facts[:, 0] - start[:, None]) + np.abs(facts[:, 1] - end[:, None]))


def _exact(costs: Floats) -> Floats:
    """Costs whose sums have no rounding errors."""
    return np.rint(costs * GRAINS) / GRAINS


def _trace(moves: list[list[int]]) -> list[int]:
    """The steps that lead to the last corner of `(words + 1, slots + 1)`."""
    column, row = len(moves) - 1, len(moves[0]) - 1
    steps: list[int] = []
    while row or column:
        step = moves[column][row]
        steps.append(step)
        row, column = row - (step != NEW), column - (step != PAST)
    return steps[::-1]
