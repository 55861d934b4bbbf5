"""FGSM, PGD and white noise, on linear models whose best perturbation is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.attacks.pgd import Fgsm, Pgd
from sottovoce.attacks.white_noise import WhiteNoise
from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, DbMax, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.errors import InputError
from sottovoce.targets.families.classifier import ModuleClassifier

DRAWS = Draws(0)
CLEAN = [0.5, 0.25, -0.25, 0.125]
# Class b less class a: (3, -4, 0, 12), of length 13. On CLEAN the scores are a = 3.5 and b = 2.
WEIGHTS = [[0.0, 4.0, 0.0, 0.0], [3.0, 0.0, 0.0, 12.0]]
BIASES = [2.5, -1.0]


def linear(weights: list[list[float]], biases: list[float]) -> ModuleClassifier:
    """A linear model over clips as long as its weights; a sample rate of 200 Hz lets 4 samples be a clip."""
    layer = torch.nn.Linear(len(weights[0]), len(weights))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights))
        layer.bias.copy_(torch.tensor(biases))
    return ModuleClassifier(layer, "abcdefgh"[: len(weights)], 200, clip_samples=len(weights[0]))


def curved(samples: int = 40, classes: int = 4, seed: int = 0) -> ModuleClassifier:
    """A small random network: many slopes, no closed form."""
    source = torch.Generator().manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(samples, 16), torch.nn.Tanh(), torch.nn.Linear(16, classes))
    with torch.no_grad():
        for part in module.parameters():
            part.copy_(torch.randn(part.shape, generator=source))
    return ModuleClassifier(module, "abcdefgh"[:classes], 200, clip_samples=samples)


def ragged(lengths: tuple[int, ...] = (40, 17, 25), level: float = 0.3) -> AudioBatch:
    source = np.random.default_rng(7)
    return AudioBatch.of(
        [np.clip(level * source.standard_normal(length), -1, 1) for length in lengths],
        200,
        [f"clip {place}" for place in range(len(lengths))],
    )


def attacks() -> list[Attack]:
    return [Fgsm(), Pgd(steps=8), Pgd(steps=8, momentum=0.9, random_start=True, restarts=2), WhiteNoise()]


@pytest.mark.parametrize("attack", [Fgsm(), Pgd(), Pgd(momentum=1.0), Pgd(random_start=True, restarts=3)])
@pytest.mark.parametrize("goal", [Evade(), Force("b")])
def test_linf_optimum_of_a_linear_model_is_the_corner(attack: Attack, goal: Goal) -> None:
    trial = attack(
        linear(WEIGHTS, BIASES), AudioBatch.of([CLEAN], 200), goal, LInf(0.01), draws=DRAWS, bits=None
    )
    # The third sample has no weight: it may be anything inside the budget.
    np.testing.assert_allclose(trial.delta[0, [0, 1, 3]], [0.01, -0.01, 0.01], atol=1e-7)
    # z_b - z_a rises by eps * |w|_1 = 0.01 * 19 from -1.5: not enough.
    assert trial.achieved == (False,)


@pytest.mark.parametrize("attack", [Fgsm(), Pgd(), Pgd(momentum=1.0), Pgd(random_start=True, steps=150)])
@pytest.mark.parametrize("goal", [Evade(), Force("b")])
def test_l2_optimum_of_a_linear_model_is_along_its_weights(attack: Attack, goal: Goal) -> None:
    trial = attack(
        linear(WEIGHTS, BIASES), AudioBatch.of([CLEAN], 200), goal, L2(0.13), draws=DRAWS, bits=None
    )
    np.testing.assert_allclose(trial.delta[0], [0.03, -0.04, 0.0, 0.12], atol=2e-4)
    # 0.13 * 13 = 1.69 is more than the 1.5 that was missing.
    assert trial.achieved == (True,)


def test_goals_own_the_direction() -> None:
    model, clip = linear(WEIGHTS, BIASES), AudioBatch.of([CLEAN], 200)
    away_from_b = Pgd()(model, clip, Evade(references=("b",)), L2(0.13), draws=DRAWS, bits=None)
    np.testing.assert_allclose(away_from_b.delta[0], [-0.03, 0.04, 0.0, -0.12], atol=1e-6)
    toward_a = Pgd()(model, clip, Force("a"), LInf(0.01), draws=DRAWS, bits=None)
    np.testing.assert_allclose(toward_a.delta[0], [-0.01, 0.01, 0.0, -0.01], atol=1e-7)


def test_pgd_walks_with_the_stated_step() -> None:
    # 3 steps of a tenth of the radius from the clean clip.
    trial = Pgd(steps=3, step=0.1)(
        linear(WEIGHTS, BIASES), AudioBatch.of([CLEAN], 200), Evade(), L2(0.13), draws=DRAWS, bits=None
    )
    np.testing.assert_allclose(trial.delta[0], [0.009, -0.012, 0.0, 0.036], atol=1e-7)


def test_full_swing_is_respected() -> None:
    clip = AudioBatch.of([[1.0, -1.0, 0.0, 0.995]], 200)
    trial = Pgd()(linear(WEIGHTS, [2.5, -17.0]), clip, Force("b"), LInf(0.01), draws=DRAWS, bits=None)
    np.testing.assert_allclose(trial.delta[0], [0.0, 0.0, 0.0, 0.005], atol=1e-6)


def test_the_best_step_is_kept_where_the_walk_runs_past_the_top() -> None:
    # The score of b peaks at a first sample of 0.54: steps of 0.1 from 0.5 jump over it, to 0.6, and back.
    class Peak(torch.nn.Module):
        def forward(self, waveforms: torch.Tensor) -> torch.Tensor:
            return torch.stack([torch.ones(len(waveforms)), -(waveforms[:, 0] - 0.54).square()], dim=1)

    model = ModuleClassifier(Peak(), ["a", "b"], 200, clip_samples=4)
    for steps in (1, 2, 7, 8):
        trial = Pgd(steps=steps, step=1.0)(
            model, AudioBatch.of([CLEAN], 200), Evade(), LInf(0.1), draws=DRAWS, bits=None
        )
        # The clean clip is 0.04 from the peak, every other point on the walk 0.06.
        np.testing.assert_allclose(trial.delta[0], [0.0, 0.0, 0.0, 0.0], atol=1e-7)


@pytest.mark.parametrize("goal", [Evade(references=("a", "b", "c")), Force("c", references=("a", "b", "a"))])
def test_more_steps_and_more_runs_are_never_worse(goal: Goal) -> None:
    model, clean, budget = curved(), ragged(), L2(0.5)

    def reached(attack: Pgd) -> torch.Tensor:
        delta = attack.perturb(model, clean, goal, budget, DRAWS)
        return goal.objective(model, clean.with_waveforms(clean.waveforms + delta), draws=DRAWS).detach()

    few, more, many = (reached(Pgd(steps=steps, step=0.3)) for steps in (2, 5, 20))
    assert bool((more >= few).all()) and bool((many >= more).all())
    once, thrice = reached(Pgd(steps=5, step=0.5)), reached(Pgd(steps=5, step=0.5, restarts=3))
    assert bool((thrice >= once).all())


def test_pgd_beats_fgsm_and_fgsm_beats_noise_on_a_curved_model() -> None:
    model, clean, budget = curved(), ragged(), L2(0.5)
    goal = Evade().bind(model.decode(clean, draws=DRAWS))

    def reached(attack: Attack) -> torch.Tensor:
        delta = budget.project(attack.perturb(model, clean, goal, budget, DRAWS), clean)
        return goal.objective(model, clean.with_waveforms(clean.waveforms + delta), draws=DRAWS).detach()

    noise, one, many = reached(WhiteNoise()), reached(Fgsm()), reached(Pgd())
    assert bool((one > noise).all()) and bool((many > one).all())


@pytest.mark.parametrize("attack", attacks())
@pytest.mark.parametrize("budget", [Snr(20), Snr(30, "linf"), LInf(0.02), L2(0.1), DbMax(-30)])
def test_alone_is_as_in_a_batch(attack: Attack, budget: Ball) -> None:
    model, clean = curved(), ragged()
    together = attack(model, clean, Evade(), budget, draws=DRAWS, bits=None)
    for row in range(len(clean)):
        alone = attack(model, clean.select([row]), Evade(), budget, draws=DRAWS, bits=None)
        length = int(clean.lengths[row])
        np.testing.assert_allclose(alone.delta[0], together.delta[row, :length], atol=1e-5)
        assert not together.delta[row, length:].any()


@pytest.mark.parametrize("attack", attacks())
@settings(max_examples=15, deadline=None)
@given(db=st.floats(0, 60), seed=st.integers(0, 99), shape=st.sampled_from(["l2", "linf"]))
def test_the_ratio_asked_for_is_the_ratio_measured(attack: Attack, db: float, seed: int, shape: str) -> None:
    clean = ragged(level=0.2)
    trial = attack(curved(seed=seed), clean, Evade(), Snr(db, shape), draws=Draws(seed))  # type: ignore[arg-type]
    signal = trial.clean.waveforms.numpy().astype(float)
    noise = trial.adversarial.waveforms.numpy().astype(float) - signal
    assert np.all((noise**2).sum(axis=1) * 10 ** (db / 10) <= (signal**2).sum(axis=1) * (1 + 1e-9))
    assert np.array_equal(trial.adversarial.waveforms.numpy() * 32768 % 1, np.zeros_like(signal))


def test_global_random_state_is_neither_read_nor_moved() -> None:
    model, clean, attack = curved(), ragged(), Pgd(steps=3, random_start=True, restarts=2)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = attack(model, clean, Evade(), L2(0.1), draws=DRAWS)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first.delta, attack(model, clean, Evade(), L2(0.1), draws=DRAWS).delta)
    assert not torch.equal(first.delta, attack(model, clean, Evade(), L2(0.1), draws=Draws(1)).delta)


def test_white_noise_fills_an_l2_ball_with_gaussian_samples() -> None:
    clean = AudioBatch.of([np.full(8000, 0.25), np.full(4000, 0.5)], 8000)
    model = curved(8000)
    delta = WhiteNoise().perturb(model, clean, Evade(), Snr(20), DRAWS).numpy()
    # 20 dB under RMS 0.25 and 0.5: RMS 0.025 and 0.05.
    assert np.sqrt((delta[0] ** 2).mean()) == pytest.approx(0.025, rel=1e-5)
    assert np.sqrt((delta[1, :4000] ** 2).mean()) == pytest.approx(0.05, rel=1e-5)
    assert not delta[1, 4000:].any()
    assert scipy.stats.kstest(delta[0] / 0.025, "norm").pvalue > 0.01
    assert abs(np.corrcoef(delta[0, 1:], delta[0, :-1])[0, 1]) < 0.05
    assert abs(np.corrcoef(delta[0, :4000], delta[1, :4000])[0, 1]) < 0.05


def test_white_noise_is_uniform_in_a_cube() -> None:
    clean = AudioBatch.of([np.zeros(8000)], 8000)
    delta = WhiteNoise().perturb(curved(8000), clean, Evade(), LInf(0.01), DRAWS).numpy()
    assert scipy.stats.kstest(delta[0], "uniform", args=(-0.01, 0.02)).pvalue > 0.01


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"restarts": 0}, {"step": 0.0}, {"momentum": -0.1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        Pgd(**wrong)  # type: ignore[arg-type]
