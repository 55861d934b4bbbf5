"""Transcripts in the form in which they are compared."""

from __future__ import annotations

import jiwer
import pytest
from hypothesis import given, strategies

from sottovoce.core.text_normaliser import normalise, split_words, word_errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mr. Smith, he's 22!", "mister smith he is 22"),
        ("MISTER SMITH HE IS TWENTY TWO", "mister smith he is 22"),
        (" colour  [noise] (cough) ", "color"),
        ("Um, café?", "cafe"),
        ("?!", ""),
        ("", ""),
    ],
)
def test_english(text: str, expected: str) -> None:
    assert normalise(text) == normalise(text, "en") == normalise(text, "") == expected


def test_other_languages_keep_their_letters_and_spelling() -> None:
    assert normalise("¿Dónde está el número?", "es") == "dónde está el número"
    assert normalise("L'été, c'est fini.", "fr") == "l été c est fini"
    assert normalise("Ёлка, twenty-two colour", "ru") == "ёлка twenty two colour"


def test_words_of_languages_without_spaces_are_letters() -> None:
    assert split_words("the cat") == ["the", "cat"]
    assert split_words(normalise("你好，世界", "zh"), "zh") == ["你", "好", "世", "界"]
    assert split_words("") == split_words("", "ja") == []


@pytest.mark.parametrize(
    ("reference", "heard", "language", "errors"),
    [
        ("left on right down up", "left on right down up", "en", 0),
        ("left on right down up", "Left, on right down?", "en", 1),
        ("left on right", "on left right stop", "en", 3),
        ("", "hello there", "en", 2),
        ("colour", "color", "", 0),
        ("été", "ete", "fr", 1),
        ("你好世界", "你好", "zh", 2),
    ],
)
def test_word_errors_by_hand(reference: str, heard: str, language: str, errors: int) -> None:
    assert word_errors(reference, heard, language) == errors


@given(*(strategies.lists(strategies.sampled_from("abcd"), min_size=1, max_size=7),) * 2)
def test_word_errors_are_those_of_jiwer(reference: list[str], heard: list[str]) -> None:
    one, two = (" ".join(f"w{letter}" for letter in words) for words in (reference, heard))
    found = jiwer.process_words(one, two)
    assert word_errors(one, two) == found.substitutions + found.deletions + found.insertions
