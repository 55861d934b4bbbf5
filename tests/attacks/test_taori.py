"""Taori's search on recognisers whose best perturbation is known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.attacks.taori import SearchPace, Taori, high_passed
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.testing import ToyAttention, ToyClassifier, ToyCtc, check_attack

RATE = 16000
TIME = 320


class Sum(Target):
    """Spells a text by the sum of the first 20 samples: a letter of "hello" for each full tenth.

    The loss of "hello" is what is missing to 0.5, that of any other text how near it is. It has no gradient.
    """

    sample_rate = RATE
    says = "words"

    def __init__(self) -> None:
        self.heard: list[Tensor] = []

    def _sum(self, batch: AudioBatch) -> Tensor:
        if torch.is_grad_enabled() and batch.waveforms.requires_grad:
            raise RuntimeError("a black-box search asked for a gradient")
        return batch.waveforms[:, :20].sum(dim=1)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError("a black-box search asked for a gradient")
        self.heard.append(batch.waveforms.clone())
        sign = torch.tensor([1.0 if label == "hello" else -1.0 for label in labels])
        return sign * (0.5 - self._sum(batch))

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["hello"[: max(0, int(10 * value))] for value in self._sum(batch).tolist()]


def silent(*lengths: int) -> AudioBatch:
    return AudioBatch.of([torch.zeros(length) for length in lengths], RATE)


def test_noise_lies_above_the_cutoff() -> None:
    """Of white noise in the upper eighth of the band, as strong as it was before."""
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 20000)).astype(np.float32))
    passed = high_passed(noise, 7 / 8)
    assert float(passed.std()) == pytest.approx(1.0, abs=0.03)
    power = torch.fft.rfft(passed[0].double()).abs().square()
    assert float(power[:8000].sum() / power.sum()) < 0.01  # under 6.4 of 8 kHz


def test_rate_follows_the_gain() -> None:
    """0.9 x 0.005 + 0.0001 / 0.05 = 0.0065, whose nearest quarter of an octave is 2^-7.25 = 0.00657.

    The first generation has nothing to compare with, and one without a change leaves the rate alone."""
    pace = SearchPace(silent(TIME, TIME), LInf(0.1), 0.005, 2.0)
    pace.adapt([0, 1], torch.tensor([1.0, 1.0]), 0.9, 1e-4)
    assert pace.rate.tolist() == [0.005, 0.005]
    pace.adapt([0, 1], torch.tensor([1.05, 1.0]), 0.9, 1e-4)
    assert pace.rate.tolist() == pytest.approx([2**-7.25, 0.005])
    pace.adapt([1], torch.tensor([1.0 + 5e-5]), 0.9, 1e-4)
    assert pace.rate.tolist() == pytest.approx([2**-7.25, 1.0])


def test_level_of_a_sample() -> None:
    """0.1 in the cube; 0.8 / sqrt(400) = 0.04 in the ball."""
    assert SearchPace(silent(400), LInf(0.1), 0.005, 2.0).level.tolist() == pytest.approx([0.1])
    assert SearchPace(silent(400), L2(0.8), 0.005, 2.0).level.tolist() == pytest.approx([0.04])


@pytest.mark.parametrize("goal", [Evade(), Force("hello")], ids=["evade", "force"])
def test_in_reach_it_succeeds(goal: Goal) -> None:
    """0.04 on 20 samples reaches 0.8, and "hello" needs 0.5; a cutoff of 0.05 lets most noise through."""
    attack = Taori(steps=300, population=30, elite=4, mutation_rate=0.05, cutoff=0.05)
    trial = attack(Sum(), silent(TIME, 400), goal, LInf(0.04), draws=Draws(0))
    assert trial.achieved == (True, True)
    assert float(trial.delta.abs().max()) <= 0.04


def test_near_the_target_slopes_take_over() -> None:
    """A clip that says "hell" is one edit from "hello", which lacks 0.05 on samples 0 to 19.

    Each member but the first shifts one sample of the best by a quarter of 0.02. The sum is linear, so that
    all those of the first 20 samples have one slope, and the next step moves each of them by 2 x 0.02, cut to
    0.02; the others do not move."""
    clip = torch.zeros(TIME)
    clip[:20] = 0.45 / 20
    target, clean = Sum(), AudioBatch.of([clip], RATE)
    attack = Taori(steps=3, population=200, elite=4, mutation_rate=1e-9, momentum_gain=0.0)
    trial = attack(target, clean, Force("hello"), LInf(0.02), draws=Draws(0), bits=None)
    assert trial.clean_texts == ("hell",) and trial.achieved == (True,)
    probes = target.heard[1] - clean.waveforms
    assert not probes[0].any()
    assert (probes[1:] != 0).sum(dim=1).tolist() == [1] * 199
    assert probes[1:].sum(dim=1).tolist() == pytest.approx([0.005] * 199, rel=1e-4)
    touched = (probes[1:, :20] != 0).any(dim=0)
    moved = trial.delta[0, :20][touched].tolist()
    assert len(moved) > 3 and moved == pytest.approx([0.02] * len(moved), rel=1e-4)
    assert not trial.delta[0, 20:].any()


def test_without_slopes_it_breeds_on() -> None:
    clip = torch.zeros(TIME)
    clip[:20] = 0.45 / 20
    target = Sum()
    attack = Taori(steps=2, population=12, elite=4, mutation_rate=0.5, near=0)
    attack(target, AudioBatch.of([clip], RATE), Force("hello"), LInf(1e-4), draws=Draws(0))
    changed = ((target.heard[1] - clip) != 0).sum(dim=1)
    assert int(changed[1:].min()) > 1


def test_more_generations_are_never_worse() -> None:
    values = []
    for steps in (1, 2, 4, 8, 16):
        attack = Taori(steps=steps, population=8, elite=3, mutation_rate=0.1)
        trial = attack(Sum(), silent(TIME), Force("hello"), LInf(0.01), draws=Draws(3), bits=None)
        values.append(float(trial.delta[0, :20].sum()))
    assert values == sorted(values) and values[-1] > values[0]


@pytest.mark.parametrize("target", [ToyClassifier(), ToyCtc(), ToyAttention()], ids=["class", "ctc", "att"])
def test_contract(target: Target) -> None:
    check_attack(Taori(steps=4, population=6, elite=2), target, [Snr(20.0), LInf(0.01)])


def test_bad_input() -> None:
    for settings in (
        {"steps": 0},
        {"elite": 0},
        {"elite": 100},
        {"batch_clips": 0},
        {"mutation_rate": 0.0},
        {"momentum": 1.1},
        {"cutoff": 1.0},
        {"stride_decay": 0.0},
        {"temperature": 0.0},
        {"probe_size": 0.0},
        {"stride": 0.0},
        {"momentum_gain": -1.0},
        {"near": -1},
    ):
        with pytest.raises(InputError, match=f"{next(iter(settings))}="):
            Taori(**settings)  # type: ignore[arg-type]
