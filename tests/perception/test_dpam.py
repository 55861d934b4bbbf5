"""DPAM against its authors' values, and against layers worked out by hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.ears.dpam import CHANNELS, HEAD, Dpam

ROOT = Path(os.environ.get("SOTTOVOCE_MODELS", Path(__file__).parents[3] / "shared" / "models")) / "dpam"
published = pytest.mark.skipif(not ROOT.is_dir(), reason="DPAM's published weights are not here")
VALUES = {
    ("pre", "2"): 0.2241, ("pre", "4"): 2.878, ("lin", "2"): 0.0478, ("lin", "4"): 0.9881,
    ("fin", "2"): 0.1962, ("fin", "4"): 2.141, ("scratch", "2"): 0.1929, ("scratch", "4"): 0.8885,
}  # fmt: skip


def write_weights(path: Path, *, seed: int = 0, head: bool = True, **changed: np.ndarray) -> Path:
    """Random weights of the published shapes."""
    source = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for place, (inputs, outputs) in enumerate(zip((1, *CHANNELS), CHANNELS, strict=False)):
        kernel = source.standard_normal((1, 3, inputs, outputs)) / np.sqrt(3 * inputs)
        arrays[f"loss_conv_{place}/weights"] = kernel.astype(np.float32)
        arrays[f"loss_conv_{place}/BatchNorm/beta"] = np.zeros(outputs, dtype=np.float32)
        if head:
            arrays[f"weights_{place}"] = np.full(outputs, 0.5, dtype=np.float32)
    if head:
        for name, inputs, outputs in zip(("dense", "dense_1", "dense_2"), (1, *HEAD), HEAD, strict=False):
            arrays[f"{name}/kernel"] = np.zeros((inputs, outputs), dtype=np.float32)
            arrays[f"{name}/bias"] = np.zeros(outputs, dtype=np.float32)
    np.savez(path, **{**arrays, **changed})
    return path


def sound(seconds: float, seed: int, rate: int = 22_050) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(round(seconds * rate)).astype(np.float32)


@published
@pytest.mark.parametrize(("variant", "other"), list(VALUES))
def test_published_distances(variant: str, other: str) -> None:
    import soundfile

    first, second = (
        AudioBatch.of([soundfile.read(ROOT / f"{name}.wav", dtype="float32")[0]], 22_050)
        for name in ("ref", other)
    )
    found = float(Dpam(weights=str(ROOT), variant=variant).distance(first, second))  # type: ignore[arg-type]
    assert found == pytest.approx(VALUES[variant, other], abs=5e-4 * max(1.0, VALUES[variant, other]))


@published
def test_published_head_is_neither_zero_nor_monotone() -> None:
    """What the authors ship: the classifier of "fin" falls before it rises."""
    p = Dpam(weights=str(ROOT), variant="fin").probability(torch.tensor([0.0, 0.3, 2.0]))
    assert p[0] > 0.05
    assert p[1] < p[0] < p[2]


def test_equal_clips_are_at_zero_and_batches_change_nothing(tmp_path: Path) -> None:
    ear = Dpam(weights=str(write_weights(tmp_path / "w.npz")))
    clips = [sound(0.3, 0), sound(0.11, 1), sound(0.3, 2)]
    changed = [clips[0], clips[1] + sound(0.11, 3), clips[2] + 0.1 * sound(0.3, 4)]
    together = ear.distance(AudioBatch.of(clips, 22_050), AudioBatch.of(changed, 22_050))
    alone = [
        ear.distance(AudioBatch.of([one], 22_050), AudioBatch.of([two], 22_050))[0]
        for one, two in zip(clips, changed, strict=True)
    ]
    assert together[0] == 0.0
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-4, atol=1e-6)


def test_another_rate_is_resampled(tmp_path: Path) -> None:
    ear = Dpam(weights=str(write_weights(tmp_path / "w.npz")))
    time = np.arange(8000) / 16_000
    here = [0.3 * np.sin(2 * np.pi * 500 * time), 0.3 * np.sin(2 * np.pi * 700 * time)]
    time = np.arange(11_025) / 22_050
    there = [0.3 * np.sin(2 * np.pi * 500 * time), 0.3 * np.sin(2 * np.pi * 700 * time)]
    low = ear.distance(*(AudioBatch.of([one], 16_000) for one in here))
    high = ear.distance(*(AudioBatch.of([one], 22_050) for one in there))
    assert float(low) == pytest.approx(float(high), rel=0.05)


def test_gradients_are_finite_also_at_equal_clips(tmp_path: Path) -> None:
    ear = Dpam(weights=str(write_weights(tmp_path / "w.npz")))
    clean = AudioBatch.of([sound(0.1, 0)], 22_050)
    for other in (clean.waveforms, clean.waveforms + 0.01):
        waveforms = other.clone().requires_grad_()
        ear.distance(clean, clean.with_waveforms(waveforms)).sum().backward()
        assert bool(torch.isfinite(waveforms.grad).all())


def test_probability_is_that_of_a_small_network(tmp_path: Path) -> None:
    one = np.zeros((1, 16), dtype=np.float32)
    one[0, 0] = 2.0
    two, three = np.zeros((16, 6), dtype=np.float32), np.zeros((6, 2), dtype=np.float32)
    two[0, 0], three[0, 1] = 1.0, 1.0
    kernels = {"dense/kernel": one, "dense_1/kernel": two, "dense_2/kernel": three}
    ear = Dpam(weights=str(write_weights(tmp_path / "w.npz", **kernels)))
    # Scores 0 and 2 d: the second of two classes has 1 / (1 + e^-2d).
    torch.testing.assert_close(
        ear.probability(torch.tensor([0.0, 1.0])), torch.tensor([0.5, 0.8807970779778823])
    )


def test_pre_has_no_head(tmp_path: Path) -> None:
    ear = Dpam(weights=str(write_weights(tmp_path / "w.npz", head=False)), variant="pre")
    with pytest.raises(InputError, match="published without a classifier"):
        ear.probability(torch.tensor([1.0]))


def test_weights_of_another_shape(tmp_path: Path) -> None:
    strange = {"loss_conv_5/weights": np.zeros((1, 3, 32, 32), dtype=np.float32)}
    ear = Dpam(weights=str(write_weights(tmp_path / "w.npz", **strange)))
    with pytest.raises(InputError, match=r"loss_conv_5/weights \(1, 3, 32, 64\), got \(1, 3, 32, 32\)"):
        ear.probability(torch.tensor([1.0]))


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is there"):
        Dpam(weights=str(tmp_path)).probability(torch.tensor([1.0]))
    (tmp_path / "text.npz").write_text("no weights")
    with pytest.raises(InputError, match="another kind of file"):
        Dpam(weights=str(tmp_path / "text.npz")).probability(torch.tensor([1.0]))
    with pytest.raises(UnknownName):
        Dpam(weights=str(tmp_path), variant="best")  # type: ignore[arg-type]
