"""DeepFool: distances to boundaries that are known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.attacks.deepfool import DeepFool, nearest_boundary
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.errors import GradientError, InputError
from sottovoce.targets.families.classifier import ModuleClassifier

DRAWS = Draws(0)
CLEAN = [0.5, 0.25, -0.25, 0.125]


def linear(weights: list[list[float]], biases: list[float]) -> ModuleClassifier:
    layer = torch.nn.Linear(len(weights[0]), len(weights))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights))
        layer.bias.copy_(torch.tensor(biases))
    return ModuleClassifier(layer, "abcdefgh"[: len(weights)], 200, clip_samples=len(weights[0]))


def two_classes() -> ModuleClassifier:
    """b less a is (3, -4, 0, 12), of L2 length 13 and L1 length 19; on CLEAN it is 2 - 2.65 = -0.65."""
    return linear([[0.0, 4.0, 0.0, 0.0], [3.0, 0.0, 0.0, 12.0]], [1.65, -1.0])


class Circle(torch.nn.Module):
    """ "inside" where the clip's Euclidean length is below 0.5."""

    def forward(self, waveforms: Tensor) -> Tensor:
        inside = 0.25 - waveforms.square().sum(dim=1)
        return torch.stack([inside, torch.zeros_like(inside)], dim=1)


def circle() -> ModuleClassifier:
    return ModuleClassifier(Circle(), ["inside", "outside"], 200, clip_samples=4)


def curved(seed: int = 0) -> ModuleClassifier:
    source = torch.Generator().manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(40, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.randn(part.shape, generator=source))
    return ModuleClassifier(module, "abcd", 200, clip_samples=40)


def ragged() -> AudioBatch:
    source = np.random.default_rng(7)
    clips = [np.clip(0.3 * source.standard_normal(length), -1, 1) for length in (40, 17, 25, 33)]
    return AudioBatch.of(clips, 200, ["w", "x", "y", "z"])


@pytest.mark.parametrize("goal", [Evade(), Force("b")])
@pytest.mark.parametrize("overshoot", [0.02, 0.1])
def test_l2_distance_of_a_linear_model(goal: Goal, overshoot: float) -> None:
    attack = DeepFool(overshoot=overshoot)
    trial = attack(two_classes(), AudioBatch.of([CLEAN], 200), goal, L2(1.0), draws=DRAWS, bits=None)
    # 0.65 / 13 = 0.05 along (3, -4, 0, 12) / 13
    expected = (1 + overshoot) * 0.05 * np.array([3, -4, 0, 12]) / 13
    np.testing.assert_allclose(trial.delta[0], expected, rtol=1e-3, atol=1e-7)
    assert trial.achieved == (True,) and trial.adversarial_texts == ("b",)


@pytest.mark.parametrize("goal", [Evade(), Force("b")])
def test_linf_distance_of_a_linear_model(goal: Goal) -> None:
    trial = DeepFool(overshoot=0.02)(
        two_classes(), AudioBatch.of([CLEAN], 200), goal, LInf(0.5), draws=DRAWS, bits=None
    )
    step = 1.02 * 0.65 / 19
    np.testing.assert_allclose(trial.delta[0], [step, -step, 0.0, step], rtol=1e-3, atol=1e-7)
    assert trial.achieved == (True,)


def test_the_nearest_boundary_is_not_that_of_the_second_best_class() -> None:
    # On a clip of zeros a leads b by 1 and c by 2, but c's scores move ten times as fast:
    # distances 1 / 1 and 2 / 10.
    model = linear([[0.0] * 4, [1.0, 0.0, 0.0, 0.0], [0.0, 10.0, 0.0, 0.0]], [2.0, 1.0, 0.0])
    clip = AudioBatch.of([[0.0] * 4], 200)
    away = DeepFool(overshoot=0.02)(model, clip, Evade(), L2(5.0), draws=DRAWS, bits=None)
    np.testing.assert_allclose(away.delta[0], [0.0, 1.02 * 0.2, 0.0, 0.0], rtol=1e-3, atol=1e-7)
    assert away.adversarial_texts == ("c",)
    near_b = linear([[0.0] * 4, [4.0, 0.0, 0.0, 0.0], [0.0, 10.0, 0.0, 0.0]], [2.0, 1.0, 0.0])
    forced = DeepFool(overshoot=0.02)(near_b, clip, Force("b"), L2(5.0), draws=DRAWS, bits=None)
    np.testing.assert_allclose(forced.delta[0], [1.02 * 0.25, 0.0, 0.0, 0.0], rtol=1e-3, atol=1e-7)
    assert forced.adversarial_texts == ("b",)


def test_out_of_a_circle_one_newton_step_is_enough() -> None:
    # From length 0.4 the linear step leads to (0.4 + 0.25 / 0.4) / 2 = 0.5125, outside already.
    clip = AudioBatch.of([[0.4, 0.0, 0.0, 0.0]], 200)
    trial = DeepFool(overshoot=0.02)(circle(), clip, Evade(), L2(1.0), draws=DRAWS, bits=None)
    np.testing.assert_allclose(trial.delta[0], [1.02 * 0.1125, 0.0, 0.0, 0.0], rtol=1e-3, atol=1e-7)


def test_into_a_circle_the_steps_converge() -> None:
    # From length 0.8 every linear step stays outside: 0.5563, 0.5029, 0.50001, ... toward 0.5.
    clip = AudioBatch.of([[0.0, 0.48, 0.64, 0.0]], 200)
    trial = DeepFool(overshoot=0.02)(circle(), clip, Evade(), L2(1.0), draws=DRAWS, bits=None)
    assert trial.achieved == (True,)
    assert float(trial.delta.norm()) == pytest.approx(0.3, rel=0.03)
    assert float(trial.delta.norm()) > 0.3
    direction = trial.delta[0] / trial.delta.norm()
    np.testing.assert_allclose(direction, [0.0, -0.6, -0.8, 0.0], atol=1e-5)


def test_the_way_on_from_a_start() -> None:
    model, clean = two_classes(), AudioBatch.of([CLEAN, CLEAN, CLEAN], 200)
    goal = Evade(references=("a",) * 3)
    along = torch.tensor([3.0, -4.0, 0.0, 12.0]) / 13
    # Nothing, 60 % of the way of 0.05, and a little more than all of it.
    start = torch.stack([0.0 * along, 0.03 * along, 0.051 * along])
    extra = nearest_boundary(model, clean, start, goal, DRAWS, steps=50, overshoot=0.1, norm="l2")
    np.testing.assert_allclose(extra.norm(dim=1), [0.055, 0.022, 0.0], rtol=1e-3, atol=1e-7)
    heard = clean.with_waveforms(clean.waveforms + start + extra)
    assert model.decode(heard, draws=DRAWS) == ["b", "b", "b"]


def test_a_clip_on_the_boundary_is_led_across() -> None:
    model = linear([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]], [0.5, 0.5])
    clip = AudioBatch.of([[0.25, 0.25, 0.0, 0.0]], 200)
    trial = DeepFool()(model, clip, Evade(), L2(1.0), draws=DRAWS, bits=None)
    assert trial.clean_texts == ("a",) and trial.achieved == (True,)
    assert 0.0 < float(trial.delta.norm()) < 1e-4


def test_what_is_too_far_is_projected() -> None:
    # Half of the distance is allowed: the same direction, at the edge of the budget.
    trial = DeepFool()(two_classes(), AudioBatch.of([CLEAN], 200), Evade(), L2(0.025), draws=DRAWS, bits=None)
    np.testing.assert_allclose(trial.delta[0], 0.025 * np.array([3, -4, 0, 12]) / 13, rtol=1e-4, atol=1e-8)
    assert trial.achieved == (False,)


def test_without_success_the_best_margin_is_kept() -> None:
    # c trails a by exactly 1 everywhere, and b leads on the clean clip by 0.5: the margin of c starts at -1.5
    # and can be raised to -1, where a takes over from b, and no further.
    model = linear([[1.0, 0.0, 0.0, 0.0], [0.0] * 4, [1.0, 0.0, 0.0, 0.0]], [0.0, 0.5, -1.0])
    clean, goal = AudioBatch.of([[0.0] * 4], 200), Force("c", references=("b",))
    delta = DeepFool(steps=30).perturb(model, clean, goal, L2(5.0), DRAWS)
    assert float(delta[0, 0]) >= 0.5
    scores = model.scores(clean.with_waveforms(delta.clamp(-1, 1)), draws=DRAWS)
    assert float(goal.margin(scores, model.classes).detach()) == pytest.approx(-1.0, abs=1e-5)


@pytest.mark.parametrize("goal", [Evade(), Force("c")])
@pytest.mark.parametrize("budget", [L2(3.0), LInf(0.5), Snr(10)])
def test_alone_is_as_in_a_batch(goal: Goal, budget: Ball) -> None:
    model, clean = curved(), ragged()
    together = DeepFool()(model, clean, goal, budget, draws=DRAWS, bits=None)
    for row in range(len(clean)):
        alone = DeepFool()(model, clean.select([row]), goal, budget, draws=DRAWS, bits=None)
        length = int(clean.lengths[row])
        np.testing.assert_allclose(alone.delta[0], together.delta[row, :length], atol=1e-5)
        assert not together.delta[row, length:].any()


@pytest.mark.parametrize("goal", [Evade(), Force("c"), Force("d")])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_more_steps_are_never_worse(goal: Goal, norm: str) -> None:
    model, clean = curved(3), ragged()
    goal = goal.bind(model.decode(clean, draws=DRAWS))
    last = torch.full((len(clean),), -math.inf)
    for steps in (1, 2, 4, 30):
        start = torch.zeros_like(clean.waveforms)
        delta = nearest_boundary(model, clean, start, goal, DRAWS, steps=steps, norm=norm)  # type: ignore[arg-type]
        heard = clean.with_waveforms((clean.waveforms + delta).clamp(-1, 1))
        margin = goal.margin(model.scores(heard, draws=DRAWS).detach(), model.classes)
        assert bool((margin >= last - 1e-5).all())
        last = margin
    assert bool((last > 0).all())


def test_a_model_that_overflows_is_named_with_its_clip() -> None:
    class Broken(torch.nn.Module):
        def forward(self, waveforms: Tensor) -> Tensor:
            # The root has an infinite slope at zero.
            root = waveforms[:, 0].abs().sqrt()
            return torch.stack([1.0 - root, root], dim=1)

    model = ModuleClassifier(Broken(), ["a", "b"], 200, clip_samples=4)
    clean = AudioBatch.of([CLEAN, [0.0, 0.1, 0.1, 0.1]], 200, ["fine", "flat"])
    with pytest.raises(GradientError, match="'flat'"):
        DeepFool()(model, clean, Force("b"), L2(1.0), draws=DRAWS)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"overshoot": -0.1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        DeepFool(**wrong)  # type: ignore[arg-type]
