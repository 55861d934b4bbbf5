"""Recognisers: targets that write what was said."""

from __future__ import annotations

from sottovoce.core.target import Says, Target
from sottovoce.core.text_normaliser import normalise
from sottovoce.errors import InputError


class Recogniser(Target):
    """A target whose `decode` gives transcripts.

    Two transcripts are the same where Whisper's English normaliser makes them so: case, punctuation, the
    spelling of numbers and contractions do not count.
    """

    says: Says = "words"
    clips: str = "prompts:en"

    def canonical(self, text: str) -> str:
        return normalise(text)


def check_beams(beams: int) -> None:
    if beams < 1:
        raise InputError(f"expected at least 1 beam, got {beams}; 1 is greedy decoding, 5 is usual.")
