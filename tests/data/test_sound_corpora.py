"""AudioMNIST, UrbanSound8K and ESC-50 in their real layouts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.data.corpora import open_corpus
from sottovoce.data.sound_corpora import audiomnist, esc50, urbansound8k
from sottovoce.errors import InputError, UnknownName

URBAN = "slice_file_name,fsID,start,end,salience,fold,classID,class\n"
URBAN_ROWS = (
    "100032-3-0-0.wav,100032,0.0,0.317551,1,5,3,dog_bark\n"
    "100263-2-0-117.wav,100263,58.5,62.5,1,5,2,children_playing\n"
    "102305-6-0-0.wav,102305,0.0,2.6,1,10,6,gun_shot\n"
)
ESC = "filename,fold,target,category,esc10,src_file,take\n"
ESC_ROWS = (
    "1-100032-A-0.wav,1,0,dog,True,100032,A\n"
    "1-137-A-32.wav,1,32,keyboard_typing,False,137,A\n"
    "5-9032-A-0.wav,5,0,dog,True,9032,A\n"
)


def write(path: Path, samples: np.ndarray | None = None, rate: int = 16_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sound = np.full(800, 100) if samples is None else samples
    soundfile.write(path, sound.astype(np.int16), rate)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Speakers 01 and 03, whom the model knows, and 02, whom it does not: takes 0 to 7 of the digit 5."""
    for speaker in ("01", "02", "03"):
        for take in range(8):
            write(tmp_path / "data" / speaker / f"5_{speaker}_{take}.wav", rate=48_000)
    (tmp_path / "data" / "audioMNIST_meta.txt").write_text("{}")
    return tmp_path


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    root = tmp_path / "splits"
    for split, takes in (("train", (0, 10, 11, 2)), ("valid", (3, 4)), ("test", (7, 40))):
        for take in takes:
            write(root / split / "60" / f"9_{take}.flac")
    write(root / "test" / "02" / "9_1.flac")
    return root


@pytest.fixture
def urban(tmp_path: Path) -> Path:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "UrbanSound8K.csv").write_text(URBAN + URBAN_ROWS)
    for fold, name in ((5, "100032-3-0-0"), (5, "100263-2-0-117"), (10, "102305-6-0-0")):
        write(tmp_path / "audio" / f"fold{fold}" / f"{name}.wav", rate=44_100)
    return tmp_path


@pytest.fixture
def esc(tmp_path: Path) -> Path:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "esc50.csv").write_text(ESC + ESC_ROWS)
    for name in ("1-100032-A-0", "1-137-A-32", "5-9032-A-0"):
        write(tmp_path / "audio" / f"{name}.wav", rate=44_100)
    return tmp_path


@pytest.mark.parametrize(
    ("split", "takes"), [("train", [0, 1, 4, 5]), ("valid", [2, 6]), ("test", [3, 7]), ("", [3, 7])]
)
def test_takes_of_the_original_are_shared_out(original: Path, split: str, takes: list[int]) -> None:
    corpus = audiomnist(f"{original}#{split}" if split else str(original))
    assert [entry.id for entry in corpus] == [
        f"{speaker}/5_{speaker}_{take}" for speaker in ("01", "03") for take in takes
    ]
    assert corpus.labels == ("01", "03")
    assert corpus.name == f"audiomnist-{split or 'test'}"
    assert "of every four takes two are train, one valid, one test" in corpus.note


def test_folders_of_splits(splits: Path) -> None:
    corpus = audiomnist(f"{splits}#train")
    assert [entry.id for entry in corpus] == ["60/9_0", "60/9_10", "60/9_11", "60/9_2"]
    assert {(entry.label, entry.facts["speaker"]) for entry in corpus} == {("60", "60")}
    assert "takes" not in corpus.note
    # Speaker 02 is not among the forty; a split may be named by its folder too.
    test = [entry.id for entry in audiomnist(str(splits))]
    assert test == ["60/9_40", "60/9_7"] == [entry.id for entry in audiomnist(str(splits / "test"))]
    assert audiomnist(str(splits / "valid")).name == "audiomnist-valid"
    assert open_corpus(f"audiomnist:{splits}#valid").name == "audiomnist-valid"


def test_clips_get_one_peak(tmp_path: Path) -> None:
    write(tmp_path / "test" / "01" / "0_1.flac", np.array([0, 100, -200, 50] * 200))
    corpus = audiomnist(str(tmp_path))
    clip = corpus.load(corpus.entries[0], 16_000)
    # 0.9 x 32768 = 29491.2 for the largest, half and a quarter of it for the others
    assert (clip.waveform[:4] * 32768).tolist() == [0, 14_746, -29_491, 7_373]
    assert clip.loaded == "scaled by 147.5 to a peak of 0.9; rounded to 16 bits"


def test_silence_keeps_its_level_and_both_channels_count(tmp_path: Path) -> None:
    write(tmp_path / "test" / "01" / "0_1.flac", np.zeros(400))
    write(tmp_path / "test" / "01" / "0_2.wav", np.tile([[3_000, 1_000]], (400, 1)))
    corpus = audiomnist(str(tmp_path))
    silent, stereo = (corpus.load(entry, 16_000) for entry in corpus)
    assert not silent.waveform.any() and silent.loaded == ""
    # The mean of the channels is 2000 of 32768 and becomes 0.9.
    assert set((stereo.waveform * 32768).tolist()) == {29_491}


def test_folders_that_are_not_audiomnist(tmp_path: Path, splits: Path) -> None:
    with pytest.raises(
        InputError, match=r"not part of sottovoce; get them from github\.com/soerenab/AudioMNIST"
    ):
        open_corpus("audiomnist")
    with pytest.raises(UnknownName, match=r"unknown split 'tests': did you mean 'test'\?"):
        audiomnist(f"{splits}#tests")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"expected AudioMNIST .* got nothing"):
        audiomnist(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="expected a folder train or SPEAKER"):
        audiomnist(f"{splits / 'test'}#train")
    with pytest.raises(InputError, match="expected a folder of clips, got no such folder"):
        audiomnist(f"{tmp_path / 'nowhere'}#test")


def test_a_number_sign_may_be_part_of_a_name(splits: Path) -> None:
    moved = splits.rename(splits.parent / "take#2")
    assert len(audiomnist(str(moved))) == 2
    assert len(audiomnist(f"{moved}#train")) == 4


def test_urbansound8k(urban: Path) -> None:
    corpus = urbansound8k(str(urban))
    assert [(entry.id, entry.label) for entry in corpus] == [
        ("100032-3-0-0", "dog_bark"),
        ("100263-2-0-117", "children_playing"),
        ("102305-6-0-0", "gun_shot"),
    ]
    assert corpus.entries[2].path == urban / "audio" / "fold10" / "102305-6-0-0.wav"
    assert corpus.note == "2 folds; each clip scaled to a peak of 0.9"
    one = open_corpus(f"urbansound8k:{urban}#10")
    assert (one.name, [entry.label for entry in one]) == ("urbansound8k-fold10", ["gun_shot"])
    assert one.load(one.entries[0], 16_000).sample_rate == 16_000


def test_esc50(esc: Path) -> None:
    corpus = esc50(str(esc))
    assert Counter(entry.label for entry in corpus) == {"dog": 2, "keyboard_typing": 1}
    fold = open_corpus(f"esc50:{esc}#1")
    assert [entry.id for entry in fold] == ["1-100032-A-0", "1-137-A-32"]
    assert (fold.name, fold.note) == ("esc50-fold1", "fold 1; each clip scaled to a peak of 0.9")


def test_what_is_wrong_with_a_download(urban: Path, esc: Path) -> None:
    with pytest.raises(UnknownName, match="unknown fold of urbansound8k '11'"):
        urbansound8k(f"{urban}#11")
    with pytest.raises(InputError, match=r"expected metadata/UrbanSound8K\.csv in it"):
        urbansound8k(str(urban / "audio"))
    (esc / "audio" / "5-9032-A-0.wav").unlink()
    with pytest.raises(InputError, match=r"no such file at 1 of 3 paths \(.*5-9032-A-0\.wav"):
        esc50(str(esc))
    table = esc / "meta" / "esc50.csv"
    table.write_text(ESC + "1-100032-A-0.wav,1,0,,True,100032,A\n")
    with pytest.raises(InputError, match="line 2: expected filename, category, fold, got an empty one"):
        esc50(str(esc))
    table.write_text("filename,category\n")
    with pytest.raises(InputError, match="got no fold"):
        esc50(str(esc))


def test_the_recordings_beside_the_repository() -> None:
    from os import environ

    root = Path(environ.get("SOTTOVOCE_DATA", Path(__file__).parents[3] / "shared" / "data")) / "audiomnist"
    if not root.is_dir():
        pytest.skip("needs audiomnist in the folder named by SOTTOVOCE_DATA")
    counts = {split: len(audiomnist(f"{root}#{split}")) for split in ("train", "valid", "test")}
    assert counts == {"train": 1_600, "valid": 800, "test": 800}
    assert len(audiomnist(str(root)).labels) == 40
