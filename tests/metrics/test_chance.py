"""The probability of the right label, before and under attack, by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, LInf
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.target import Target
from sottovoce.metrics.decisions import ChanceOfRight, CleanChanceOfRight
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.testing import ToyCtc, check_metric, clips_for


class First(torch.nn.Module):
    """Scores 8 times the first sample, and 0."""

    def forward(self, waveforms: Tensor) -> Tensor:
        first = 8.0 * waveforms[:, :1]
        return torch.cat([first, torch.zeros_like(first)], dim=1)


@dataclass(frozen=True)
class Lower(Attack):
    """Takes a quarter from every sample."""

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return torch.full_like(clean.waveforms, -0.25)


def attacked(labels: tuple[str, ...] | None, target: Target | None = None) -> Trial:
    target = target or ModuleClassifier(First(), ["up", "down"], 1000)
    clean = AudioBatch.of([[0.5] * 40, [0.25] * 30], 1000) if labels else clips_for(target)
    return Lower()(target, clean, Evade(), LInf(0.25), draws=Draws(0), labels=labels)


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def test_chances_are_softmaxes_of_the_scores() -> None:
    trial = attacked(("up", "down"))
    # Scores of "up": 8 * 0.5 and 8 * 0.25 before, 2 less after; "down" has the rest.
    before, after = CleanChanceOfRight().measure(trial), ChanceOfRight().measure(trial)
    assert before.flatten().tolist() == pytest.approx([sigmoid(4), 1.0, 1 - sigmoid(2), 1.0], abs=1e-6)
    assert after.flatten().tolist() == pytest.approx([sigmoid(2), 1.0, 0.5, 1.0], abs=1e-6)
    assert ChanceOfRight().summarise(after.numpy()).value == pytest.approx((sigmoid(2) + 0.5) / 2)


def test_a_label_that_the_target_cannot_say_has_no_chance() -> None:
    assert ChanceOfRight().measure(attacked(("up", "left")))[1].tolist() == [0.0, 1.0]


def test_without_truth_or_scores_there_is_no_value() -> None:
    unlabelled = attacked(None, ModuleClassifier(First(), ["up", "down"], 1000))
    scoreless = attacked(None, ToyCtc())
    assert scoreless.chance is None
    for trial in (unlabelled, scoreless):
        assert bool(ChanceOfRight().measure(trial)[:, 0].isnan().all())


def test_laws() -> None:
    for metric in (ChanceOfRight(), CleanChanceOfRight()):
        check_metric(metric)
        check_metric(metric, attacked(("up", "down")))
        assert metric.measured == "named"
