"""The form in which transcripts are compared: Whisper's normalisers (Radford et al. 2022, appendix C)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rapidfuzz.distance import Levenshtein

SPACELESS = frozenset({"ja", "lo", "my", "th", "zh"})
"""Languages without spaces between words: each letter counts as a word, as in Radford et al. (2022)."""


@lru_cache(maxsize=65536)
def normalise(text: str, language: str = "en") -> str:
    """A text in the form in which transcripts are compared.

    Case, punctuation and [remarks] are removed; in English spelling, numerals and contractions are unified.
    An unknown language ("") counts as English.
    """
    # Whisper's normaliser leaves a space at either end, which would count as a character.
    return " ".join(_normaliser(language in ("", "en"))(text).split())


def split_words(text: str, language: str = "en") -> list[str]:
    """The words of a normalised text."""
    return list(text.replace(" ", "")) if language in SPACELESS else text.split()


@lru_cache(maxsize=8192)
def word_errors(reference: str, heard: str, language: str = "en") -> int:
    """The fewest substitutions, deletions and insertions of words between two texts, normalised."""
    one, two = (split_words(normalise(text, language), language) for text in (reference, heard))
    return Levenshtein.distance(one, two)


@lru_cache(maxsize=2)
def _normaliser(english: bool) -> Callable[[str], str]:
    # Imported here, because the English one reads a large table of spellings.
    if english:
        from whisper_normalizer.english import EnglishTextNormalizer

        spelt: Callable[[str], str] = EnglishTextNormalizer()
        return spelt
    from whisper_normalizer.basic import BasicTextNormalizer

    plain: Callable[[str], str] = BasicTextNormalizer()
    return plain
