"""The form in which transcripts are compared: Whisper's normalisers (Radford et al. 2022, appendix C)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rapidfuzz.distance import Levenshtein

SPACELESS = frozenset({"ja", "lo", "my", "th", "zh"})
"""Languages that write no spaces between words: each letter counts as one, as in Radford et al. (2022)."""


@lru_cache(maxsize=65536)
def normalise(text: str, language: str = "en") -> str:
    """A text without what does not change its words: case, punctuation, [remarks], and in English spelling,
    numerals and contractions. An unknown language ("") counts as English.
    """
    # Whisper's own form leaves a space at either end, which would count as a character.
    return " ".join(_normaliser(language in ("", "en"))(text).split())


def split_words(text: str, language: str = "en") -> list[str]:
    """The words of a normalised text."""
    return list(text.replace(" ", "")) if language in SPACELESS else text.split()


@lru_cache(maxsize=8192)
def word_errors(reference: str, heard: str, language: str = "en") -> int:
    """The fewest words to substitute, delete and insert that turn one text into the other, normalised."""
    one, two = (split_words(normalise(text, language), language) for text in (reference, heard))
    return Levenshtein.distance(one, two)


@lru_cache(maxsize=2)
def _normaliser(english: bool) -> Callable[[str], str]:
    # The English one reads a table of spellings: only who compares texts waits for it.
    if english:
        from whisper_normalizer.english import EnglishTextNormalizer

        spelt: Callable[[str], str] = EnglishTextNormalizer()
        return spelt
    from whisper_normalizer.basic import BasicTextNormalizer

    plain: Callable[[str], str] = BasicTextNormalizer()
    return plain
