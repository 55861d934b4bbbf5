"""Carlini & Wagner for recognisers: radii, passes and successes that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.attacks.carlini_wagner_asr import Adam, CarliniWagnerAsr
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, ForceNearest
from sottovoce.core.target import Matches, Target
from sottovoce.errors import InputError, MissingCapability
from sottovoce.testing import ToyAttention, ToyCtc, ToyTransducer, check_attack, clips_for

DRAWS = Draws(0)


class Rise(Target, Matches):
    """Says "yes" where a clip's mean is at least `level`. Its loss falls with the mean, whatever the label.

    Every sample's slope is then the same at every step, so that Adam takes steps of exactly one stride.
    """

    sample_rate, shortest = 1000, 1

    def __init__(self, level: float, says: str = "yes") -> None:
        self.level, self.word = level, says
        self.passes: list[int] = []
        self.decodings: list[int] = []
        self.first_tokens: set[float] = set()

    def _mean(self, batch: AudioBatch) -> Tensor:
        return batch.waveforms.sum(dim=1) / batch.lengths

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return -self._mean(batch)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        self.passes.append(len(batch))
        self.first_tokens.add(first_token)
        return -self._mean(batch), self._mean(batch).detach() >= self.level

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        self.decodings.append(len(batch))
        return [self.word if mean >= self.level else "no" for mean in self._mean(batch)]


class Counted(Target, Matches):
    """A target that counts how many clips went through it."""

    def __init__(self, target: Target) -> None:
        self.target, self.passes, self.decoded = target, 0, 0

    @property
    def sample_rate(self) -> int:  # type: ignore[override]
        return self.target.sample_rate

    @property
    def shortest(self) -> int:
        return self.target.shortest

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.target.loss(batch, labels, draws=draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        self.passes += len(batch)
        power = self.target.capability(Matches)
        return power.loss_and_match(batch, labels, draws=draws, first_token=first_token)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        self.decoded += len(batch)
        return self.target.decode(batch, draws=draws)


def silence(*lengths: int) -> AudioBatch:
    return AudioBatch.of([np.zeros(length) for length in lengths], 1000)


def forced(references: int = 1) -> Force:
    return Force("yes", references=("no",) * references)


def plain(**settings: float) -> CarliniWagnerAsr:
    """Without weight on |delta|^2 and without a grid: the numbers below are then exact."""
    return CarliniWagnerAsr(**{"c": 0.0, "bits": None, **settings})  # type: ignore[arg-type]


def test_the_radius_shrinks_with_each_success_until_it_is_too_small() -> None:
    # A stride is a tenth of the radius of 0.1. After one, 0.01 is a success: the radius becomes 0.007, then
    # 0.0049, 0.00343, 0.002401, 0.0016807, 0.00117649; and 0.000823543 is less than the 0.001 needed.
    target = Rise(0.001)
    found = plain(steps=30).search(target, silence(40), forced(), LInf(0.1), DRAWS)
    assert found.won.tolist() == [True]
    np.testing.assert_allclose(found.delta, np.full((1, 40), 0.00117649), rtol=1e-5)
    assert len(target.passes) == 30
    # One look at the clean clip, and seven successes.
    assert len(target.decodings) == 8


@pytest.mark.parametrize(("times", "size"), [(0, 0.01), (1, 0.007), (3, 0.00343)])
def test_at_most_so_many_times_and_then_no_more_work(times: int, size: float) -> None:
    target = Rise(0.001)
    found = plain(steps=30, times=times).search(target, silence(40), forced(), LInf(0.1), DRAWS)
    assert float(found.delta.max()) == pytest.approx(size, rel=1e-5)
    # The clean clip, then a success at the first radius and one at each smaller one.
    assert len(target.passes) == times + 2
    assert len(target.decodings) == times + 2


def test_the_first_radius_is_the_smaller_of_eps_and_the_budget() -> None:
    # Strides of a tenth: 0.03 is reached in 3 steps of 0.01, or in 6 of 0.005, not within 0.02.
    passes = {}
    for name, attack, budget in (
        ("eps", plain(steps=30, times=0, eps=0.1), LInf(0.5)),
        ("budget", plain(steps=30, times=0, eps=0.1), LInf(0.05)),
        ("neither", plain(steps=30, times=0, eps=0.02), LInf(0.5)),
    ):
        target = Rise(0.02999)
        found = attack.search(target, silence(40), forced(), budget, DRAWS)
        passes[name] = (len(target.passes), bool(found.won))
    assert passes == {"eps": (4, True), "budget": (7, True), "neither": (30, False)}


def test_a_budget_in_l2_sets_the_stride_and_holds_the_clip() -> None:
    # An L2 radius of 0.2 on 100 samples allows an RMS of 0.02, and strides of 0.002.
    target = Rise(0.0099)
    found = plain(steps=30, times=0).search(target, silence(100), forced(), L2(0.2), DRAWS)
    assert len(target.passes) == 6 and float(found.delta.max()) == pytest.approx(0.01, rel=1e-5)
    never = plain(steps=30).search(Rise(0.021), silence(100), forced(), L2(0.2), DRAWS)
    assert not never.won and float(never.delta.norm()) == pytest.approx(0.2, rel=1e-5)


def test_every_clip_has_a_schedule_of_its_own_and_leaves_when_done() -> None:
    clips = [np.zeros(40), np.full(25, -0.0295), np.full(60, -0.5)]
    clean = AudioBatch.of(clips, 1000, ["near", "far", "never"])
    target = Rise(0.0)
    # "near" wins at once with nothing added, "far" after 3 strides (0.03), and "never" would need 0.5.
    found = plain(steps=12, times=0).search(target, clean, forced(3), LInf(0.1), DRAWS)
    assert found.won.tolist() == [True, True, False]
    assert target.passes == [3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]
    np.testing.assert_allclose(found.delta.abs().amax(dim=1), [0.0, 0.03, 0.1], rtol=1e-5)
    assert not found.delta[1, 25:].any() and not found.delta[0].any()


def test_without_success_the_least_loss_is_kept() -> None:
    found = plain(steps=15, eps=0.02).search(Rise(0.05), silence(40), forced(), LInf(0.1), DRAWS)
    assert not found.won
    np.testing.assert_allclose(found.delta, np.full((1, 40), 0.02), rtol=1e-5)


def test_c_weighs_the_sum_of_squares() -> None:
    # The slope of -mean is -1/100 a sample; 2 c delta outweighs it from delta = 1 / (200 c) = 0.02 on.
    settings = {"steps": 200, "learning_rate": 0.01, "times": 0}
    assert not plain(**settings, c=0.25).search(Rise(0.05), silence(100), forced(), LInf(0.1), DRAWS).won
    assert plain(**settings, c=0.05).search(Rise(0.05), silence(100), forced(), LInf(0.1), DRAWS).won


def test_a_clip_that_matches_but_says_something_else_is_not_decoded_at_every_step() -> None:
    target = Rise(-1.0, says="yes, but")
    found = plain(steps=100).search(target, silence(40), forced(), LInf(0.1), DRAWS)
    assert not found.won
    assert sum(target.decodings) == 10


def test_a_success_that_does_not_match_is_found_by_looking_now_and_then() -> None:
    class Shy(Rise):
        def loss_and_match(self, batch, labels, *, draws, first_token=0.0):  # type: ignore[no-untyped-def]
            loss, match = super().loss_and_match(batch, labels, draws=draws, first_token=first_token)
            return loss, match & False

    target = Shy(0.001)
    found = plain(steps=60, times=0).search(target, silence(40), forced(), LInf(0.1), DRAWS)
    assert found.won and len(target.passes) == 51 and sum(target.decodings) == 2


@pytest.mark.parametrize("toy", [ToyCtc, ToyAttention])
def test_at_most_a_tenth_more_than_one_pass_a_step(toy: type[Target]) -> None:
    target = Counted(toy())
    clean = clips_for(target)
    goal = Force("ab", references=("",) * len(clean))
    found = CarliniWagnerAsr(steps=150).search(target, clean, goal, LInf(0.1), DRAWS)
    assert found.won.all()
    assert target.passes <= 150 * len(clean)
    assert target.passes + target.decoded <= 1.1 * 150 * len(clean)


@pytest.mark.parametrize("toy", [ToyCtc, ToyAttention])
def test_texts_are_forced_and_survive_the_grid(toy: type[Target]) -> None:
    target = toy()
    clean = clips_for(target)
    for text in ("ab", "cad"):
        trial = CarliniWagnerAsr(steps=120)(target, clean, Force(text), LInf(0.1), draws=DRAWS)
        assert trial.achieved == (True,) * 4 and trial.adversarial_texts == (text,) * 4
        # At least one success has made the radius smaller.
        assert float(trial.delta.abs().max()) < 0.075


def test_clips_of_one_batch_become_different_texts() -> None:
    target = ToyAttention()
    # It says "dd", "b", "aacc" and "ad": of two texts as near, the first.
    goal = ForceNearest(("a", "bad"))
    trial = CarliniWagnerAsr(steps=120)(target, clips_for(target), goal, LInf(0.1), draws=DRAWS)
    assert trial.clean_texts == ("dd", "b", "aacc", "ad")
    assert trial.adversarial_texts == ("a", "a", "bad", "a")


@pytest.mark.parametrize("toy", [ToyCtc, ToyAttention])
def test_laws(toy: type[Target]) -> None:
    check_attack(CarliniWagnerAsr(steps=20), toy(), [LInf(0.1), Snr(10.0)], goals=[Force("a"), Force("ab")])


def test_more_steps_are_never_worse() -> None:
    target = ToyCtc()
    clean = clips_for(target)
    goal = Force("ab", references=("",) * len(clean))
    sizes = []
    for steps in (5, 10, 20, 40, 80):
        found = CarliniWagnerAsr(steps=steps).search(target, clean, goal, LInf(0.1), DRAWS)
        sizes.append(torch.where(found.won, found.delta.abs().amax(dim=1), torch.inf))
    for few, many in pairwise(sizes):
        assert bool((many <= few).all())
    assert bool(sizes[-1].isfinite().all())


def test_what_is_said_already_is_left_alone() -> None:
    target = Rise(0.0)
    trial = CarliniWagnerAsr()(target, silence(40), forced(), LInf(0.1), draws=DRAWS)
    assert trial.achieved == (True,) and not trial.delta.any()
    assert len(target.passes) == 1


def test_the_weight_of_the_first_token_is_passed_on() -> None:
    target = Rise(1.0)
    plain(steps=2, first_token=2.5).search(target, silence(40), forced(), LInf(0.1), DRAWS)
    assert target.first_tokens == {2.5}


def test_adam_is_that_of_torch() -> None:
    source = torch.Generator().manual_seed(0)
    point = torch.zeros(2, 30, dtype=torch.float64)
    ours, theirs = Adam(point), torch.optim.Adam([point], lr=0.1, eps=1e-10)
    here = torch.zeros_like(point)
    for _ in range(20):
        gradient = torch.randn(2, 30, generator=source, dtype=torch.float64)
        point.grad = gradient
        theirs.step()
        here -= 0.1 * ours.direction(gradient)
    np.testing.assert_allclose(here, point, rtol=1e-9)


@pytest.mark.parametrize("budget", [LInf(190.6 / 32768), L2(190.6 / 32768 * 40**0.5)])
def test_successes_at_the_edge_of_the_budget_lie_on_the_grid_and_inside(budget: LInf | L2) -> None:
    # The whole budget allows 190.6 steps of the grid a sample, which round to 191: only 190 are inside.
    inside, outside = Rise(189.9 / 32768), Rise(190.3 / 32768)
    attack = CarliniWagnerAsr(steps=15, c=0.0)
    trial = attack(inside, silence(40), forced(), budget, draws=DRAWS)
    assert trial.achieved == (True,)
    np.testing.assert_allclose(trial.delta * 32768, np.full((1, 40), 190.0))
    assert attack(outside, silence(40), forced(), budget, draws=DRAWS).achieved == (False,)


def test_goals_and_targets_that_do_not_fit_are_refused() -> None:
    clean = clips_for(ToyCtc())
    with pytest.raises(InputError, match="forces a text, got the goal evade"):
        CarliniWagnerAsr()(ToyCtc(), clean, Evade(), LInf(0.1), draws=DRAWS)
    with pytest.raises(MissingCapability):
        CarliniWagnerAsr()(ToyTransducer(), clean, Force("a"), LInf(0.1), draws=DRAWS)
    with pytest.raises(InputError, match="needs 6 frames, and the clip has 5"):
        CarliniWagnerAsr()(ToyCtc(), clean, Force("abcabc"), LInf(0.1), draws=DRAWS)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"steps": 0}, {"times": -1}, {"learning_rate": 0.0}, {"eps": 0.0}, {"c": -1.0}),
        *({"first_token": -1.0}, {"shrink": 1.0}, {"shrink": 0.0}),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        CarliniWagnerAsr(**wrong)  # type: ignore[arg-type]
