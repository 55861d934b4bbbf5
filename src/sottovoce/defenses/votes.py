"""Votes over the passes of a random target: one sentence, the majority, the mean of the scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from sottovoce.core.target import CtcFrames, Scores, Target
from sottovoce.core.vote import Passes, Vote
from sottovoce.errors import InputError, MissingCapability


@final
@dataclass(frozen=True, kw_only=True)
class OneSentence(Vote):
    """No vote at all: one pass speaks."""

    passes: int = 1

    def __post_init__(self) -> None:
        if self.passes != 1:
            raise InputError(f"expected 1 pass for one sentence, got {self.passes}; vote with majority.")

    def elect(self, passes: Passes) -> list[str]:
        return [texts[0] for texts in passes.texts()]


@final
@dataclass(frozen=True, kw_only=True)
class Majority(Vote):
    """The text that most passes say; of equals, the one that was said first.

    Texts are the same where the target's canonical form of them is; the first such text stands for them.
    """

    passes: int = 16

    def elect(self, passes: Passes) -> list[str]:
        return [most_common(texts, passes.target.canonical) for texts in passes.texts()]


@final
@dataclass(frozen=True, kw_only=True)
class Average(Vote):
    """The decision on the mean of all passes' scores: of classes, or of tokens frame by frame (CTC)."""

    passes: int = 16

    def elect(self, passes: Passes) -> list[str]:
        target = passes.target
        if target.offers(Scores):
            classes = target.power(Scores).classes
            return [classes[place] for place in passes.mean_scores().argmax(dim=1).tolist()]
        return target.power(CtcFrames).spell(*passes.mean_log_probs())

    def check(self, target: Target) -> None:
        super().check(target)
        if not target.offers(Scores) and not target.offers(CtcFrames):
            raise MissingCapability(
                f"{type(target).__name__} has no scores to average: expected a classifier or a CTC model; "
                "vote with majority or rover."
            )


def most_common(texts: Sequence[str], same: Callable[[str], str] = str) -> str:
    """The text that comes most often, the first of equals; texts that `same` maps to one text are one."""
    forms = [same(text) for text in texts]
    # Counter keeps the order of arrival, and most_common(1) the first of the largest.
    return texts[forms.index(Counter(forms).most_common(1)[0][0])]
