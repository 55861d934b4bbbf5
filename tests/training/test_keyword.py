"""Keyword training on a problem that can be learnt in seconds, and its parts by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from sottovoce.errors import InputError
from sottovoce.targets.zoo.keyword_cnn import KeywordCnn
from sottovoce.training.keyword.keyword_pack import KeywordPack
from sottovoce.training.keyword.train_keyword import KeywordRecipe, augment, mask, move, score, train

QUICK = KeywordRecipe(epochs=5, batch_size=12, average_decay=0.5)


def tones(count: int, split: str, seed: int) -> KeywordPack:
    """Half low tones called `no`, half high ones called `yes`, each of its own pitch and level."""
    random = np.random.default_rng(seed)
    pitch_hz = np.where(np.arange(count) % 2, 2_500.0, 300.0) * random.uniform(0.9, 1.1, count)
    phase = 2 * np.pi * pitch_hz[:, None] * np.arange(16_000) / 16_000
    clips = np.sin(phase) * random.uniform(2_000, 20_000, (count, 1)) + random.normal(0, 50, phase.shape)
    return KeywordPack(
        clips=clips.astype(np.int16),
        labels=np.where(np.arange(count) % 2, "yes", "no"),
        split=np.full(count, split),
        source=np.full(count, "tone"),
    )


def write_tones(path: Path, **counts: int) -> Path:
    parts = [tones(count, split, seed) for seed, (split, count) in enumerate(counts.items())]
    KeywordPack(
        clips=np.concatenate([part.clips for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        split=np.concatenate([part.split for part in parts]),
        source=np.concatenate([part.source for part in parts]),
    ).save(path)
    return path


@pytest.mark.slow
def test_separable_tones_are_learnt(tmp_path: Path) -> None:
    pack = write_tones(tmp_path / "tones.npz", train=36, valid=8, test=20)
    lines: list[str] = []
    report = train(pack, tmp_path / "weights.safetensors", seed=1, recipe=QUICK, log=lines.append)
    assert report.test.accuracy == 1.0
    assert (report.test.correct, report.test.total) == (20, 20)
    # The exact interval at 20 of 20 starts at 0.025 ** (1 / 20) = 0.83157.
    assert report.test.low == pytest.approx(0.83157, abs=1e-4)
    assert set(report.per_class) == {"yes", "no"}
    assert report.parameters == 156_964
    assert len(lines) == 6
    assert lines[0].startswith("epoch 1/5: loss ")


@pytest.mark.slow
def test_same_seed_same_weights_and_no_trace_in_the_global_state(tmp_path: Path) -> None:
    pack = write_tones(tmp_path / "tones.npz", train=12, valid=2, test=2)
    once = KeywordRecipe(epochs=1, batch_size=6)
    state = torch.random.get_rng_state()
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train(pack, tmp_path / name, seed=seed, recipe=once, log=lambda line: None)
    assert torch.equal(torch.random.get_rng_state(), state)
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again
    assert first != other


def test_a_missing_split_is_refused(tmp_path: Path) -> None:
    pack = write_tones(tmp_path / "tones.npz", train=2, test=2)
    with pytest.raises(InputError, match="has no valid clips"):
        train(pack, tmp_path / "weights.safetensors")


@pytest.mark.parametrize(("correct", "total"), [(0, 7), (7, 7), (55, 60), (915, 961)])
def test_interval_is_clopper_pearson(correct: int, total: int) -> None:
    expected = binomtest(correct, total).proportion_ci(0.95, method="exact")
    actual = score(correct, total)
    assert (actual.low, actual.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert actual.accuracy == pytest.approx(correct / total)


def test_move_shifts_by_hand() -> None:
    ramp = torch.arange(1.0, 16_001.0).expand(2, -1)
    moved = move(ramp, torch.ones(2), torch.tensor([2.0, -3.0]))
    assert moved[0, :4].tolist() == [0.0, 0.0, 1.0, 2.0]
    assert moved[1, :2].tolist() == [4.0, 5.0]
    assert moved[1, -4:].tolist() == [16_000.0, 0.0, 0.0, 0.0]


def test_move_doubles_a_pitch() -> None:
    time = torch.arange(16_000) / 16_000
    fast = move(torch.sin(2 * torch.pi * 100 * time)[None], torch.tensor([2.0]), torch.zeros(1))[0]
    # At twice the speed the second lasts half as long, about the middle: 100 cycles of 200 Hz over 0.5 s.
    assert fast[:3_990].abs().max() == 0.0
    assert fast[-3_990:].abs().max() == 0.0
    assert torch.fft.rfft(fast).abs().argmax().item() == 200


def test_augmented_clips_lie_on_16_bits() -> None:
    clips = torch.randn(4, 16_000, generator=torch.Generator().manual_seed(0))
    heard = augment(clips, KeywordRecipe(), torch.Generator().manual_seed(0)) * 32768.0
    assert torch.equal(heard, heard.round())
    assert heard.min() >= -32768.0
    assert heard.max() <= 32767.0


def test_mask_blanks_whole_frames() -> None:
    image = torch.ones(50, 1, 97, 40)
    blank = mask(image, KeywordRecipe(masks=1, mask_frames=8), torch.Generator().manual_seed(0)) == 0
    assert torch.equal(blank.any(dim=3), blank.all(dim=3))
    assert 1 <= blank.any(dim=3).sum(dim=2).max() <= 8


def test_weights_have_names_that_the_shipped_file_has() -> None:
    names = set(KeywordCnn().state_dict())
    assert names == {"center", "spread"} | {
        f"{layer}.{kind}" for layer in ("first", "second", "output") for kind in ("weight", "bias")
    }
