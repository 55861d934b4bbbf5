from __future__ import annotations

import wave
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.data.load import Clip, Corpus, Entry, collate, load_clip
from sottovoce.errors import InputError

RATE = 16000


def write_bytes(path: Path, data: bytes, *, width: int, rate: int = RATE, channels: int = 1) -> Path:
    """A WAV file from the standard library, so that the reader is not tested against itself."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return path


def write_steps(path: Path, steps: list[int], rate: int = RATE) -> Path:
    return write_bytes(path, np.array(steps, dtype="<i2").tobytes(), width=2, rate=rate)


def load(path: Path, rate: int = RATE) -> Clip:
    return load_clip(path, rate, id="a", label="yes")


def sine(seconds: float, rate: int, hz: float = 1000.0) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)


def amplitude_and_rest(waveform: np.ndarray, rate: int, hz: float) -> tuple[float, float]:
    """Amplitude of one frequency by least squares, and the largest sample of all that is left."""
    angle = 2 * np.pi * hz * np.arange(len(waveform)) / rate
    basis = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    weights = np.linalg.lstsq(basis, waveform, rcond=None)[0]
    return float(np.hypot(*weights)), float(np.abs(waveform - basis @ weights).max())


def test_sixteen_bits_come_back_bit_for_bit(tmp_path: Path) -> None:
    steps = np.arange(-32768, 32768)
    clip = load(write_steps(tmp_path / "a.wav", steps.tolist()))
    assert clip.waveform.dtype == torch.float32
    np.testing.assert_array_equal(clip.waveform.numpy().astype(np.float64) * 32768, steps)
    assert (clip.id, clip.label, clip.sample_rate, clip.loaded) == ("a", "yes", 16000, "")


def test_eight_bits_are_on_the_grid_already(tmp_path: Path) -> None:
    clip = load(write_bytes(tmp_path / "a.wav", bytes([0, 127, 128, 255]), width=1))
    assert clip.waveform.tolist() == [-1.0, -0.0078125, 0.0, 0.9921875]
    assert clip.loaded == ""


def test_twenty_four_bits_are_rounded_to_even_and_clipped(tmp_path: Path) -> None:
    # In steps of 16 bits: 0.496, 0.5, 0.504, 1.5, 32767.996 and -32768.
    numbers = [127, 128, 129, 384, 8388607, -8388608]
    data = b"".join(number.to_bytes(3, "little", signed=True) for number in numbers)
    clip = load(write_bytes(tmp_path / "a.wav", data, width=3))
    assert (clip.waveform * 32768).tolist() == [0, 0, 1, 2, 32767, -32768]
    assert clip.loaded == "clipped 1 of 6 samples; rounded to 16 bits"


def test_stereo_at_44100_hz_keeps_frequency_and_level(tmp_path: Path) -> None:
    left = sine(1.0, 44100)
    soundfile.write(tmp_path / "a.wav", np.stack([0.5 * left, 0.25 * left], axis=1), 44100, subtype="PCM_16")
    clip = load(tmp_path / "a.wav")
    assert clip.waveform.shape == (16000,)
    assert clip.loaded == "mixed down from 2 channels; resampled from 44100 Hz; rounded to 16 bits"
    amplitude, rest = amplitude_and_rest(clip.waveform.numpy()[4000:12000].astype(np.float64), RATE, 1000.0)
    assert abs(20 * np.log10(amplitude / 0.375)) < 0.01
    assert rest < 3 / 32768


def test_stereo_mixes_to_the_mean(tmp_path: Path) -> None:
    data = np.array([[100, 300], [-8, 4]], dtype="<i2").tobytes()
    clip = load(write_bytes(tmp_path / "a.wav", data, width=2, channels=2))
    assert (clip.waveform * 32768).tolist() == [200, -2]
    assert clip.loaded == "mixed down from 2 channels"


def test_what_lies_above_the_new_band_is_gone(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 0.5 * sine(1.0, 44100, 12000.0), 44100, subtype="PCM_16")
    middle = load(tmp_path / "a.wav").waveform[4000:12000]
    assert float(middle.abs().max()) <= 2 / 32768


def test_resampling_overshoot_is_clipped_and_said(tmp_path: Path) -> None:
    square = np.sign(sine(0.5, 44100, 441.0) + 1e-9)
    soundfile.write(tmp_path / "a.wav", square, 44100, subtype="PCM_16")
    clip = load(tmp_path / "a.wav")
    assert float(clip.waveform.max()) == 32767 / 32768
    assert float(clip.waveform.min()) == -1.0
    assert "resampled from 44100 Hz; clipped " in clip.loaded
    collate([clip])


def test_a_piece_counts_in_samples_of_the_file(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "a.wav", list(range(100)))
    clip = load_clip(path, RATE, id="a", label="", start=40, frames=3)
    assert (clip.waveform * 32768).tolist() == [40, 41, 42]
    late = load_clip(path, RATE, id="a", label="", start=98, frames=5)
    assert (late.waveform * 32768).tolist() == [98, 99]
    assert late.loaded == "2 of 5 samples could be read"


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_every_format_is_read(tmp_path: Path, suffix: str) -> None:
    soundfile.write(tmp_path / f"a.{suffix}", 0.5 * sine(1.0, RATE), RATE)
    clip = load(tmp_path / f"a.{suffix}")
    amplitude, _ = amplitude_and_rest(clip.waveform.numpy()[4000:12000].astype(np.float64), RATE, 1000.0)
    assert abs(20 * np.log10(amplitude / 0.5)) < 0.5


@given(st.lists(st.floats(-1.0, 1.0, width=32), min_size=1, max_size=50))
def test_every_float_lands_on_the_nearest_step(
    tmp_path_factory: pytest.TempPathFactory, values: list[float]
) -> None:
    path = tmp_path_factory.mktemp("float") / "a.wav"
    soundfile.write(path, np.array(values, dtype=np.float32), RATE, subtype="FLOAT")
    steps = load(path).waveform.double().numpy() * 32768
    np.testing.assert_array_equal(steps, np.round(steps))
    assert steps.max() <= 32767 and steps.min() >= -32768
    assert np.abs(steps - np.minimum(np.array(values) * 32768, 32767)).max() <= 0.5


def broken(folder: Path, kind: str) -> Path:
    path = folder / "bad.wav"
    if kind == "text":
        path.write_text("these are words, not sound")
    elif kind == "no bytes":
        path.touch()
    elif kind == "zero length":
        write_steps(path, [])
    elif kind == "folder":
        path.mkdir()
    elif kind == "one sample":
        write_steps(path, [5], rate=48000)
    elif kind == "truncated":
        path = folder / "bad.flac"
        soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, RATE), RATE)
        path.write_bytes(path.read_bytes()[:9000])
    elif kind != "missing":
        value = {"nan": np.nan, "infinity": np.inf, "16-bit scale": 20000.0}[kind]
        soundfile.write(path, np.array([0.0, value, 0.5]), RATE, subtype="FLOAT")
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "expected an audio file, got no such file; check the path"),
        ("folder", "expected an audio file, got a folder; check the path"),
        ("text", "got a file it rejects (Format not recognised); convert or drop it"),
        ("no bytes", "got a file it rejects (Format not recognised); convert or drop it"),
        ("truncated", "got a file it rejects (flac decoder lost sync); convert or drop it"),
        ("zero length", "expected sound, got a file of zero length"),
        ("one sample", "expected sound, got 1 samples, which leaves none at 16000 Hz"),
        ("nan", "expected finite samples, got NaN or infinity in 1 of 3"),
        ("infinity", "expected finite samples, got NaN or infinity in 1 of 3"),
        ("16-bit scale", "expected samples in [-1, 1], got a peak of 2e+04"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, kind: str, message: str) -> None:
    path = broken(tmp_path, kind)
    with pytest.raises(InputError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_rate_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="above 0 Hz, got 0"):
        load(write_steps(tmp_path / "a.wav", [1]), rate=0)


def corpus_of(sizes: dict[str, int]) -> Corpus:
    entries = [
        Entry(f"{label}/{number}", Path(f"{label}/{number}.wav"), label)
        for label, size in sizes.items()
        for number in range(size)
    ]
    return Corpus("made", tuple(entries))


def made_corpus(folder: Path, count: int) -> Corpus:
    """Clips 0, 1, 2, ... of 1, 2, 3, ... samples; all samples of clip n are n steps."""
    paths = [write_steps(folder / f"{number}.wav", [number] * (number + 1)) for number in range(count)]
    return Corpus("made", tuple(Entry(path.stem, path, "yes") for path in paths))


def test_a_corpus_needs_different_ids_and_at_least_one_clip() -> None:
    with pytest.raises(InputError, match=r"got 'a' for both x/a\.wav and y/a\.wav"):
        Corpus("made", (Entry("a", Path("x/a.wav"), "yes"), Entry("a", Path("y/a.wav"), "no")))
    with pytest.raises(InputError, match="at least one clip, got none"):
        Corpus("made", ())


def test_labels_are_sorted_and_different() -> None:
    corpus = corpus_of({"yes": 2, "no": 1})
    assert corpus.labels == ("no", "yes")
    assert [entry.id for entry in corpus] == ["yes/0", "yes/1", "no/0"]


def test_limit_balances_labels() -> None:
    corpus = corpus_of({"yes": 50, "no": 2, "up": 50}).limit(12, seed=3)
    assert Counter(entry.label for entry in corpus) == {"yes": 5, "no": 2, "up": 5}
    assert corpus.note == "12 of 102 clips, balanced over labels (seed 3)"


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=1),
    st.integers(1, 60),
    st.integers(0, 5),
)
def test_limit_is_balanced_nested_ordered_and_repeatable(
    sizes: dict[str, int], count: int, seed: int
) -> None:
    corpus = corpus_of(sizes)
    small, large = corpus.limit(count, seed), corpus.limit(count + 1, seed)
    assert len(small) == min(count, len(corpus))
    assert set(small.entries) <= set(large.entries)
    assert list(small.entries) == [entry for entry in corpus if entry in set(small.entries)]
    assert small == corpus.limit(count, seed)
    counts = Counter(entry.label for entry in small)
    unfinished = [counts[label] for label, size in sizes.items() if counts[label] < size]
    assert not unfinished or max(counts.values()) - min(unfinished) <= 1


def spoken(sizes: dict[tuple[str, str], int], text: str = "{speaker} {number}") -> Corpus:
    """So many sentences of each speaker in a language."""
    entries = [
        Entry(
            f"{speaker}-{language}-{number}",
            Path("a.wav"),
            text.format(speaker=speaker + language, number=number),
            facts={"speaker": speaker, "language": language},
        )
        for (speaker, language), size in sizes.items()
        for number in range(size)
    ]
    return Corpus("made", tuple(entries))


def test_limit_balances_speakers_where_labels_are_transcripts() -> None:
    sizes = {("ann", "en"): 50, ("ann", "es"): 20, ("bob", "en"): 1, ("cid", "en"): 50}
    few = spoken(sizes).limit(10, seed=1)
    counts = Counter(entry.id.rpartition("-")[0] for entry in few)
    assert counts == {"ann-en": 3, "ann-es": 3, "bob-en": 1, "cid-en": 3}
    assert few.note == "10 of 121 clips, balanced over speakers (seed 1)"
    assert set(few.entries) <= set(spoken(sizes).limit(11, seed=1).entries)


def test_limit_balances_classes_even_where_speakers_are_known() -> None:
    corpus = spoken({("ann", "en"): 8, ("bob", "en"): 2}, text="{speaker}").limit(4)
    assert Counter(entry.label for entry in corpus) == {"annen": 2, "boben": 2}
    assert corpus.note.endswith("balanced over labels (seed 0)")


def test_limit_draws_by_seed() -> None:
    corpus = corpus_of({"yes": 100})
    assert corpus.limit(10, seed=0).entries != corpus.limit(10, seed=1).entries
    assert corpus.limit(100) is corpus
    with pytest.raises(InputError, match="got 0"):
        corpus.limit(0)


def test_chunks_stream_and_go_on_past_a_bad_clip(tmp_path: Path) -> None:
    corpus = made_corpus(tmp_path, 5)
    (tmp_path / "1.wav").write_text("no sound")
    chunks = corpus.chunks(2, RATE)
    clips, failures = next(chunks)
    assert [clip.id for clip in clips] == ["0"]
    assert [(one.id, one.label) for one in failures] == [("1", "yes")]
    assert failures[0].reason.startswith(f"{tmp_path / '1.wav'}: expected audio")
    # The next chunk is not in memory yet: a file that goes away now is missed.
    (tmp_path / "3.wav").unlink()
    later = list(chunks)
    assert [[clip.id for clip in chunk.clips] for chunk in later] == [["2"], ["4"]]
    assert "no such file" in later[0].failures[0].reason
    assert [len(chunk.clips) for chunk in corpus.chunks(9, RATE)] == [3]
    with pytest.raises(InputError, match="got 0"):
        next(corpus.chunks(0, RATE))


def test_collate_pads_with_zeros(tmp_path: Path) -> None:
    corpus = made_corpus(tmp_path, 3)
    batch = collate([corpus.load(entry, RATE) for entry in corpus])
    assert (batch.waveforms * 32768).tolist() == [[0, 0, 0], [1, 1, 0], [2, 2, 2]]
    assert batch.lengths.tolist() == [1, 2, 3]
    assert (batch.ids, batch.sample_rate) == (("0", "1", "2"), 16000)


def test_collate_wants_one_rate(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "a.wav", [1] * 100)
    clips = [load_clip(path, rate, id=str(rate), label="") for rate in (8000, 16000)]
    with pytest.raises(InputError, match=r"one sample rate, got \[8000, 16000\]"):
        collate(clips)
    with pytest.raises(InputError, match="got no clips"):
        collate([])
