"""Toy targets: their losses against sums over all alignments, and decisions that an attack can change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, product

import pytest
import torch
from torch import Tensor

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.testing import (
    ToyAttention,
    ToyClassifier,
    ToyCtc,
    ToyTransducer,
    clips_for,
    example_clips,
    toy_random,
)
from sottovoce.testing.sequence_toys import LETTERS, transducer_loss

DRAWS = Draws(0)


def three_frames() -> AudioBatch:
    return example_clips(1000, seconds=[0.15])


def read(path: tuple[int, ...]) -> str:
    """CTC's reading of one token a frame: repeats are one letter, then blanks go."""
    kept = [token for place, token in enumerate(path) if place == 0 or path[place - 1] != token]
    return "".join(LETTERS[token - 1] for token in kept if token)


@pytest.mark.parametrize("label", ["", "a", "ab", "aa", "abe"])
def test_ctc_loss_is_the_sum_over_all_paths(label: str) -> None:
    toy, batch = ToyCtc(), three_frames()
    log_probs = toy.module(batch.waveforms)[0].detach().double()
    paths = [path for path in product(range(1 + len(LETTERS)), repeat=3) if read(path) == label]
    total = sum(
        math.exp(sum(float(log_probs[frame, token]) for frame, token in enumerate(path))) for path in paths
    )
    found = float(toy.loss(batch, [label], draws=DRAWS).detach())
    assert found == pytest.approx(-math.log(total) / max(1, len(label)), rel=1e-4)


def test_ctc_labels_without_room() -> None:
    toy = ToyCtc()
    with pytest.raises(InputError, match="'abab' needs 4 frames, and the clip has 3"):
        toy.loss(three_frames(), ["abab"], draws=DRAWS)
    with pytest.raises(InputError, match="'bbb' needs 5 frames, and the clip has 3"):
        toy.loss(three_frames(), ["bbb"], draws=DRAWS)


def alignments(frames: int, letters: int) -> Iterator[list[int]]:
    """The frame in which each letter is written: any that never goes back."""
    for places in combinations(range(frames + letters - 1), letters):
        yield [place - order for order, place in enumerate(places)]


def brute_transducer(stay: Tensor, write: Tensor, frames: int, letters: int) -> float:
    total = 0.0
    for written_in in alignments(frames, letters):
        score = sum(float(write[frame, letter]) for letter, frame in enumerate(written_in))
        # The blank that ends each frame is read after the letters written up to there.
        score += sum(float(stay[t, sum(frame <= t for frame in written_in)]) for t in range(frames))
        total += math.exp(score)
    return -math.log(total)


def test_transducer_loss_is_the_sum_over_all_alignments() -> None:
    source = torch.Generator().manual_seed(0)
    stay = -torch.rand(3, 5, 4, generator=source, dtype=torch.float64) * 3
    write = -torch.rand(3, 5, 3, generator=source, dtype=torch.float64) * 3
    sizes = [(5, 3), (2, 1), (4, 0)]
    frames, letters = (torch.tensor(column) for column in zip(*sizes, strict=True))
    found = transducer_loss(stay, write, frames, letters).tolist()
    expected = [brute_transducer(stay[row], write[row], *size) for row, size in enumerate(sizes)]
    assert found == pytest.approx(expected, rel=1e-9)


def test_transducer_loss_by_hand() -> None:
    # Two frames and one letter, everything at probability 1/2: written in frame 0 or 1, then two blanks.
    half = math.log(0.5)
    found = transducer_loss(
        torch.full((1, 2, 2), half), torch.full((1, 2, 1), half), torch.tensor([2]), torch.tensor([1])
    )
    assert float(found) == pytest.approx(-math.log(2 * 0.5**3))


def test_attention_loss_is_a_distribution_over_texts() -> None:
    """The probabilities of all texts up to two letters, and of all beginnings of three, add up to one."""
    toy, batch = ToyAttention(), three_frames()

    def chance(text: str) -> float:
        # The loss is a mean over the letters and the end.
        return math.exp(-(len(text) + 1) * float(toy.loss(batch, [text], draws=DRAWS).detach()))

    short = sum(chance("".join(letters)) for size in range(2) for letters in product(LETTERS, repeat=size))
    pairs = ["".join(letters) for letters in product(LETTERS, repeat=2)]
    longer = 0.0
    encoded, inside = toy._heard(batch)
    for pair in pairs:
        # The chance of a text over the chance to end right there is the chance to begin like that.
        state, last = toy.module.start(encoded), torch.zeros(1, dtype=torch.int64)
        for token in [LETTERS.index(letter) + 1 for letter in pair]:
            _, state = toy.module.step(last, state, encoded, inside)
            last = torch.tensor([token])
        scores, _ = toy.module.step(last, state, encoded, inside)
        longer += chance(pair) / float(scores.softmax(dim=1)[0, 0].detach())
    assert short + longer == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("make", [ToyClassifier, ToyCtc, ToyAttention, ToyTransducer, toy_random])
def test_decisions_can_be_changed(make: type[Target]) -> None:
    target = make()
    clean = clips_for(target)
    attack, budget = Pgd(steps=40), Snr(10.0)
    assert all(attack(target, clean, Evade(), budget, draws=DRAWS).achieved)
    told = target.decode(clean, draws=DRAWS)
    assert len(set(told)) >= 3 and all(told)
    wanted = min(told, key=len)
    assert all(attack(target, clean, Force(wanted), budget, draws=DRAWS).achieved)


def test_making_a_toy_leaves_global_randomness_alone() -> None:
    before = torch.get_rng_state()
    for make in (ToyClassifier, ToyCtc, ToyAttention, ToyTransducer, toy_random):
        make()
    assert torch.equal(before, torch.get_rng_state())


def test_strange_letters() -> None:
    with pytest.raises(InputError, match="the letters ' abcde', got 'xaz' with 'xz'"):
        ToyAttention().check_labels(["bad", "xaz"])


def test_example_clips() -> None:
    clips = example_clips(1000)
    assert clips.lengths.tolist() == [400, 250, 550, 400]
    levels = [float(clips.clip(row).square().mean().sqrt()) for row in range(4)]
    assert levels == pytest.approx([0.1] * 4, rel=1e-3)
    steps = clips.waveforms * 32768
    assert torch.equal(steps, steps.round())
