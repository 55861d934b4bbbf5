"""Carlini & Wagner: the smallest perturbation, against closed forms and a solver from outside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from sottovoce.attacks.carlini_wagner import CarliniWagner
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.errors import InputError
from sottovoce.targets.families.classifier import ModuleClassifier

DRAWS = Draws(0)
STEP = 1 / 32768
CLEAN = [0.5, 0.25, -0.25, 0.125]


def linear(weights: list[list[float]], biases: list[float]) -> ModuleClassifier:
    layer = torch.nn.Linear(len(weights[0]), len(weights))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights))
        layer.bias.copy_(torch.tensor(biases))
    return ModuleClassifier(layer, "abcdefgh"[: len(weights)], 200, clip_samples=len(weights[0]))


def two_classes(scale: float = 1.0) -> ModuleClassifier:
    """b less a is (3, -4, 0, 12), of length 13; on CLEAN it is 2 - 2.65 = -0.65: a distance of 0.05."""
    weights = [[0.0, 4.0 * scale, 0.0, 0.0], [3.0 * scale, 0.0, 0.0, 12.0 * scale]]
    return linear(weights, [1.65 * scale, -1.0 * scale])


class Circle(torch.nn.Module):
    """ "inside" where the clip's Euclidean length is below 0.5."""

    def forward(self, waveforms: Tensor) -> Tensor:
        inside = 0.25 - waveforms.square().sum(dim=1)
        return torch.stack([inside, torch.zeros_like(inside)], dim=1)


class Lead(torch.nn.Module):
    """ "b" where a function of the waveforms is above 0, which is then its margin; "a" elsewhere."""

    def __init__(self, lead: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.lead = lead

    def forward(self, waveforms: Tensor) -> Tensor:
        lead = self.lead(waveforms)
        return torch.stack([torch.zeros_like(lead), lead], dim=1)


def led_by(lead: Callable[[Tensor], Tensor], samples: int = 4) -> ModuleClassifier:
    return ModuleClassifier(Lead(lead), ["a", "b"], 200, clip_samples=samples)


@pytest.mark.parametrize("goal", [Evade(), Force("b")])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_distance_of_a_linear_model_whatever_its_scale(goal: Goal, scale: float) -> None:
    clip = AudioBatch.of([CLEAN], 200)
    trial = CarliniWagner()(two_classes(scale), clip, goal, L2(1.0), draws=DRAWS, bits=None)
    assert trial.achieved == (True,)
    assert 0.05 <= float(trial.delta.norm()) < 0.05 * 1.03
    np.testing.assert_allclose(trial.delta[0], 0.05 * np.array([3, -4, 0, 12]) / 13, atol=0.003)


def test_confidence_is_a_margin_on_top() -> None:
    clip, model, goal = AudioBatch.of([CLEAN], 200), two_classes(), Evade(references=("a",))
    delta = CarliniWagner(confidence=1.3).perturb(model, clip, goal, L2(1.0), DRAWS)
    # (0.65 + 1.3) / 13
    assert 0.15 <= float(delta.norm()) < 0.15 * 1.03
    scores = model.scores(clip.with_waveforms(clip.waveforms + delta), draws=DRAWS)
    assert float(goal.margin(scores.detach(), model.classes)) >= 1.3


@pytest.mark.parametrize(("clip", "distance"), [([0.4, 0.0, 0.0, 0.0], 0.1), ([0.0, 0.48, 0.64, 0.0], 0.3)])
def test_distance_to_a_circle(clip: list[float], distance: float) -> None:
    model = ModuleClassifier(Circle(), ["inside", "outside"], 200, clip_samples=4)
    trial = CarliniWagner()(model, AudioBatch.of([clip], 200), Evade(), L2(2.0), draws=DRAWS, bits=None)
    assert trial.achieved == (True,)
    assert distance * (1 - 1e-5) <= float(trial.delta.norm()) < distance * 1.03


@pytest.mark.parametrize("seed", range(4))
def test_a_forced_class_among_many_against_quadratic_programming(seed: int) -> None:
    source = np.random.default_rng(seed)
    weights, biases = source.standard_normal((5, 20)), source.standard_normal(5)
    clip = 0.1 * source.standard_normal(20)
    model, batch = linear(weights.tolist(), biases.tolist()), AudioBatch.of([clip], 200)
    worst = "abcde"[int(np.argmin(weights @ clip + biases))]
    place = "abcde".index(worst)
    rivals = [other for other in range(5) if other != place]
    normals = weights[place] - weights[rivals]
    offsets = biases[place] - biases[rivals]
    nearest = scipy.optimize.minimize(
        lambda delta: delta @ delta,
        np.zeros(20),
        jac=lambda delta: 2 * delta,
        constraints={
            "type": "ineq",
            "fun": lambda delta: normals @ (clip + delta) + offsets,
            "jac": lambda delta: normals,
        },
        method="SLSQP",
    )
    distance = float(np.linalg.norm(nearest.x))
    attack = CarliniWagner(steps=300)
    trial = attack(model, batch, Force(worst), L2(50.0), draws=DRAWS, bits=None)
    assert trial.achieved == (True,)
    assert distance * (1 - 1e-4) <= float(trial.delta.norm()) < distance * 1.05


def test_loud_and_quiet_clips_are_served_alike() -> None:
    # Without biases the problem scales with the clip: distance |margin| / 13 at every level.
    model = linear([[0.0, 4.0, 0.0, 0.0], [3.0, 0.0, 0.0, 12.0]], [0.0, 0.0])
    shape = np.array([0.1, 0.9, 0.3, 0.1])  # b less a: 0.3 - 3.6 + 1.2 = -2.1
    levels = [1.0, 1e-2, 1e-4]
    clean = AudioBatch.of([level * shape for level in levels], 200)
    trial = CarliniWagner(bits=None)(model, clean, Evade(), L2(2.0), draws=DRAWS, bits=None)
    assert trial.achieved == (True, True, True)
    for size, level in zip(trial.delta.norm(dim=1).tolist(), levels, strict=True):
        assert level * 2.1 / 13 * (1 - 1e-3) <= size < level * 2.1 / 13 * 1.03


def test_full_swing_is_respected() -> None:
    # The fourth sample is at its limit, so that (3, -4) of length 5 must do: distance 0.65 / 5.
    model = linear([[0.0, 4.0, 0.0, 0.0], [3.0, 0.0, 0.0, 12.0]], [0.0, -13.15])
    clip = AudioBatch.of([[0.5, 0.25, 0.0, 1.0]], 200)
    trial = CarliniWagner()(model, clip, Evade(), L2(2.0), draws=DRAWS, bits=None)
    assert trial.achieved == (True,)
    np.testing.assert_allclose(trial.delta[0], 0.13 * np.array([0.6, -0.8, 0, 0]), atol=0.004)


def test_without_success_the_best_margin_is_kept() -> None:
    # c trails a by 1 everywhere, and b leads on the clean clip by 0.5: the margin of c starts at -1.5 and can
    # be raised to -1, where a takes over from b, and no further.
    model = linear([[1.0, 0.0, 0.0, 0.0], [0.0] * 4, [1.0, 0.0, 0.0, 0.0]], [0.0, 0.5, -1.0])
    clean, goal = AudioBatch.of([[0.0] * 4], 200), Force("c", references=("b",))
    delta = CarliniWagner(steps=50).perturb(model, clean, goal, L2(5.0), DRAWS)
    scores = model.scores(clean.with_waveforms(delta), draws=DRAWS)
    assert float(goal.margin(scores, model.classes).detach()) == pytest.approx(-1.0, abs=1e-5)


def test_what_wins_already_is_left_alone() -> None:
    clip = AudioBatch.of([CLEAN], 200)
    trial = CarliniWagner()(two_classes(), clip, Force("a"), L2(1.0), draws=DRAWS, bits=None)
    assert trial.achieved == (True,) and not trial.delta.any()


def test_a_flat_model_and_a_silent_clip_give_finite_answers() -> None:
    silent = AudioBatch.of([[0.0] * 4], 200)
    flat = linear([[0.0] * 4, [0.0] * 4], [1.0, 0.0])
    trial = CarliniWagner(steps=5)(flat, silent, Evade(), L2(0.1), draws=DRAWS)
    assert trial.achieved == (False,) and not trial.delta.any()
    trial = CarliniWagner()(two_classes(), silent, Evade(), L2(1.0), draws=DRAWS, bits=None)
    # On silence b less a is -2.65.
    assert trial.achieved == (True,)
    assert 2.65 / 13 <= float(trial.delta.norm()) < 2.65 / 13 * 1.03


@pytest.mark.parametrize("goal", [Evade(), Force("c")])
def test_alone_is_as_in_a_batch_with_the_ratio_asked_for(goal: Goal) -> None:
    source = np.random.default_rng(7)
    clips = [np.clip(0.3 * source.standard_normal(length), -1, 1) for length in (40, 17, 25)]
    clean = AudioBatch.of(clips, 200, ["x", "y", "z"])
    module = torch.nn.Sequential(torch.nn.Linear(40, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).double()
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.from_numpy(source.standard_normal(tuple(part.shape))))
    model = ModuleClassifier(module, "abcd", 200, clip_samples=40)
    # In double precision: Adam's first steps turn rounding near 0 into whole steps of either sign.
    clean = AudioBatch(clean.waveforms.double(), clean.lengths, 200, clean.ids)
    attack = CarliniWagner(steps=40, binary_search=3)
    together = attack(model, clean, goal, Snr(10), draws=DRAWS, bits=None)
    power = clean.waveforms.square().sum(dim=1) / together.delta.square().sum(dim=1).clamp_min(1e-30)
    assert bool((10 * power.log10() >= 10 - 1e-6).all())
    for row in range(len(clean)):
        alone = attack(model, clean.select([row]), goal, Snr(10), draws=DRAWS, bits=None)
        length = int(clean.lengths[row])
        np.testing.assert_allclose(alone.delta[0], together.delta[row, :length], atol=1e-8)
        assert not together.delta[row, length:].any()


@pytest.mark.parametrize(("bits", "gap"), [(16, 0.01), (None, 0.0)])
def test_a_clip_at_its_boundary_is_not_rounded_back(bits: int | None, gap: float) -> None:
    # A single sample that rises by one step wins. A linear model asks for 0.01 / |weights| = 0.002 steps, or
    # for none at all where both classes are level: 16 bits, or a float, would round everything to zero.
    weights = torch.arange(1.0, 65.0) / 64
    model = led_by(lambda waveforms: ((waveforms - 0.5) * weights).sum(dim=1) / STEP - gap, 64)
    clip = AudioBatch.of([np.full(64, 0.5)], 200)
    for budget in (L2(0.01), LInf(0.01)):
        trial = CarliniWagner(bits=bits)(model, clip, Evade(), budget, draws=DRAWS, bits=bits)
        assert trial.achieved == (True,)
        # At most one step of each of the 64 samples.
        assert 0 < float(trial.delta.norm()) <= 8 * STEP * (1 + 1e-6)


def test_steps_grow_where_the_model_flattens() -> None:
    # Ahead from 0.62500 on, where -1 + 0.5 + 0.8 x crosses 0. At the clean clip the slope is 20.8, so that a
    # linear model asks for 0.048, of an RMS of 0.024; a hundred steps of a tenth of it reach 0.24 at most.
    model = led_by(lambda w: -1.0 + 0.5 * (1 - torch.exp(-40 * w[:, 0])) + 0.8 * w[:, 0])
    trial = CarliniWagner()(model, AudioBatch.of([[0.0] * 4], 200), Evade(), LInf(1.0), draws=DRAWS)
    assert trial.achieved == (True,)
    assert 0.625 <= float(trial.delta.norm()) < 0.625 * 1.01


def test_a_clip_that_no_round_fools_inside_the_budget_is_held_there() -> None:
    # Scores that saturate: a slope of 0.0045 at the clean clip where the boundary is at a distance of 0.05.
    # The search is then too coarse to land between 0.05 and 0.052; twenty steps inside the budget do.
    way = torch.tensor([3.0, -4.0, 0.0, 12.0]) / 13
    model = led_by(lambda waveforms: torch.tanh(100 * (waveforms @ way - 0.05)))
    trial = CarliniWagner()(model, AudioBatch.of([[0.0] * 4], 200), Evade(), L2(0.052), draws=DRAWS)
    assert trial.achieved == (True,)
    assert 0.05 <= float(trial.delta.norm()) <= 0.052


def test_of_successes_outside_the_budget_the_smallest_is_kept() -> None:
    clip, goal = AudioBatch.of([CLEAN], 200), Evade(references=("a",))
    delta = CarliniWagner().perturb(two_classes(), clip, goal, L2(0.025), DRAWS)
    assert 0.05 <= float(delta.norm()) < 0.05 * 1.01


def test_what_is_too_far_is_projected() -> None:
    clip = AudioBatch.of([CLEAN], 200)
    trial = CarliniWagner()(two_classes(), clip, Evade(), L2(0.025), draws=DRAWS, bits=None)
    assert trial.achieved == (False,)
    assert float(trial.delta.norm()) == pytest.approx(0.025, rel=1e-5)
    cube = CarliniWagner()(two_classes(), clip, Evade(), LInf(0.01), draws=DRAWS, bits=None)
    assert float(cube.delta.abs().max()) == pytest.approx(0.01, rel=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"binary_search": 0}, {"learning_rate": 0.0}, {"confidence": -1.0}, {"initial_c": 0.0}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        CarliniWagner(**wrong)  # type: ignore[arg-type]
