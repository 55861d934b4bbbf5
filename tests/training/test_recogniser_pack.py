"""Packing words and sentences: codes by hand, parts there and back, trimmed words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.errors import InputError
from sottovoce.training.recogniser import recogniser_pack
from sottovoce.training.recogniser.recogniser_pack import (
    RecogniserPack,
    from_mu_law,
    load_pack,
    of_items,
    read_words,
    save_pack,
    to_mu_law,
    trim,
)


def three() -> RecogniserPack:
    random = np.random.default_rng(0)
    return of_items(
        [random.integers(-32_768, 32_768, count).astype(np.int16) for count in (5, 3, 4)],
        texts=["yes", "turn it off", "go"],
        split=["train", "test", "valid"],
        kind=["word", "sentence", "word"],
        source=["a", "flite slt", "b"],
    )


def test_mu_law_by_hand() -> None:
    # A level x is coded as 127 ln(1 + 255 |x|) / ln 256; x = 15/255 gives a half of 127 (ln 16 / ln 256).
    samples = np.array([0, 32_767, -32_768, 1_928, -1_928], dtype=np.int16)
    assert to_mu_law(samples).tolist() == [0, 127, -127, 64, -64]
    # And 64 / 127 is 256 ** (64 / 127) - 1 = 15.353 of 255: 1,972.8 of 32,768.
    assert from_mu_law(np.array([0, 127, -127, 64, -64], dtype=np.int8)).tolist() == [
        0,
        32_767,
        -32_768,
        1_973,
        -1_973,
    ]


def test_mu_law_is_within_its_step() -> None:
    samples = np.arange(-32_768, 32_768).astype(np.int16)
    error = np.abs(from_mu_law(to_mu_law(samples)).astype(int) - samples)
    # Half a step is a factor of 256 ** (0.5 / 127) = 1.0221 in 1 + 255 x.
    assert (error <= 0.0223 * (np.abs(samples.astype(int)) + 32_768 / 255) + 1.0).all()
    codes = np.arange(-127, 128).astype(np.int8)
    assert np.array_equal(to_mu_law(from_mu_law(codes)), codes)


def test_parts_come_back_in_full(tmp_path: Path) -> None:
    pack = three()
    paths = save_pack(pack, tmp_path, parts=2)
    assert [path.name for path in paths] == ["part-0.npz", "part-1.npz"]
    read = load_pack(tmp_path)
    assert read.texts.tolist() == ["turn it off", "go", "yes"]
    assert read.split.tolist() == ["test", "valid", "train"]
    assert read.kind.tolist() == ["sentence", "word", "word"]
    assert read.source.tolist() == ["flite slt", "b", "a"]
    assert np.array_equal(read.item(0), pack.item(1))
    assert np.array_equal(read.item(1), pack.item(2))
    assert np.array_equal(read.item(2), from_mu_law(to_mu_law(pack.item(0))))


def test_training_items_are_shared_out_among_the_other_parts(tmp_path: Path) -> None:
    levels = from_mu_law(np.arange(10, dtype=np.int8))
    items = [np.full(2, level) for level in levels]
    names = {name: ["x"] * 10 for name in ("texts", "kind", "source")}
    paths = save_pack(of_items(items, split=["train"] * 10, **names), tmp_path, parts=4)
    counts = [len(recogniser_pack.load_part(path)) for path in paths]
    assert counts == [0, 4, 3, 3]
    assert sorted(load_pack(tmp_path).samples[::2].tolist()) == levels.tolist()


def test_parts_that_are_too_large_or_too_few_or_strange_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="at least 2 parts, got 1"):
        save_pack(three(), tmp_path, parts=1)
    with pytest.raises(InputError, match=r"has no files part-N\.npz"):
        load_pack(tmp_path)
    monkeypatch.setattr(recogniser_pack, "PART_BYTES", 100)
    with pytest.raises(InputError, match="parts of at most 100 bytes"):
        save_pack(three(), tmp_path, parts=2)
    (tmp_path / "part-0.npz").write_text("hello")
    with pytest.raises(InputError, match="is not part of a recogniser pack"):
        load_pack(tmp_path)
    with pytest.raises(InputError, match="a pack holds int16 samples"):
        of_items([np.zeros(3)], texts=["a"], split=["train"], kind=["word"], source=["b"])


def test_trim_keeps_the_word_and_a_little_around_it() -> None:
    clip = np.random.default_rng(0).normal(0, 3, 16_000)
    clip[6_000:9_000] += 5_000 * np.sin(np.arange(3_000))
    word = trim(clip.astype(np.int16))
    # The window of 400 hears the tone 200 samples early and late; 960 are kept before and 1,440 after it.
    assert len(word) == pytest.approx(3_000 + 2 * 200 + 960 + 1_440, abs=10)
    loud = np.flatnonzero(np.abs(word) > 1_000)
    assert loud[0] == pytest.approx(960 + 200, abs=10)


def test_a_word_at_the_edge_is_kept_to_the_edge() -> None:
    clip = np.zeros(16_000, dtype=np.int16)
    clip[:500] = 1_000
    # Heard up to 500 + 200 - the three samples of 400 that the threshold of a 250th asks for.
    assert len(trim(clip)) == pytest.approx(700 + 1_440, abs=5)


def test_folder_gives_words_splits_and_speakers(tmp_path: Path) -> None:
    for split, word, name in (("train", "yes", "a1_0.wav"), ("test", "three", "b2_1.flac")):
        (tmp_path / split / word).mkdir(parents=True)
        noise = np.random.default_rng(0).normal(0, 1_000, 8_000).astype(np.int16)
        soundfile.write(tmp_path / split / word / name, noise, 16_000, subtype="PCM_16")
    pack = read_words(tmp_path)
    assert pack.texts.tolist() == ["yes", "three"]
    assert pack.split.tolist() == ["train", "test"]
    assert pack.source.tolist() == ["a1", "b2"]
    assert set(pack.kind.tolist()) == {"word"}
    with pytest.raises(InputError, match="name the folder above them"):
        read_words(tmp_path / "train")
