"""The networks of the detectors of pathological speech."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import torch

from sottovoce.targets.zoo.detector_networks import (
    CLASSES,
    FLATTENED,
    FLOOR,
    SEGMENT,
    EmbeddingHead,
    LogStft,
    SegmentCnn,
)


def noise(rows: int = 2, seed: int = 0) -> torch.Tensor:
    return 0.1 * torch.randn(rows, SEGMENT, generator=torch.Generator().manual_seed(seed))


def test_a_segment_gives_the_linear_layer_13376_numbers() -> None:
    # 500 ms at 16 kHz are 8000 samples, 50 frames of 160 samples, of 160 / 2 + 1 = 81 bins each. Nothing is
    # padded: 2x2 leaves 80 x 49, pooling 40 x 24, 3x3 leaves 38 x 22, pooling 19 x 11, in 64 channels.
    assert SEGMENT == 8000
    assert (64 * 19 * 11, FLATTENED) == (13376, 13376)
    module = SegmentCnn()
    assert module.stft(noise()).shape == (2, 1, 81, 50)
    assert module.layers(module.stft(noise())).shape == (2, 64, 19, 11)
    assert (module.output.in_features, module.output.out_features) == (13376, 2)
    assert CLASSES == ("control", "pathological")


def test_layers_are_those_of_the_paper_in_its_order() -> None:
    module = SegmentCnn()
    kinds = [type(layer).__name__ for layer in module.layers]
    assert kinds == ["Conv2d", "ReLU", "BatchNorm2d", "MaxPool2d"] * 2
    first, second = module.layers[0], module.layers[4]
    assert (first.out_channels, first.kernel_size, first.padding) == (64, (2, 2), (0, 0))
    assert (second.out_channels, second.kernel_size, second.padding) == (64, (3, 3), (0, 0))
    assert module.drop.p == 0.5
    # 64 (4 + 1) and 64 (576 + 1) of the convolutions, 2 x 128 of the norms, 2 (13376 + 1) of the output.
    assert sum(value.numel() for value in module.parameters()) == 320 + 36_928 + 256 + 26_754


def test_log_magnitudes_are_those_of_scipy() -> None:
    segment = noise(1)
    _, _, spectrum = scipy.signal.stft(
        segment[0].double().numpy(),
        fs=16_000,
        window=scipy.signal.get_window("hann", 160),
        nperseg=160,
        noverlap=0,
        boundary=None,
        padded=False,
    )
    # scipy divides by the sum of the window, which is half of 160.
    logs = 0.5 * np.log(np.abs(spectrum * 80.0) ** 2 + FLOOR)
    expected = (logs - logs.mean()) / logs.std()
    np.testing.assert_allclose(LogStft()(segment)[0, 0].numpy(), expected, atol=2e-4)


def test_each_segment_has_mean_0_and_deviation_1_whatever_its_level() -> None:
    quiet_and_loud = noise() * torch.tensor([[0.05], [1.0]])
    features = LogStft()(quiet_and_loud)
    np.testing.assert_allclose(features.mean(dim=(1, 2, 3)), [0.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(features.std(dim=(1, 2, 3), correction=0), [1.0, 1.0], atol=1e-4)
    # The floor alone knows the level, and it lies 60 dB under the quiet one.
    np.testing.assert_allclose(LogStft()(noise())[0], features[0], atol=0.02)


def test_silence_has_numbers_and_gradients() -> None:
    segment = torch.zeros(1, SEGMENT, requires_grad=True)
    features = LogStft()(segment)
    assert float(features.detach().abs().max()) < 1e-3
    SegmentCnn().eval()(segment).sum().backward()
    assert segment.grad is not None and bool(segment.grad.isfinite().all())


def test_the_floor_is_what_16_bits_leave_in_a_bin() -> None:
    # A step of 1/32768 rounds with a variance of step^2 / 12; the squares of a Hann window of 160 add up
    # to 3/8 of 160.
    assert pytest.approx((1 / 32768) ** 2 / 12 * 60, rel=0.1) == FLOOR
    assert float(LogStft().window.square().sum()) == pytest.approx(60.0)


def test_the_head_has_two_linear_layers() -> None:
    head = EmbeddingHead(768)
    assert [tuple(value.shape) for value in head.parameters()] == [(256, 768), (256,), (2, 256), (2,)]
    assert head.drop.p == 0.3
    x = torch.ones(1, 768)
    expected = (x @ head.hidden.weight.T + head.hidden.bias) @ head.output.weight.T + head.output.bias
    torch.testing.assert_close(head.eval()(x), expected)
