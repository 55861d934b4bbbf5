"""PC-GITA and TORGO in folders made as they are handed out, and labels by other names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.data.clinical_corpora import clinical, pcgita, torgo
from sottovoce.data.corpora import table
from sottovoce.data.load import Corpus
from sottovoce.errors import InputError


def record(path: Path, rate: int = 44_100) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(4410, 200, dtype=np.int16), rate)
    return path


@pytest.fixture
def gita(tmp_path: Path) -> Path:
    root = tmp_path / "PC-GITA"
    record(root / "sentences/laura/sin_normalizar/HC/AVPEPUDEAC0001_laura.wav")
    record(root / "sentences/laura/sin_normalizar/PD/AVPEPUDEA0005_laura.wav")
    record(root / "sentences/laura/normalizado/PD/AVPEPUDEA0005_laura.wav")
    record(root / "sentences2/1_viste/non-normalized/hc/AVPEPUDEAC0001_viste.wav")
    record(root / "read_text/ayerfuialmedico/sin_normalizar/pd/AVPEPUDEA0005_readtext.wav")
    record(root / "Vowels/Control/A/AVPEPUDEAC0001a1.wav")
    record(root / "Vowels/Patologicas/A/AVPEPUDEA0005a1.wav")
    record(root / "monologue/sin_normalizar/pd/AVPEPUDEA0005-Monologo-NR.wav")
    record(root / "calibration.wav")
    return root


def told(corpus: Corpus) -> list[tuple[str, str, str]]:
    return [(entry.id, entry.label, entry.facts["speaker"]) for entry in corpus]


def test_pcgita_takes_what_the_paper_takes(gita: Path) -> None:
    corpus = pcgita(str(gita))
    assert told(corpus) == [
        ("AVPEPUDEA0005/read_text/ayerfuialmedico/AVPEPUDEA0005_readtext", "pathological", "AVPEPUDEA0005"),
        ("AVPEPUDEAC0001/sentences/laura/AVPEPUDEAC0001_laura", "control", "AVPEPUDEAC0001"),
        ("AVPEPUDEA0005/sentences/laura/AVPEPUDEA0005_laura", "pathological", "AVPEPUDEA0005"),
        ("AVPEPUDEAC0001/sentences2/1_viste/AVPEPUDEAC0001_viste", "control", "AVPEPUDEAC0001"),
    ]
    assert corpus.entries[2].path.parts[-3] == "sin_normalizar"
    assert corpus.note == (
        "tasks readtext, sentences, sentences2; 1 scaled copies left out; "
        "1 recordings of nobody in PC-GITA left out"
    )
    clip = corpus.load(corpus.entries[0], 16_000)
    assert len(clip.waveform) == 1600 and clip.loaded.startswith("resampled from 44100 Hz")
    assert dict(clip.facts) == {"speaker": "AVPEPUDEA0005", "language": "es", "task": "readtext"}


def test_pcgita_by_task(gita: Path) -> None:
    assert told(pcgita(f"{gita}#monologue")) == [
        ("AVPEPUDEA0005/monologue/AVPEPUDEA0005-Monologo-NR", "pathological", "AVPEPUDEA0005")
    ]
    assert [label for _, label, _ in told(pcgita(f"{gita}#vowels"))] == ["control", "pathological"]
    assert len(pcgita(f"{gita}#all")) == 7
    with pytest.raises(InputError, match=r"expected the tasks ddk, got monologue, readtext, sentences, sent"):
        pcgita(f"{gita}#ddk")


def test_pcgita_with_scaled_recordings_only(tmp_path: Path) -> None:
    record(tmp_path / "Read Text/normalized/hc/AVPEPUDEAC0003readtext.wav")
    assert told(pcgita(str(tmp_path))) == [
        ("AVPEPUDEAC0003/Read Text/AVPEPUDEAC0003readtext", "control", "AVPEPUDEAC0003")
    ]


def test_pcgita_inside_another_folder(tmp_path: Path) -> None:
    record(tmp_path / "PC_GITA_44100/sentences/hc/avpepudeac0002_omar.wav")
    assert told(pcgita(str(tmp_path))) == [
        ("AVPEPUDEAC0002/PC_GITA_44100/sentences/avpepudeac0002_omar", "control", "AVPEPUDEAC0002")
    ]


def test_pcgita_whose_folders_contradict_its_names(gita: Path) -> None:
    record(gita / "sentences/omar/sin_normalizar/HC/AVPEPUDEA0007_omar.wav")
    with pytest.raises(InputError, match="a pathological speaker is in a folder labelled con"):
        pcgita(str(gita))


def test_not_pcgita(tmp_path: Path) -> None:
    record(tmp_path / "a/one.wav")
    with pytest.raises(InputError, match=r"expected PC-GITA \(.*got 1 folder and 1 other recordings"):
        pcgita(str(tmp_path))
    with pytest.raises(InputError, match="got no such folder"):
        pcgita(str(tmp_path / "absent"))


def prompt(session: Path, number: str, text: str) -> None:
    (session / "prompts").mkdir(parents=True, exist_ok=True)
    (session / "prompts" / f"{number}.txt").write_text(text)


@pytest.fixture
def torgo_root(tmp_path: Path) -> Path:
    root = tmp_path / "TORGO"
    for person, session, microphone in (
        ("F01", "Session1", "wav_headMic"),
        ("FC01", "Session1", "wav_arrayMic"),
        ("M01", "Session2_3", "wav_headMic"),
        ("MC04", "Session2", "wav_headMic"),
    ):
        record(root / person / session / microphone / "0001.wav", 16_000)
        prompt(root / person / session, "0001", "stick\n")
    first = root / "F01/Session1"
    record(first / "wav_arrayMic/0001.wav", 16_000)
    record(first / "wav_headMic/0002.wav", 16_000)
    prompt(first, "0002", "[relax your mouth in its normal position]")
    record(first / "wav_headMic/0003.wav", 16_000)
    (first / "prompts/0003.txt").write_bytes(b"\xff\xfe\xfa")
    (first / "wav_headMic/0004.wav").write_bytes(b"RIFF")
    prompt(first, "0004", "tear")
    (root / "F01/Session2").mkdir()
    (root / "F01/Notes").mkdir()
    return root


def test_torgo(torgo_root: Path) -> None:
    corpus = torgo(str(torgo_root))
    assert told(corpus) == [
        ("F01/Session1/0001", "pathological", "F01"),
        ("F01/Session1/0003", "pathological", "F01"),
        ("FC01/Session1/0001", "control", "FC01"),
        ("M01/Session2_3/0001", "pathological", "M01"),
        ("MC04/Session2/0001", "control", "MC04"),
    ]
    facts = [dict(entry.facts) for entry in corpus]
    assert facts[0] == {"speaker": "F01", "language": "en", "session": "Session1", "text": "stick"}
    assert facts[1] == {"speaker": "F01", "language": "en", "session": "Session1"}
    assert [entry.path.parent.name for entry in corpus][::2] == ["wav_headMic", "wav_arrayMic", "wav_headMic"]
    for part in (
        "1 recordings without speech left out",
        "1 recordings without a prompt that can be read",
        "1 empty recordings left out",
        "1 sessions without recordings",
        "1 sessions by the array microphone",
        "recorded in different noise",
    ):
        assert part in corpus.note
    assert len(corpus.load(corpus.entries[0], 16_000).waveform) == 4410


def test_torgo_in_its_four_archives(torgo_root: Path, tmp_path: Path) -> None:
    """Unpacked, F.tar.bz2 and so on give folders of speakers each."""
    for person in ("F01", "FC01", "M01", "MC04"):
        place = tmp_path / "archives" / person.rstrip("0123456789")
        place.mkdir(parents=True, exist_ok=True)
        (torgo_root / person).rename(place / person)
    assert [entry.id for entry in torgo(str(tmp_path / "archives"))] == [
        "F01/Session1/0001", "F01/Session1/0003", "FC01/Session1/0001", "M01/Session2_3/0001",
        "MC04/Session2/0001",
    ]  # fmt: skip


def test_not_torgo(tmp_path: Path) -> None:
    record(tmp_path / "Anna/one.wav")
    with pytest.raises(InputError, match=r"expected TORGO \(.*got 1 folder;"):
        torgo(str(tmp_path))
    (tmp_path / "F01").mkdir()
    with pytest.raises(InputError, match="got 1 such folders without recordings"):
        torgo(str(tmp_path))


def test_labels_by_other_names(tmp_path: Path) -> None:
    record(tmp_path / "a.wav")
    record(tmp_path / "b.wav")
    (tmp_path / "list.csv").write_text(
        "path,speaker,label,split\na.wav,s1,HC,train\nb.wav,s2,Dysarthric,test\n"
    )
    corpus = clinical(table(str(tmp_path / "list.csv")))
    assert [entry.label for entry in corpus] == ["control", "pathological"]
    assert [dict(entry.facts) for entry in corpus] == [
        {"speaker": "s1", "split": "train"},
        {"speaker": "s2", "split": "test"},
    ]
    (tmp_path / "list.csv").write_text("path,speaker,label\na.wav,s1,left\n")
    with pytest.raises(InputError, match="expected the label control or pathological, got 'left'"):
        clinical(table(str(tmp_path / "list.csv")))
