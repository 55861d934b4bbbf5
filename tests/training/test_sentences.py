"""Sentences have letters alone, and every kind of gap has words."""

from __future__ import annotations

import re

import numpy as np

from sottovoce.targets.zoo.conformer import LETTERS
from sottovoce.training.recogniser.sentences import COMMANDS, FRAMES, LISTS, draw_sentence


def test_every_gap_has_words() -> None:
    assert set(re.findall(r"\{(\w+)\}", FRAMES)) <= set(LISTS)
    assert len(LISTS["any"]) > 1_500


def test_sentences_can_be_spelt_and_all_letters_occur() -> None:
    random = np.random.default_rng(0)
    sentences = [draw_sentence(random) for _ in range(2_000)]
    assert set("".join(sentences)) == set(LETTERS)
    assert all(sentence == " ".join(sentence.split()) for sentence in sentences)
    assert set(COMMANDS) <= {word for sentence in sentences for word in sentence.split()}
    assert len(set(sentences)) > 1_700
