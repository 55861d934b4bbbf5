"""Corpora in a bucket: a server of S3 on loopback, and files whose samples are known."""

from __future__ import annotations

import io
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from sottovoce.data import remote_corpora as remote
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Clip
from sottovoce.data.pack import save_pack
from sottovoce.errors import InputError, MissingExtra

server = pytest.importorskip("moto.server", reason="needs moto")
s3fs = pytest.importorskip("s3fs")

RATE = 8000


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def far(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The filesystem of the server, with an empty bucket named "clips"; nothing was copied from it yet."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem()
    system.mkdir("clips")
    yield system
    system.rm("clips", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


def wav(steps: list[int], rate: int = RATE, channels: int = 1) -> bytes:
    file = io.BytesIO()
    samples = np.array(steps, dtype=np.int16).reshape(-1, channels)
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def steps_of(clip: Clip) -> list[int]:
    return [round(value * 32768) for value in clip.waveform.tolist()]


def test_a_folder_of_classes_in_a_bucket(far: Any) -> None:
    far.pipe_file("clips/words/yes/b.wav", wav([100, -200, 300]))
    far.pipe_file("clips/words/yes/a.wav", wav([7, 8]))
    far.pipe_file("clips/words/no/c.wav", wav([-1, 1], channels=2))
    far.pipe_file("clips/words/notes.txt", b"by hand")
    far.pipe_file("clips/words/yes/.hidden.wav", b"no clip")
    corpus = open_corpus("folder:s3://clips/words")
    assert corpus.name == "words"
    assert [(entry.id, entry.label) for entry in corpus] == [
        ("no/c", "no"),
        ("yes/a", "yes"),
        ("yes/b", "yes"),
    ]
    assert corpus.note == "left out 1 files that are not clips of a class (notes.txt)"
    loaded = {entry.id: corpus.load(entry, RATE) for entry in corpus}
    assert steps_of(loaded["yes/b"]) == [100, -200, 300]
    assert steps_of(loaded["yes/a"]) == [7, 8]
    # The mean of -1 and 1.
    assert steps_of(loaded["no/c"]) == [0]
    assert loaded["no/c"].loaded == "mixed down from 2 channels"


def test_a_bare_url_is_a_folder_or_a_table(far: Any) -> None:
    far.pipe_file("clips/words/yes/a.wav", wav([7, 8]))
    far.pipe_file("clips/list.csv", b"path,label,id,speaker\nwords/yes/a.wav,yes,first,ann\n")
    assert [entry.id for entry in open_corpus("s3://clips/words")] == ["yes/a"]
    corpus = open_corpus("s3://clips/list.csv")
    (entry,) = corpus
    assert (corpus.name, entry.id, entry.label, dict(entry.facts)) == (
        "list",
        "first",
        "yes",
        {"speaker": "ann"},
    )
    assert steps_of(corpus.load(entry, RATE)) == [7, 8]
    # Another process gets the entry by its place.
    assert steps_of(corpus.load(pickle.loads(pickle.dumps(entry)), RATE)) == [7, 8]


def test_a_table_with_a_path_in_vain_names_it(far: Any) -> None:
    far.pipe_file("clips/deep/list.csv", b"path,label\n../a.wav,yes\nsub/b.wav,no\nsub/c.wav,no\n")
    far.pipe_file("clips/a.wav", wav([1]))
    far.pipe_file("clips/deep/sub/b.wav", wav([2]))
    with pytest.raises(InputError, match=r"no such file at 1 of 3 paths \(sub/c.wav\)"):
        open_corpus("csv:s3://clips/deep/list.csv")
    far.pipe_file("clips/deep/sub/c.wav", wav([3]))
    corpus = open_corpus("csv:s3://clips/deep/list.csv")
    assert [steps_of(corpus.load(entry, RATE)) for entry in corpus] == [[1], [2], [3]]


def test_a_file_that_changed_has_another_stamp(far: Any) -> None:
    far.pipe_file("clips/words/yes/a.wav", wav([1]))
    far.pipe_file("clips/words/yes/b.wav", wav([2]))
    far.pipe_file("clips/words/list.csv", b"path,label\nyes/a.wav,yes\nyes/b.wav,yes\n")

    def stamps(spec: str) -> list[str]:
        return [entry.source.stamp for entry in open_corpus(spec) if isinstance(entry.source, remote.Far)]

    folder, table = stamps("s3://clips/words"), stamps("s3://clips/words/list.csv")
    assert folder == table and all(folder)
    # As long as before, and no longer the same.
    far.pipe_file("clips/words/yes/b.wav", wav([3]))
    for spec in ("s3://clips/words", "s3://clips/words/list.csv"):
        now = stamps(spec)
        assert now[0] == folder[0] and now[1] != folder[1]


def test_a_row_without_a_label_is_told_by_its_url_and_line(far: Any) -> None:
    far.pipe_file("clips/list.csv", b"path,label\na.wav,yes\nb.wav,\n")
    with pytest.raises(InputError, match=r"^s3://clips/list.csv, line 3: expected a label"):
        open_corpus("s3://clips/list.csv")


def test_a_file_that_is_no_audio_fails_alone(far: Any) -> None:
    far.pipe_file("clips/words/yes/a.wav", wav([7, 8]))
    far.pipe_file("clips/words/yes/b.wav", b"not audio at all")
    (chunk,) = open_corpus("s3://clips/words").chunks(8, RATE)
    assert [clip.id for clip in chunk.clips] == ["yes/a"]
    (failure,) = chunk.failures
    assert failure.id == "yes/b"
    assert failure.reason.startswith("s3://clips/words/yes/b.wav: expected audio that libsndfile reads")


def test_a_clip_that_went_away_fails_alone(far: Any) -> None:
    far.pipe_file("clips/words/yes/a.wav", wav([7, 8]))
    far.pipe_file("clips/words/yes/b.wav", wav([9]))
    corpus = open_corpus("s3://clips/words")
    far.rm_file("clips/words/yes/b.wav")
    (chunk,) = corpus.chunks(8, RATE)
    assert [clip.id for clip in chunk.clips] == ["yes/a"]
    assert [failure.id for failure in chunk.failures] == ["yes/b"]


def test_audio_that_lies_deeper_is_refused(far: Any) -> None:
    far.pipe_file("clips/words/yes/a.wav", wav([7, 8]))
    far.pipe_file("clips/words/yes/more/b.wav", wav([9]))
    with pytest.raises(InputError, match=r"got some in yes/more/"):
        open_corpus("s3://clips/words")


def packed(path: Path, level: int) -> bytes:
    clips = [Clip(name, torch.full((4,), level / 32768), RATE, name) for name in ("yes", "no")]
    save_pack(path, clips, ["test", "train"])
    return path.read_bytes()


def test_a_pack_is_copied_once_and_again_when_it_changes(far: Any, tmp_path: Path) -> None:
    far.pipe_file("clips/words.npz", packed(tmp_path / "words.npz", 5))
    corpus = open_corpus("pack:s3://clips/words.npz#test")
    (entry,) = corpus
    assert (entry.id, steps_of(corpus.load(entry, RATE))) == ("yes", [5, 5, 5, 5])
    assert corpus.note == "copied from s3://clips/words.npz"
    assert len(open_corpus("s3://clips/words.npz")) == 2
    (kept,) = (tmp_path / "cache").rglob("words.npz/words.npz")
    written = kept.stat().st_mtime_ns
    open_corpus("pack:s3://clips/words.npz")
    assert kept.stat().st_mtime_ns == written
    far.pipe_file("clips/words.npz", packed(tmp_path / "words.npz", 6))
    corpus = open_corpus("pack:s3://clips/words.npz#test")
    assert steps_of(corpus.load(corpus.entries[0], RATE)) == [6, 6, 6, 6]


def test_another_corpus_is_copied_and_opened_here(far: Any, tmp_path: Path) -> None:
    line = "a/1.wav\tann\tf\t0.1\tGOOD DAY\n"
    far.pipe_file("clips/read/transcripts.tsv", f"path\tspeaker\tsex\tseconds\ttext\n{line}".encode())
    far.pipe_file("clips/read/a/1.wav", wav([1, 2]))
    far.pipe_file("clips/read/a/old.wav", wav([3]))
    corpus = open_corpus("librispeech:s3://clips/read")
    (entry,) = corpus
    assert (entry.label, steps_of(corpus.load(entry, RATE))) == ("GOOD DAY", [1, 2])
    assert entry.path.is_relative_to(tmp_path / "cache")
    # What went away there goes away here.
    far.rm_file("clips/read/a/old.wav")
    open_corpus("librispeech:s3://clips/read")
    assert sorted(file.name for file in entry.path.parent.iterdir()) == ["1.wav"]


def test_a_copy_that_was_cut_short_is_made_whole(far: Any, tmp_path: Path) -> None:
    far.pipe_file("clips/words.npz", packed(tmp_path / "words.npz", 5))
    open_corpus("pack:s3://clips/words.npz")
    (kept,) = (tmp_path / "cache").rglob("words.npz/words.npz")
    # A kill before the list of what is whole was written.
    kept.write_bytes(kept.read_bytes()[:20])
    next((tmp_path / "cache").rglob(".stamps.json")).unlink()
    corpus = open_corpus("pack:s3://clips/words.npz#test")
    assert steps_of(corpus.load(corpus.entries[0], RATE)) == [5, 5, 5, 5]


@pytest.mark.parametrize(
    "spec", ["s3://nobody/x", "folder:s3://clips/none", "s3://clips/none.csv", "pack:s3://clips/none.npz"]
)
def test_nothing_there_is_one_clear_sentence(far: Any, spec: str) -> None:
    with pytest.raises(InputError, match=r"^s3://.*expected a file or folder, got nothing there"):
        open_corpus(spec)


def test_an_unknown_kind_of_url_is_refused() -> None:
    with pytest.raises(InputError, match="Protocol not known: gopher"):
        open_corpus("folder:gopher://clips")


def test_a_server_that_does_not_answer(far: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(InputError, match=r"^s3://clips/words: expected a place that can be reached"):
            open_corpus("s3://clips/words")
    finally:
        monkeypatch.undo()


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise ImportError("No module named 'fsspec'")

    monkeypatch.setattr(remote, "import_module", fail)
    with pytest.raises(MissingExtra, match=r'pip install "sottovoce\[remote\]"'):
        open_corpus("s3://clips/words")


def test_local_files_by_url(tmp_path: Path) -> None:
    (tmp_path / "yes").mkdir()
    (tmp_path / "yes" / "a.wav").write_bytes(wav([4, 5]))
    corpus = open_corpus(f"folder:file://{tmp_path}")
    assert steps_of(corpus.load(corpus.entries[0], RATE)) == [4, 5]
