"""The synthetic proxy: who is in it, how utterances are cut, and that it says what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.data.clinical_proxy import proxy
from sottovoce.data.folds import speaker_folds, speaker_labels
from sottovoce.data.load import Clip
from sottovoce.data.pack import load_pack, save_pack
from sottovoce.data.pack import pack as pack_corpus
from sottovoce.errors import InputError

RATE = 16_000
ROOT = Path(__file__).parents[2]


def on_16_bits(clip: Clip) -> Clip:
    return replace(clip, waveform=(clip.waveform * 32768).round().clamp(-32768, 32767) / 32768)


def hum(seconds: float, f0_hz: float) -> np.ndarray:
    """Something with a voice in it: a pulse in each period, twice a second for a quarter of a second."""
    samples = np.zeros(round(seconds * RATE))
    samples[:: round(RATE / f0_hz)] = 0.5
    return samples * (np.arange(len(samples)) % (RATE // 2) < RATE // 4)


def record(path: Path, seconds: float, f0_hz: float = 120) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, hum(seconds, f0_hz), RATE, subtype="PCM_16")
    return path.name


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six speakers: one of two long clips, four of eight clips of 1 s, and one of too little speech."""
    rows = ["path,label,speaker"]
    rows += [f"{record(tmp_path / f'long{n}.wav', 9.0)},text,long" for n in range(2)]
    for number in range(4):
        rows += [
            f"{record(tmp_path / f's{number}_{n}.wav', 1.0, 100 + 30 * number)},text,s{number}"
            for n in range(8)
        ]
    rows += [f"{record(tmp_path / f'few{n}.wav', 1.0)},text,few" for n in range(3)]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    return tmp_path / "list.csv"


def test_speakers_and_utterances(table: Path) -> None:
    """9 s are cut into three of 3 s; 1 s clips are joined by twos; 3 s in all are too little."""
    corpus = proxy(f"csv:{table}")
    counts = Counter(entry.facts["speaker"] for entry in corpus)
    assert counts == {"list/long": 6, "list/s0": 4, "list/s1": 4, "list/s2": 4, "list/s3": 4}
    assert sorted(Counter(speaker_labels(corpus).values()).items()) == [("control", 3), ("pathological", 2)]
    for entry in corpus:
        assert ("severity" in entry.facts) == (entry.label == "pathological")
        assert 0.5 <= float(entry.facts.get("severity", "0.5")) <= 1.0
    assert [entry.id for entry in corpus if entry.facts["speaker"] == "list/s0"] == [
        "list/s0/00", "list/s0/01", "list/s0/02", "list/s0/03"
    ]  # fmt: skip


def test_it_says_that_it_is_a_proxy(table: Path) -> None:
    note = proxy(f"csv:{table}").note
    assert note.startswith("SYNTHETIC PROXY, no patients: 5 speakers (5 of list), half of them")
    assert "so few voices prove nothing" in note and "severity 0.5 to 1" in note


def test_lengths_and_repeatability(table: Path) -> None:
    """Healthy readers are up to a fifth slower or faster with their pauses; patients slower in any case."""
    corpus = proxy(f"csv:{table}")
    for entry in corpus.entries[::4]:
        clip, again = corpus.load(entry, RATE), proxy(f"csv:{table}").load(entry, RATE)
        assert (clip.waveform == again.waveform).all()
        seconds = len(clip.waveform) / RATE / (3.0 if "long" in entry.id else 2.0)
        assert 0.75 < seconds < 1.35 if entry.label == "control" else 1.0 < seconds < 3.2
        assert clip.loaded == ""
    other = proxy(f"csv:{table}", seed=1)
    pairs = zip(corpus.entries, other.entries, strict=True)
    assert any((corpus.load(a, 8000).waveform.shape != other.load(b, 8000).waveform.shape) for a, b in pairs)


def test_controls_go_through_the_synthesis_too(table: Path) -> None:
    corpus = proxy(f"csv:{table}")
    control = next(entry for entry in corpus if entry.label == "control" and "long" not in entry.id)
    speaker = control.facts["speaker"].partition("/")[2]
    own = np.concatenate([soundfile.read(table.parent / f"{speaker}_{n}.wav")[0] for n in range(2)])
    made = corpus.load(control, RATE).waveform.numpy()
    shared = min(len(own), len(made))
    assert np.abs(own[:shared] - made[:shared]).max() > 0.05


def test_halves_within_each_corpus(tmp_path: Path, table: Path) -> None:
    for number in range(4):
        for word in range(5):
            record(tmp_path / "words" / f"w{word}" / f"0123456{number}_nohash_{word}.wav", 1.0)
    corpus = proxy(f"csv:{table}+folder:{tmp_path / 'words'}")
    halves = Counter((name.partition("/")[0], label) for name, label in speaker_labels(corpus).items())
    assert halves[("words", "control")] == halves[("words", "pathological")] == 2
    assert abs(halves[("list", "control")] - halves[("list", "pathological")]) == 1


def test_a_limit_on_speakers(table: Path) -> None:
    few = proxy(f"csv:{table}", speakers=2)
    assert sorted(speaker_labels(few).values()) == ["control", "pathological"]
    with pytest.raises(InputError, match="expected 2 speakers or more, one of each label, got 1"):
        proxy(f"csv:{table}", speakers=1)


def test_what_cannot_be_a_proxy(tmp_path: Path) -> None:
    record(tmp_path / "a" / "one.wav", 5.0)
    with pytest.raises(InputError, match="expected clips that name their speaker, got none"):
        proxy(f"folder:{tmp_path}")
    (tmp_path / "list.csv").write_text("path,label,speaker\na/one.wav,text,anna\n")
    with pytest.raises(InputError, match=r"expected 2 speakers or more with 4 s of speech, got 1"):
        proxy(f"csv:{tmp_path / 'list.csv'}")


def test_pairs_share_a_voice_and_a_split(table: Path) -> None:
    corpus = proxy(f"csv:{table}", paired=True)
    labels = speaker_labels(corpus)
    assert len(labels) == 10 and labels["list/s0/control"] == "control"
    assert labels["list/s0/pathological"] == "pathological"
    assert corpus.note.startswith(
        "SYNTHETIC PROXY, no patients: 10 speakers (10 of list), who are 5 voices twice, never in two splits"
    )
    for split in speaker_folds(corpus, 5):
        assert sorted(labels[name] for name in split.test) == ["control", "pathological"]
        assert len({name.rpartition("/")[0] for name in split.test}) == 1


def test_the_shipped_speech() -> None:
    """Eleven voices, each of them twice."""
    corpus = proxy()
    labels = speaker_labels(corpus)
    assert {"prompts/Allison Smith/control", "strings/flite rms/pathological"} <= set(labels)
    assert Counter(labels.values()) == {"control": 11, "pathological": 11}
    assert "most voices of the shipped speech are synthetic" in corpus.note
    assert "so few voices prove nothing" in corpus.note
    clip = corpus.load(corpus.entries[0], RATE)
    assert np.isfinite(clip.waveform.numpy()).all() and 1.5 < len(clip.waveform) / RATE < 8


@pytest.mark.slow
def test_a_pack_of_it(tmp_path: Path, table: Path) -> None:
    """0.3 MB of 16-bit samples hold about 9 s."""
    out = tmp_path / "out.npz"
    command = [
        sys.executable,
        ROOT / "tools/pack_pathology.py",
        out,
        f"proxy:csv:{table}",
        "--megabytes",
        "0.3",
    ]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    pack = load_pack(out)
    assert 3 <= len(pack) <= 5 and len(pack.samples) <= 150_000
    assert len(set(pack.speakers.tolist())) == len(pack)
    assert set(pack.labels.tolist()) == {"control", "pathological"} and set(pack.split.tolist()) == {""}


def test_a_pack_keeps_the_voices_of_pairs_together(tmp_path: Path, table: Path) -> None:
    corpus = proxy(f"csv:{table}", paired=True)
    some = [entry for entry in corpus if entry.id.endswith("/00")]
    save_pack(tmp_path / "pairs.npz", [on_16_bits(corpus.load(entry, RATE)) for entry in some])
    packed = pack_corpus(str(tmp_path / "pairs.npz"))
    assert [entry.facts["voice"] for entry in packed] == [
        voice for voice in ("list/long", "list/s0", "list/s1", "list/s2", "list/s3") for _ in range(2)
    ]
    for split in speaker_folds(packed, 5):
        assert len({name.rpartition("/")[0] for name in split.test}) == 1


def test_real_speakers() -> None:
    root = Path(os.environ.get("SOTTOVOCE_DATA", ROOT.parent / "shared" / "data"))
    if not (root / "librispeech").is_dir() or not (root / "speech_commands").is_dir():
        pytest.skip("needs librispeech and speech_commands in the folder named by SOTTOVOCE_DATA")
    corpus = proxy(
        f"librispeech:{root / 'librispeech'}+speechcommands:{root / 'speech_commands'}", speakers=60
    )
    labels = speaker_labels(corpus)
    assert len(labels) == 60 and Counter(labels.values()) == {"control": 30, "pathological": 30}
    assert sum(name.startswith("librispeech/") for name in labels) == 18
