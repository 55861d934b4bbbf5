"""Two transcripts side by side: which words were substituted, inserted and deleted."""

from __future__ import annotations

from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from sottovoce.core.text_normaliser import SPACELESS, normalise, split_words


@dataclass(frozen=True)
class WordRun:
    """Neighbouring words with one fate.

    kind: "equal", "substitute", "insert" or "delete".
    instead_of: the words of the reference that substituted words replace.
    """

    kind: str
    text: str
    instead_of: str = ""


def mark_words(reference: str, heard: str, language: str = "") -> list[WordRun]:
    """What was heard, with deleted words kept in their places: the very errors that WER counts."""
    said, found = (split_words(normalise(text, language), language) for text in (reference, heard))
    gap = "" if language in SPACELESS else " "
    pieces = []
    for run in Levenshtein.opcodes(said, found):
        old = gap.join(said[run.src_start : run.src_end])
        new = gap.join(found[run.dest_start : run.dest_end])
        if run.tag == "replace":
            pieces.append(WordRun("substitute", new, old))
        else:
            pieces.append(WordRun(run.tag, old if run.tag == "delete" else new))
    return pieces
