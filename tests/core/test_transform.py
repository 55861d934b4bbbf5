"""Transforms, and the targets that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Scores, Target
from sottovoce.core.transform import Averaged, Defended, StraightThrough, Transform
from sottovoce.errors import InputError, MissingCapability
from sottovoce.testing import ToyClassifier, ToyCtc, ToyNoise, clips_for, toy_random

DRAWS = Draws(0)


@dataclass(frozen=True)
class Affine(Transform):
    gain: float
    shift: float = 0.0

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return self.gain * batch.waveforms + self.shift


@dataclass(frozen=True)
class Tenths(Transform):
    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return (batch.waveforms * 10).round() / 10


class Total(Target):
    """Its loss is the sum of the samples, plus a random number."""

    sample_rate = 1000

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return batch.waveforms.sum(dim=1) + draws.fractions(batch, 1)[:, 0]

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return [f"{total:.2f}" for total in batch.waveforms.sum(dim=1).tolist()]


def clips() -> AudioBatch:
    return AudioBatch.of([[0.12, 0.27, -0.31], [0.5]], 1000, ["a", "b"])


def test_a_transform_never_sounds_in_the_padding() -> None:
    after = Affine(1.0, 0.25)(clips(), draws=DRAWS)
    assert after.waveforms[1].tolist() == [0.75, 0.0, 0.0]


def test_straight_through_has_the_output_of_the_one_and_the_gradient_of_the_other() -> None:
    leaf = clips().waveforms.requires_grad_()
    after = StraightThrough(Tenths())(clips().with_waveforms(leaf), draws=DRAWS).waveforms
    assert after[0].tolist() == pytest.approx([0.1, 0.3, -0.3])
    (2.0 * after).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [[2.0, 2.0, 2.0], [2.0, 0.0, 0.0]]


def test_transforms_act_in_order() -> None:
    # (x + 0.1) * 0.5, not x * 0.5 + 0.1; over three samples and one.
    defended = Defended(Total(), (Affine(1.0, 0.1), Affine(0.5)))
    assert defended.decode(clips(), draws=DRAWS) == ["0.19", "0.30"]


def test_two_of_the_same_transform_draw_apart() -> None:
    once = ToyNoise(sigma=1.0)
    twice = Defended(Total(), (once, once))
    batch = AudioBatch.of([[0.0] * 1000], 1000)
    heard = twice._heard(batch, DRAWS).waveforms
    # Independent noise adds in power: 1.41. The same noise twice would have a deviation of 2.
    assert float(heard.std()) == pytest.approx(2**0.5, rel=0.1)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_averaged_is_the_mean_over_passes(at_once: int) -> None:
    averaged = Averaged(Total(), passes=3, at_once=at_once)
    labels = ["", ""]
    names = [tuple(f"{name}\x1f{turn}" for name in clips().ids) for turn in range(3)]
    single = [Total().loss(replace(clips(), ids=ids), labels, draws=DRAWS.turn("pass")) for ids in names]
    assert len({float(loss[0]) for loss in single}) == 3
    found = averaged.loss(clips(), labels, draws=DRAWS)
    assert torch.allclose(found, (single[0] + single[1] + single[2]) / 3)
    assert averaged.decode(clips(), draws=DRAWS) == ["0.08", "0.50"]


@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_the_gradient_of_the_mean_is_the_mean_of_the_gradients(at_once: int) -> None:
    inner = toy_random()
    batch = clips_for(inner)
    labels = inner.decode(batch, draws=DRAWS)

    def slope(losses: Callable[[AudioBatch], torch.Tensor]) -> torch.Tensor:
        leaf = batch.waveforms.clone().requires_grad_()
        # Weights other than 1, so that a chain rule that forgets them shows.
        weights = torch.arange(1.0, len(batch) + 1)
        (found,) = torch.autograd.grad((weights * losses(batch.with_waveforms(leaf))).sum(), leaf)
        return found

    def one_by_one(heard: AudioBatch) -> torch.Tensor:
        turns = [replace(heard, ids=tuple(f"{name}\x1f{turn}" for name in heard.ids)) for turn in range(3)]
        return torch.stack([inner.loss(each, labels, draws=DRAWS.turn("pass")) for each in turns]).mean(dim=0)

    averaged = Averaged(inner, passes=3, at_once=at_once)
    found = slope(lambda heard: averaged.loss(heard, labels, draws=DRAWS))
    assert torch.allclose(found, slope(one_by_one), atol=1e-6, rtol=1e-4)


def test_wrapped_targets_have_the_capabilities_of_the_inner_one() -> None:
    toy = ToyClassifier()
    batch = clips_for(toy)
    for target in (Defended(toy, (Affine(1.0),)), Averaged(Defended(toy, (Affine(1.0),)), passes=2)):
        scorer = target.capability(Scores)
        assert scorer.classes == ("north", "east", "south", "west")
        assert torch.allclose(scorer.scores(batch, draws=DRAWS), toy.scores(batch, draws=DRAWS))
        assert (target.sample_rate, target.shortest, target.longest) == (1000, 20, None)
        with pytest.raises(InputError, match="did you mean 'north'"):
            target.check_labels(["nord"])
    for target in (Defended(ToyCtc(), (Affine(1.0),)), Averaged(ToyCtc())):
        with pytest.raises(MissingCapability, match="ToyCtc has no class scores"):
            target.capability(Scores)


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="at least one transform"):
        Defended(ToyClassifier(), ())
    with pytest.raises(InputError, match="passes and at_once must be at least 1, got 0 and 128"):
        Averaged(ToyClassifier(), passes=0)
