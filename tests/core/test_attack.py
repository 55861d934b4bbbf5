"""The frame around every attack: binding, projection, clamping, rounding, judging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Best, climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Budget, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.core.target import Says, Scores, Target
from sottovoce.core.text_normaliser import normalise
from sottovoce.errors import GradientError, InputError, MissingCapability
from sottovoce.testing import ToyClassifier, ToyCtc, clips_for

STEP = 1.0 / 32768
DRAWS = Draws(0)


class Sign(Target):
    """Says whether the samples add up to more than zero; the loss of "plus" is minus their sum."""

    sample_rate = 1000

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        signs = torch.tensor([-1.0 if label == "plus" else 1.0 for label in labels])
        return signs * batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["plus" if total > 0 else "minus" for total in batch.waveforms.sum(dim=1).tolist()]


class Writer(Sign):
    """A recogniser: "turn left now" to clips that add up to more than zero, else what is given to it."""

    says: ClassVar[Says] = "words"

    def __init__(self, other: str) -> None:
        self.other = other

    def canonical(self, text: str) -> str:
        return normalise(text)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return [
            "turn left now" if said == "plus" else self.other for said in super().decode(batch, draws=draws)
        ]


@dataclass(frozen=True)
class Constant(Attack):
    amount: float

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return torch.full_like(clean.waveforms, self.amount)


@dataclass(frozen=True)
class Picky(Attack):
    needs: ClassVar[tuple[type, ...]] = (Scores,)
    budgets: ClassVar[tuple[type[Budget], ...]] = (L2,)

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        raise AssertionError("never reached")


def clips() -> AudioBatch:
    return AudioBatch.of([[0.25] * 40, [-0.5] * 20], 1000, ["up", "down"])


def test_a_trial_by_hand() -> None:
    trial = Constant(-9.0)(Sign(), clips(), Evade(), LInf(0.5), draws=DRAWS, labels=("plus", "plus"))
    assert trial.references == trial.clean_texts == ("plus", "minus")
    assert trial.labels == ("plus", "plus")
    # 0.25 - 0.5 and -0.5 - 0.5, with nothing in the padding.
    assert trial.adversarial.clip(0).tolist() == [-0.25] * 40
    assert trial.adversarial.clip(1).tolist() == [-1.0] * 20
    assert trial.adversarial.waveforms[1, 20:].tolist() == [0.0] * 20
    assert trial.delta[:, 0].tolist() == [-0.5, -0.5]
    assert trial.adversarial_texts == ("minus", "minus")
    assert trial.achieved == trial.achieved_unrounded == (True, False)


@pytest.mark.parametrize(
    ("truth", "other", "achieved", "judged_by"),
    [
        ("turn right now", "turn right now", False, "errors"),  # from 1 error to none: no success
        ("turn right now", "turn light now", False, "errors"),  # another error, not one more
        ("turn right now", "burn left now", True, "errors"),  # from 1 error to 2
        ("", "burn left now", True, "change"),
        ("", "Turn left, now!", False, "change"),
    ],
)
def test_success_on_a_recogniser_is_more_word_errors(
    truth: str, other: str, achieved: bool, judged_by: str
) -> None:
    clean = clips().select([0])
    target = Writer(other)
    trial = Constant(-9.0)(target, clean, Evade(), LInf(0.5), draws=DRAWS, labels=(truth,))
    assert trial.adversarial_texts == (other,)
    assert (trial.achieved, trial.judged_by) == ((achieved,), (judged_by,))


def test_the_kind_of_success_is_told() -> None:
    trial = Constant(-9.0)(Sign(), clips(), Evade(), LInf(0.5), draws=DRAWS, labels=("plus", "plus"))
    assert trial.judged_by == ("change", "change")
    trial = Constant(-9.0)(Sign(), clips(), Force("minus"), LInf(0.5), draws=DRAWS)
    assert trial.judged_by == ("goal", "goal")


def test_examples_stay_in_full_swing() -> None:
    trial = Constant(9.0)(Sign(), clips(), Evade(), LInf(5.0), draws=DRAWS)
    assert trial.adversarial.waveforms[:, 0].tolist() == [32767 * STEP, 32767 * STEP]
    trial = Constant(9.0)(Sign(), clips(), Evade(), LInf(5.0), draws=DRAWS, bits=None)
    assert trial.adversarial.waveforms[:, 0].tolist() == [1.0, 1.0]


def test_success_can_be_lost_to_rounding() -> None:
    clean = AudioBatch.of([[0.0] * 40], 1000)
    quiet = Constant(0.4 * STEP)
    trial = quiet(Sign(), clean, Force("plus"), LInf(0.4 * STEP), draws=DRAWS)
    assert (trial.achieved_unrounded, trial.achieved) == ((True,), (False,))
    trial = quiet(Sign(), clean, Force("plus"), LInf(0.4 * STEP), draws=DRAWS, bits=None)
    assert (trial.achieved_unrounded, trial.achieved) == ((True,), (True,))


def test_a_bound_goal_keeps_its_references() -> None:
    trial = Constant(0.0)(Sign(), clips(), Evade().bind(["minus", "minus"]), LInf(0.1), draws=DRAWS)
    assert trial.references == ("minus", "minus")
    assert trial.achieved == (True, False)
    with pytest.raises(InputError, match="needs 2 references, one for each clip, got 1"):
        Constant(0.0)(Sign(), clips(), Evade().bind(["minus"]), LInf(0.1), draws=DRAWS)


def test_what_does_not_fit_together() -> None:
    target = ToyCtc()
    with pytest.raises(
        MissingCapability,
        match=r"^Picky needs class scores, but .* recogniser \(ToyCtc\)\. Use pgd",
    ):
        Picky()(target, clips_for(target), Evade(), L2(0.1), draws=DRAWS)
    toy = ToyClassifier()
    with pytest.raises(InputError, match="Picky needs a budget of kind L2, got SNR 20 dB"):
        Picky()(toy, clips_for(toy), Evade(), Snr(20.0), draws=DRAWS)
    with pytest.raises(InputError, match="at 1000 Hz, got 8000 Hz"):
        Constant(0.0)(Sign(), AudioBatch.of([[0.0] * 400], 8000), Evade(), LInf(0.1), draws=DRAWS)


def test_climb_gives_value_and_gradient_per_clip() -> None:
    delta = torch.zeros(2, 40)
    value, gradient = climb(Sign(), clips(), delta, Evade().bind(["plus", "minus"]), DRAWS)
    # Sums of 10 and -10; the gradient to a sample is the sign of the loss, and zero in the padding.
    assert value.tolist() == [-10.0, -10.0]
    assert gradient[0].tolist() == [-1.0] * 40
    assert gradient[1].tolist() == [1.0] * 20 + [0.0] * 20
    assert not value.requires_grad and delta.grad is None


def test_climb_refuses_a_gradient_that_is_not_finite() -> None:
    class Root(Sign):
        def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
            return (batch.waveforms.sum(dim=1) + 10.0).sqrt()

    # The root of -10 + 10 has an infinite slope.
    with pytest.raises(GradientError, match="clip 'down': expected a finite gradient"):
        climb(Root(), clips(), torch.zeros(2, 40), Evade().bind(["plus", "minus"]), DRAWS)


def test_best_keeps_the_best_of_each_clip() -> None:
    best = Best(torch.zeros(2, 1))
    steps = [([1.0, 1.0], [5.0, 5.0]), ([2.0, 2.0], [4.0, 6.0]), ([3.0, 3.0], [5.0, 1.0])]
    better = [best.update(torch.tensor(delta)[:, None], torch.tensor(value)) for delta, value in steps]
    assert [which.tolist() for which in better] == [[True, True], [False, True], [False, False]]
    assert best.delta[:, 0].tolist() == [1.0, 2.0]
    assert best.value.tolist() == [5.0, 6.0]


def test_best_never_takes_a_nan() -> None:
    best = Best(torch.zeros(1, 1))
    assert best.update(torch.ones(1, 1), torch.tensor([torch.nan])).tolist() == [False]
    assert best.delta.tolist() == [[0.0]]


def test_within() -> None:
    clean = AudioBatch.of([[0.75, -0.75]], 1000)
    assert within(clean, torch.tensor([[0.5, -0.5]])).tolist() == [[0.25, -0.25]]
    assert within(clean, torch.tensor([[-0.5, 0.5]])).tolist() == [[-0.5, 0.5]]


@dataclass(frozen=True)
class Tuned(Attack):
    """Settings of the plain types, one of them bound to objects that are not checked."""

    steps: int = 1
    step: float = 0.5
    level: float | None = None
    table: Any = None

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return torch.zeros_like(clean.waveforms)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": "many"}, "Tuned(steps='many'): expected an integer."),
        ({"steps": 2.5}, "Tuned(steps=2.5): expected an integer."),
        ({"steps": None}, "Tuned(steps=None): expected an integer."),
        ({"step": True}, "Tuned(step=True): expected a number."),
        ({"level": [1.0]}, "Tuned(level=[1.0]): expected a number or None."),
    ],
)
def test_a_setting_of_a_wrong_type_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Tuned(**settings)
    assert str(caught.value) == message


def test_numbers_of_other_libraries_are_settings() -> None:
    made = Tuned(steps=np.int64(3), step=1, level=np.float32(0.5), table=["anything"])  # type: ignore[arg-type]
    assert (made.steps, made.step, made.level) == (3, 1, 0.5)
