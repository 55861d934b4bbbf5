"""The sound classifier: its layers, and that a clip is heard the same in any batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.target import check_clips
from sottovoce.data.sound_recipes import RECIPES
from sottovoce.errors import InputError
from sottovoce.targets.zoo.classifier_targets import tell_sounds
from sottovoce.targets.zoo.sound_cnn import CLASSES, SoundCnn
from sottovoce.testing import check_target


@pytest.fixture(scope="module")
def model() -> SoundCnn:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SoundCnn().eval()


def drawn(samples: int, level: float, seed: int = 0) -> torch.Tensor:
    return level * torch.randn(1, samples, generator=torch.Generator().manual_seed(seed))


def test_classes_are_those_of_its_clips() -> None:
    assert tuple(RECIPES) == CLASSES and len(CLASSES) == 10


def test_five_convolutions_and_two_linear_layers(model: SoundCnn) -> None:
    layers = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    assert [type(layer) for layer in layers] == [nn.Conv2d] * 5 + [nn.Linear] * 2


def test_number_of_weights_by_hand(model: SoundCnn) -> None:
    # maps 1, 16, 32, 48, 64, 64 with 3 x 3 kernels; 64 maps of 64 / 2 ** 5 = 2 bands; 128; 10
    convolutions = 16 * 10 + 32 * (16 * 9 + 1) + 48 * (32 * 9 + 1) + 64 * (48 * 9 + 1) + 64 * (64 * 9 + 1)
    count = sum(weight.numel() for weight in model.parameters())
    assert count == convolutions + 128 * (64 * 2 + 1) + 10 * (128 + 1)
    assert 2 * count < 500_000


@pytest.mark.parametrize("samples", [400, 560, 9_999, 32_000])
def test_a_clip_alone_and_in_a_padded_batch(model: SoundCnn, samples: int) -> None:
    short, long = drawn(samples, 0.1), drawn(40_000, 0.3, seed=1)
    padded = torch.nn.functional.pad(short, (0, 40_000 - samples))
    both = model(torch.cat([padded, long]), torch.tensor([samples, 40_000]))
    assert both.shape == (2, 10)
    torch.testing.assert_close(both[:1], model(short, torch.tensor([samples])), rtol=1e-4, atol=1e-5)


def sensitivity(model: SoundCnn, level: float) -> float:
    """How far the scores move, to first order, where every sample moves by its clip's own level."""
    waveforms = drawn(16_000, level).requires_grad_()
    model(waveforms, torch.tensor([16_000])).logsumexp(dim=1).sum().backward()
    assert waveforms.grad is not None and waveforms.grad.isfinite().all()
    return level * float(waveforms.grad.abs().sum())


def test_quiet_clips_have_gradients_as_good_as_loud_ones(model: SoundCnn) -> None:
    # A logarithm sees shares: without its floor the sensitivity would not hang on the level at all.
    loud = sensitivity(model, 0.3)
    for quiet in (1e-2, 1e-3, 1e-4):
        assert 0.1 * loud < sensitivity(model, quiet) < 10 * loud


def test_laws_of_targets(model: SoundCnn) -> None:
    check_target(tell_sounds(model))


def test_clips_of_more_than_five_seconds_are_refused(model: SoundCnn) -> None:
    target = tell_sounds(model)
    check_clips(target, AudioBatch.of([torch.zeros(80_000)], 16_000))
    with pytest.raises(InputError, match=r"at most 80000 samples \(5 s\)"):
        check_clips(target, AudioBatch.of([torch.zeros(80_001)], 16_000))
