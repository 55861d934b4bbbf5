"""Passes of a random target, and targets that answer with a vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import pytest
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import CtcFrames, Languages, Matches, Scores, Target, TimedWord, Timings
from sottovoce.core.transform import Defended
from sottovoce.core.vote import MOST_PASSES, Passes, Vote, Voted
from sottovoce.errors import InputError, MissingCapability
from sottovoce.testing import (
    ToyAttention,
    ToyClassifier,
    ToyCtc,
    ToyNoise,
    check_target,
    clips_for,
    toy_random,
)

DRAWS = Draws(0)
# What passes 0, 1, 2 over each clip say.
SCRIPT = {"one": ["a", "b", "b"], "two": ["c", "", "d e"]}


class Scripted(Target, Timings, Scores, CtcFrames):
    """Says what the script says in a pass; a plain clip is pass 0. Notes how many rows it hears at once."""

    sample_rate = 1000
    classes = ("up", "down")

    def __init__(self) -> None:
        self.rows: list[int] = []

    def places(self, batch: AudioBatch) -> list[tuple[str, int]]:
        self.rows.append(len(batch))
        names = [name.split("\x1f") for name in batch.ids]
        return [(name[0], int(name[1]) if len(name) > 1 else 0) for name in names]

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return [SCRIPT[name][turn] for name, turn in self.places(batch)]

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        texts = [SCRIPT[name][turn].split() for name, turn in self.places(batch)]
        return [[TimedWord(word, place, place + 1) for place, word in enumerate(words)] for words in texts]

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """The pass and its square, ten times as much for clip two."""
        rows = [(turn, turn**2, 10.0 if name == "two" else 1.0) for name, turn in self.places(batch)]
        return torch.tensor([[scale * one, scale * two] for one, two, scale in rows])

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        """One frame a sample, one token: the sample plus the pass."""
        turns = torch.tensor([float(turn) for _, turn in self.places(batch)])
        return (batch.waveforms + turns[:, None])[..., None], batch.lengths

    def spell(self, log_probs: Tensor, frames: Tensor) -> list[str]:
        return [" ".join(f"{x:.2f}" for x in row[:n, 0]) for row, n in zip(log_probs, frames, strict=True)]


@final
@dataclass(frozen=True, kw_only=True)
class Joined(Vote):
    """All that was said, so that no pass can be missed."""

    passes: int = 3

    def elect(self, passes: Passes) -> list[str]:
        return ["|".join(texts) for texts in passes.texts()]


def clips() -> AudioBatch:
    return AudioBatch.of([[0.25, 0.5], [0.125, 0.125, 0.125]], 1000, ["one", "two"])


def passes(at_once: int = 64) -> Passes:
    return Passes(Scripted(), clips(), DRAWS, 3, at_once)


@pytest.mark.parametrize("at_once", [1, 2, 4, 5, 6, 64])
def test_passes_come_clip_by_clip_in_order_however_many_rows_are_heard_at_once(at_once: int) -> None:
    assert passes(at_once).texts() == [["a", "b", "b"], ["c", "", "d e"]]


def test_no_more_rows_are_heard_at_once_than_allowed() -> None:
    target = Scripted()
    Passes(target, clips(), DRAWS, 3, 4).texts()
    assert target.rows == [4, 2]


def test_words_keep_their_times_and_an_empty_pass_has_none() -> None:
    found = passes(5).words()
    assert found[1] == [[TimedWord("c", 0, 1)], [], [TimedWord("d", 0, 1), TimedWord("e", 1, 2)]]


@pytest.mark.parametrize("at_once", [1, 4, 64])
def test_scores_are_means_over_the_passes(at_once: int) -> None:
    # Passes 0, 1, 2: mean 1 of the passes, 5/3 of their squares.
    found = passes(at_once).mean_scores()
    assert found.tolist() == [pytest.approx([1.0, 5 / 3]), pytest.approx([10.0, 50 / 3])]


@pytest.mark.parametrize("at_once", [1, 4, 64])
def test_log_probs_are_means_over_the_passes_frame_by_frame(at_once: int) -> None:
    # Every sample plus the mean pass, which is 1; pieces of clip one alone are a frame narrower.
    scores, frames = passes(at_once).mean_log_probs()
    assert frames.tolist() == [2, 3]
    assert scores[0, :2, 0].tolist() == [1.25, 1.5]
    assert scores[1, :, 0].tolist() == [1.125, 1.125, 1.125]


def test_every_pass_draws_its_own_noise_and_keeps_it_in_any_batch() -> None:
    heard: list[AudioBatch] = []

    class Ear(Scripted):
        def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
            heard.append(batch)
            return super().decode(batch, draws=draws)

    target = Defended(Ear(), (ToyNoise(sigma=0.1),))
    Passes(target, clips(), DRAWS, 3).texts()
    Passes(target, clips().select([0]), DRAWS, 3).texts()
    together, alone = heard
    of_one = [name.startswith("one") for name in together.ids]
    assert torch.equal(together.waveforms[of_one, :2], alone.waveforms)
    assert len({tuple(row) for row in alone.waveforms.tolist()}) == 3


def test_a_vote_decodes_by_the_vote_and_climbs_one_pass() -> None:
    voted = Voted(Scripted(), Joined())
    assert voted.decode(clips(), draws=DRAWS) == ["a|b|b", "c||d e"]
    assert voted.loss(clips(), ["", ""], draws=DRAWS).tolist() == [0.75, 0.375]
    # Scores are those of one pass too, here pass 0.
    assert voted.scores(clips(), draws=DRAWS).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("kind", [Timings, CtcFrames])
def test_an_elected_text_has_neither_times_nor_frames(kind: type) -> None:
    voted = Voted(Scripted(), Joined())
    assert not voted.offers(kind)
    with pytest.raises(MissingCapability, match="a vote has no"):
        voted.capability(kind)
    with pytest.raises(MissingCapability):
        voted.timings(clips(), draws=DRAWS)
    with pytest.raises(MissingCapability):
        voted.log_probs(clips(), draws=DRAWS)


def test_a_vote_has_the_other_capabilities_where_the_target_has_them() -> None:
    assert Voted(ToyClassifier(), Joined()).offers(Scores)
    assert not Voted(ToyCtc(), Joined()).offers(Scores)
    assert Voted(ToyAttention(), Joined()).offers(Matches)
    assert Voted(ToyAttention(), Joined()).offers(Languages)
    assert Voted(ToyCtc(), Joined()).exact is False


def test_a_vote_is_as_random_as_its_target() -> None:
    assert Voted(toy_random(), Joined()).random
    assert not Voted(ToyClassifier(), Joined()).random


@pytest.mark.parametrize("inner", [ToyClassifier(), ToyCtc()])
def test_a_clip_gets_the_same_votes_alone_in_a_batch_and_however_many_are_heard_at_once(
    inner: Target,
) -> None:
    target = Defended(inner, (ToyNoise(sigma=0.2),))
    batch = clips_for(target)
    together = Voted(target, Joined(passes=5)).decode(batch, draws=DRAWS)
    assert any(len(set(text.split("|"))) > 1 for text in together)  # the noise is strong enough to be seen
    for at_once in (1, 3, 7):
        assert Voted(target, Joined(passes=5), at_once).decode(batch, draws=DRAWS) == together
    alone = [Voted(target, Joined(passes=5)).decode(batch.select([row]), draws=DRAWS)[0] for row in range(4)]
    assert alone == together


def test_the_votes_are_other_passes_than_the_one_that_is_climbed() -> None:
    target = Defended(ToyCtc(), (ToyNoise(sigma=0.3),))
    batch = clips_for(target)
    first = [text.split("|")[0] for text in Voted(target, Joined()).decode(batch, draws=DRAWS)]
    assert first != target.decode(batch, draws=DRAWS)


def test_a_voted_target_keeps_the_laws() -> None:
    check_target(Voted(Defended(ToyCtc(), (ToyNoise(),)), Joined()), labels=["a", "b", "c", "d"])


@pytest.mark.parametrize("count", [0, -3, MOST_PASSES + 1])
def test_passes_must_be_a_sensible_number(count: int) -> None:
    with pytest.raises(InputError, match=f"got {count};"):
        Voted(Scripted(), Joined(passes=count))


def test_a_row_at_once_is_the_least() -> None:
    with pytest.raises(InputError, match="got 0;"):
        Voted(Scripted(), Joined(), 0)


def test_a_vote_that_needs_a_capability_says_so_before_it_runs() -> None:
    class Choosy(Vote):
        passes = 3
        needs = (Scores,)

        def elect(self, passes: Passes) -> list[str]:
            raise AssertionError

    with pytest.raises(MissingCapability, match=r"^Choosy needs class scores, but the model is a"):
        Voted(ToyCtc(), Choosy())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("no"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_too_little_memory_is_a_clear_error(error: Exception) -> None:
    class Heavy(Scripted):
        def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
            raise error

    with pytest.raises(InputError, match=r"out of memory with 6 clips of 3 samples at once.*fewer than 6"):
        Voted(Heavy(), Joined()).decode(clips(), draws=DRAWS)
    # Four rows go at once, however many passes there are.
    with pytest.raises(InputError, match=r"out of memory with 4 clips of 3 samples at once.*fewer than 4"):
        Voted(Heavy(), Joined(), at_once=4).decode(clips(), draws=DRAWS)


def test_other_errors_stay_what_they_are() -> None:
    class Broken(Scripted):
        def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
            raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        Voted(Broken(), Joined()).decode(clips(), draws=DRAWS)
