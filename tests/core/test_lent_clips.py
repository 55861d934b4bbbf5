"""Parts that write into the clips they are handed: nothing is judged against what they wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch, Lent
from sottovoce.core.budget import Budget, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.core.metric import Metric, lend
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged, Defended, Transform
from sottovoce.core.universal_attack import Perturbation
from sottovoce.errors import BudgetError
from sottovoce.metrics.distortion import Snr as SnrMetric
from sottovoce.testing.checks.check_metric import example_trial

DRAWS = Draws(0)


def clips() -> AudioBatch:
    return AudioBatch.of([[0.25] * 40, [-0.5] * 20], 1000, ["up", "down"])


def scribble(batch: AudioBatch) -> None:
    """Half of every sample again: 20 log10 2 = 6.02 dB above it."""
    batch.waveforms.mul_(1.5)
    batch.lengths.sub_(1)


def down(batch: AudioBatch) -> Tensor:
    """Minus 1 in every sample of a clip."""
    return -batch.mask.to(batch.waveforms)


class Sign(Target):
    """Says whether the samples add up to more than zero; the loss of "plus" is minus their sum."""

    sample_rate = 1000

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        signs = torch.tensor([-1.0 if label == "plus" else 1.0 for label in labels])
        return signs * batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["plus" if total > 0 else "minus" for total in batch.waveforms.sum(dim=1).tolist()]


class ScribblingTarget(Sign):
    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        texts = super().decode(batch, draws=draws)
        scribble(batch)
        return texts


class ScribblingLoss(Sign):
    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        found = super().loss(batch, labels, draws=draws)
        scribble(batch)
        return found


@dataclass(frozen=True)
class ScribblingTransform(Transform):
    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        heard = batch.waveforms.clone()
        scribble(batch)
        return heard


@dataclass(frozen=True)
class Down(Attack):
    """Minus the loudest that is allowed."""

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        found = down(clean)
        target.loss(clean, goal.references, draws=draws)
        return found


@dataclass(frozen=True)
class ScribblingAttack(Attack):
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        found = down(clean)
        scribble(clean)
        clean.mask.zero_()
        return found


@dataclass(frozen=True)
class RestoringAttack(Attack):
    """Works at twice the level, so that whatever the budget keeps of these clips is twice too loud."""

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        clean.waveforms.mul_(2.0)
        found = budget.project(down(clean), clean)
        clean.waveforms.div_(2.0)
        return found


@dataclass(frozen=True)
class ScribblingGoal(Goal):
    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return target.loss(batch, self.references, draws=draws)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return Evade(references=self.references).achieved(texts)

    def applies(self, reference: str) -> bool:
        return True

    def read(self, target: Target, batch: AudioBatch, texts: Sequence[str], *, draws: Draws) -> list[str]:
        scribble(batch)
        return list(texts)


@dataclass(frozen=True)
class ScribblingBudget(Budget):
    """As an SNR of 30 dB."""

    def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        return Snr(30.0).excess(delta, clean)

    def project(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        found = Snr(30.0).project(delta, clean)
        scribble(clean)
        return found

    def __str__(self) -> str:
        return "30 dB"


Made = tuple[Attack, Target, Goal, Budget]
PARTS: dict[str, Callable[[], Made]] = {
    "attack": lambda: (ScribblingAttack(), Sign(), Evade(), Snr(30.0)),
    "attack that restores": lambda: (RestoringAttack(), Sign(), Evade(), Snr(30.0)),
    "decode": lambda: (Down(), ScribblingTarget(), Evade(), Snr(30.0)),
    "loss": lambda: (Down(), ScribblingLoss(), Evade(), Snr(30.0)),
    "averaged loss": lambda: (Down(), Averaged(ScribblingLoss(), 2), Evade(), Snr(30.0)),
    "transform": lambda: (Down(), Defended(Sign(), (ScribblingTransform(),)), Evade(), Snr(30.0)),
    "goal": lambda: (Down(), Sign(), ScribblingGoal(), Snr(30.0)),
    "budget": lambda: (Down(), Sign(), Evade(), ScribblingBudget()),
    "universal": lambda: (Perturbation(-torch.ones(7), 1000), ScribblingTarget(), Evade(), Snr(30.0)),
}


@pytest.mark.parametrize("bits", [16, None])
@pytest.mark.parametrize("name", PARTS)
def test_the_example_is_made_of_the_callers_clips_and_inside_its_budget_there(
    name: str, bits: int | None
) -> None:
    attack, target, goal, budget = PARTS[name]()
    given, kept = clips(), clips()
    trial = attack(target, given, goal, budget, draws=DRAWS, bits=bits)
    assert given.same_as(kept) and trial.clean.same_as(kept)
    assert trial.clean_texts == ("plus", "minus")
    noise = (trial.adversarial.waveforms.double() - kept.waveforms.double()).square().sum(dim=1)
    signal = kept.waveforms.double().square().sum(dim=1)
    ratios_db = (10.0 * (signal / noise).log10()).tolist()
    # On the grid of 16 bits 0.25 at 30 dB is 259.06 steps, of which 259 fit: 30.002 dB.
    assert all(30.0 <= ratio < 30.01 for ratio in ratios_db)
    # 0.25 less a thirtieth is above zero.
    assert trial.adversarial_texts == ("plus", "minus") and trial.achieved == (False, False)
    assert trial.adversarial.waveforms[1, 20:].tolist() == [0.0] * 20


def test_the_same_is_found_whether_or_not_the_target_writes() -> None:
    honest = Down()(Sign(), clips(), Evade(), Snr(30.0), draws=DRAWS)
    for target in (ScribblingTarget(), ScribblingLoss()):
        through = Down()(Sign(), clips(), Evade(), Snr(30.0), draws=DRAWS, through=target)
        assert through.adversarial.same_as(honest.adversarial)
        itself = Down()(target, clips(), Evade(), Snr(30.0), draws=DRAWS)
        assert itself.adversarial.same_as(honest.adversarial)


def test_a_goal_that_asks_the_target_again_hears_the_same_clips() -> None:
    """Twice read, once written into in between."""

    @dataclass(frozen=True)
    class Loudness(ScribblingGoal):
        def read(self, target: Target, batch: AudioBatch, texts: Sequence[str], *, draws: Draws) -> list[str]:
            return [f"{value:.3f}" for value in batch.waveforms[:, 0].tolist()]

    trial = Down()(ScribblingTarget(), clips(), Loudness(), LInf(0.25), draws=DRAWS)
    assert trial.references == ("0.250", "-0.500")
    # Down by 0.25: the reading of the example is another in both clips.
    assert trial.achieved == trial.achieved_unrounded == (True, True)


def test_a_perturbation_that_is_no_number_is_refused() -> None:
    @dataclass(frozen=True)
    class Empty(Attack):
        def perturb(
            self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws
        ) -> Tensor:
            delta = torch.zeros_like(clean.waveforms)
            delta[1] = torch.nan
            return delta

    with pytest.raises(
        BudgetError, match=r"^clip 'down': expected an example inside Linf 0\.1, got nan times"
    ):
        Empty()(Sign(), clips(), Evade(), LInf(0.1), draws=DRAWS)


def test_an_example_outside_its_budget_is_refused() -> None:
    """A budget that allows not even silence is the only way to get there: all else is shrunk."""

    class Nothing(ScribblingBudget):
        def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
            return torch.full((len(delta),), 1.5, dtype=torch.float64)

    with pytest.raises(
        BudgetError, match=r"clip 'up': expected an example inside 30 dB, got 1\.5 times what"
    ):
        Down()(Sign(), clips(), Force("plus"), Nothing(), draws=DRAWS)


def test_floats_are_inside_to_the_last_digit() -> None:
    # In single precision 0.5 has steps of 6e-8, and less 1e-6 it is 1.0133e-6 away.
    clean = AudioBatch.of([[0.5] * 30], 1000)
    trial = Down()(Sign(), clean, Evade(), LInf(1e-6), draws=DRAWS, bits=None)
    largest = float(trial.delta.double().abs().max())
    assert 0.9e-6 < largest <= 1e-6


def test_what_is_lent_is_a_copy_and_a_fresh_one_where_somebody_wrote() -> None:
    batch = clips()
    lent = Lent(batch)
    first = lent()
    assert lent() is first and first.same_as(batch)
    first.waveforms[0, 0] = 0.75
    assert lent() is not first and lent().same_as(clips()) and batch.same_as(clips())
    again = lent()
    again.lengths[0] = 1
    assert lent().lengths.tolist() == [40, 20]


class Loud(Metric):
    """Measures, and turns both clips down on the way."""

    name, title = "loud", "loud"

    def measure(self, trial: object) -> Tensor:
        trial.clean.waveforms.mul_(0.5)  # type: ignore[attr-defined]
        trial.adversarial.waveforms.zero_()  # type: ignore[attr-defined]
        return torch.ones(4, 2, dtype=torch.float64)


def test_no_metric_sees_what_another_wrote() -> None:
    trial = replace(example_trial())
    expected, kept = SnrMetric().measure(trial), (trial.clean.copy(), trial.adversarial.copy())
    shown = lend(trial)
    assert shown().clean is shown().clean  # metrics that share their work go by that
    Loud().measure(shown())
    assert torch.equal(SnrMetric().measure(shown()), expected)
    assert trial.clean.same_as(kept[0]) and trial.adversarial.same_as(kept[1])
