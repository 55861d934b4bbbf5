"""The speaker classifier: its layers, and that a clip is heard the same in any batch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from sottovoce.targets.zoo.classifier_targets import tell_speakers
from sottovoce.targets.zoo.speaker_cnn import CLASSES, SpeakerCnn
from sottovoce.targets.zoo.spectrogram import Spectrogram
from sottovoce.testing import check_target


@pytest.fixture(scope="module")
def model() -> SpeakerCnn:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SpeakerCnn().eval()


def drawn(samples: int, level: float, seed: int = 0) -> torch.Tensor:
    return level * torch.randn(1, samples, generator=torch.Generator().manual_seed(seed))


def test_forty_different_speakers() -> None:
    assert len(CLASSES) == len(set(CLASSES)) == 40
    assert (CLASSES[0], CLASSES[1], CLASSES[-1]) == ("01", "03", "60")


def test_four_convolutions_over_time_and_one_projection(model: SpeakerCnn) -> None:
    layers = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    assert [type(layer) for layer in layers] == [nn.Conv1d] * 4 + [nn.Linear]
    assert layers[0].in_channels == 201


def test_number_of_weights_by_hand(model: SpeakerCnn) -> None:
    # 96 (201 x 3 + 1) + 3 x 96 (96 x 3 + 1) + 40 (96 + 1); in 16 bits below 300 kB
    count = sum(weight.numel() for weight in model.parameters())
    assert count == 57_984 + 83_232 + 3_880
    assert 2 * count < 300_000
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_spectrogram_of_a_tone_by_hand() -> None:
    # A cosine of amplitude a at bin k of a window of N: the Hann window's sum is N / 2, so the peak of the
    # power is (a N / 4) ** 2. 0.5 and 400 give 2500, a quarter of it one bin beside, and none two further on.
    time = torch.arange(560) / 16_000
    tone = 0.5 * torch.cos(2 * math.pi * 1_000 * time)
    power = Spectrogram().log_power(tone[None]).exp()
    assert power.shape == (1, 201, 2)
    assert power[0, 24:27, 0].tolist() == pytest.approx([625, 2_500, 625], rel=1e-3)
    assert power[0, 27, 0].item() == pytest.approx(1e-6, abs=1e-4)


def test_frames_lie_wholly_inside_a_clip() -> None:
    sound = drawn(720, 0.1)
    logs, frames = Spectrogram()(sound.expand(3, -1), torch.tensor([400, 559, 720]))
    assert frames.tolist() == [1, 1, 3]
    assert logs.shape == (3, 201, 3) and not logs[1, :, 1:].any()
    torch.testing.assert_close(logs[0, :, 0], logs[1, :, 0])


def test_a_clip_is_standardised_by_itself() -> None:
    logs, _ = Spectrogram()(drawn(16_000, 0.1), torch.tensor([16_000]))
    assert logs.mean().item() == pytest.approx(0.0, abs=1e-4)
    # The log of an exponential variable has the variance pi ** 2 / 6 = 1.645; 0.1 more stands below it.
    assert logs.square().mean().item() == pytest.approx(1.645 / 1.745, abs=0.02)
    louder, _ = Spectrogram()(drawn(16_000, 0.9), torch.tensor([16_000]))
    # The level goes, but for the floor under the faintest bins.
    assert (louder - logs).abs().mean() < 1e-3


@pytest.mark.parametrize("samples", [400, 5_000, 16_000])
def test_a_clip_alone_and_in_a_padded_batch(model: SpeakerCnn, samples: int) -> None:
    short, long = drawn(samples, 0.1), drawn(20_000, 0.3, seed=1)
    padded = torch.nn.functional.pad(short, (0, 20_000 - samples))
    both = model(torch.cat([padded, long]), torch.tensor([samples, 20_000]))
    assert both.shape == (2, 40)
    torch.testing.assert_close(both[:1], model(short, torch.tensor([samples])), rtol=1e-4, atol=1e-5)


def sensitivity(model: SpeakerCnn, level: float) -> float:
    """How far the scores move, to first order, where every sample moves by its clip's own level."""
    waveforms = drawn(8_000, level).requires_grad_()
    model(waveforms, torch.tensor([8_000])).logsumexp(dim=1).sum().backward()
    assert waveforms.grad is not None and waveforms.grad.isfinite().all()
    return level * float(waveforms.grad.abs().sum())


def test_quiet_clips_have_gradients_as_good_as_loud_ones(model: SpeakerCnn) -> None:
    # A logarithm sees shares: without its floor the sensitivity would not hang on the level at all.
    loud = sensitivity(model, 0.3)
    for quiet in (1e-2, 1e-3, 1e-4):
        assert 0.1 * loud < sensitivity(model, quiet) < 10 * loud


def test_digital_silence_has_a_finite_gradient(model: SpeakerCnn) -> None:
    waveforms = torch.zeros(1, 8_000, requires_grad=True)
    model(waveforms, torch.tensor([8_000])).sum().backward()
    assert waveforms.grad is not None and waveforms.grad.isfinite().all()


def test_laws_of_targets(model: SpeakerCnn) -> None:
    check_target(tell_speakers(model))
