from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from sottovoce.data.embedded import strings
from sottovoce.data.load import Clip, Corpus
from sottovoce.data.pack import load_pack, pack, save_pack
from sottovoce.errors import InputError, UnknownName

RATE = 16000
TOOL = Path(__file__).parents[2] / "tools" / "pack_corpus.py"


def write(path: Path, **changes: Any) -> str:
    """A pack of three clips as any NumPy program would write it: [1], [2, -32768] and [3, 4, 32767]."""
    arrays: dict[str, Any] = {
        "samples": np.array([1, 2, -32768, 3, 4, 32767], dtype=np.int16),
        "lengths": np.array([1, 2, 3]),
        "labels": np.array(["yes", "no", "très bien"]),
        "ids": np.array(["a", "b", "c"]),
        "split": np.array(["train", "test", "test"]),
        "speakers": np.array(["ann", "", "bob"]),
        "sample_rate": RATE,
    }
    arrays.update(changes)
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return str(path)


def steps(corpus: Corpus, rate: int = RATE) -> list[list[float]]:
    return [(corpus.load(entry, rate).waveform * 32768).tolist() for entry in corpus]


def clip(id: str, values: list[float], rate: int = RATE, **facts: str) -> Clip:
    return Clip(id, torch.tensor(values), rate, "yes", facts=facts)


def test_a_pack_is_a_corpus(tmp_path: Path) -> None:
    corpus = pack(write(tmp_path / "three.npz"))
    assert (corpus.name, len(corpus), corpus.labels) == ("three", 3, ("no", "très bien", "yes"))
    assert [entry.id for entry in corpus] == ["a", "b", "c"]
    assert [dict(entry.facts) for entry in corpus] == [
        {"speaker": "ann", "split": "train"}, {"split": "test"}, {"speaker": "bob", "split": "test"}
    ]  # fmt: skip
    assert steps(corpus) == [[1], [2, -32768], [3, 4, 32767]]
    loaded = corpus.load(corpus.entries[2], RATE)
    assert (loaded.id, loaded.label, loaded.sample_rate, loaded.loaded) == ("c", "très bien", RATE, "")
    assert loaded.waveform.dtype == torch.float32
    assert loaded.facts == {"speaker": "bob", "split": "test"}


def test_one_split_of_a_pack(tmp_path: Path) -> None:
    file = write(tmp_path / "three.npz")
    corpus = pack(f"{file}#test")
    assert (corpus.name, [entry.id for entry in corpus]) == ("three-test", ["b", "c"])
    assert steps(corpus) == [[2, -32768], [3, 4, 32767]]
    with pytest.raises(UnknownName, match="unknown split 'tset': did you mean 'test'"):
        pack(f"{file}#tset")
    with pytest.raises(InputError, match="of the split 'valid', got test, train; name one of those"):
        pack(f"{file}#valid")


def test_a_mark_in_the_folder_is_no_split(tmp_path: Path) -> None:
    (tmp_path / "take#2").mkdir()
    assert len(pack(write(tmp_path / "take#2" / "three.npz"))) == 3


def test_corpora_of_packs_are_limited_and_chunked_like_others(tmp_path: Path) -> None:
    corpus = pack(write(tmp_path / "three.npz"))
    few = corpus.limit(2, seed=0)
    assert len(few) == 2 and set(few.entries) <= set(pack(str(tmp_path / "three.npz")).entries)
    clips, failures = next(corpus.chunks(3, RATE))
    assert ([one.id for one in clips], failures) == (["a", "b", "c"], [])


def test_another_rate_is_resampled_and_remarked(tmp_path: Path) -> None:
    corpus = pack(write(tmp_path / "three.npz", samples=np.full(6, 5, np.int16)))
    clips, failures = next(corpus.chunks(3, 8000))
    assert all(one.loaded.startswith("resampled from 16000 Hz") for one in clips)
    assert len(clips) + len(failures) == 3
    assert all("three.npz, clip 'a': expected sound" in one.reason for one in failures)


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    clips = [
        clip("x", [0.5, -1.0], speaker="ann", language="en"),
        clip("y", [32767 / 32768]),
        clip("z", [0.0, 0.25]),
    ]
    save_pack(tmp_path / "new" / "out.npz", clips, ["train", "", "valid"])
    with np.load(tmp_path / "new" / "out.npz") as file:
        assert file["samples"].tolist() == [16384, -32768, 32767, 0, 8192]
        assert file["samples"].dtype == np.int16 and file["lengths"].dtype == np.int64
        assert file["split"].tolist() == ["train", "", "valid"]
        assert (file["speakers"].tolist(), file["languages"].tolist()) == (["ann", "", ""], ["en", "", ""])
        assert int(file["sample_rate"]) == RATE
    corpus = pack(str(tmp_path / "new" / "out.npz"))
    assert dict(corpus.entries[0].facts) == {"speaker": "ann", "language": "en", "split": "train"}
    for entry, before in zip(corpus, clips, strict=True):
        torch.testing.assert_close(corpus.load(entry, RATE).waveform, before.waveform, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("clips", "splits", "message"),
    [
        ([], "", "expected clips of one sample rate, got no clips"),
        ([clip("a", [0.0]), clip("b", [0.0], 8000)], "", r"one sample rate, got \[8000, 16000\]"),
        ([clip("a", [0.0]), clip("a", [0.5])], "", "expected different ids"),
        ([clip("a", [0.1])], "", "clip 'a': expected samples on the 16-bit grid"),
        ([clip("a", [1.0])], "", "clip 'a': expected samples on the 16-bit grid"),
        ([clip("a", [0.0])], "dev", "expected splits train, valid, test or none, got 'dev'"),
        ([clip("a", [0.0])], ["train", "test"], r"expected split to be 1 strings, got <U5 \(2,\)"),
    ],
)
def test_what_cannot_be_saved(
    tmp_path: Path, clips: list[Clip], splits: str | list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        save_pack(tmp_path / "out.npz", clips, splits)
    assert not (tmp_path / "out.npz").exists()


def test_a_pack_ends_in_npz(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a name that ends in \.npz, got 'out'"):
        save_pack(tmp_path / "out", [clip("a", [0.0])])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": None, "ids": None}, "got no lengths, ids; make the pack with save_pack"),
        ({"samples": np.zeros(6)}, r"expected samples as int16 \(time,\), got float64 \(6,\)"),
        ({"lengths": np.array([1, 2, 4])}, "add up to 6 samples, got 7 in all"),
        ({"lengths": np.array([3, 3, 0])}, "drop empty clips"),
        ({"lengths": np.array([1, 5])}, r"expected lengths to be 3 whole numbers, got int64 \(2,\)"),
        ({"labels": np.array([1, 2, 3])}, r"expected labels to be 3 strings, got int64 \(3,\)"),
        ({"split": np.array(["", "", "x"])}, "expected splits train, valid, test or none, got 'x'"),
        ({"ids": np.array(["a", "b", "b"])}, "got 'b' for both"),
    ],
)
def test_packs_that_cannot_be_used(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pack(write(tmp_path / "bad.npz", **changes))


def test_what_is_no_pack(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got no such file"):
        pack(str(tmp_path / "gone.npz"))
    for content in (b"", b"no pack", b"PK\x03\x04 torn"):
        (tmp_path / "text.npz").write_bytes(content)
        with pytest.raises(InputError, match="got another kind of file"):
            pack(str(tmp_path / "text.npz"))
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(InputError, match="got another kind of file"):
        pack(str(tmp_path / "one.npy"))


def test_packs_need_no_audio_library(tmp_path: Path) -> None:
    file = write(tmp_path / "three.npz")
    code = (
        "import sys; sys.modules['soundfile'] = sys.modules['soxr'] = None\n"
        "from sottovoce.data.load import collate\n"
        "from sottovoce.data.pack import pack\n"
        f"corpus = pack({file!r})\n"
        f"print(collate([corpus.load(entry, {RATE}) for entry in corpus]).lengths.tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[1, 2, 3]\n", "")


def test_the_tool_packs_corpora_bit_for_bit(tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    command = [sys.executable, str(TOOL), str(out), "train=strings", "test=strings", "--limit", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{out}: 6 clips (train 3, test 3), ")
    made = load_pack(out)
    few = strings().limit(3)
    assert made.ids.tolist() == [f"{split}/{entry.id}" for split in ("train", "test") for entry in few]
    assert made.labels.tolist() == 2 * [entry.label for entry in few]
    assert made.speakers.tolist() == 2 * [entry.facts["speaker"] for entry in few]
    for place, entry in enumerate(few):
        samples, _ = soundfile.read(entry.path, dtype="int16")
        np.testing.assert_array_equal(made.clip(place), samples)


def test_the_tool_ends_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), str(tmp_path / "out.npz"), "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("unknown corpus 'nowhere'") and done.stderr.count("\n") == 1
