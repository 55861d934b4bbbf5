"""Noise, shares and adversaries: by hand on a linear model, by law on others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.attacks.pgd import Fgsm, Pgd
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.defenses.randomised_smoothing import Gaussian
from sottovoce.errors import InputError, UnknownName
from sottovoce.testing import check_transform
from sottovoce.testing.toys import ToyClassifier
from sottovoce.training.hardening import (
    AdversarialShare,
    Adversary,
    Hardening,
    TrainingNoise,
    make_adversary,
    make_noise,
    pick,
)
from sottovoce.training.learner import ClassLearner

WEIGHT = [1.0, -2.0, 0.5, -0.5] * 4
CLIP = [0.1, 0.2, -0.3, 0.4] * 4


def batch_of(*rows: list[float]) -> AudioBatch:
    return AudioBatch.of([np.array(row, np.float32) for row in rows], 100)


def test_a_schedule_of_two_shares_over_ten_epochs() -> None:
    share = AdversarialShare.parse("0.5,0.8")
    assert [share.at(epoch / 10) for epoch in range(10)] == [0.5] * 5 + [0.8] * 5
    assert str(share) == "0.5,0.8"


def test_a_schedule_of_three_shares_over_nine_epochs_and_beyond() -> None:
    share = AdversarialShare((0.0, 0.5, 1.0))
    assert [share.at(epoch / 9) for epoch in range(9)] == [0.0] * 3 + [0.5] * 3 + [1.0] * 3
    assert share.at(1.0) == 1.0


@pytest.mark.parametrize("text", ["1.2", "-0.1", "0.5,2", "nan", "", "half", "0.5;0.8"])
def test_shares_outside_0_to_1_or_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"expected shares"):
        AdversarialShare.parse(text)


def test_a_quarter_of_eight_clips_is_two() -> None:
    assert len(pick(8, 0.25, Draws(0))) == 2
    assert pick(8, 1.0, Draws(0)) == list(range(8))
    assert pick(8, 0.0, Draws(0)) == []


@given(st.integers(1, 200), st.floats(0, 1), st.integers(0, 50))
def test_as_many_clips_as_the_share_says_and_none_twice(clips: int, share: float, seed: int) -> None:
    rows = pick(clips, share, Draws(seed))
    assert abs(len(rows) - share * clips) <= 0.5
    assert rows == sorted(set(rows))
    assert set(rows) <= set(range(clips))


def test_the_fgsm_example_of_a_linear_model(make_learner: Callable[..., ClassLearner]) -> None:
    target = make_learner(WEIGHT).target()
    adversary = Adversary(Fgsm(), LInf(0.05))
    found = adversary.disturb(target, batch_of(CLIP, CLIP), ("up", "down"), [0, 1], Draws(0)).waveforms
    # Against "up" every sample goes against its weight's sign, against "down" with it.
    away = torch.tensor([-0.05, 0.05, -0.05, 0.05] * 4)
    torch.testing.assert_close(found, torch.tensor([CLIP, CLIP]) + torch.stack([away, -away]))


def test_pgd_reaches_the_corner_of_the_cube(make_learner: Callable[..., ClassLearner]) -> None:
    """Seven steps are 2.5 radii: enough from any start to the corner, which is 2 radii away at most."""
    target = make_learner(WEIGHT).target()
    adversary = make_adversary("pgd", LInf(0.05), steps=7)
    found = adversary.disturb(target, batch_of(CLIP), ("up",), [0], Draws(3)).waveforms
    torch.testing.assert_close(found[0], torch.tensor(CLIP) + torch.tensor([-0.05, 0.05, -0.05, 0.05] * 4))


def test_fgsm_steps_from_a_random_start(make_learner: Callable[..., ClassLearner]) -> None:
    """From anywhere in [-1, 1] radii, 1.25 radii on and cut at 1: a quarter to one, the right way."""
    adversary = make_adversary("fgsm", LInf(0.05))
    clean = batch_of(CLIP, CLIP, CLIP, CLIP)
    target = make_learner(WEIGHT).target()
    found = adversary.disturb(target, clean, ("up",) * 4, range(4), Draws(0)).waveforms
    share = (found - clean.waveforms) * torch.tensor([-1.0, 1.0, -1.0, 1.0] * 4) / 0.05
    assert float(share.min()) > 0.2499
    assert float(share.max()) < 1.0001
    # It ends short of the edge where it began between -1 and -0.25 radii: 0.75 of 2.
    assert float((share < 0.999).float().mean()) == pytest.approx(0.375, abs=0.2)


def test_an_l2_adversary_moves_along_the_weights(make_learner: Callable[..., ClassLearner]) -> None:
    adversary = Adversary(Fgsm(), L2(0.3))
    clean = batch_of(CLIP)
    found = adversary.disturb(make_learner(WEIGHT).target(), clean, ("up",), [0], Draws(0)).waveforms
    # |w|^2 = 4 (1 + 4 + 0.25 + 0.25) = 22.
    wanted = -0.3 * torch.tensor(WEIGHT) / 22**0.5
    torch.testing.assert_close(found[0] - clean.waveforms[0], wanted)


@pytest.mark.parametrize("budget", [LInf(0.01), L2(0.2), Snr(20.0)])
@pytest.mark.parametrize("kind", ["fgsm", "pgd"])
def test_examples_stay_in_the_budget_in_range_and_out_of_the_padding(
    kind: str, budget: LInf | L2 | Snr
) -> None:
    random = np.random.default_rng(0)
    clips = [random.uniform(-1, 1, length).astype(np.float32) for length in (300, 200, 260, 120)]
    clean = AudioBatch.of(clips, 1000)
    adversary = make_adversary(kind, budget, steps=3)
    labels = ("north", "east", "south", "west")
    found = adversary.disturb(ToyClassifier(), clean, labels, [0, 1, 3], Draws(1))
    delta = found.waveforms - clean.waveforms
    assert bool((budget.excess(delta, clean) <= 1 + 1e-5).all())
    assert bool((delta[[0, 1, 3]].abs().amax(dim=1) > 0).all())
    assert not bool(delta[2].any()), "a clip that was not picked"
    assert not bool(found.waveforms.masked_select(~clean.mask).any())
    assert float(found.waveforms.abs().max()) <= 1.0


def test_an_example_is_the_same_alone_and_in_a_batch() -> None:
    random = np.random.default_rng(0)
    clips = [random.uniform(-0.5, 0.5, length).astype(np.float32) for length in (300, 200)]
    both, lone = AudioBatch.of(clips, 1000, ["a", "b"]), AudioBatch.of(clips[1:], 1000, ["b"])
    adversary = make_adversary("pgd", Snr(20.0), steps=3)
    together = adversary.disturb(ToyClassifier(), both, ("north", "east"), [0, 1], Draws(1))
    alone = adversary.disturb(ToyClassifier(), lone, ("east",), [0], Draws(1))
    torch.testing.assert_close(together.waveforms[1, :200], alone.waveforms[0])


def test_noise_at_one_sigma_is_the_defenses_noise() -> None:
    clean = batch_of(CLIP, CLIP[:8])
    ours = make_noise("gaussian", 0.02)(clean, draws=Draws(5)).waveforms
    theirs = Gaussian(sigma=0.02)(clean, draws=Draws(5)).waveforms
    torch.testing.assert_close(ours, theirs)


def test_sigma_is_drawn_for_each_clip_between_its_bounds() -> None:
    clean = AudioBatch.of([np.zeros(4_000, np.float32)] * 200, 16_000)
    levels = make_noise("gaussian", "0:0.02")(clean, draws=Draws(0)).waveforms.std(dim=1)
    assert float(levels.max()) < 0.02 * 1.05
    assert float(levels.min()) < 0.001
    assert float(levels.mean()) == pytest.approx(0.01, abs=0.001)


def test_mad_noise_has_half_the_power() -> None:
    clean = AudioBatch.of([np.zeros(50_000, np.float32)], 16_000)
    noise = make_noise("mad", 0.02)(clean, draws=Draws(0)).waveforms[0]
    assert float(noise.square().mean()) == pytest.approx(0.02**2 / 2, rel=0.03)


def test_noise_keeps_the_law_of_transforms() -> None:
    check_transform(make_noise("mad", (0.01, 0.02)))


@pytest.mark.parametrize("sigma", [0.0, -0.1, (0.02, 0.01), (-0.1, 0.1), "0", "-1", float("nan"), "0:inf"])
def test_a_sigma_of_zero_or_less_is_refused(sigma: float | str | tuple[float, float]) -> None:
    with pytest.raises(InputError, match="expected sigma above 0"):
        make_noise("gaussian", sigma)


def test_other_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"0:0\.02"):
        make_noise("gaussian", "loud")
    with pytest.raises(UnknownName, match="did you mean 'gaussian'"):
        make_noise("gausian", 0.1)
    with pytest.raises(UnknownName, match="fgsm, pgd"):
        make_adversary("trades", LInf(0.1))


def test_the_front_and_the_noise_are_part_of_what_is_attacked(
    make_learner: Callable[..., ClassLearner],
) -> None:
    """Behind an amplifier of -1 the adversary must go the other way."""
    from sottovoce.core.draws import Draws as AnyDraws
    from sottovoce.core.transform import Transform

    class Flip(Transform):
        def apply(self, batch: AudioBatch, draws: AnyDraws) -> torch.Tensor:
            return -batch.waveforms

    hardening = Hardening(front=(Flip(),), adversary=Adversary(Fgsm(), LInf(0.05)))
    target = make_learner(WEIGHT).target()
    heard = hardening.harden(target, batch_of(CLIP), ("up",), [0], Draws(0)).waveforms
    away = torch.tensor([0.05, -0.05, 0.05, -0.05] * 4)
    torch.testing.assert_close(heard[0], -(torch.tensor(CLIP) + away))


def test_weights_get_no_gradient_from_the_adversary(make_learner: Callable[..., ClassLearner]) -> None:
    learner = make_learner(WEIGHT, dropout=0.5)
    learner.module.train()
    adversary = make_adversary("pgd", LInf(0.05), steps=3)
    adversary.disturb(learner.target(), batch_of(CLIP), ("up",), [0], Draws(0))
    assert all(value.grad is None for value in learner.module.parameters())
    assert all(part.training for part in learner.module.modules())


def test_a_model_hardened_by_one_step_is_judged_by_ten() -> None:
    judge = make_adversary("fgsm", LInf(0.1)).as_judge().attack
    assert isinstance(judge, Pgd)
    assert (judge.steps, judge.step, judge.random_start) == (10, 0.25, True)
    longer = make_adversary("pgd", LInf(0.1), steps=50).as_judge().attack
    assert isinstance(longer, Pgd)
    assert longer.steps == 50


def test_a_hardening_tells_what_it_is() -> None:
    hardening = Hardening(
        noise=TrainingNoise(Gaussian(), (0.0, 0.02)),
        adversary=make_adversary("pgd", Snr(30.0), steps=7, share=AdversarialShare((0.5, 0.8))),
    )
    about = hardening.describe()
    assert about["noise"] == "Gaussian, sigma 0:0.02"
    assert "steps=7" in about["adversary"]
    assert about["adversary"].endswith("SNR 30 dB, share 0.5,0.8")
