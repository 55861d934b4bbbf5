"""ROVER: a vote word by word over the transcripts of many passes (Fiscus 1997)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from sottovoce.core.target import Target, Timings
from sottovoce.core.vote import Passes, Vote
from sottovoce.defenses.word_network import Align, Arc, Hypotheses, check_align, check_words, network
from sottovoce.errors import InputError, MissingCapability


@final
@dataclass(frozen=True, kw_only=True)
class Rover(Vote):
    """Each slot of the passes' network elects the word of the highest score (Fiscus 1997, section 2.2)

        alpha * votes / passes + (1 - alpha) * confidence,

    with the word's mean confidence, or `null_confidence` for silence. Of equals the one that stood in the
    slot first wins; silence stands behind the word that opened the slot. Words are the same where the
    target's canonical form of them is; the text is spelled as most passes spell each word.

    alpha: 1 counts votes alone; less needs a target that offers `Timings`, which bring confidences.
    timings: whether to align by times; "auto": where the target tells them.
    align: "mean" over the passes, or "nearest" as in NIST's program; see `network`.
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
            raise InputError(f"expected timings true, false or auto, got {self.timings!r}; auto is usual.")

    def check(self, target: Target) -> None:
        super().check(target)
        if target.says != "words":
            raise MissingCapability(
                "this model says classes: expected a recogniser, whose passes have words; vote "
                "with majority or average."
            )
        if self.timings is True or self.alpha < 1:
            target.power(Timings)

    def elect(self, passes: Passes) -> list[str]:
        target = passes.target
        timed = target.offers(Timings) if self.timings == "auto" else bool(self.timings)
        rows: Sequence[Hypotheses]
        if timed or self.alpha < 1:
            rows = passes.words()
        else:
            rows = [[text.split() for text in texts] for texts in passes.texts()]
        networks = [network(row, timed=timed, align=self.align, same=target.canonical) for row in rows]
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
    """The words that the hypotheses elect; see `Rover` for the vote and `network` for the rest."""
    if alpha < 1:
        check_words(hypotheses, "confidences")
    return elect(network(hypotheses, timed=timed, align=align, same=same), alpha, null_confidence)


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
        raise InputError(f"expected {name} from 0 to 1, got {value}; see sottovoce.defenses.rover.Rover.")
