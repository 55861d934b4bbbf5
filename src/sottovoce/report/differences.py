"""Two transcripts side by side: which words were substituted, inserted and deleted."""

from __future__ import annotations

from dataclasses import dataclass

import jiwer

from sottovoce.core.words import SPACELESS, normalise, split_words


@dataclass(frozen=True)
class Piece:
    """Neighbouring words with one fate.

    kind: "equal", "substitute", "insert" or "delete".
    instead_of: what substituted words stand for.
    """

    kind: str
    text: str
    instead_of: str = ""


def mark_words(reference: str, heard: str, language: str = "") -> list[Piece]:
    """What was heard, with deleted words kept in their places: the very errors that WER counts."""
    said, found = (split_words(normalise(text, language), language) for text in (reference, heard))
    gap = "" if language in SPACELESS else " "
    pieces = []
    for chunk in jiwer.process_words(" ".join(said), " ".join(found)).alignments[0]:
        old = gap.join(said[chunk.ref_start_idx : chunk.ref_end_idx])
        new = gap.join(found[chunk.hyp_start_idx : chunk.hyp_end_idx])
        instead_of = old if chunk.type == "substitute" else ""
        pieces.append(Piece(chunk.type, old if chunk.type == "delete" else new, instead_of))
    return pieces
