"""Recognisers: targets that write what was said."""

from __future__ import annotations

from sottovoce.core.target import Says, Target
from sottovoce.core.text_normaliser import normalise
from sottovoce.errors import InputError


class Recogniser(Target):
    """A target whose `decode` gives transcripts. A subclass writes `loss` and `decode`.

    Transcripts are compared after Whisper's English normaliser: case, punctuation, the spelling of numbers
    and contractions do not count. For CTC and attention models derive from `Ctc` and `Attention`.

    >>> model = sv.testing.ToyCtc()  # a recogniser
    >>> isinstance(model, sv.targets.Recogniser)
    True
    >>> model.canonical("It's TWO o'clock!") == model.canonical("it is 2 o'clock")
    True
    """

    says: Says = "words"
    clips: str = "prompts:en"

    def canonical(self, text: str) -> str:
        return normalise(text)


def check_beams(beams: int) -> None:
    """Refuse fewer than one beam."""

    if beams < 1:
        raise InputError(f"beams: expected 1 or more, got {beams}; 1 is greedy decoding, 5 is usual.")
