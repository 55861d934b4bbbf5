"""Packing recordings and made silence into one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.errors import InputError
from sottovoce.training.keyword import keyword_pack
from sottovoce.training.keyword.keyword_pack import (
    KeywordPack,
    load_pack,
    make_silence,
    pack,
    read_clip,
    read_folder,
)


def write(path: Path, samples: np.ndarray, rate: int = 16_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples.astype(np.int16), rate, subtype="PCM_16")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train" / "yes" / "a.flac", np.full(16_000, 5))
    write(tmp_path / "train" / "three" / "b.wav", np.full(17_000, 6))
    write(tmp_path / "test" / "go" / "c.flac", np.full(3, 7))
    (tmp_path / "test" / "go" / "notes.txt").write_text("not audio")
    return tmp_path


def test_short_clips_are_padded_at_the_end_and_long_ones_cut(folder: Path) -> None:
    short, long = (
        read_clip(folder / "test" / "go" / "c.flac"),
        read_clip(folder / "train" / "three" / "b.wav"),
    )
    assert short.shape == long.shape == (16_000,)
    assert short[:5].tolist() == [7, 7, 7, 0, 0]
    assert set(long.tolist()) == {6}


def test_folder_gives_labels_and_splits(folder: Path) -> None:
    read = read_folder(folder)
    assert read.labels.tolist() == ["unknown", "yes", "go"]
    assert read.split.tolist() == ["train", "train", "test"]
    assert read.clips[:, 0].tolist() == [6, 5, 7]


def test_other_rates_and_empty_folders_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "fast.wav", np.zeros(100), rate=44_100)
    with pytest.raises(InputError, match="expected 16000 Hz mono, got 44100 Hz"):
        read_clip(tmp_path / "fast.wav")
    with pytest.raises(InputError, match="name the folder above them"):
        read_folder(tmp_path)


def test_silence_is_quiet_never_digital_and_differs_by_split() -> None:
    train, test = make_silence(40, "train", seed=0), make_silence(40, "test", seed=0)
    level_db = 20 * np.log10(np.abs(test.clips.astype(float)).mean(axis=1))
    # 16-bit rounding moves the faintest, a mean of two steps, by a few tenths of a decibel.
    assert level_db.min() > 5.0
    assert level_db.max() < 60.1
    assert not (train.clips == test.clips).all(axis=1).any()
    assert (test.clips == make_silence(40, "test", seed=0).clips).all()
    assert set(test.labels) == {"silence"}


def test_pack_joins_recordings_silence_and_synthetic_voices(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword_pack, "SILENCE_CLIPS", {"train": 2, "valid": 1, "test": 1})
    voices = KeywordPack(
        clips=np.full((1, 16_000), 9, dtype=np.int16),
        labels=np.array(["stop"]),
        split=np.array(["train"]),
        source=np.array(["espeak-ng en-us+m1"]),
    )
    voices.save(tmp_path / "voices.npz")
    pack(folder, tmp_path / "pack.npz", synthetic=tmp_path / "voices.npz")
    read = load_pack(tmp_path / "pack.npz")
    assert read.labels.tolist() == [
        "unknown",
        "yes",
        "go",
        "silence",
        "silence",
        "silence",
        "silence",
        "stop",
    ]
    assert read.source.tolist() == ["real"] * 3 + ["silence"] * 4 + ["espeak-ng en-us+m1"]
    assert read.clips[-1, 0] == 9


def test_files_that_are_no_packs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", clips=np.zeros(3))
    for name in ("absent.npz", "text.npz", "other.npz"):
        with pytest.raises(InputError, match="is not a keyword pack"):
            load_pack(tmp_path / name)


def test_wrong_clips_and_labels_are_refused() -> None:
    one = {"split": np.array(["train"]), "source": np.array(["real"])}
    with pytest.raises(InputError, match="holds int16 clips"):
        KeywordPack(clips=np.zeros((1, 16_000)), labels=np.array(["yes"]), **one)
    with pytest.raises(InputError, match="got maybe"):
        KeywordPack(clips=np.zeros((1, 16_000), dtype=np.int16), labels=np.array(["maybe"]), **one)
