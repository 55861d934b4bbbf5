from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce import registry
from sottovoce.data.corpora import folder, open_corpus, table
from sottovoce.data.embedded import embedded
from sottovoce.data.load import Corpus
from sottovoce.data.speech_commands import speech_commands
from sottovoce.errors import InputError, UnknownName

RATE = 16000
TEN = {"yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"}


def write(path: Path, steps: int = 100, samples: int = 400) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(samples, steps, dtype=np.int16), RATE)
    return path


def ids(corpus: Corpus) -> list[str]:
    return [entry.id for entry in corpus]


def labels(corpus: Corpus) -> dict[str, str]:
    return {entry.id: entry.label for entry in corpus}


# Folders


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    for name in ("yes/b.wav", "yes/a.FLAC", "no/c.ogg", "no/d.mp3", "no/.hidden.wav", ".git/x.wav"):
        write(tmp_path / name)
    corpus = folder(str(tmp_path))
    assert labels(corpus) == {"no/c": "no", "no/d": "no", "yes/a": "yes", "yes/b": "yes"}
    assert ids(corpus) == ["no/c", "no/d", "yes/a", "yes/b"]
    assert (corpus.name, corpus.note) == (tmp_path.name, "")
    assert corpus.load(corpus.entries[3], RATE).waveform.tolist() == [100 / 32768] * 400


def test_a_folder_says_what_it_leaves_out(tmp_path: Path) -> None:
    write(tmp_path / "yes" / "a.wav")
    write(tmp_path / "stray.wav")
    (tmp_path / "yes" / "a.txt").write_text("yes")
    assert (
        folder(str(tmp_path)).note == "left out 2 files that are not clips of a class (stray.wav, yes/a.txt)"
    )


def test_two_suffixes_of_one_name_clash(tmp_path: Path) -> None:
    write(tmp_path / "yes" / "a.wav")
    write(tmp_path / "yes" / "a.flac")
    with pytest.raises(InputError, match=r"got 'yes/a' for both .*a\.flac and .*a\.wav"):
        folder(str(tmp_path))


def test_a_folder_that_is_missing_or_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a folder of clips, got no such folder"):
        folder(str(tmp_path / "gone"))
    with pytest.raises(InputError, match="expected a folder of clips, got a file"):
        folder(str(write(tmp_path / "a.wav")))


@pytest.mark.parametrize(
    ("files", "got"),
    [
        ([], "got nothing"),
        (["a.wav", "b.wav"], "got 2 .wav files; make one folder per label"),
        (["yes/a.m4a"], "got 1 folder"),
        (["train/yes/a.wav"], "got 1 folder"),
    ],
)
def test_a_folder_without_clips_of_a_class(tmp_path: Path, files: list[str], got: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InputError) as caught:
        folder(str(tmp_path))
    assert "expected CLASS/clip.wav (or .flac, .mp3, .ogg, .wav)" in str(caught.value)
    assert got in str(caught.value)
    assert "CSV with the columns path and label" in str(caught.value)


def test_audio_below_a_class_is_not_dropped_in_silence(tmp_path: Path) -> None:
    write(tmp_path / "yes" / "a.wav")
    write(tmp_path / "yes" / "speaker1" / "b.wav")
    with pytest.raises(InputError, match="got some in yes/speaker1/"):
        folder(str(tmp_path))


# Tables


def write_table(path: Path, text: str, encoding: str = "utf-8") -> str:
    for name in ("a.wav", "sub/b.wav"):
        write(path / name)
    (path / "clips.csv").write_text(text, encoding=encoding)
    return str(path / "clips.csv")


def test_a_table_with_paths_from_its_own_folder(tmp_path: Path) -> None:
    corpus = table(write_table(tmp_path, "path,label,voice\na.wav,yes,x\nsub/b.wav,no,y\n"))
    assert labels(corpus) == {"a": "yes", "sub/b": "no"}
    assert corpus.name == "clips"
    assert corpus.entries[1].path == tmp_path / "sub" / "b.wav"


def test_a_table_with_ids_a_byte_order_mark_and_spaces(tmp_path: Path) -> None:
    text = 'path, label, id\na.wav, yes, one\n"a.wav", "two, three", two\n\n'
    corpus = table(write_table(tmp_path, text, "utf-8-sig"))
    assert labels(corpus) == {"one": "yes", "two": "two, three"}


def test_a_table_takes_absolute_paths(tmp_path: Path) -> None:
    path = write(tmp_path / "elsewhere" / "c.wav")
    (tmp_path / "here").mkdir()
    corpus = table(write_table(tmp_path / "here", f"path,label\n{path},yes\n"))
    assert ids(corpus) == ["c"]  # an id is handed on with results, and no path of this machine with it
    assert len(corpus.load(corpus.entries[0], RATE).waveform) == 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the columns path and label, separated by commas, got no header"),
        ("path;label\na.wav;yes\n", "got path;label;"),
        ("file,label\na.wav,yes\n", "got file, label;"),
        ("path,label\n", "expected one row per clip, got none"),
        ("path,label\na.wav,yes\nsub/b.wav\n", "line 3: expected a label, got none"),
        ("path,label\n,yes\n", "line 2: expected a path, got none"),
        ("path,label\na.wav,yes\na.wav,yes\n", "got 'a' in lines 2 and 3"),
        ("path,label\na.wav,yes\nx.wav,no\ny.wav,no\n", "no such file at 2 of 3 paths ("),
        ("path,label\n.,yes\n", "no such file at 1 of 1 paths"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    path = write_table(tmp_path, text)
    with pytest.raises(InputError) as caught:
        table(path)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def test_missing_files_are_listed(tmp_path: Path) -> None:
    rows = "".join(f"gone{number}.wav,yes\n" for number in range(7))
    with pytest.raises(InputError, match=r"gone0\.wav, .*gone4\.wav and 2 more\)"):
        table(write_table(tmp_path, "path,label\n" + rows))


def test_a_table_in_another_encoding(tmp_path: Path) -> None:
    path = write_table(tmp_path, "path,label\na.wav,très\n", "latin-1")
    with pytest.raises(InputError, match="save it as UTF-8"):
        table(path)
    with pytest.raises(InputError, match="expected a CSV file, got no such file"):
        table(str(tmp_path / "gone.csv"))


# Speech Commands


def write_noise(path: Path) -> None:
    """Twenty seconds whose samples tell their own time: 100 steps in the first second, 200 in the next ..."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.repeat(np.arange(1, 21, dtype=np.int16) * 100, RATE), RATE)


def write_archive(root: Path) -> Path:
    """Eleven words of six speakers as in the training archive; speaker 4 is valid, speaker 5 is test."""
    for word in [*sorted(TEN), "bed"]:
        for speaker in range(6):
            write(root / word / f"{speaker}_nohash_0.wav")
    for name, speaker in (("validation_list.txt", 4), ("testing_list.txt", 5)):
        lines = [f"{word}/{speaker}_nohash_0.wav\n" for word in [*sorted(TEN), "bed"]]
        (root / name).write_text("".join(lines))
    write_noise(root / "_background_noise_" / "pink_noise.wav")
    write_noise(root / "_background_noise_" / "running_tap.wav")
    (root / "_background_noise_" / "README.md").write_text("noise")
    return root


def second_of(corpus: Corpus, id: str) -> set[int]:
    """Which seconds of the made noise are heard in a clip."""
    entry = next(one for one in corpus if one.id == id)
    clip = corpus.load(entry, RATE)
    assert len(clip.waveform) == RATE
    return {round(value * 32768 / 100) for value in clip.waveform.unique().tolist()}


@pytest.mark.parametrize(
    ("split", "words", "unknown", "silence", "heard"),
    [
        ("train", 40, 4, 4, set(range(1, 17))),
        ("valid", 10, 1, 1, {17, 18}),
        ("test", 10, 1, 1, {19, 20}),
    ],
)
def test_the_training_archive(
    tmp_path: Path, split: str, words: int, unknown: int, silence: int, heard: set[int]
) -> None:
    corpus = speech_commands(str(write_archive(tmp_path)), split)
    counts = Counter(corpus_label for corpus_label in labels(corpus).values())
    assert set(counts) == TEN | {"unknown", "silence"}
    assert sum(counts[word] for word in TEN) == words
    assert (counts["unknown"], counts["silence"]) == (unknown, silence)
    assert corpus.note == f"silence: {silence} pieces of _background_noise_"
    for id in ids(corpus)[-silence:]:
        assert second_of(corpus, id) <= heard
    assert ids(corpus)[-silence] == "silence/pink_noise_00000"


def test_splits_share_no_clip_and_ids_are_paths(tmp_path: Path) -> None:
    root = str(write_archive(tmp_path))
    parts = {split: set(ids(speech_commands(root, split))) for split in ("train", "valid", "test")}
    words = {split: {id for id in part if not id.startswith("silence/")} for split, part in parts.items()}
    assert {"yes/5_nohash_0", "bed/5_nohash_0"} <= words["test"]
    assert words["valid"] == {f"{word}/4_nohash_0" for word in TEN | {"bed"}}
    assert not words["train"] & words["valid"] and not words["train"] & words["test"]
    assert sum(map(len, words.values())) == 66


def test_silence_is_drawn_from_the_seed(tmp_path: Path) -> None:
    root = str(write_archive(tmp_path))
    starts = [speech_commands(root, "train", seed).entries[-1].start for seed in (0, 0, 1)]
    assert starts[0] == starts[1] != starts[2]


def test_listed_clips_without_a_file_are_counted(tmp_path: Path) -> None:
    root = write_archive(tmp_path)
    (root / "yes" / "5_nohash_0.wav").unlink()
    corpus = speech_commands(str(root))
    assert corpus.note.startswith("1 on testing_list.txt without a file; ")
    assert "yes" not in corpus.labels


def write_download(root: Path) -> Path:
    write_archive(root / "speech_commands_v0.02")
    test = root / "speech_commands_test_set_v0.02"
    for name in ("yes/5_nohash_0", "no/5_nohash_0", "_unknown_/bed_5_nohash_0", "_silence_/0", "_silence_/1"):
        write(test / f"{name}.wav")
    return root


def test_both_archives_as_lhotse_downloads_them(tmp_path: Path) -> None:
    root = str(write_download(tmp_path))
    assert labels(speech_commands(root, "test")) == {
        "_silence_/0": "silence",
        "_silence_/1": "silence",
        "_unknown_/bed_5_nohash_0": "unknown",
        "no/5_nohash_0": "no",
        "yes/5_nohash_0": "yes",
    }
    # lhotse keeps the running tap for validation and the other noises for training.
    train, valid = speech_commands(root, "train"), speech_commands(root, "valid")
    assert Counter(labels(train).values())["silence"] == 4
    assert {entry.path.name for entry in train if entry.label == "silence"} == {"pink_noise.wav"}
    assert ids(valid)[-1] == "silence/running_tap_00000"
    alone = speech_commands(str(tmp_path / "speech_commands_v0.02"), "valid")
    assert ids(valid)[:-1] == ids(alone)[:-1]


def test_one_archive_inside_a_folder(tmp_path: Path) -> None:
    write_archive(tmp_path / "speech_commands_v0.01")
    assert len(speech_commands(str(tmp_path))) == 12


def test_a_download_with_a_broken_file_names_it(tmp_path: Path) -> None:
    root = write_download(tmp_path)
    (root / "speech_commands_v0.02" / "yes" / "9_nohash_0.wav").write_text("no sound")
    with pytest.raises(InputError, match=r"9_nohash_0\.wav.*repair or drop that file"):
        speech_commands(str(root))


def test_folders_that_are_split_already(tmp_path: Path) -> None:
    for name in ("test/yes/a.flac", "test/one/b.ogg", "train/no/c.ogg"):
        write(tmp_path / name)
    corpus = speech_commands(str(tmp_path))
    assert labels(corpus) == {"yes/a": "yes", "one/b": "unknown"}
    assert corpus.note == "no silence: _background_noise_ is missing or too short"
    write_noise(tmp_path / "_background_noise_" / "tap.wav")
    with_noise = speech_commands(str(tmp_path))
    assert ids(with_noise) == ["one/b", "yes/a", "silence/tap_00000"]
    assert second_of(with_noise, "silence/tap_00000") <= {19, 20}


TEST_ARCHIVE = ("yes/a_nohash_0.wav", "go/b_nohash_0.wav", "_unknown_/bed_c.wav", "_silence_/d.wav")


@pytest.mark.parametrize("inside", ["", "speech_commands_test_set_v0.02"])
def test_googles_test_archive_as_it_is_unpacked(tmp_path: Path, inside: str) -> None:
    for name in TEST_ARCHIVE:
        write(tmp_path / inside / name)
    (tmp_path / inside / "LICENSE").write_text("CC BY")
    corpus = open_corpus(f"speechcommands:{tmp_path}")
    assert labels(corpus) == {
        "_silence_/d": "silence",
        "_unknown_/bed_c": "unknown",
        "go/b_nohash_0": "go",
        "yes/a_nohash_0": "yes",
    }
    assert (corpus.name, corpus.note) == ("speechcommands-test", "")
    with pytest.raises(InputError, match="has the split test only, got train"):
        speech_commands(str(tmp_path), "train")
    # As a plain folder its labels are the names of its folders.
    assert set(folder(str(tmp_path / inside)).labels) == {"yes", "go", "_unknown_", "_silence_"}


def test_the_test_archive_without_silence_takes_it_from_noise(tmp_path: Path) -> None:
    for name in TEST_ARCHIVE[:3]:
        write(tmp_path / name)
    write(tmp_path / "_background_noise_" / "rain.wav", samples=3 * RATE)
    corpus = speech_commands(str(tmp_path))
    assert Counter(labels(corpus).values()) == {"yes": 1, "go": 1, "unknown": 1, "silence": 1}
    assert corpus.note == "silence: 1 pieces of _background_noise_"


def test_what_is_not_speech_commands(tmp_path: Path) -> None:
    write(tmp_path / "yes" / "a.wav")
    with pytest.raises(
        InputError,
        match=r"testing_list\.txt beside the words, or a folder test, or _unknown_ and _silence_ as in the "
        r"test archive\), got 1 folder",
    ):
        speech_commands(str(tmp_path))
    with pytest.raises(UnknownName, match="unknown split 'tset': did you mean 'test'"):
        speech_commands(str(tmp_path), "tset")  # type: ignore[arg-type]


def test_the_real_recordings() -> None:
    places = [os.environ.get("SOTTOVOCE_DATA"), Path(__file__).parents[3] / "shared" / "data"]
    roots = [Path(place) / "speech_commands" for place in places if place]
    root = next((one for one in roots if one.is_dir()), None)
    if root is None:
        pytest.skip("no speech_commands in SOTTOVOCE_DATA or ../shared/data")
    corpus = speech_commands(str(root), "test")
    assert TEN | {"unknown"} <= set(corpus.labels)
    few = corpus.limit(24, seed=0)
    clips, failures = next(few.chunks(24, RATE))
    assert (len(clips), failures) == (24, [])
    assert all(0 < len(clip.waveform) <= RATE and clip.loaded == "" for clip in clips)


# By name


def test_the_embedded_clips_need_nothing_done() -> None:
    corpus = embedded()
    assert set(corpus.labels) == TEN | {"unknown", "silence"}
    clips, failures = next(corpus.chunks(len(corpus), RATE))
    assert failures == []
    assert all(0 < len(clip.waveform) <= 16000 and clip.loaded == "" for clip in clips)


def test_a_corpus_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table(tmp_path / "set", "path,label\na.wav,yes\n")
    root = str(tmp_path / "set")
    assert open_corpus("embedded") == embedded()
    assert open_corpus(f"csv:{path}") == open_corpus(path) == table(path)
    assert open_corpus(f"folder:{root}") == open_corpus(root) == folder(root)
    write(tmp_path / "commands" / "test" / "yes" / "a.wav")
    assert ids(open_corpus(f"speechcommands:{tmp_path / 'commands'}")) == ["yes/a"]
    monkeypatch.chdir(tmp_path)
    assert open_corpus("set").name == "set"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("embeded", "unknown corpus 'embeded': did you mean 'embedded'?"),
        ("speechcommand:x", "unknown corpus 'speechcommand': did you mean 'speechcommands'?"),
        ("qqqq:x", "unknown corpus 'qqqq': known: audiomnist, csv, "),
        ("gone/clips", "gone/clips: expected a folder or a .csv file, got no such path"),
        ("gone.csv", "gone.csv: expected a folder or a .csv file, got no such path"),
        ("folder", "corpus 'folder': expected 'folder:PATH', got 'folder'"),
        ("embedded:x", "corpus 'embedded': expected 'embedded', got 'embedded:x'"),
        ("folder:", "corpus 'folder': expected 'folder:PATH', got 'folder'"),
    ],
)
def test_a_corpus_that_cannot_be_found(spec: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        open_corpus(spec)
    assert message in str(caught.value)


def test_a_clip_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got another kind of file"):
        open_corpus(str(write(tmp_path / "a.wav")))


def test_a_corpus_from_a_plan(tmp_path: Path) -> None:
    write(tmp_path / "valid" / "yes" / "a.wav")
    corpus = registry.build("corpus", "speechcommands", {"path": str(tmp_path), "split": "valid"})
    assert ids(corpus) == ["yes/a"]
    with pytest.raises(InputError, match=r"speechcommands\(split=eval\): expected train or valid or test"):
        registry.build("corpus", "speechcommands", {"path": str(tmp_path), "split": "eval"})
