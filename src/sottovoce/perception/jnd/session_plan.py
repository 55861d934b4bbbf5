"""One session of a listening test: which questions in which order, and whether the answers can be trusted.

The plan is that of Manocha et al. 2020, section 3.2: two teaching trials, then 30 comparisons, ten for each
of three references, six of which are sentinels: changes that nobody who listens can miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from sottovoce.errors import InputError
from sottovoce.perception.jnd.jnd_rule import Streams

Kind = Literal["teaching", "comparison", "sentinel"]

PUBLISHED_SESSIONS = (2000, 1812)
"""Sessions that were run, and those that were kept."""


class PlannedTrial(NamedTuple):
    """One place in a session. reference: which of the session's references, from 0 on; teaching has none."""

    kind: Kind
    reference: int = -1


class SessionCheck(NamedTuple):
    """Whether a session counts; `reasons` say what speaks against it."""

    kept: bool
    reasons: tuple[str, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """How long a session is. sentinels: of all comparisons, shared out evenly over the references."""

    teaching: int = 2
    references: int = 3
    comparisons: int = 10
    """A reference, sentinels among them."""
    sentinels: int = 6

    def __post_init__(self) -> None:
        if self.references < 1 or self.teaching < 0:
            raise InputError(
                f"expected 1 reference or more and 0 teaching trials or more, got {self.references} and "
                f"{self.teaching}; raise them."
            )
        if self.sentinels % self.references or not 0 <= self.sentinels_each < self.comparisons:
            raise InputError(
                f"expected sentinels that share out evenly over {self.references} references of "
                f"{self.comparisons} comparisons, got {self.sentinels}; take a multiple of {self.references} "
                f"below {self.references * self.comparisons}."
            )

    @property
    def sentinels_each(self) -> int:
        return self.sentinels // self.references

    @property
    def total(self) -> int:
        return self.teaching + self.references * self.comparisons

    def slots(self, draws: Streams) -> list[PlannedTrial]:
        """The session in order. The places of sentinels are random, so that none can be foreseen."""
        order = [PlannedTrial("teaching")] * self.teaching
        for reference in range(self.references):
            source = draws.generator(f"reference {reference}")
            places = set(source.permutation(self.comparisons)[: self.sentinels_each].tolist())
            order += [
                PlannedTrial("sentinel" if place in places else "comparison", reference)
                for place in range(self.comparisons)
            ]
        return order


def judge_session(slots: Sequence[PlannedTrial], different: Sequence[bool]) -> SessionCheck:
    """Whether a session counts. different: the answers so far, in the order of the slots.

    It does not where a sentinel is called "same", where it is not complete, or where every comparison got
    the same answer although the rule did what it could to break the trend.
    """
    if len(different) > len(slots):
        raise InputError(
            f"expected at most {len(slots)} answers, got {len(different)}; give those of one session."
        )
    reasons = []
    answered = list(zip(slots, different, strict=False))
    tests = [heard for slot, heard in answered if slot.kind == "sentinel"]
    asked = [heard for slot, heard in answered if slot.kind == "comparison"]
    if not all(tests):
        reasons.append(f"{tests.count(False)} of {len(tests)} sentinels called 'same'")
    if len(answered) < len(slots):
        reasons.append(f"{len(answered)} of {len(slots)} trials answered")
    if len(asked) > 1 and len(set(asked)) == 1:
        reasons.append(f"all {len(asked)} comparisons called {'different' if asked[0] else 'same'!r}")
    return SessionCheck(not reasons, tuple(reasons))
