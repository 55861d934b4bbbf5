"""Labels held against the classes of a model, before anything runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sottovoce.data.labels import settle_labels
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.testing import ToyCtc

TWELVE = ["yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "unknown", "silence"]


def corpus_of(**counts: int) -> Corpus:
    entries = [
        Entry(f"{label}/{number}", Path(f"{label}/{number}.wav"), label)
        for label, count in counts.items()
        for number in range(count)
    ]
    return Corpus("words", tuple(entries), "some words")


def classifier(classes: list[str]) -> ModuleClassifier:
    return ModuleClassifier(None, classes, 16000)  # type: ignore[arg-type]


def labels(corpus: Corpus) -> dict[str, int]:
    return dict(Counter(entry.label for entry in corpus))


def test_labels_that_are_classes_stay_as_they_are() -> None:
    corpus = corpus_of(yes=2, unknown=1)
    assert settle_labels(corpus, classifier(TWELVE)).corpus is corpus


def test_labels_of_googles_folders_are_taken_for_classes() -> None:
    corpus = corpus_of(yes=2, _unknown_=3, _silence_=1)
    found, skipped = settle_labels(corpus, classifier(TWELVE))
    assert labels(found) == {"yes": 2, "unknown": 3, "silence": 1}
    assert [entry.id for entry in found] == [entry.id for entry in corpus]
    assert skipped == ()
    assert found.note == (
        "some words; _silence_ is taken for silence (1 clips); _unknown_ is taken for unknown (3 clips)"
    )


def test_a_class_of_that_very_name_comes_first() -> None:
    corpus = corpus_of(_unknown_=3)
    assert labels(settle_labels(corpus, classifier(["_unknown_", "unknown"])).corpus) == {"_unknown_": 3}


def test_all_labels_without_a_class_are_told_at_once() -> None:
    corpus = corpus_of(yes=2, bird=1, cat=4, _background_noise_=2, _unknown_=1)
    with pytest.raises(InputError) as caught:
        settle_labels(corpus, classifier(["yes", "no", "unknown"]))
    assert str(caught.value) == (
        "corpus 'words': expected labels that the model has a class for, got others for 7 of 10 clips: cat "
        "(4), _background_noise_ (2), bird (1). Its classes: no, unknown, yes. Add --labels skip (in Python "
        'labels="skip") to run the other 3, or give other labels in a CSV with the columns path and label.'
    )


def test_the_rest_runs_without_them() -> None:
    corpus = corpus_of(yes=2, bird=1, cat=4)
    settled = settle_labels(corpus, classifier(["yes", "no"]), "skip")
    assert labels(settled.corpus) == {"yes": 2}
    assert settled.corpus.note == (
        "some words; skipped 5 of 7 clips whose label the model does not know: cat (4), bird (1)"
    )
    assert [entry.id for entry in settled.skipped] == ["bird/0", "cat/0", "cat/1", "cat/2", "cat/3"]
    assert settled.reasons()["bird/0"] == "the model has no class 'bird'"


def test_where_nothing_is_left_there_is_nothing_to_skip() -> None:
    for choice in ("refuse", "skip"):
        with pytest.raises(InputError, match=r"for 4 of 4 clips: cat \(4\)\. Its classes: no, yes\. Give"):
            settle_labels(corpus_of(cat=4), classifier(["yes", "no"]), choice)


def test_a_long_list_is_cut() -> None:
    corpus = corpus_of(yes=1, **{f"word-{number:02d}": 2 for number in range(50)}, **{"x" * 90: 1})
    with pytest.raises(InputError) as caught:
        settle_labels(corpus, classifier(["yes", *map(str, range(50))]))
    # 40 of 51 labels are named; ten more words and the long one are left.
    assert "word-39 (2) and 11 more labels (21). Its classes: 0, 1, 10, " in str(caught.value)
    assert " and 11 more. Add" in str(caught.value)


def test_what_else_a_target_raises_over_a_label_is_left_to_its_clips() -> None:
    class Odd(ModuleClassifier):
        def check_labels(self, labels: object) -> None:
            raise KeyError("no table")

    corpus = corpus_of(bird=1)
    assert settle_labels(corpus, Odd(None, ["yes", "no"], 16000)).corpus is corpus  # type: ignore[arg-type]


def test_a_recogniser_is_compared_with_texts_that_it_cannot_write() -> None:
    corpus = Corpus("said", (Entry("1", Path("1"), "abba"), Entry("2", Path("2"), "7 zwölf")))
    assert settle_labels(corpus, ToyCtc()).corpus is corpus
    # To be trained on them it would have to write them.
    with pytest.raises(InputError, match=r"texts that the model can write, got others for 1 of 2 clips: 7 z"):
        settle_labels(corpus, ToyCtc(), spelled=True)
    found, skipped = settle_labels(corpus, ToyCtc(), "skip", spelled=True)
    assert (len(found), [entry.id for entry in skipped]) == (1, ["2"])


def test_there_are_two_choices() -> None:
    with pytest.raises(UnknownName, match="did you mean 'skip'"):
        settle_labels(corpus_of(yes=1), classifier(["yes", "no"]), "skipp")
