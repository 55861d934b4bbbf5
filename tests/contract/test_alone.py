"""A clip alone and in a batch: equal decisions, an SNR within 0.05 dB, and waveforms up to float rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import pytest
import torch
from torch import Tensor

from sottovoce.attacks.carlini_wagner_asr import CarliniWagnerAsr
from sottovoce.core.attack import Attack, Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, Searchable, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Force, Goal
from sottovoce.core.target import Target
from sottovoce.data.embedded import strings
from sottovoce.data.load import collate
from sottovoce.targets.zoo.recogniser_targets import recogniser
from sottovoce.testing import ContractError, Law, ToyCtc, check_attack, clips_for

DRAWS = Draws(0)


@final
@dataclass(frozen=True, kw_only=True)
class Crowded(Attack):
    """Noise that is a twentieth quieter for each other clip of the batch: 1.3 dB in a batch of four."""

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Searchable)
        return 0.95 ** (len(clean) - 1) * budget.noise(clean, draws)


def ratios(trial: Trial) -> Tensor:
    power = trial.clean.waveforms.double().square().sum(dim=1)
    return 10 * (power / trial.delta.double().square().sum(dim=1)).log10()


def check_alone(attack: Attack, target: Target, clean: AudioBatch, goal: Goal, budget: Budget) -> None:
    together = attack(target, clean, goal, budget, draws=DRAWS)
    assert all(together.achieved)
    for row in range(len(clean)):
        alone = attack(target, clean.select([row]), goal, budget, draws=DRAWS)
        assert alone.adversarial_texts == together.adversarial_texts[row : row + 1]
        assert alone.achieved == together.achieved[row : row + 1]
        assert float((ratios(alone) - ratios(together)[row]).abs().max()) <= 0.05


def test_a_toy_recogniser_under_carlini_wagner() -> None:
    target = ToyCtc()
    check_alone(CarliniWagnerAsr(steps=60), target, clips_for(target), Force("cab"), Snr(10.0))


@pytest.mark.slow
def test_the_shipped_recogniser_under_carlini_wagner() -> None:
    target = recogniser()
    corpus = strings()
    clips = sorted((corpus.load(entry, 16000) for entry in corpus), key=lambda clip: len(clip.waveform))
    check_alone(CarliniWagnerAsr(steps=80), target, collate(clips[:3]), Force("stop go"), Snr(20.0))


def test_an_attack_that_is_quieter_in_company_is_caught() -> None:
    with pytest.raises(ContractError, match=r"the SNR differs by 1\.3") as caught:
        # As far as its decisions and what it reaches are concerned, nothing is amiss.
        check_attack(Crowded(), budgets=[Snr(40.0)], tolerance=torch.inf)
    assert caught.value.law is Law.ALONE
