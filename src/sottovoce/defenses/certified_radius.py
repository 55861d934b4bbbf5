"""Certificates by randomised smoothing: a radius within which a noisy model provably keeps its answer.

Let f be a model without randomness, x a clip, and p the probability of an event of f(x + noise) under noise
from N(0, sigma^2 I). Where p > 1/2, the event keeps a probability above 1/2 at every x + delta with
|delta|_2 < sigma * Phi^-1(p): Cohen et al. (2019), theorem 1, with two outcomes. For a classifier the event
is that f says the class that was elected. For a recogniser (Olivier 2023, appendix E.3) it is that the word
error rate of f's transcript against the one that was elected is less than k. So within the radius more than
half of the noisy passes write something that near to it. Nothing more is certified: not what a vote over a
few passes there would elect, and not that what was elected is right.

p is not known. CERTIFY elects from some passes, counts the event in others, and takes a lower bound of p that
is wrong with a probability of alpha at the most: `sottovoce.defenses.sampling_bounds`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

from rapidfuzz.distance import Levenshtein

from sottovoce.core.batch import AudioBatch
from sottovoce.core.statistics import exact_binomial_p
from sottovoce.core.target import Target
from sottovoce.core.vote import Vote
from sottovoce.defenses.noisy_passes import Smoothed
from sottovoce.defenses.sampling_bounds import Count, Sampling, Stop
from sottovoce.errors import InputError

Event = Callable[[str], bool]


@final
@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The elected answer for a clip, and the radius within which it is certified.

    radius: L2 norm, where a sample of full scale is 1; None where the procedure abstains.
    lower: lower bound of the event's probability.
    successes, passes: passes with the event, of all that were counted.
    """

    text: str
    radius: float | None
    lower: float
    successes: int
    passes: int
    stop: Stop


def certify(
    smoothed: Smoothed,
    clip: AudioBatch,
    sampling: Sampling,
    *,
    wer: float | None = None,
    vote: Vote | None = None,
    watch: Callable[[str, Count], None] = lambda text, count: None,
    resume: tuple[str, Count] | None = None,
) -> Certificate:
    """CERTIFY on one clip (a batch of one).

    wer: the word error rate k to stay below, for a recogniser.
    vote: elects the answer from `sampling.select` passes of its own; default: ROVER for transcripts, the most
        frequent class for classifiers.
    watch: called with the elected answer and the count after every block.
    resume: the arguments of the last call of `watch`, to go on from there.
    """
    check_wer(smoothed.target, wer)
    sampling.check(smoothed.sigma)
    text, count = resume or (elect(smoothed, clip, sampling.select, vote), Count(sampling, smoothed.sigma))
    event: Event = text.__eq__ if wer is None else Within(smoothed.target, text, wer)
    watch(text, count)
    if count.stop() is None:
        for said in smoothed.texts(clip, "count", sampling.passes, start=count.passes):
            count.add(sum(map(event, said)), len(said))
            watch(text, count)
            if count.stop() is not None:
                break
    return Certificate(
        text=text,
        radius=count.radius,
        lower=count.lower,
        successes=count.successes,
        passes=count.passes,
        stop=count.stop() or "end",
    )


def predict(smoothed: Smoothed, clip: AudioBatch, *, passes: int = 1000, alpha: float = 0.001) -> str | None:
    """PREDICT (Cohen et al. 2019): the most frequent answer of the smoothed model; None is an abstention.

    It abstains where a two-sided binomial test does not separate the two most frequent answers at alpha. The
    answer is wrong with a probability of at most alpha.
    """
    Sampling(passes=passes, alpha=alpha)
    ranked = count_texts(smoothed, clip, "predict", passes).most_common(2)
    first, second = ranked[0][1], ranked[1][1] if len(ranked) > 1 else 0
    return ranked[0][0] if exact_binomial_p(first, first + second) <= alpha else None


def elect(smoothed: Smoothed, clip: AudioBatch, passes: int, vote: Vote | None = None) -> str:
    """The answer to certify, elected from so many passes by a vote; ROVER for transcripts without one."""
    if vote is None and smoothed.target.says == "words":
        # Imported here: classifiers do not need it.
        from sottovoce.defenses.rover import Rover

        vote = Rover()
    if vote is not None:
        return smoothed.elect(clip, replace(vote, passes=passes))  # type: ignore[type-var]
    return count_texts(smoothed, clip, "elect", passes).most_common(1)[0][0]


def count_texts(smoothed: Smoothed, clip: AudioBatch, stage: str, passes: int) -> Counter[str]:
    """How often each class or transcript, in its canonical form, is said in so many passes."""
    counts: Counter[str] = Counter()
    for said in smoothed.texts(clip, stage, passes):
        counts.update(map(smoothed.target.canonical, said))
    return counts


def check_wer(target: Target, wer: float | None) -> None:
    """Refuse a threshold that does not suit the target, or that every transcript or none can meet."""
    if target.says == "class":
        if wer is not None:
            raise InputError(
                f"wer: expected none for a classifier, got {wer}; leave it out, or certify a recogniser."
            )
    elif wer is None:
        raise InputError(
            "wer: a recogniser needs the word error rate to stay below, got none; 0.25 is usual."
        )
    elif not 0 < wer <= 1:
        raise InputError(
            f"wer: expected a number above 0 and at most 1, got {wer}; no transcript has a word error rate "
            "below 0, and an empty one has 1."
        )


@final
class Within:
    """Whether a transcript's WER against a reference is less than k, in the target's canonical form.

    Less, not at most: equation E.5 of Olivier (2023); his proposition E.2, with at most k, follows from it.
    An empty reference counts as one word, as jiwer has it: under a k of 1 or less only silence is near it.
    """

    def __init__(self, target: Target, reference: str, wer: float) -> None:
        self._target = target
        self._reference = reference
        words = max(len(target.canonical(reference).split()), 1)
        # As a fraction: 0.07 of 100 words are 7, which floats miss by a rounding error.
        self._most = math.ceil(Fraction(str(wer)) * words) - 1
        self._known: dict[str, bool] = {}

    def __call__(self, text: str) -> bool:
        if text not in self._known:
            self._known[text] = word_errors(self._target, self._reference, text)[0] <= self._most
        return self._known[text]


def word_errors(target: Target, reference: str, heard: str) -> tuple[int, int]:
    """Fewest word edits from the reference to the transcript, and the number of words of the reference.

    Both texts are compared in the target's canonical form.
    """
    words = target.canonical(reference).split()
    return Levenshtein.distance(words, target.canonical(heard).split()), len(words)
