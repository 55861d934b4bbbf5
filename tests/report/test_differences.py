"""Words marked by hand, and the laws of any marking."""

from __future__ import annotations

import jiwer
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.report.transcript_differences import WordRun, mark_words


def test_inserted_and_deleted_words_keep_their_places() -> None:
    assert mark_words("the cat sat on the mat", "The big cat sat on mat.") == [
        WordRun("equal", "the"),
        WordRun("insert", "big"),
        WordRun("equal", "cat sat on"),
        WordRun("delete", "the"),
        WordRun("equal", "mat"),
    ]


def test_a_substituted_word_says_what_it_stands_for() -> None:
    assert mark_words("Open the door, please!", "open the window please") == [
        WordRun("equal", "open the"),
        WordRun("substitute", "window", "door"),
        WordRun("equal", "please"),
    ]


def test_what_the_normaliser_drops_is_no_difference() -> None:
    assert mark_words("It's twenty metres.", "it is 20 meters") == [WordRun("equal", "it is 20 meters")]


def test_silence_deletes_everything_and_words_in_silence_are_inserted() -> None:
    assert mark_words("go left", "") == [WordRun("delete", "go left")]
    assert mark_words("", "go left") == [WordRun("insert", "go left")]
    assert mark_words("", " ♪ ") == []


def test_a_language_without_spaces_is_marked_letter_by_letter() -> None:
    assert mark_words("你好吗", "你号吗", "zh") == [
        WordRun("equal", "你"),
        WordRun("substitute", "号", "好"),
        WordRun("equal", "吗"),
    ]


# Words that the normaliser leaves alone.
TEXTS = st.lists(st.sampled_from(["go", "left", "right", "stop"]), min_size=1, max_size=8).map(" ".join)


@given(TEXTS, TEXTS)
def test_both_texts_can_be_read_off_the_marks(reference: str, heard: str) -> None:
    pieces = mark_words(reference, heard)
    assert " ".join(piece.text for piece in pieces if piece.kind != "delete") == heard
    said = [piece.instead_of or piece.text for piece in pieces if piece.kind != "insert"]
    assert " ".join(said) == reference


@given(TEXTS, TEXTS)
def test_marked_words_are_the_errors_of_jiwer(reference: str, heard: str) -> None:
    marked = [piece for piece in mark_words(reference, heard) if piece.kind != "equal"]
    errors = sum(len(piece.text.split()) for piece in marked)
    assert errors == round(jiwer.wer(reference, heard) * len(reference.split()))
    aligned = jiwer.process_words(reference, heard).alignments[0]
    assert [piece.kind for piece in mark_words(reference, heard)] == [chunk.type for chunk in aligned]
