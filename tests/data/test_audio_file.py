"""Clips that lie about themselves, or take more than there is: each is a failure of its own."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.data.corpora import folder, open_corpus, table
from sottovoce.data.load import Corpus, Entry, Recording, load_clip
from sottovoce.data.pack import pack
from sottovoce.errors import InputError, MissingExtra

RATE = 16000
SAMPLES = 1000


def wav(
    data_bytes: int = 2 * SAMPLES, *, rate: int = RATE, samples: int = SAMPLES, after: bytes = b"",
    head: bytes = b"RIFF", before: bytes = b"",
) -> bytes:  # fmt: skip
    """A WAV file byte by byte: mono, 16 bits. data_bytes: what its header says of the samples."""
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    sound = np.full(samples, 100, dtype="<i2").tobytes()
    rest = b"WAVE" + before + fmt + struct.pack("<4sI", b"data", data_bytes) + sound + after
    size = 0xFFFFFFFF if head == b"RF64" else len(rest)
    return head + struct.pack("<I", size) + rest


def loaded(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    clip = load_clip(path, RATE, id="a", label="")
    assert len(clip.waveform) in (250, SAMPLES)
    return clip.loaded


# Headers


def test_a_header_that_fits_needs_no_remark(tmp_path: Path) -> None:
    tags = struct.pack("<4sI4s", b"LIST", 4, b"INFO")
    assert loaded(tmp_path / "a.wav", wav()) == ""
    assert loaded(tmp_path / "a.wav", wav(after=tags)) == ""
    assert loaded(tmp_path / "a.wav", wav(after=bytes(64))) == ""  # filled up with zeros
    assert loaded(tmp_path / "a.wav", wav(before=struct.pack("<4sI3sx", b"odd ", 3, b"abc"))) == ""


@pytest.mark.parametrize("told", [64_000, 0xFFFFFFFF, 0x7FFFF000])
def test_a_header_that_tells_of_more_than_there_is(tmp_path: Path, told: int) -> None:
    remark = f"its header tells of {told} bytes of samples, the file has 2000"
    assert loaded(tmp_path / "a.wav", wav(told)) == remark


def test_a_header_that_tells_of_less(tmp_path: Path) -> None:
    # 500 of 2000 bytes: what is left is no chunk of a WAV file.
    remark = "after its samples the file has 1500 bytes that its header does not tell of"
    assert loaded(tmp_path / "a.wav", wav(500)) == remark


def test_a_large_file_has_its_size_in_another_chunk(tmp_path: Path) -> None:
    def large(data_bytes: int) -> bytes:
        sizes = struct.pack("<4sIQQQI", b"ds64", 28, 2080, data_bytes, SAMPLES, 0)
        return wav(0xFFFFFFFF, head=b"RF64", before=sizes)

    assert loaded(tmp_path / "a.wav", large(2000)) == ""
    assert "tells of 3000 bytes of samples, the file has 2000" in loaded(tmp_path / "a.wav", large(3000))


def test_a_file_cut_short_is_remarked_on(tmp_path: Path) -> None:
    whole = tmp_path / "whole.wav"
    soundfile.write(whole, np.full(RATE, 100, dtype=np.int16), RATE)
    (tmp_path / "cut.wav").write_bytes(whole.read_bytes()[: 44 + 2 * 4000])
    clip = load_clip(tmp_path / "cut.wav", RATE, id="a", label="")
    assert len(clip.waveform) == 4000
    assert clip.loaded == "its header tells of 32000 bytes of samples, the file has 8000"


def test_samples_that_no_header_tells_of_are_said_where_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(0))
    with pytest.raises(InputError, match=r"zero length \(after its samples the file has 2000 bytes that"):
        load_clip(tmp_path / "a.wav", RATE, id="a", label="")


# Lengths


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decoded, so that no memory is taken."""

    def read(*words: object, **named: object) -> None:
        raise AssertionError("samples were asked for")

    monkeypatch.setattr(soundfile.SoundFile, "read", read)


def test_a_clip_is_refused_by_its_length_before_memory_is_taken(tmp_path: Path, undecoded: None) -> None:
    # 120 kB at 1 Hz: 60,000 seconds, which at 16 kHz are 960 million samples.
    (tmp_path / "a.wav").write_bytes(wav(120_000, rate=1, samples=60_000))
    with pytest.raises(InputError) as caught:
        load_clip(tmp_path / "a.wav", RATE, id="a", label="")
    assert "expected a clip of at most 1800 s, got 60000 s (60000 samples at 1 Hz)" in str(caught.value)
    assert "--longest" in str(caught.value)


def test_the_longest_clip_is_half_an_hour_unless_one_says_otherwise(tmp_path: Path) -> None:
    for name, samples in (("a", 1800), ("b", 1801)):
        (tmp_path / f"{name}.wav").write_bytes(wav(2 * samples, rate=1, samples=samples))
    corpus = Corpus("made", tuple(Entry(name, tmp_path / f"{name}.wav", "") for name in "ab"))
    ((clips, failures),) = corpus.chunks(2, 2)
    assert [(clip.id, len(clip.waveform)) for clip in clips] == [("a", 3600)]
    assert [failure.id for failure in failures] == ["b"]
    ((clips, failures),) = corpus.chunks(2, 2, longest_seconds=1801.0)
    assert ([clip.id for clip in clips], failures) == (["a", "b"], [])
    # A piece counts by its own length.
    piece = load_clip(tmp_path / "b.wav", 2, id="c", label="", start=1, frames=1800)
    assert len(piece.waveform) == 3600


def test_a_clip_from_an_address_is_refused_by_its_header(undecoded: None) -> None:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.pipe_file("/lengths/yes/long.wav", wav(120_000, rate=1, samples=60_000))
    ((_, failures),) = open_corpus("memory://lengths").chunks(1, RATE)
    assert "memory://lengths/yes/long.wav: expected a clip of at most 1800 s" in failures[0].reason


def make_pack(path: Path, rate: object) -> str:
    np.savez(
        path, samples=np.ones(60_010, np.int16), lengths=np.array([10, 60_000]), sample_rate=rate,
        ids=np.array(["short", "long"]), labels=np.array(["a", "b"]), split=np.array(["", ""]),
        speakers=np.array(["", ""]),
    )  # fmt: skip
    return str(path)


def test_a_clip_of_a_pack_is_refused_by_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((clips, failures),) = pack(make_pack(tmp_path / "a.npz", 1)).chunks(2, 100)
    assert [(clip.id, len(clip.waveform)) for clip in clips] == [("short", 1000)]
    assert "got 60000 s (60000 samples at 1 Hz)" in failures[0].reason


@pytest.mark.parametrize("rate", [0, -5, [8000, 16000], "fast"])
def test_a_pack_needs_a_rate(tmp_path: Path, rate: object) -> None:
    with pytest.raises(InputError, match="expected a sample rate of 1 Hz or more, got"):
        pack(make_pack(tmp_path / "a.npz", np.array(rate)))


def test_a_source_without_a_rate_fails_alone() -> None:
    entry = Entry("a", Path("made"), "", source=lambda: Recording(np.zeros(100), 0))
    ((_, failures),) = Corpus("made", (entry,)).chunks(1, RATE)
    assert "expected a sample rate above 0 Hz, got 0" in failures[0].reason


# Whatever happens


def raising(error: Exception) -> Callable[[], Recording]:
    def source() -> Recording:
        raise error

    return source


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "expected a clip that fits into memory, got one that does not; cut it"),
        (np._core._exceptions._ArrayMemoryError((10**12,), np.dtype("float64")), "fits into memory"),
        (RecursionError("maximum recursion depth exceeded"), "got RecursionError (maximum recursion depth"),
        (OSError(36, "File name too long"), "got 'File name too long'; check its path and permissions"),
        (KeyError("rate"), "expected audio, got KeyError ('rate') while it was read"),
        (ZeroDivisionError(), "expected audio, got ZeroDivisionError while it was read"),
        (MissingExtra("pip install more."), "pip install more."),
    ],
)
def test_whatever_is_raised_over_a_clip_is_its_failure(tmp_path: Path, error: Exception, reason: str) -> None:
    (tmp_path / "good.wav").write_bytes(wav())
    bad = Entry("bad", Path("made"), "yes", source=raising(error))
    corpus = Corpus("made", (bad, Entry("good", tmp_path / "good.wav", "no")))
    ((clips, failures),) = corpus.chunks(2, RATE)
    assert [clip.id for clip in clips] == ["good"]
    assert [(failure.id, failure.label) for failure in failures] == [("bad", "yes")]
    assert reason in failures[0].reason


def test_memory_that_runs_out_in_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*words: object, **named: object) -> None:
        raise MemoryError("Unable to allocate 7.15 TiB")

    monkeypatch.setattr(soundfile.SoundFile, "read", read)
    (tmp_path / "a.wav").write_bytes(wav())
    ((_, failures),) = Corpus("made", (Entry("a", tmp_path / "a.wav", ""),)).chunks(1, RATE)
    assert failures[0].reason.startswith(f"{tmp_path / 'a.wav'}: expected a clip that fits into memory")


def test_a_path_of_5000_letters_is_the_failure_of_its_clip(tmp_path: Path) -> None:
    (tmp_path / "good.wav").write_bytes(wav())
    (tmp_path / "clips.csv").write_text(f"path,label\ngood.wav,yes\n{'x' * 5000}.wav,no\n")
    ((clips, failures),) = table(str(tmp_path / "clips.csv")).chunks(2, RATE)
    assert [clip.id for clip in clips] == ["good"]
    assert (failures[0].id, failures[0].label) == ("x" * 5000, "no")
    assert "File name too long" in failures[0].reason
    assert len(failures[0].reason) < 500
    # A file that is simply not there is a mistake in the table, as before.
    (tmp_path / "clips.csv").write_text("path,label\ngone.wav,yes\n")
    with pytest.raises(InputError, match="no such file at 1 of 1 paths"):
        table(str(tmp_path / "clips.csv"))


@pytest.mark.parametrize("spec", ["{}", "folder:{}", "csv:{}", "pack:{}", "speechcommands:{}", "{}.csv"])
def test_a_corpus_with_a_name_of_5000_letters_is_one_clear_sentence(spec: str) -> None:
    with pytest.raises(InputError, match="check the path"):
        open_corpus(spec.format("x" * 5000))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_no_utf_8_can_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "yes") + b"/caf\xe9.wav")).write_bytes(wav())
    Path(os.fsdecode(os.fsencode(tmp_path / "yes") + b"/th\xe9.wav")).write_text("no audio")
    ((clips, failures),) = folder(str(tmp_path)).chunks(2, RATE)
    assert [clip.id for clip in clips] == ["yes/caf\\xe9"]
    assert failures[0].id == "yes/th\\xe9"
    assert failures[0].reason.encode().startswith(f"{tmp_path}/yes/th\\xe9.wav: ".encode())
