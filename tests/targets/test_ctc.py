"""CTC by hand: merging, prefix search, alignment, spelling."""

from __future__ import annotations

import math
from itertools import groupby, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.targets.families.ctc import Vocabulary, align, beam_tokens, greedy_spans, greedy_tokens
from sottovoce.testing import ToyCtc, check_target, clips_for

LETTERS = Vocabulary(("", "a", "b", " "), blank=0, case="lower")


def one_hot(*tokens: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor([tokens]), 4).float()


def test_repeats_merge_and_blanks_drop() -> None:
    scores = torch.cat([one_hot(1, 1, 0, 1, 2, 2), one_hot(0, 2, 3, 3, 1, 1)])
    found = greedy_tokens(scores, torch.tensor([6, 4]), blank=0)
    assert found == [[1, 1, 2], [2, 3]]
    assert [LETTERS.decode(tokens) for tokens in found] == ["aab", "b"]


def test_spelling() -> None:
    assert LETTERS.encode("A bA") == [1, 3, 2, 1]
    assert LETTERS.encode("") == []
    assert LETTERS.decode([3, 1, 3, 3, 2]) == "a b"
    with pytest.raises(InputError, match=r"letters ' ab', got 'a, c' with ',c'; use the model's"):
        LETTERS.encode("a, c")


def test_prefix_search_adds_up_paths() -> None:
    # The best path is blank, blank (0.36); but "a" has three paths: a-, -a, aa with 0.24 + 0.24 + 0.16.
    frames = np.log([[0.6, 0.4], [0.6, 0.4]])
    assert greedy_tokens(torch.tensor(frames)[None], torch.tensor([2]), blank=0) == [[]]
    assert beam_tokens(frames, blank=0, beams=2) == [1]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_a_wide_search_finds_the_likeliest_text(seed: int) -> None:
    chances = np.random.default_rng(seed).dirichlet(np.ones(3), size=4)
    totals: dict[tuple[int, ...], float] = {}
    for path in product(range(3), repeat=4):
        text = tuple(token for token, _ in groupby(path) if token)
        totals[text] = totals.get(text, 0.0) + math.prod(chances[t, token] for t, token in enumerate(path))
    found = tuple(beam_tokens(np.log(chances), blank=0, beams=100))
    assert totals[found] == pytest.approx(max(totals.values()), rel=1e-3)


def test_alignment_by_hand() -> None:
    # Frames say: blank, a, a, blank, b. The text is "ab": a takes frames 1 and 2, b takes frame 4.
    frames = np.log(np.full((5, 3), 0.05))
    for frame, token in enumerate([0, 1, 1, 0, 2]):
        frames[frame, token] = math.log(0.9)
    assert align(frames, [1, 2], blank=0) == [(1, 3), (4, 5)]
    # Two equal letters need a blank between, wherever it is cheapest.
    assert align(np.log([[0.1, 0.9], [0.5, 0.5], [0.1, 0.9]]), [1, 1], blank=0) == [(0, 1), (2, 3)]
    assert align(np.log([[0.9, 0.1]]), [], blank=0) == []


def test_word_timings_are_frames_of_50_ms() -> None:
    toy = ToyCtc()
    batch = clips_for(toy)
    for words, text in zip(
        toy.timings(batch, draws=Draws(0)), toy.decode(batch, draws=Draws(0)), strict=True
    ):
        assert [word.text for word in words] == text.split()
        ends = [time / 0.05 for word in words for time in (word.start_seconds, word.end_seconds)]
        assert ends == pytest.approx([round(end) for end in ends])


def test_match_says_whether_the_label_is_the_greedy_text() -> None:
    toy = ToyCtc()
    batch = clips_for(toy)
    told = toy.decode(batch, draws=Draws(0))
    labels = [told[0], "a", told[2], "bad"]
    _, match = toy.loss_and_match(batch, labels, draws=Draws(0))
    assert match.tolist() == [True, False, True, False]


def test_beams_keep_the_laws() -> None:
    check_target(ToyCtc(beams=4))


def test_greedy_spans_by_hand() -> None:
    scores = one_hot(0, 1, 1, 0, 1, 2, 2)[0].double().numpy()
    assert greedy_spans(scores, blank=0) == ([1, 1, 2], [(1, 3), (4, 5), (5, 7)])
    assert greedy_spans(one_hot(0, 0)[0].double().numpy(), blank=0) == ([], [])


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_the_greedy_path_is_the_alignment_of_its_own_tokens(seed: int, frames: int) -> None:
    random = np.random.default_rng(seed)
    scores = np.log(random.dirichlet(np.ones(4), size=frames))
    tokens, spans = greedy_spans(scores, blank=0)
    assert align(scores, tokens, blank=0) == spans


def test_confidence_is_the_geometric_mean_over_letters() -> None:
    # "ab" with 0.9 for a (its best frame) and 0.4 for b: sqrt(0.36) = 0.6.
    frames = np.log([[0.1, 0.8, 0.05, 0.05], [0.04, 0.9, 0.03, 0.03], [0.2, 0.2, 0.4, 0.2]])
    (word,) = ToyCtc()._words(frames)
    assert word.confidence == pytest.approx(0.6)
