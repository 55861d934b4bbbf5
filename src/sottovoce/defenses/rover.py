"""ROVER: a vote word by word over the transcripts of many passes (Fiscus 1997)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from sottovoce.core.target import Target, Timings
from sottovoce.core.vote import Passes, Vote
from sottovoce.defenses.word_network import Align, Arc, Hypotheses, build_network, check_align, check_words
from sottovoce.errors import InputError, MissingCapability


@final
@dataclass(frozen=True, kw_only=True)
class Rover(Vote):
    """ROVER: the transcripts of many passes are aligned, and vote word by word (Fiscus 1997).

    In each slot of the alignment the word with the highest score wins (section 2.2):

        alpha * votes / passes + (1 - alpha) * confidence

    with the word's mean confidence, or `null_confidence` for no word. "the cat", "a cat" and "the hat" elect
    "the cat". Of equal scores the word that came first wins, and a word wins over no word where it opened the
    slot. Words count as one where the recogniser's canonical form makes them equal; the commonest spelling is
    written.

    passes: how often the model hears each clip; time grows with it.
    alpha: weight of votes against confidences, 0 to 1; below 1 it needs a recogniser that gives word timings.
    null_confidence: confidence of no word, 0 to 1.
    timings: align by word times (True), by words (False), or by times where the recogniser gives them
        ("auto").
    align: cost of a word in a slot: "mean" over the passes there, or to the "nearest", as in NIST's program.

    >>> noisy = sv.defenses.Defended(sv.testing.ToyCtc(), (sv.defenses.Gaussian(sigma=0.0001),))
    >>> model = sv.defenses.Voted(noisy, sv.defenses.Rover(passes=3))
    >>> clips = sv.testing.example_clips(1000)
    >>> model.decode(clips, draws=sv.Draws(0)) == noisy.target.decode(clips, draws=sv.Draws(0))
    True
    """

    passes: int = 16
    alpha: float = 1.0
    null_confidence: float = 0.7
    timings: bool | Literal["auto"] = "auto"
    align: Align = "mean"

    def __post_init__(self) -> None:
        _check_share("alpha", self.alpha)
        _check_share("null_confidence", self.null_confidence)
        check_align(self.align)
        if self.timings not in (True, False, "auto"):
            raise InputError(f"timings: expected true, false or auto, got {self.timings!r}; auto is usual.")

    def check(self, target: Target) -> None:
        super().check(target)
        if target.says != "words":
            raise MissingCapability(
                "rover votes on words, but this model is a classifier. Use majority or average."
            )
        if self.timings is True or self.alpha < 1:
            target.capability(Timings)

    def elect(self, passes: Passes) -> list[str]:
        target = passes.target
        timed = target.offers(Timings) if self.timings == "auto" else bool(self.timings)
        rows: Sequence[Hypotheses]
        if timed or self.alpha < 1:
            rows = passes.words()
        else:
            rows = [[text.split() for text in texts] for texts in passes.texts()]
        networks = [build_network(row, timed=timed, align=self.align, same=target.canonical) for row in rows]
        return [" ".join(elect(slots, self.alpha, self.null_confidence)) for slots in networks]


def rover(
    hypotheses: Hypotheses,
    *,
    alpha: float = 1.0,
    null_confidence: float = 0.7,
    timed: bool = False,
    align: Align = "mean",
    same: Callable[[str], str] = str,
) -> list[str]:
    """The words that transcripts elect by ROVER.

    hypotheses: one list of words a transcript, or of words with times and confidences.
    alpha, null_confidence, align: as in `Rover`.
    timed: align by times.
    same: words that it maps to one text count as one.

    >>> sv.defenses.elect_words([["the", "cat"], ["a", "cat"], ["the", "hat"]])
    ['the', 'cat']
    """
    if alpha < 1:
        check_words(hypotheses, "confidences")
    return elect(build_network(hypotheses, timed=timed, align=align, same=same), alpha, null_confidence)


elect_words = rover
"""`rover` by the name that `sottovoce.defenses` has for it, where `rover` is this module."""


def elect(slots: Sequence[Sequence[Arc]], alpha: float = 1.0, null_confidence: float = 0.7) -> list[str]:
    """The word of the highest score in each slot; nothing where silence has it."""
    _check_share("alpha", alpha)
    _check_share("null_confidence", null_confidence)

    def winner(slot: Sequence[Arc]) -> str:
        total = sum(arc.votes for arc in slot)
        sure = [arc.confidence if arc.word else null_confidence for arc in slot]
        scores = [alpha * arc.votes / total + (1 - alpha) * c for arc, c in zip(slot, sure, strict=True)]
        return slot[scores.index(max(scores))].word

    return [word for word in map(winner, slots) if word]


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise InputError(f"{name}: expected a number from 0 to 1, got {value}.")
