"""The budget of audibility, on an ear whose every answer can be worked out by hand."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.attacks.apgd import Apgd
from sottovoce.attacks.deepfool import DeepFool
from sottovoce.attacks.pgd import Fgsm, Pgd
from sottovoce.attacks.white_noise import WhiteNoise
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.quantisation import on_grid, round_clean
from sottovoce.errors import InputError
from sottovoce.perception import audible_budget as audible
from sottovoce.perception.audible_budget import Audible, find_gain, largest_distance
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.masking.masked_noise import MaskedSpectrum
from sottovoce.perception.masking.threshold import Masker
from sottovoce.testing import ToyClassifier, check_attack, check_budget, clips_for
from sottovoce.testing.clips import example_clips


@dataclass(frozen=True, kw_only=True)
class Level(Ear):
    """A distance of |delta| / |clean|, heard with P = d / (1 + d): 0.2 at d = 0.25, which is 12.04 dB."""

    name = title = "level"

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        size = (changed.waveforms - clean.waveforms).double().norm(dim=1)
        return (size / clean.length_l2.clamp_min(1e-6)).float()

    def probability(self, distance: Tensor) -> Tensor:
        return distance / (1.0 + distance)


@dataclass(frozen=True, kw_only=True)
class Deaf(Ear):
    """Never says more than 0.3."""

    name = title = "deaf"

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        return (changed.waveforms - clean.waveforms).abs().sum(dim=1)

    def probability(self, distance: Tensor) -> Tensor:
        return 0.3 * distance / (1.0 + distance)


@pytest.fixture(autouse=True)
def ears(monkeypatch: pytest.MonkeyPatch) -> None:
    known, build = {"level": Level(), "deaf": Deaf()}, audible.open_ear
    monkeypatch.setattr(audible, "open_ear", lambda name: known[name] if name in known else build(name))


def ratio_db(delta: Tensor, clean: AudioBatch) -> list[float]:
    return (20.0 * (clean.length_l2 / delta.double().norm(dim=1)).log10()).tolist()


def test_the_distance_allowed_is_where_p_is_reached() -> None:
    found = largest_distance("level", 0.2, torch.device("cpu"), torch.float32)
    assert found == pytest.approx(0.25, rel=3e-6)
    assert found <= 0.25


def test_excess_is_the_distance_over_the_one_allowed() -> None:
    clean = example_clips()
    budget = Audible(0.2, "level")
    assert budget.excess(0.5 * clean.waveforms, clean).tolist() == pytest.approx([2.0] * 4, rel=1e-5)
    assert budget.excess(0.0 * clean.waveforms, clean).tolist() == [0.0] * 4


@settings(max_examples=20, deadline=None)
@given(gain=st.floats(0.2, 0.3))
def test_inside_means_heard_at_most_so_often(gain: float) -> None:
    clean = example_clips()
    inside = Audible(0.2, "level").excess(gain * clean.waveforms, clean) <= 1.0
    heard = Level().heard(clean, clean.with_waveforms((1.0 + gain) * clean.waveforms))
    assert bool((heard[inside] <= 0.2).all())
    # Nothing that is quieter than allowed by more than rounding is refused.
    assert bool(inside.all()) == (gain <= 0.25) or abs(gain - 0.25) < 1e-5


@pytest.mark.parametrize("scale", [1e-4, 1.0])
def test_filled_to_within_a_tenth_of_a_decibel(scale: float) -> None:
    clean = example_clips()
    budget = Audible(0.2, "level")
    filled = budget.fill(scale * Draws(0).normal(clean), clean)
    for found in ratio_db(filled, clean):
        assert 12.0411 <= found <= 12.0412 + 0.09
    # Projection turns down what is outside, and leaves alone what is inside.
    assert ratio_db(budget.project(10.0 * filled, clean), clean) == pytest.approx([12.09] * 4, abs=0.05)
    assert torch.equal(budget.project(0.5 * filled, clean), 0.5 * filled)
    silent = torch.zeros_like(filled)
    assert torch.equal(budget.fill(silent, clean), silent)


def test_steps_are_measured_by_masked_noise_at_the_edge() -> None:
    """The level ear hears all noise alike: the radius is that of 12.04 dB whatever the spectrum."""
    clean = example_clips()
    expected = (0.25 * clean.length_l2).tolist()
    assert Audible(0.2, "level").radius(clean).tolist() == pytest.approx(expected, rel=0.011)


def test_steepest_follows_what_the_clip_masks() -> None:
    """A gradient of white noise on a tone of 1 kHz: the critical band of the tone, 920 to 1080 Hz, holds
    2 % of the white noise, and more than half of the direction."""
    time = torch.arange(16000) / 16000.0
    clean = AudioBatch.of([0.5 * torch.sin(2 * torch.pi * 1000.0 * time), 0.1 * torch.ones(4000)], 16000)
    budget = Audible(0.2, "level")
    gradient = Draws(1).normal(clean)
    up = budget.steepest(gradient, clean)
    assert up.norm(dim=1).tolist() == pytest.approx([1.0, 1.0], abs=1e-5)
    assert not up[1, 4000:].any()

    def share(rows: Tensor) -> float:
        power = torch.fft.rfft(rows[0]).abs().square()
        return float(power[920:1081].sum() / power.sum())

    assert share(gradient) == pytest.approx(0.02, abs=0.005)
    assert share(up) > 0.5
    assert float((up * gradient).sum()) > 0
    assert not budget.steepest(torch.zeros_like(gradient), clean).any()


def test_a_flat_shape_changes_nothing() -> None:
    """Squared Hann windows a quarter apart add up to one everywhere, at the ends of a clip too."""
    clean = example_clips()
    masker = Masker(clean.sample_rate)
    frames = int(masker.frames(torch.tensor(clean.waveforms.shape[1])))
    shape = MaskedSpectrum(masker, torch.ones(len(clean), frames, masker.window // 2 + 1))
    assert torch.allclose(shape.noise(clean, Draws(0)), Draws(0).normal(clean), atol=1e-5)


def test_gains_at_the_edge() -> None:
    like = torch.ones(3, 1)
    rise = torch.tensor([3.0, 0.5, 40.0], dtype=torch.float64)
    down = find_gain(lambda gain: (rise * gain) ** 2, like, turn_up=False)
    assert down.tolist() == pytest.approx([1 / 3, 1.0, 1 / 40], rel=0.01)
    both = find_gain(lambda gain: (rise * gain) ** 2, like, turn_up=True)
    assert both.tolist() == pytest.approx([1 / 3, 2.0, 1 / 40], rel=0.01)
    # Nothing below a gain of 5, and from there 1 for each unit: the edge is at 6.
    masked = find_gain(lambda gain: (gain - 5.0).clamp_min(0.0), like, turn_up=True)
    assert masked.tolist() == pytest.approx([6.0] * 3, rel=0.01)
    never = find_gain(lambda gain: torch.full_like(gain, 2.0), like, turn_up=False)
    assert never.tolist() == [0.0] * 3


def test_a_dent_in_the_ear_does_not_let_anything_out() -> None:
    """Heard at gains from 0.3 to 0.6 and from 0.9 on: any gain that comes back was seen to be inside."""

    def excess(gain: Tensor) -> Tensor:
        return torch.where((gain < 0.3) | ((gain > 0.6) & (gain < 0.9)), 0.5 * gain, 1.0 + gain)

    gain = find_gain(excess, torch.ones(1, 1), turn_up=False)
    assert float(excess(gain)) <= 1.0


def test_what_is_known_of_a_batch_goes_with_it() -> None:
    budget = Audible(0.2, "level")
    clean = example_clips()
    budget.radius(clean)
    assert len(budget._known) == 1
    del clean
    gc.collect()
    assert len(budget._known) == 0


def test_rounding_that_is_heard_leaves_the_clip_clean() -> None:
    """A clip of one step of the grid: any step added is as loud as the clip, and heard more than once in
    ten."""
    clean = round_clean(AudioBatch.of([torch.full((1000,), 1.0 / 32768)], 16000), 16)
    budget = Audible(0.1, "level")
    delta = budget.fill(Draws(0).normal(clean), clean)
    rounded = on_grid(clean, clean.with_waveforms(clean.waveforms + delta), budget, 16)
    assert float(budget.excess(rounded.waveforms - clean.waveforms, clean)) <= 1.0


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, float("nan")])
def test_p_is_a_probability(p: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        Audible(p, "level")


def test_bad_ears() -> None:
    with pytest.raises(InputError, match="unknown ear 'nose'"):
        Audible(0.2, "nose")
    clean = example_clips()
    with pytest.raises(InputError, match="never gives a probability as low"):
        Audible(0.5, "deaf").project(clean.waveforms, clean)


def test_words() -> None:
    assert str(Audible(0.25, "masking")) == "P(heard) 25 % (masking)"
    assert repr(Audible(0.25, "level")) == "Audible(p=0.25, ear='level')"


@pytest.mark.parametrize("p", [0.05, 0.5])
def test_laws(p: float) -> None:
    check_budget(Audible(p, "level"))


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.05, 0.5])
def test_laws_of_the_masking_ear(p: float) -> None:
    check_budget(Audible(p, "masking"))


@pytest.mark.slow
@pytest.mark.parametrize("attack", [WhiteNoise(), Fgsm(), Pgd(steps=8), Apgd(steps=8)], ids=repr)
def test_attacks_keep_their_laws_inside_it(attack: Pgd) -> None:
    check_attack(attack, ToyClassifier(), [Audible(0.5, "masking")])


def test_attacks_that_need_a_norm_refuse_it() -> None:
    target = ToyClassifier()
    with pytest.raises(InputError, match="needs a budget with a norm"):
        DeepFool()(target, clips_for(target), Evade(), Audible(0.5, "level"), draws=Draws(0))
