"""One sentence, the majority, the mean of the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.core.transform import Defended
from sottovoce.core.vote import Passes, Vote, Voted
from sottovoce.defenses.votes import Average, Majority, OneSentence, most_common
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.families.classifier import Classifier
from sottovoce.targets.families.ctc import Ctc, Vocabulary
from sottovoce.testing import ToyAttention, ToyClassifier, ToyCtc, ToyNoise, clips_for

DRAWS = Draws(0)
CLIP = AudioBatch.of([[0.1] * 100], 1000, ["clip"])


def turns(batch: AudioBatch) -> list[int]:
    return [int(name.split("\x1f")[1]) for name in batch.ids]


class Talker(Target):
    """Says one text after another."""

    sample_rate = 1000
    says = "words"

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return [self.texts[turn] for turn in turns(batch)]

    def canonical(self, text: str) -> str:
        return text.lower()


class Scorer(Classifier):
    """Gives one row of scores after another."""

    sample_rate = 1000
    classes = ("yes", "no")
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 5.0]])

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.rows[turns(batch)]


class Speller(Ctc):
    """Three frames of four tokens: blank, a, b, space. Each pass has its own log probabilities."""

    sample_rate = 1000
    vocabulary = Vocabulary(("", "a", "b", " "))
    frame_seconds = 0.03
    rows = torch.tensor(
        [
            [[-9.0, -1.0, -2.0, -9.0], [-1.0, -3.0, -3.0, -9.0], [-9.0, -1.0, -2.0, -9.0]],
            [[-9.0, -1.0, -2.0, -9.0], [-1.0, -3.0, -3.0, -9.0], [-9.0, -1.0, -2.0, -9.0]],
            [[-9.0, -9.0, -0.1, -9.0], [-0.1, -9.0, -9.0, -9.0], [-9.0, -2.0, -1.0, -9.0]],
        ]
    )

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        places = [int(name.split("\x1f")[1]) if "\x1f" in name else 0 for name in batch.ids]
        return self.rows[places], torch.full((len(batch),), 3)


def elected(target: Target, vote: Vote) -> str:
    return Voted(target, vote).decode(CLIP, draws=DRAWS)[0]


def test_one_sentence_is_the_first_pass() -> None:
    assert elected(Talker("first", "second", "second"), OneSentence()) == "first"


def test_one_sentence_takes_no_second_pass() -> None:
    with pytest.raises(InputError, match="takes a single pass"):
        OneSentence(passes=16)


@pytest.mark.parametrize(
    ("texts", "winner"),
    [
        (("a", "b", "b"), "b"),
        (("a", "b", "b", "a"), "a"),  # two each: a was first
        (("c", "b", "a"), "c"),
        (("", "", "a"), ""),
        (("", "a"), ""),
    ],
)
def test_the_majority_has_the_commonest_text_and_of_equals_the_first(
    texts: tuple[str, ...], winner: str
) -> None:
    assert elected(Talker(*texts), Majority(passes=len(texts))) == winner
    assert most_common(texts) == winner


def test_texts_with_one_canonical_form_are_one_text() -> None:
    # "go" in three spellings against two of "stop"; the first spelling stands for it.
    said = ("stop", "Go", "go", "stop", "GO")
    assert elected(Talker(*said), Majority(passes=5)) == "Go"
    assert most_common(said) == "stop"


def test_the_average_of_scores_can_overrule_the_majority() -> None:
    # Mean scores 2/3 and 5/3, though two of three passes say yes.
    assert elected(Scorer(), Average(passes=3)) == "no"
    assert elected(Scorer(), Majority(passes=3)) == "yes"


def test_the_average_of_frames_can_overrule_the_majority() -> None:
    # Means of frame 1: a -11/3, b -4.1/3; of frame 2: blank -2.1/3; of frame 3: a -4/3, b -5/3.
    assert elected(Speller(), Majority(passes=3)) == "aa"
    assert elected(Speller(), Average(passes=3)) == "ba"


def heard(target: Target, batch: AudioBatch, turn: int) -> AudioBatch:
    return replace(batch, ids=tuple(f"{name}\x1f{turn}" for name in batch.ids))


def test_the_average_of_a_noisy_classifier_is_numpys() -> None:
    target = Defended(ToyClassifier(), (ToyNoise(sigma=0.2),))
    batch = clips_for(target)
    draws = DRAWS.turn("vote")
    rows = [target.scores(heard(target, batch, turn), draws=draws).detach().numpy() for turn in range(4)]
    wanted = [ToyClassifier.classes[place] for place in np.mean(rows, axis=0).argmax(axis=1)]
    assert Voted(target, Average(passes=4)).decode(batch, draws=DRAWS) == wanted


def test_the_average_of_a_noisy_recogniser_is_numpys() -> None:
    target = Defended(ToyCtc(), (ToyNoise(sigma=0.1),))
    batch = clips_for(target)
    draws = DRAWS.turn("vote")
    rows = [target.log_probs(heard(target, batch, turn), draws=draws) for turn in range(4)]
    best = np.mean([scores.detach().numpy() for scores, _ in rows], axis=0).argmax(axis=2)
    wanted = []
    for tokens, count in zip(best, rows[0][1].tolist(), strict=True):
        merged = [token for token, _ in groupby(tokens[:count].tolist()) if token]
        wanted.append(" ".join("".join(" abcde "[token] for token in merged).split()))
    assert Voted(target, Average(passes=4)).decode(batch, draws=DRAWS) == wanted


@pytest.mark.parametrize("vote", [Majority(passes=5), Average(passes=5)])
@pytest.mark.parametrize("inner", [ToyClassifier(), ToyCtc()])
def test_a_clip_elects_the_same_alone_in_a_batch_and_however_many_are_heard_at_once(
    inner: Target, vote: Vote
) -> None:
    target = Defended(inner, (ToyNoise(sigma=0.1),))
    batch = clips_for(target)
    together = Voted(target, vote).decode(batch, draws=DRAWS)
    assert [Voted(target, vote).decode(batch.select([row]), draws=DRAWS)[0] for row in range(4)] == together
    assert Voted(target, vote, at_once=3).decode(batch, draws=DRAWS) == together


def test_what_has_no_scores_has_no_average() -> None:
    with pytest.raises(
        MissingCapability, match="average needs class scores or CTC token scores, which ToyAttention"
    ):
        Voted(ToyAttention(), Average())


@pytest.mark.parametrize("vote", [Majority(passes=0), Average(passes=-1)])
def test_a_vote_needs_a_pass(vote: Vote) -> None:
    with pytest.raises(InputError, match="passes must be from 1 to 100,000, got"):
        Voted(ToyClassifier(), vote)


def test_nothing_is_kept_for_a_gradient() -> None:
    passes = Passes(ToyClassifier(), clips_for(ToyClassifier()), DRAWS, 2)
    with torch.no_grad():
        assert not passes.mean_scores().requires_grad
