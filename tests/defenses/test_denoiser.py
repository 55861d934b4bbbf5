"""The denoiser's network by hand, and what its transform keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.defenses.denoiser import (
    LOSSES,
    Denoise,
    DenoiserNetwork,
    DenoiserShape,
    Layer,
    load_denoiser,
    multiply_taps,
    save_denoiser,
)
from sottovoce.errors import InputError, UnknownName
from sottovoce.testing import check_transform, example_clips

SOURCE = torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small network of random weights that changes every clip by about a third."""
    network = DenoiserNetwork(DenoiserShape(width=6, octaves=9), seed=3)
    torch.nn.init.normal_(network.out, std=0.1, generator=torch.Generator().manual_seed(3))
    path = tmp_path_factory.mktemp("weights") / "denoiser-l1.safetensors"
    save_denoiser(path, network, {"loss": "l1", "trained_on": "19,32"})
    return str(path)


def change(transform: Denoise, clip: np.ndarray, rate: int) -> np.ndarray:
    batch = AudioBatch.of([clip], rate)
    return (transform(batch, draws=Draws(0)).waveforms - batch.waveforms)[0].double().numpy()


def test_sixteen_layers_hear_half_a_second() -> None:
    shape = DenoiserShape()
    assert shape.dilations == [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 1]
    # Those and the one that weighs channels.
    assert len(shape.dilations) + 1 == 16
    assert shape.reach == 8193


@pytest.mark.parametrize("rate", [16000, 1000, 22050])
def test_it_keeps_the_laws(weights: str, rate: int) -> None:
    check_transform(Denoise(weights=weights), example_clips(rate))


def test_a_layer_by_hand() -> None:
    layer = Layer(2, 1, 2, SOURCE).eval()
    with torch.no_grad():
        layer.kernel.copy_(torch.tensor([[[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]]))
        layer.straight.fill_(0.5)
        layer.scale.fill_(3.0)
        layer.shift.fill_(-4.0)
        layer.mean.fill_(2.0)
        layer.variance.fill_(4.0 - 1e-5)
        found = layer(torch.tensor([[[1.0, 0.0, 0.0, 2.0], [0.0, 5.0, 0.0, 0.0]]]))
    # Taps two apart: 2 + 0, 0 + 6, 1 + 0 and 0 + 4 of the first channel; the second has nothing two later.
    # Half of that and 3 (x - 2) / 2 - 4 is 2 x - 7; then a fifth of what is below 0, and the input.
    middle = torch.tensor([-3 / 5, 5.0, -1.0, 1.0])
    expected = torch.stack(
        [middle + torch.tensor([1.0, 0.0, 0.0, 2.0]), middle + torch.tensor([0, 5.0, 0, 0])]
    )
    torch.testing.assert_close(found[0], expected)


@pytest.mark.parametrize("dilation", [1, 3, 50])
def test_both_ways_to_convolve_agree(dilation: int) -> None:
    source = torch.Generator().manual_seed(0)
    features, kernel = torch.randn(2, 4, 40, generator=source), torch.randn(5, 4, 3, generator=source)
    expected = torch.nn.functional.conv1d(features, kernel, padding=dilation, dilation=dilation)
    torch.testing.assert_close(multiply_taps(features, kernel, dilation), expected)


def test_statistics_of_the_batch_are_folded_in_when_it_is_over() -> None:
    """A layer in evaluation with the batch's own statistics does what it did in training."""
    source = torch.Generator().manual_seed(0)
    layer, features = Layer(3, 3, 1, SOURCE), torch.randn(4, 3, 200, generator=source)
    with torch.no_grad():
        plain = torch.nn.functional.conv1d(features, layer.kernel, padding=1)
        expected = layer.train()(features)
        layer.mean.copy_(plain.mean(dim=(0, 2)))
        layer.variance.copy_(plain.var(dim=(0, 2), correction=0))
        torch.testing.assert_close(layer.eval()(features), expected, rtol=1e-4, atol=1e-5)


def test_a_new_network_changes_nothing() -> None:
    clips = example_clips()
    assert not DenoiserNetwork(DenoiserShape(width=4)).eval()(clips.waveforms, clips.lengths).any()


def test_gain_goes_through(weights: str) -> None:
    clip = np.random.default_rng(0).uniform(-0.2, 0.2, 6000)
    loud, soft = (change(Denoise(weights=weights), factor * clip, 16000) for factor in (1.0, 0.125))
    assert np.abs(loud).max() > 1e-3
    np.testing.assert_allclose(soft, 0.125 * loud, atol=1e-6)


def test_what_16_khz_does_not_hold_stays(weights: str) -> None:
    time = np.arange(32000) / 32000
    clip = 0.2 * np.sin(2 * np.pi * 12_000 * time) + 0.1 * np.sin(2 * np.pi * 500 * time)
    spectrum = np.abs(np.fft.rfft(change(Denoise(weights=weights), clip, 32000) * np.hanning(32000)))
    hz = np.fft.rfftfreq(32000, 1 / 32000)
    assert spectrum[hz > 8300].max() < 1e-3 * spectrum[hz < 7600].max()


def test_silence_stays_almost_silent(weights: str) -> None:
    assert np.abs(change(Denoise(weights=weights), np.zeros(3000), 16000)).max() < 1e-4


def test_weights_come_back_with_their_facts(weights: str) -> None:
    network, facts = load_denoiser(Path(weights))
    assert network.shape == DenoiserShape(width=6, octaves=9)
    assert Denoise(weights=weights).facts["trained_on"] == facts["trained_on"] == "19,32"
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_names_of_losses_are_checked() -> None:
    assert "learned" in LOSSES
    with pytest.raises(UnknownName, match="learned"):
        Denoise(loss="learnt")  # type: ignore[arg-type]


def test_bad_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Denoise(weights=str(tmp_path / "none.safetensors"))
    text = tmp_path / "text.safetensors"
    text.write_text("weights")
    with pytest.raises(InputError, match="as safetensors"):
        Denoise(weights=str(text)).facts  # noqa: B018
    import safetensors.torch

    other = tmp_path / "other.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(1)}, other, metadata={"architecture": "learned-ear"})
    with pytest.raises(InputError, match="learned-ear"):
        load_denoiser(other)
    smaller = tmp_path / "smaller.safetensors"
    about = {"architecture": "denoiser", "shape": '{"width": 5, "octaves": 2}'}
    state = DenoiserNetwork(DenoiserShape(width=4, octaves=2)).state_dict()
    safetensors.torch.save_file(state, smaller, metadata=about)
    with pytest.raises(InputError, match=r"layers\.0\.kernel \(5, 1, 3\), got \(4, 1, 3\)"):
        load_denoiser(smaller)
