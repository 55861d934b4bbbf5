"""Transcripts in the form in which they are compared."""

from __future__ import annotations

import pytest

from sottovoce.core.words import normalise, split_words


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
