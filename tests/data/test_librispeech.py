"""LibriSpeech in its real layout, and as a table of transcripts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.data.librispeech import librispeech
from sottovoce.errors import InputError


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(400, 100, dtype=np.int16), 16000)
    return path


def write_chapter(subset: Path, speaker: str, chapter: str, *texts: str) -> None:
    """SPEAKER/CHAPTER/SPEAKER-CHAPTER-0000.flac and so on, with the chapter's transcripts beside them."""
    place = subset / speaker / chapter
    lines = []
    for number, text in enumerate(texts):
        id = f"{speaker}-{chapter}-{number:04d}"
        write(place / f"{id}.flac")
        lines.append(f"{id} {text}\n")
    (place / f"{speaker}-{chapter}.trans.txt").write_text("".join(lines))


@pytest.fixture
def corpus_root(tmp_path: Path) -> Path:
    root = tmp_path / "LibriSpeech"
    write_chapter(root / "dev-clean", "84", "121123", "GO DO YOU HEAR", "BUT IN LESS THAN FIVE MINUTES")
    write_chapter(root / "dev-clean", "174", "50561", "FORGOTTEN TOO THE NAME OF GILLIAN")
    write_chapter(root / "test-clean", "61", "70968", "HE BEGAN A CONFUSED COMPLAINT")
    (root / "SPEAKERS.TXT").write_text("; speakers\n")
    return root


def test_a_subset(corpus_root: Path) -> None:
    corpus = librispeech(str(corpus_root / "dev-clean"))
    assert (corpus.name, corpus.note) == ("librispeech-dev-clean", "")
    assert [(entry.id, entry.label, dict(entry.facts)) for entry in corpus] == [
        ("174-50561-0000", "FORGOTTEN TOO THE NAME OF GILLIAN", {"speaker": "174", "language": "en"}),
        ("84-121123-0000", "GO DO YOU HEAR", {"speaker": "84", "language": "en"}),
        ("84-121123-0001", "BUT IN LESS THAN FIVE MINUTES", {"speaker": "84", "language": "en"}),
    ]
    clip = corpus.load(corpus.entries[1], 16000)
    assert clip.waveform.tolist() == [100 / 32768] * 400 and clip.facts["speaker"] == "84"


def test_every_subset_of_the_download(corpus_root: Path) -> None:
    corpus = librispeech(str(corpus_root))
    assert Counter(entry.facts["speaker"] for entry in corpus) == {"84": 2, "174": 1, "61": 1}
    assert (corpus.name, corpus.note) == ("librispeech", "subsets dev-clean, test-clean")
    assert librispeech(str(corpus_root.parent)) == corpus


def test_transcripts_without_a_file_are_counted(corpus_root: Path) -> None:
    (corpus_root / "dev-clean" / "84" / "121123" / "84-121123-0000.flac").unlink()
    corpus = librispeech(str(corpus_root / "dev-clean"))
    assert len(corpus) == 2 and corpus.note == "1 transcripts without a file"


def test_a_transcript_without_words_and_a_broken_file(corpus_root: Path) -> None:
    chapter = corpus_root / "dev-clean" / "84" / "121123"
    (chapter / "84-121123-0001.flac").write_text("no sound")
    with pytest.raises(InputError, match=r"line 2: expected a FLAC file .*84-121123-0001"):
        librispeech(str(corpus_root))
    (chapter / "84-121123.trans.txt").write_text("84-121123-0000\n")
    with pytest.raises(InputError, match=r"line 1: expected an id and a transcript, got '84-121123-0000'"):
        librispeech(str(corpus_root))


def test_what_is_not_librispeech(tmp_path: Path) -> None:
    write(tmp_path / "84" / "84-121123-0000.flac")
    with pytest.raises(InputError, match=r"expected LibriSpeech .* got 1 folder; name the unpacked"):
        librispeech(str(tmp_path))
    with pytest.raises(InputError, match="no such folder"):
        librispeech(str(tmp_path / "gone"))


def test_a_table_of_transcripts(tmp_path: Path) -> None:
    write(tmp_path / "84" / "a.flac")
    write(tmp_path / "61" / "b.flac")
    lines = '84/a.flac\t84\tF\t0.03\tSAY "GO"\n61/b.flac\t\tM\t0.03\tSTAY\n'
    (tmp_path / "transcripts.tsv").write_text(lines)
    corpus = librispeech(str(tmp_path))
    assert [(entry.id, entry.label, dict(entry.facts)) for entry in corpus] == [
        ("84/a", 'SAY "GO"', {"speaker": "84", "language": "en"}),
        ("61/b", "STAY", {"language": "en"}),
    ]
    (tmp_path / "transcripts.tsv").write_text("path\tspeaker\tsex\tseconds\ttext\n" + lines)
    assert librispeech(str(tmp_path)) == corpus


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.flac\t84\tF\tSTAY", "line 2: expected path, speaker, sex, seconds, text, separated by tabs"),
        ("a.flac\t84\tF\t0.03\t ", "line 2: .*an empty path or text"),
        ("a.flac\t84\tF\t0.03\tSTAY", "got 'a' in lines 1 and 2"),
        ("gone.flac\t84\tF\t0.03\tSTAY", r"no such file at 1 of 2 paths .*folder of transcripts\.tsv"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, line: str, message: str) -> None:
    write(tmp_path / "a.flac")
    (tmp_path / "transcripts.tsv").write_text(f"a.flac\t84\tF\t0.03\tGO\n{line}\n")
    with pytest.raises(InputError, match=message):
        librispeech(str(tmp_path))


def test_real_utterances(librispeech: Path) -> None:
    from sottovoce.data.librispeech import librispeech as read

    corpus = read(str(librispeech))
    assert len(corpus) == 122
    assert corpus.entries[0].label == "THIS STORY HOWEVER I REGARD WITH A GREAT DEAL OF DOUBT"
    voices = Counter(entry.facts["speaker"] for entry in corpus.limit(36))
    assert len(voices) == 18 and set(voices.values()) == {2}
    clip = corpus.load(corpus.entries[0], 16000)
    assert clip.loaded == "" and len(clip.waveform) / 16000 == pytest.approx(4.14, abs=0.01)
