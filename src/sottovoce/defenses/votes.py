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
    """No vote: the answer of one pass of a random model.

    passes: 1, which is all that it allows.

    >>> noisy = sv.defenses.Defended(sv.testing.ToyClassifier(), (sv.defenses.Gaussian(sigma=0.001),))
    >>> model = sv.defenses.Voted(noisy, sv.defenses.OneSentence())
    >>> len(model.decode(sv.testing.example_clips(1000), draws=sv.Draws(0)))  # an answer a clip
    4
    """

    passes: int = 1

    def __post_init__(self) -> None:
        if self.passes != 1:
            raise InputError(
                f"passes: one takes a single pass, got {self.passes}. To vote over several, use majority."
            )

    def elect(self, passes: Passes) -> list[str]:
        return [texts[0] for texts in passes.texts()]


@final
@dataclass(frozen=True, kw_only=True)
class Majority(Vote):
    """The answer that most passes of a random model give; of equally frequent ones, the first.

    passes: how often the model hears each clip; time grows with it.

    For classes and transcripts. Transcripts count as one where the recogniser's canonical form (case,
    punctuation) makes them equal.

    >>> noisy = sv.defenses.Defended(sv.testing.ToyClassifier(), (sv.defenses.Gaussian(sigma=0.001),))
    >>> model = sv.defenses.Voted(noisy, sv.defenses.Majority(passes=5))
    >>> clips = sv.testing.example_clips(1000)
    >>> model.decode(clips, draws=sv.Draws(0)) == noisy.target.decode(clips, draws=sv.Draws(0))
    True
    """

    passes: int = 16

    def elect(self, passes: Passes) -> list[str]:
        return [most_common(texts, passes.target.canonical) for texts in passes.texts()]


@final
@dataclass(frozen=True, kw_only=True)
class Average(Vote):
    """The decision on scores that are averaged over the passes of a random model.

    passes: how often the model hears each clip; time grows with it.

    Averages class scores, or the token scores of a CTC recogniser frame by frame. Other recognisers have no
    scores to average: use `majority` or `rover`.

    >>> noisy = sv.defenses.Defended(sv.testing.ToyClassifier(), (sv.defenses.Gaussian(sigma=0.001),))
    >>> model = sv.defenses.Voted(noisy, sv.defenses.Average(passes=5))
    >>> clips = sv.testing.example_clips(1000)
    >>> model.decode(clips, draws=sv.Draws(0)) == noisy.target.decode(clips, draws=sv.Draws(0))
    True
    """

    passes: int = 16

    def elect(self, passes: Passes) -> list[str]:
        target = passes.target
        if target.offers(Scores):
            classes = target.capability(Scores).classes
            return [classes[place] for place in passes.mean_scores().argmax(dim=1).tolist()]
        return target.capability(CtcFrames).spell(*passes.mean_log_probs())

    def check(self, target: Target) -> None:
        super().check(target)
        if not target.offers(Scores) and not target.offers(CtcFrames):
            raise MissingCapability(
                f"average needs class scores or CTC token scores, which {type(target).__name__} does not "
                "have. Use majority or rover."
            )


def most_common(texts: Sequence[str], same: Callable[[str], str] = str) -> str:
    """The text that comes most often, the first of equals; texts that `same` maps to one text are one."""
    forms = [same(text) for text in texts]
    # Counter keeps the order of arrival, and most_common(1) the first of the largest.
    return texts[forms.index(Counter(forms).most_common(1)[0][0])]
