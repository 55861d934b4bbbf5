"""The genetic attack on models whose best perturbation is known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from sottovoce.attacks.genetic import Genetic
from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.core.target import Target
from sottovoce.errors import InputError, MissingPower
from sottovoce.targets.classifier import Classifier

RATE = 16000
TIME = 320
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])


class Four(Classifier):
    """Scores 0 for "no" and `x0 - x1 + x2 - x3 - gap` for "yes": four samples count. It has no loss."""

    classes = ("no", "yes")
    sample_rate = RATE

    def __init__(self, gap: float = 1.0) -> None:
        self.gap = gap
        self.heard: list[tuple[str, ...]] = []

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        if torch.is_grad_enabled() or batch.waveforms.requires_grad:
            raise RuntimeError("a search on scores asked for a gradient")
        self.heard.append(batch.ids)
        score = batch.waveforms[:, :4] @ SIGNS - self.gap
        return torch.stack([torch.zeros_like(score), score], dim=1)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        raise RuntimeError("a search on scores asked for the loss")


class Quiet(Classifier):
    """The best perturbation is none: every change makes the decision for "no" firmer."""

    classes = ("no", "yes")
    sample_rate = RATE

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        score = -1.0 - batch.waveforms.abs().sum(dim=1)
        return torch.stack([torch.zeros_like(score), score], dim=1)


class Deaf(Target):
    """A target without scores."""

    sample_rate = RATE

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["deaf"] * len(batch)


def silent(*lengths: int) -> AudioBatch:
    return AudioBatch.of([torch.zeros(length) for length in lengths], RATE)


def gain(trial: Trial) -> list[float]:
    """How far each perturbation moved the score of `Four`."""
    return (trial.delta[:, :4] @ SIGNS).tolist()


def test_linf_optimum() -> None:
    """With 0.125 a sample the score can rise by 4 x 0.125 = 0.5, at one corner of the cube alone."""
    attack = Genetic(steps=60, mutation_rate=0.25)
    trial = attack(Four(), silent(TIME, 400), Evade(), LInf(0.125), draws=Draws(0))
    assert gain(trial) == [0.5, 0.5]
    assert trial.achieved == (False, False)


def test_l2_optimum() -> None:
    """The score rises by at most radius x ||w|| = 0.5 x 2, with 0.25 on each of the four samples."""
    attack = Genetic(steps=300, mutation_rate=0.01)
    trial = attack(Four(gap=2.0), silent(TIME), Evade(), L2(0.5), draws=Draws(0), bits=None)
    assert 0.75 < gain(trial)[0] <= 1.0 + 1e-6
    assert float(trial.delta.norm()) <= 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("goal", [Evade(), Force("yes")], ids=["evade", "force"])
@pytest.mark.parametrize("budget", [LInf(0.25), L2(0.75)], ids=["linf", "l2"])
def test_in_reach_it_succeeds(goal: Goal, budget: Ball) -> None:
    """A gap of 0.9 needs nearly all of the cube's 4 x 0.25 = 1; the ball reaches 0.75 x 2 = 1.5."""
    attack = Genetic(steps=300, mutation_rate=0.02)
    trial = attack(Four(gap=0.9), silent(TIME, 500), goal, budget, draws=Draws(0))
    assert trial.adversarial_texts == ("yes", "yes")
    assert trial.achieved == (True, True)


def test_more_generations_are_never_worse() -> None:
    values = []
    for steps in (1, 2, 4, 8, 16, 32):
        attack = Genetic(steps=steps, mutation_rate=0.05, population=6)
        values.append(gain(attack(Four(), silent(TIME), Evade(), LInf(0.125), draws=Draws(3), bits=None))[0])
    assert values == sorted(values)
    assert values[-1] > values[0]


def test_no_change_is_the_floor() -> None:
    trial = Genetic(steps=5)(Quiet(), silent(TIME), Evade(), LInf(0.1), draws=Draws(0))
    assert not trial.delta.any()


def test_alone_as_in_a_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [0.1 * torch.randn(length, generator=generator) for length in (400, 320, 350)]
    batch = AudioBatch.of(rows, RATE, ["a", "b", "c"])
    attack = Genetic(steps=12, population=8, mutation_rate=0.02)
    target = Four(gap=0.6)
    together = attack(target, batch, Evade(), LInf(0.06), draws=Draws(0))
    for row, name in enumerate("abc"):
        alone = attack(target, AudioBatch.of([rows[row]], RATE, [name]), Evade(), LInf(0.06), draws=Draws(0))
        assert torch.equal(alone.delta[0], together.delta[row, : len(rows[row])])
    assert not together.delta[1, 320:].any()


def test_a_fooled_clip_leaves() -> None:
    """The first clip says "yes" under the smallest change, the second one cannot be won."""
    easy, hard = torch.zeros(TIME), torch.zeros(400)
    easy[:4] = 0.25 * SIGNS
    target = Four(gap=1.0001)
    batch = AudioBatch.of([easy, hard], RATE, ["easy", "hard"])
    trial = Genetic(steps=3, population=10)(target, batch, Evade(), LInf(0.01), draws=Draws(0))
    assert trial.achieved == (True, False)
    generations = [ids for ids in target.heard if "hard/0" in ids]
    assert [len(ids) for ids in generations] == [20, 10, 10, 10]


def test_the_seed_decides() -> None:
    attack = Genetic(steps=3)
    deltas = [attack(Four(), silent(TIME), Evade(), LInf(0.1), draws=Draws(seed)).delta for seed in (1, 1, 2)]
    assert torch.equal(deltas[0], deltas[1])
    assert not torch.equal(deltas[0], deltas[2])


def test_budget_relative_to_the_clip() -> None:
    loud = torch.full((400,), 0.1)
    trial = Genetic(steps=5)(
        Four(), AudioBatch.of([loud, 0.1 * loud], RATE), Evade(), Snr(20.0), draws=Draws(0)
    )
    # 20 dB below norms of 2 and 0.2.
    sizes = trial.delta.norm(dim=1)
    assert 0 < float(sizes[0]) <= 0.2 * (1 + 1e-6) and 0 < float(sizes[1]) <= 0.02 * (1 + 1e-6)


def test_bad_input() -> None:
    with pytest.raises(MissingPower, match="Deaf offers no Scores"):
        Genetic()(Deaf(), silent(TIME), Evade(), LInf(0.1), draws=Draws(0))
    for settings in (
        {"steps": 0},
        {"elite": 20},
        {"elite": 0},
        {"temperature": 0.0},
        {"mutation_rate": 0.0},
        {"mutation_rate": 1.5},
        {"mutation_size": 0.0},
    ):
        with pytest.raises(InputError, match="expected"):
            Genetic(**settings)  # type: ignore[arg-type]
