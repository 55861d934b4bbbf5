"""Labels in the letters of a model: in its case where it knows only one, refused where it cannot spell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from sottovoce.errors import InputError

Case = Literal["lower", "upper"] | None


def case_of(letters: Iterable[str]) -> Case:
    """The one case of all letters that have one; None where both occur, or neither."""
    cased = [letter for letter in letters if letter.lower() != letter.upper()]
    if not cased:
        return None
    if all(letter == letter.lower() for letter in cased):
        return "lower"
    return "upper" if all(letter == letter.upper() for letter in cased) else None


def in_case(text: str, case: Case) -> str:
    """The text in that case; as it is for None."""
    return {"lower": text.lower(), "upper": text.upper(), None: text}[case]


def spell(
    label: str,
    encode: Callable[[str], Iterable[int]],
    read: Callable[[list[int]], str],
    *,
    case: Case,
    unknown: int | None,
    canonical: Callable[[str], str],
) -> list[int]:
    """The label's tokens as a tokenizer gives them.

    encode, read: the tokenizer, from a text to tokens and back.
    unknown: its token for what it cannot spell; None: it has none.
    canonical: the form in which two texts are compared.
    """
    tokens = list(encode(in_case(label, case)))
    heard = read(tokens)
    # Some tokenizers write the unknown token for what they cannot spell, others leave it out.
    if unknown in tokens or canonical(heard) != canonical(label):
        raise InputError(
            f"expected a text that the model's tokenizer can write, got {label!r}, which it reads as "
            f"{heard!r}; use the model's letters only."
        )
    return tokens
