"""Word and character errors, by hand and against jiwer."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace

import jiwer
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.metric import Metric, clip_values
from sottovoce.metrics import text_errors as text
from sottovoce.metrics.text_errors import Edits, character_edits, word_edits
from sottovoce.testing.checks.check_metric import check_metric

METRICS = [kind for _, kind in inspect.getmembers(text, inspect.isclass) if "name" in vars(kind)]


def trial_of(
    labels: tuple[str, ...] | None,
    heard: tuple[str, ...],
    *,
    clean: tuple[str, ...] | None = None,
    wanted: tuple[str, ...] | None = None,
    languages: tuple[tuple[str, ...], tuple[str, ...]] | None = None,
    spoken: tuple[str, ...] = (),
) -> Trial:
    count = len(heard)
    batch = AudioBatch.of([np.zeros(8)] * count, 16000, [str(row) for row in range(count)])
    return Trial(
        clean=batch,
        adversarial=batch,
        references=clean or heard,
        labels=labels,
        clean_texts=clean or heard,
        adversarial_texts=heard,
        achieved=(False,) * count,
        achieved_unrounded=(False,) * count,
        wanted=wanted,
        says="words",
        languages=languages,
        facts=tuple({"language": code} for code in spoken),
    )


def parts(metric: type[Metric], trial: Trial) -> list[list[float]]:
    return metric().measure(trial).tolist()


def test_edits_by_hand() -> None:
    # sat -> sit is a substitution, the second "the" is gone; hits: the, cat, on, mat.
    found = word_edits("the cat sat on the mat", "The cat sit on mat.")
    assert found == Edits(hits=4, substitutions=1, deletions=1, insertions=0)
    assert (found.errors, found.length, found.rate) == (2, 6, pytest.approx(2 / 6))
    # kitten to sitting: the textbook's three, k -> s, e -> i, and a g at the end.
    assert character_edits("kitten", "sitting") == Edits(4, 2, 0, 1)
    # Spaces are characters: "ab" from "a b" takes one deletion.
    assert character_edits("a b", "ab") == Edits(2, 0, 1, 0)


def test_words_heard_in_silence() -> None:
    found = word_edits("", "thank you")
    assert found == Edits(0, 0, 0, 2) and (found.length, found.rate) == (0, 2.0)
    assert word_edits("[noise]", "") == Edits(0, 0, 0, 0)
    assert word_edits("", "").rate == 0.0
    assert jiwer.wer("", "thank you") == 2.0


@given(
    st.lists(st.sampled_from(["cat", "dog", "sun", "tree"]), min_size=1, max_size=8),
    st.lists(st.sampled_from(["cat", "dog", "sun", "tree"]), max_size=8),
)
def test_rates_are_those_of_jiwer(reference: list[str], heard: list[str]) -> None:
    one, two = " ".join(reference), " ".join(heard)
    assert word_edits(one, two).rate == pytest.approx(jiwer.wer(one, two))
    assert character_edits(one, two).rate == pytest.approx(jiwer.cer(one, two))
    assert word_edits(one, two).length == len(reference)
    for found, theirs in (
        (word_edits(one, two), jiwer.process_words(one, two)),
        (character_edits(one, two), jiwer.process_characters(one, two)),
    ):
        assert found == (theirs.hits, theirs.substitutions, theirs.deletions, theirs.insertions)


def test_corpus_rate_and_mean_of_clips_differ() -> None:
    trial = trial_of(("the cat sat on the mat", "stop"), ("the cat sit on mat", "go now"))
    assert parts(text.Wer, trial) == [[2.0, 6.0], [2.0, 1.0]]
    # Corpus: 4 errors in 7 words. Mean: (2/6 + 2/1) / 2.
    assert text.Wer().summarise(np.array(parts(text.Wer, trial))).value == pytest.approx(4 / 7)
    assert jiwer.wer(list(trial.labels or ()), list(trial.adversarial_texts)) == pytest.approx(4 / 7)
    mean = text.WerClips().summarise(np.array(parts(text.WerClips, trial))).value
    assert mean == pytest.approx((2 / 6 + 2) / 2)


def test_kinds_of_errors_add_up() -> None:
    trial = trial_of(("the cat sat on the mat", "stop"), ("the cat sit on mat", "go now"))
    assert parts(text.Substitutions, trial) == [[1.0, 6.0], [1.0, 1.0]]
    assert parts(text.Deletions, trial) == [[1.0, 6.0], [0.0, 1.0]]
    assert parts(text.Insertions, trial) == [[0.0, 6.0], [1.0, 1.0]]
    assert parts(text.SentenceError, trial) == [[1.0, 1.0], [1.0, 1.0]]


def test_before_and_after_the_attack() -> None:
    trial = trial_of(("open the door",), ("close the door",), clean=("open a door",))
    assert parts(text.CleanWer, trial) == parts(text.Wer, trial) == [[1.0, 3.0]]
    assert parts(text.TranscriptChange, trial) == [[2.0, 3.0]]
    # "the" -> "a": one substitution and two deletions in 13 characters.
    assert parts(text.CleanCer, trial) == [[3.0, 13.0]]
    assert parts(text.Cer, trial)[0][0] == round(13 * jiwer.cer("open the door", "close the door"))


def test_case_punctuation_and_spelling_do_not_count() -> None:
    trial = trial_of(("IT IS TWENTY TWO COLOURS",), ("It's 22 colors!",))
    assert parts(text.Wer, trial) == [[0.0, 4.0]] and parts(text.SentenceError, trial) == [[0.0, 1.0]]


def test_each_clip_is_read_in_its_language() -> None:
    labels, heard = ("está bien", "está bien"), ("esta bien", "esta bien")
    # English drops accents; Spanish keeps them.
    assert parts(text.Wer, trial_of(labels, heard, spoken=("es", "en"))) == [[1.0, 2.0], [0.0, 2.0]]
    assert parts(text.Wer, trial_of(labels, heard)) == [[0.0, 2.0], [0.0, 2.0]]


def test_untargeted_success_is_capped_at_one() -> None:
    # Eq. 6.2, word by word: 2/6; 2 errors on one word; silence that is kept, and that is not.
    labels = ("the cat sat on the mat", "stop", "", "")
    trial = trial_of(labels, ("the cat sit on mat", "go now", "", "thank you"))
    found = parts(text.UasrWord, trial)
    assert found == [[pytest.approx(2 / 6), 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0]]
    # stop -> top: one of four characters.
    assert parts(text.UasrChar, trial_of(("stop",), ("top",))) == [[0.25, 1.0]]


def test_targeted_success_is_never_below_zero() -> None:
    # Eq. 6.1: 3 of 3 words; 2 of 3; and more errors than words.
    wanted = ("open the door",) * 3
    trial = trial_of(None, ("Open the door.", "open a door", "what on earth is it"), wanted=wanted)
    assert parts(text.TasrWord, trial) == [[1.0, 1.0], [pytest.approx(2 / 3), 1.0], [0.0, 1.0]]
    assert parts(text.TasrChar, trial_of(None, ("top",), wanted=("stop",))) == [[0.75, 1.0]]


def test_language_confusion() -> None:
    trial = trial_of(None, ("hola", "hi", "hi"), languages=(("es", "en", "en"), ("es", "fr", "en")))
    assert parts(text.LanguageConfusion, trial) == [[0.0, 1.0], [1.0, 1.0], [0.0, 1.0]]


def test_what_is_not_known_is_no_zero() -> None:
    trial = trial_of(None, ("hola", "hi"))
    for metric in METRICS:
        if metric is not text.TranscriptChange:
            assert all(math.isnan(value) for row in parts(metric, trial) for value in row), metric.name
            assert metric().summarise(np.array(parts(metric, trial))).n == 0
    assert parts(text.TranscriptChange, trial) == [[0.0, 1.0], [0.0, 1.0]]


def test_words_in_silence_count_in_the_corpus_rate() -> None:
    trial = trial_of(("the cat sat on the mat", ""), ("the cat sat on the mat", "thank you"))
    found = np.array(parts(text.Wer, trial))
    assert found.tolist() == [[0.0, 6.0], [2.0, 0.0]]
    assert text.Wer().summarise(found).value == pytest.approx(2 / 6)
    assert clip_values(found)[0] == 0.0 and math.isnan(clip_values(found)[1])


@pytest.mark.parametrize("metric", METRICS, ids=lambda kind: kind.name)
def test_laws(metric: type[Metric]) -> None:
    check_metric(metric())
    assert (metric.says, metric.of, metric.unit) == ("words", "decisions", "%")


def test_an_order_that_changes_the_parts_is_found() -> None:
    class First(Metric):
        name, title = "first", "first"
        says = "words"

        def measure(self, trial: Trial) -> torch.Tensor:
            code = float(trial.facts[0]["language"] == "en")
            return torch.tensor([[code, 1.0]] * len(trial.clean), dtype=torch.float64)

    with pytest.raises(Exception, match="alone has other parts"):
        check_metric(First())


def test_a_trial_keeps_its_sentences_when_rows_are_picked() -> None:
    from sottovoce.testing.checks.check_metric import example_trial, select_trial

    trial = example_trial("words")
    one = select_trial(trial, [3])
    assert (one.says, one.wanted, one.languages) == ("words", ("cierre la puerta",), (("es",), ("en",)))
    assert one.facts == ({"language": "es"},)
    assert select_trial(replace(trial, wanted=None, languages=None, facts=()), [3]).facts == ()
