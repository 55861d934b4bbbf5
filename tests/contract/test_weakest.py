"""An attack that looks for the smallest perturbation does not fail where a model is weakest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest
import torch
from torch import Tensor

from sottovoce.attacks.carlini_wagner import CarliniWagner
from sottovoce.core.attack import Attack, climb
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, Budget, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.core.target import Target
from sottovoce.data.corpora import folder
from sottovoce.data.embedded import embedded
from sottovoce.data.load import Corpus, collate
from sottovoce.targets.zoo.keyword_cnn import keyword
from sottovoce.testing import ContractError, Law, check_weakest
from sottovoce.testing.checks.check_weakest import missed_clips, weakest

FIRST = CarliniWagner(binary_search=1)
"""The first of the default's rounds: what it fools, the default fools."""


@final
@dataclass(frozen=True, kw_only=True)
class Timid(Attack):
    """Steps of a tenth of a 16-bit step up the gradient, each rounded before the next."""

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        delta = torch.zeros_like(clean.waveforms)
        for _ in range(20):
            _, slope = climb(target, clean, delta, goal, draws)
            delta = ((delta + 0.1 / 32768 * slope.sign()) * 32768).round() / 32768
        return delta


def right_clips(corpus: Corpus) -> AudioBatch:
    """The clips that the keyword model hears right; it has one class for all words that it does not know."""
    model = keyword()
    batch = collate([corpus.load(entry, 16000) for entry in corpus])
    with torch.no_grad():
        said = model.decode(batch, draws=Draws(0))
    labels = [entry.label if entry.label in model.classes else "unknown" for entry in corpus]
    return batch.select([row for row, label in enumerate(labels) if said[row] == label])


def test_the_dozen_nearest_to_their_boundary() -> None:
    check_weakest(FIRST)


def test_they_are_fooled_by_the_search_and_not_at_the_edge_of_the_budget() -> None:
    model, clips = keyword(), right_clips(embedded())
    weak = weakest(model, clips, Evade(), 4)
    # By the slope of the margin unknown-4 is a twentieth of a step away.
    assert weak.ids[0] == "unknown-4"
    trial = FIRST(model, weak, Evade(), Snr(20.0), draws=Draws(0))
    assert trial.achieved == (True,) * 4
    power = trial.clean.waveforms.double().square().sum(dim=1)
    noise = trial.delta.double().square().sum(dim=1)
    assert float((10 * (power / noise).log10()).min()) > 50.0


def test_an_attack_whose_steps_are_rounded_away_is_caught() -> None:
    with pytest.raises(ContractError, match="unknown-4") as caught:
        check_weakest(Timid(), count=2)
    assert caught.value.law is Law.WEAKEST


@pytest.mark.slow
@pytest.mark.parametrize(
    ("goal", "budget"),
    [
        *((Evade(), budget) for budget in (Snr(20), Snr(30), Snr(40), Snr(50), Snr(60), L2(0.05))),
        (Force("yes"), Snr(30)),
        (Force("yes"), Snr(50)),
    ],
    ids=str,
)
def test_all_embedded_clips(goal: Goal, budget: Ball) -> None:
    clips = right_clips(embedded())
    assert len(clips) > 50
    assert missed_clips(CarliniWagner(), keyword(), clips, goal, budget) == ()


@pytest.mark.slow
@pytest.mark.parametrize("budget", [Snr(20), Snr(40), Snr(60)], ids=str)
def test_recorded_commands(spoken_words: Path, budget: Ball) -> None:
    clips = right_clips(folder(str(spoken_words / "test")).limit(240))
    assert len(clips) > 200
    model = keyword()
    missed = [
        name
        for first in range(0, len(clips), 40)
        for name in missed_clips(
            CarliniWagner(),
            model,
            clips.select(range(first, min(first + 40, len(clips)))),
            Evade(),
            budget,
        )
    ]
    assert missed == []
