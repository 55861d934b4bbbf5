"""Counts and exact statistics of naming, naturalness, ABX and choices between two clips.

Answers are treated as independent, as in the paper (Vadillo and Santana 2020, section 5.2), although several
come from each listener. All functions take rows that count (`answer_rows.counted`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sottovoce.core.statistics import Interval, clopper_pearson, exact_binomial_p
from sottovoce.listening.analysis.answer_rows import AnswerRow, order_conditions, order_levels
from sottovoce.listening.analysis.exact_tests import Tested, multinomial_test, two_row_test

ALL = "all"
CONFIDENCES = ("low", "medium", "high")
RATINGS = (1, 2, 3, 4, 5)


class HitRate(NamedTuple):
    """How often something happened. group: of which answers, such as a condition and a level."""

    group: tuple[str, ...]
    hits: int
    n: int

    @property
    def interval(self) -> Interval:
        """The share with its 95 % interval of Clopper and Pearson."""
        return clopper_pearson(self.hits, self.n)

    @property
    def p_greater(self) -> float:
        """Exact binomial test, one-sided: how likely chance does as well as this, or better."""
        return exact_binomial_p(self.hits, self.n, alternative="greater")

    @property
    def p_two_sided(self) -> float:
        return exact_binomial_p(self.hits, self.n)


class RatingCounts(NamedTuple):
    """How often each rating from 1 to 5 was given."""

    level: str
    condition: str
    counts: tuple[int, ...]

    @property
    def natural(self) -> HitRate:
        """Ratings of 4 and 5."""
        return HitRate((self.level, self.condition), sum(self.counts[3:]), sum(self.counts))


class RatingComparison(NamedTuple):
    """The ratings of a condition against those of the clean one.

    multinomial: whether they come from the shares that the clean clips got, as in the paper. Where these
    never got a rating that the others did get, half an answer is added to each: no share is truly 0.
    two_rows: whether both come from one distribution, which allows for the clean shares being a sample.
    """

    level: str
    condition: str
    clean: str
    multinomial: Tested
    two_rows: Tested


class Confidence(NamedTuple):
    """How sure listeners were at one level: answers, and right ones among them, by confidence."""

    level: str
    answers: Mapping[str, int]
    right: Mapping[str, int]


def of_kind(rows: Iterable[AnswerRow], kind: str) -> list[AnswerRow]:
    return [row for row in rows if row.kind == kind]


def name_accuracy(rows: Sequence[AnswerRow]) -> list[HitRate]:
    """How often the command was named rightly, by condition and level (Fig. 5), and over all levels."""
    return _rates(of_kind(rows, "naming"), lambda row: row.fact("condition"), lambda row: bool(row.right))


def naturalness(rows: Sequence[AnswerRow]) -> list[RatingCounts]:
    """Ratings by level and condition (Fig. 6); over all levels first."""
    asked = of_kind(rows, "naming")
    found = []
    for level in _levels(asked):
        for condition in order_conditions(row.fact("condition") for row in asked):
            given = Counter(
                int(row.given["naturalness"])
                for row in asked
                if level in (ALL, row.fact("level")) and row.fact("condition") == condition
            )
            found.append(RatingCounts(level, condition, tuple(given[rating] for rating in RATINGS)))
    return [scores for scores in found if sum(scores.counts)]


def compare_naturalness(scores: Sequence[RatingCounts]) -> list[RatingComparison]:
    """Every other condition against the clean one, at each level where both were rated."""
    clean = {one.level: one for one in scores if one.condition.lower() == "clean"}
    return [
        RatingComparison(
            one.level,
            one.condition,
            clean[one.level].condition,
            _against_shares(one.counts, clean[one.level].counts),
            two_row_test(one.counts, clean[one.level].counts),
        )
        for one in scores
        if one.level in clean and one is not clean[one.level]
    ]


def abx_success(rows: Sequence[AnswerRow]) -> list[HitRate]:
    """How often X was found, by condition and level (Fig. 7, top)."""
    return _rates(of_kind(rows, "abx"), lambda row: row.fact("condition"), lambda row: bool(row.right))


def abx_confidence(rows: Sequence[AnswerRow]) -> list[Confidence]:
    """How sure the answers were, by level (Fig. 7, bottom)."""
    asked = of_kind(rows, "abx")
    found = []
    for level in _levels(asked):
        some = [row for row in asked if level in (ALL, row.fact("level"))]
        given = Counter(str(row.given["confidence"]) for row in some)
        right = Counter(str(row.given["confidence"]) for row in some if row.right)
        found.append(
            Confidence(
                level,
                {name: given[name] for name in CONFIDENCES},
                {name: right[name] for name in CONFIDENCES},
            )
        )
    return found


def choices(rows: Sequence[AnswerRow], kind: str) -> list[HitRate]:
    """How often one condition was chosen over another, by pair of conditions and level.

    kind: "preference" or "closer". Groups are (chosen, over, level), the first of each pair in sorted order.
    Where both clips of a pair have the same condition, the clips are used instead.
    """
    asked = of_kind(rows, kind)
    sides = {id(row): _sides(row) for row in asked}
    found = []
    for pair in sorted({tuple(sorted(sides[id(row)].values())) for row in asked}):
        some = [row for row in asked if tuple(sorted(sides[id(row)].values())) == pair]
        for level in _levels(some):
            counted = [row for row in some if level in (ALL, row.fact("level"))]
            hits = sum(sides[id(row)][str(row.given["choice"])] == pair[0] for row in counted)
            found.append(HitRate((*pair, level), hits, len(counted)))
    return found


def side_bias(rows: Sequence[AnswerRow], kind: str) -> HitRate:
    """How often A was chosen, whatever it was: near one half where nobody leans to a side."""
    asked = of_kind(rows, kind)
    return HitRate((kind,), sum(row.given["choice"] == "a" for row in asked), len(asked))


def _against_shares(counts: Sequence[int], clean: Sequence[int]) -> Tested:
    used = [(one, other) for one, other in zip(counts, clean, strict=True) if one or other]
    more = 0.0 if all(other for _, other in used) else 0.5
    return multinomial_test([one for one, _ in used], [other + more for _, other in used])


def _sides(row: AnswerRow) -> dict[str, str]:
    conditions: Mapping[str, Any] = row.truth.get("conditions", {})
    named = {side: str(conditions.get(side, "")) for side in ("a", "b")}
    return named if named["a"] != named["b"] else {side: row.clip(side) for side in ("a", "b")}


def _levels(rows: Sequence[AnswerRow]) -> list[str]:
    """Over all levels, then one by one; a study without levels has the first alone."""
    levels = order_levels(row.fact("level") for row in rows)
    return [ALL] if len(levels) < 2 else [ALL, *levels]


def _rates(
    rows: Sequence[AnswerRow], group: Callable[[AnswerRow], str], hit: Callable[[AnswerRow], bool]
) -> list[HitRate]:
    found = []
    for name in order_conditions(group(row) for row in rows):
        for level in _levels(rows):
            some = [row for row in rows if group(row) == name and level in (ALL, row.fact("level"))]
            if some:
                found.append(HitRate((name, level), sum(hit(row) for row in some), len(some)))
    return found
