"""Records: one JSON line each, durable, and readable after a kill."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from sottovoce.core.record import Record, RecordWriter, read_records
from sottovoce.errors import StoreError


def record(clip: str, **content: object) -> Record:
    return Record(cell="pgd, SNR 30 dB", clip=clip, status="ok", **content)  # type: ignore[arg-type]


def test_a_line_holds_everything() -> None:
    full = record(
        "naïve/été.wav",
        label="ja",
        achieved=True,
        parts={
            "snr": [30.5, 1.0],
            "none": [math.nan, 1.0],
            "untouched": [math.inf, 1.0],
            "low": [-math.inf, 1.0],
        },
        audio={"clean": "audio/x.wav"},
    )
    line = full.to_line()
    assert "\n" not in line and "naïve/été.wav" in line
    content = json.loads(line)
    assert content["parts"] == {
        "snr": [30.5, 1.0],
        "none": [None, 1.0],
        "untouched": ["inf", 1.0],
        "low": ["-inf", 1.0],
    }
    again = Record.from_line(line)
    assert math.isnan(again.parts["none"][0])
    assert again.parts["untouched"] == [math.inf, 1.0] and again.parts["low"] == [-math.inf, 1.0]
    assert (again.clip, again.label, again.achieved, again.audio) == (
        "naïve/été.wav",
        "ja",
        True,
        {"clean": "audio/x.wav"},
    )
    assert again.key == ("pgd, SNR 30 dB", "naïve/été.wav")


def test_a_failed_clip_has_no_figures() -> None:
    failed = Record(cell="c", clip="x", status="failed", reason="too short")
    assert (failed.achieved, failed.parts, failed.seconds) == (None, {}, None)
    assert json.loads(failed.to_line())["achieved"] is None


def test_a_newer_field_is_no_obstacle() -> None:
    line = json.dumps({"cell": "c", "clip": "x", "status": "ok", "colour": "blue"})
    assert Record.from_line(line) == Record(cell="c", clip="x", status="ok")


def test_write_and_append(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    with RecordWriter(path) as writer:
        writer.write([record("a"), record("b")])
    with RecordWriter(path) as writer:
        writer.write([record("c")])
    assert [found.clip for found in read_records(path)] == ["a", "b", "c"]


def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    whole = record("a").to_line() + "\n"
    path.write_text(whole + record("b").to_line()[:20])
    assert [found.clip for found in read_records(path)] == ["a"]
    with RecordWriter(path) as writer:
        writer.write([record("c")])
    assert [found.clip for found in read_records(path)] == ["a", "c"]
    path.write_text("torn from the start")
    with RecordWriter(path) as writer:
        writer.write([record("d")])
    assert path.read_text() == record("d").to_line() + "\n"


def test_no_file_has_no_records(tmp_path: Path) -> None:
    assert list(read_records(tmp_path / "missing.jsonl")) == []


@pytest.mark.parametrize(
    "line",
    [
        "{not json}",
        '{"cell": "c"}',
        "[1, 2]",
        "\ufffd",
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_text(record("a").to_line() + "\n" + line + "\n" + record("b").to_line() + "\n")
    found = read_records(path)
    assert next(found).clip == "a"
    with pytest.raises(StoreError, match=r"trials.jsonl, line 2: expected a record"):
        next(found)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="choose a folder you may write to"):
        RecordWriter(tmp_path / "nowhere" / "trials.jsonl")


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trials.jsonl"

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with RecordWriter(path) as writer:
        writer.write([record("a")])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreError, match="No space left on device; what was recorded before is safe"):
                writer.write([record("b")])
    assert path.read_text() == record("a").to_line() + "\n"
