"""Auto-PGD: the published schedule by hand, closed forms, and hills on which a fixed step fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.attacks.apgd import Apgd, ApgdDlr, LogitRatio, checkpoints
from sottovoce.attacks.pgd import Fgsm, Pgd
from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.core.target import Target
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.families.classifier import ModuleClassifier

DRAWS = Draws(0)
CLEAN = [0.5, 0.25, -0.25, 0.125]


def linear(weights: list[list[float]], biases: list[float]) -> ModuleClassifier:
    layer = torch.nn.Linear(len(weights[0]), len(weights))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights))
        layer.bias.copy_(torch.tensor(biases))
    return ModuleClassifier(layer, "abcdefgh"[: len(weights)], 200, clip_samples=len(weights[0]))


def curved(samples: int = 40, classes: int = 4, seed: int = 0) -> ModuleClassifier:
    source = torch.Generator().manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(samples, 16), torch.nn.Tanh(), torch.nn.Linear(16, classes))
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.randn(part.shape, generator=source))
    return ModuleClassifier(module, "abcdefgh"[:classes], 200, clip_samples=samples)


def ragged() -> AudioBatch:
    source = np.random.default_rng(7)
    clips = [np.clip(0.3 * source.standard_normal(length), -1, 1) for length in (40, 17, 25)]
    return AudioBatch.of(clips, 200, ["x", "y", "z"])


class Hill(Target):
    """A target without scores: the loss of a clip is a function of its samples, and every visit is noted."""

    sample_rate = 200

    def __init__(self, height: object) -> None:
        self.height = height
        self.visits: list[list[float]] = []

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        self.visits.append(batch.waveforms[:, 0].tolist())
        return self.height(batch.waveforms)  # type: ignore[operator, no-any-return]

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["hill"] * len(batch)


def reached(attack: Attack, model: Target, clean: AudioBatch, goal: Goal, budget: Ball) -> Tensor:
    delta = attack.perturb(model, clean, goal, budget, DRAWS)
    assert bool((budget.excess(delta, clean) <= 1 + 1e-6).all())
    return goal.objective(model, clean.with_waveforms(clean.waveforms + delta), draws=DRAWS).detach()


def test_checkpoints_of_the_paper() -> None:
    # p = 0, .22, .41, .57, .70, .80, .87, .93, .99: the gap shrinks by .03 down to .06.
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]
    # ceil of 11, 20.5, 28.5, 35, 40, 43.5, 46.5, 49.5
    assert checkpoints(50) == [11, 21, 29, 35, 40, 44, 47, 50]
    assert checkpoints(1000) == [220, 410, 570, 700, 800, 870, 930, 990]


def test_the_walk_worked_out_by_hand() -> None:
    # Height -|x - 0.3| from x = 0 in [-1, 1], 10 steps: checkpoints 3, 5, 6, ... Stride 2, alpha 0.75.
    # 1: up to the wall.                       0 -> 1
    # 2: down: wall -1, momentum +1.           1 + .75 (-2) + .25 (1)          = -.25
    # 3: up: wall 1, momentum -1.25.           -.25 + .75 (1.25) + .25 (-1.25) = .375
    #    2 rises in 3 steps, under .75 * 3: stride 1, back to the best, which is here.
    # 4: down by 1, momentum +.625.            .375 - .75 + .25 (.625)         = -.21875
    # 5: up by 1, momentum -.59375.            -.21875 + .75 - .25 (.59375)    = .3828125
    #    1 rise in 2: stride .5, back to .375 (.3828125 is farther from .3).
    # 6: down by .5, momentum +.59375.         .375 - .375 + .25 (.59375)      = .1484375
    hill = Hill(lambda waveforms: -(waveforms[:, 0] - 0.3).abs())
    goal = Evade(references=("hill",))
    Apgd(steps=10).perturb(hill, AudioBatch.of([[0.0] * 4], 200), goal, LInf(1.0), DRAWS)
    path = [visit[0] for visit in hill.visits]
    assert path[:7] == [0.0, 1.0, -0.25, 0.375, -0.21875, 0.3828125, 0.1484375]
    assert len(path) == 11


def test_a_clip_that_no_longer_improves_is_halved_by_condition_two() -> None:
    # rho = 0 turns condition 1 off, alpha = 1 the momentum. Height -|x| from 0.125, walls at -.375 and .625:
    # .125 -> -.375 -> .625, checkpoint 2: no record since the start, so stride 1 -> .5 and back to .125
    # .125 -> -.375, checkpoint 3: no record, but just halved, so spared
    # -.375 -> .125, checkpoint 4: as high as the record, not higher: stride .25, back to .125 -> -.125
    hill = Hill(lambda waveforms: -waveforms[:, 0].abs())
    clean = AudioBatch.of([[0.125, 0.0, 0.0, 0.0]], 200)
    assert checkpoints(7)[:3] == [2, 3, 4]
    attack = Apgd(steps=7, rho=0.0, momentum=1.0)
    attack.perturb(hill, clean, Evade(references=("hill",)), LInf(0.5), DRAWS)
    assert [visit[0] for visit in hill.visits][:6] == [0.125, -0.375, 0.625, -0.375, 0.125, -0.125]


@pytest.mark.parametrize("attack", [Apgd(steps=20), Apgd(steps=20, restarts=2), Apgd(steps=20, momentum=1.0)])
@pytest.mark.parametrize("goal", [Evade(), Force("b")])
def test_optimum_of_a_linear_model(attack: Attack, goal: Goal) -> None:
    # b less a: (3, -4, 0, 12), of length 13.
    model = linear([[0.0, 4.0, 0.0, 0.0], [3.0, 0.0, 0.0, 12.0]], [2.5, -1.0])
    clean = AudioBatch.of([CLEAN], 200)
    cube = attack(model, clean, goal, LInf(0.01), draws=DRAWS, bits=None)
    np.testing.assert_allclose(cube.delta[0, [0, 1, 3]], [0.01, -0.01, 0.01], atol=1e-7)
    ball = attack(model, clean, goal, L2(0.13), draws=DRAWS, bits=None)
    np.testing.assert_allclose(ball.delta[0], [0.03, -0.04, 0.0, 0.12], atol=2e-4)


@pytest.mark.parametrize("budget", [LInf(0.05), L2(0.2), Snr(15)])
@pytest.mark.parametrize("goal", [Evade(references=("a", "b", "c")), Force("d", references=("a", "b", "c"))])
def test_one_step_is_fgsm_and_more_are_never_worse(budget: Ball, goal: Goal) -> None:
    model, clean = curved(), ragged()
    one = Apgd(steps=1).perturb(model, clean, goal, budget, DRAWS)
    fgsm = reached(Fgsm(), model, clean, goal, budget)
    value = goal.objective(model, clean.with_waveforms(clean.waveforms + one), draws=DRAWS)
    # The best of the clean clip and FGSM's point, which is what a single step has seen.
    before = goal.objective(model, clean, draws=DRAWS)
    np.testing.assert_allclose(value.detach(), torch.maximum(fgsm, before).detach(), rtol=1e-5)
    for steps in (2, 10, 40):
        assert bool((reached(Apgd(steps=steps), model, clean, goal, budget) >= fgsm - 1e-6).all())


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_second_run_is_never_worse(seed: int) -> None:
    model, clean, goal = curved(seed=seed), ragged(), Force("a", references=("b", "c", "d"))
    once = reached(Apgd(steps=8), model, clean, goal, L2(0.4))
    assert bool((reached(Apgd(steps=8, restarts=2), model, clean, goal, L2(0.4)) >= once).all())


def test_runs_start_elsewhere() -> None:
    # A low hill (height 0.5) on the left of the clean clip and a high one (1.0) far on the right, with a
    # slope to the left at the start: only a random start finds the high one.
    def height(waveforms: Tensor) -> Tensor:
        left = 0.5 - (waveforms[:, 0] + 0.25).abs()
        return torch.maximum(left, 1.0 - 4.0 * (waveforms[:, 0] - 0.75).abs())

    clean, goal = AudioBatch.of([[0.0] * 4], 200), Evade(references=("hill",))
    narrow = Apgd(steps=60, rho=1.0)
    assert float(reached(narrow, Hill(height), clean, goal, LInf(0.5))) == pytest.approx(0.5, abs=0.02)
    wide = Apgd(steps=60, restarts=8)
    assert float(reached(wide, Hill(height), clean, goal, LInf(1.0))) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("budget", [LInf(0.5), L2(0.8)])
def test_it_settles_where_a_fixed_step_oscillates(budget: Ball) -> None:
    # A long narrow ridge: curvatures 1 to 1000, the top at height 0 inside the budget.
    curvature, top = torch.logspace(0, 3, 4), torch.tensor([0.33, -0.21, 0.17, 0.29])
    hill = Hill(lambda waveforms: -(curvature * (waveforms - top).square()).sum(dim=1))
    clean, goal = AudioBatch.of([[0.0] * 4], 200), Evade(references=("hill",))
    fixed = float(reached(Pgd(steps=100, step=0.1), hill, clean, goal, budget))
    auto = float(reached(Apgd(steps=100), hill, clean, goal, budget))
    assert fixed < auto <= 0.0
    # From -(0.109 + 0.441 + 2.89 + 84.1) = -87.5 at the start, less than 1 % of the way is left.
    assert auto > -0.87


def test_each_clip_has_a_pace_of_its_own() -> None:
    # One clip climbs to the wall and never halves; the other oscillates. Neither changes the other's path.
    hill = Hill(
        lambda waveforms: torch.where(waveforms[:, 1] > 0, waveforms[:, 0], -(waveforms[:, 0] - 0.3).abs())
    )
    clips = [[0.0, 1.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]]
    together = AudioBatch.of(clips, 200, ["climber", "swinger"])
    Apgd(steps=10).perturb(hill, together, Evade(references=("hill",) * 2), LInf(1.0), DRAWS)
    paths = np.array(hill.visits).T
    assert paths[1, :7].tolist() == [0.0, 1.0, -0.25, 0.375, -0.21875, 0.3828125, 0.1484375]
    assert paths[0, 1:].min() == 1.0


@pytest.mark.parametrize("attack", [Apgd(steps=12, restarts=2), ApgdDlr(steps=12)])
@pytest.mark.parametrize("goal", [Evade(), Force("c")])
@pytest.mark.parametrize("budget", [Snr(15), LInf(0.02)])
def test_alone_is_as_in_a_batch(attack: Attack, goal: Goal, budget: Ball) -> None:
    # In double precision: long strides blow the rounding of a single-precision product up to 1e-4.
    model, clean = curved(), ragged()
    model.module.double()
    clean = AudioBatch(clean.waveforms.double(), clean.lengths, clean.sample_rate, clean.ids)
    together = attack(model, clean, goal, budget, draws=DRAWS, bits=None)
    for row in range(len(clean)):
        alone = attack(model, clean.select([row]), goal, budget, draws=DRAWS, bits=None)
        length = int(clean.lengths[row])
        np.testing.assert_allclose(alone.delta[0], together.delta[row, :length], atol=1e-9)
        assert not together.delta[row, length:].any()


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (Evade(references=("a",)), -0.8),  # (1 - 3) / (3 - 0.5)
        # The mean of the scores is 0.875.
        (Force("b", references=("a",)), -0.941176),  # (1 - 3) / (3 - 0.875)
        (Force("d", references=("a",)), -1.882353),  # (-1 - 3) / (3 - 0.875)
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_logit_ratio_by_hand(goal: Goal, expected: float, scale: float) -> None:
    model = linear([[0.0] * 4] * 4, [3.0 * scale, 1.0 * scale, 0.5 * scale, -1.0 * scale])
    ratio = LogitRatio(goal, references=goal.references)
    value = ratio.objective(model, AudioBatch.of([CLEAN], 200), draws=DRAWS)
    assert float(value.detach()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("goal", [Evade(references=("b",)), Force("a", references=("b",))])
def test_a_goal_that_is_reached_is_ranked_by_its_margin(goal: Goal) -> None:
    model = linear([[0.0] * 4] * 4, [3.0, 1.0, 0.5, -1.0])
    ratio = LogitRatio(goal, references=goal.references)
    assert float(ratio.objective(model, AudioBatch.of([CLEAN], 200), draws=DRAWS).detach()) == 2.0


def test_logit_ratio_climbs_where_cross_entropy_is_flat() -> None:
    # Scores so large that the softmax of the right class is exactly 1 and its gradient exactly 0.
    weights = [[0.0, 4e4, 0.0, 0.0], [3e4, 0.0, 0.0, 12e4], [0.0, 0.0, 0.0, 0.0]]
    model, clean = linear(weights, [2.5e4, -1e4, -9e4]), AudioBatch.of([CLEAN], 200)
    flat = Apgd(steps=20)(model, clean, Evade(), L2(0.13), draws=DRAWS, bits=None)
    assert flat.achieved == (False,) and not flat.delta.any()
    trial = ApgdDlr(steps=20)(model, clean, Evade(), L2(0.13), draws=DRAWS, bits=None)
    assert trial.achieved == (True,) and trial.adversarial_texts == ("b",)


def test_logit_ratio_needs_scores_of_three_classes() -> None:
    clean = AudioBatch.of([CLEAN], 200)
    with pytest.raises(InputError, match=r"3 or more classes.*got 2"):
        ApgdDlr()(linear([[0.0] * 4] * 2, [1.0, 0.0]), clean, Evade(), L2(0.1), draws=DRAWS)
    with pytest.raises(MissingCapability, match="needs class scores"):
        ApgdDlr()(Hill(lambda waveforms: waveforms.sum(dim=1)), clean, Evade(), L2(0.1), draws=DRAWS)


@settings(max_examples=15, deadline=None)
@given(db=st.floats(0, 60), seed=st.integers(0, 99))
def test_the_ratio_asked_for_is_the_ratio_measured(db: float, seed: int) -> None:
    for attack in (Apgd(steps=6), ApgdDlr(steps=6)):
        trial = attack(curved(seed=seed), ragged(), Evade(), Snr(db), draws=Draws(seed))
        signal = trial.clean.waveforms.numpy().astype(float)
        noise = trial.adversarial.waveforms.numpy().astype(float) - signal
        assert np.all((noise**2).sum(axis=1) * 10 ** (db / 10) <= (signal**2).sum(axis=1) * (1 + 1e-9))


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"restarts": 0}, {"momentum": 0.0}, {"rho": 1.5}])
@pytest.mark.parametrize("kind", [Apgd, ApgdDlr])
def test_settings_that_make_no_sense_are_refused(kind: type[Attack], wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        kind(**wrong)
