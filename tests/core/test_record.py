"""Records: one JSON line each, durable, and readable after a kill."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from sottovoce.core.record import EVERY, LOADING, Record, RecordWriter, latest, read_keys, read_records
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


def test_parts_are_written_as_numbers() -> None:
    """A metric may count with whole numbers or with true and false."""
    assert json.loads(record("a", parts={"success": [True, 1]}).to_line())["parts"] == {"success": [1.0, 1.0]}
    assert '"success":[1.0,1.0]' in record("a", parts={"success": [True, 1]}).to_line()


def test_a_failed_clip_has_no_figures() -> None:
    failed = Record(cell="c", clip="x", status="failed", reason="too short")
    assert (failed.achieved, failed.parts, failed.seconds) == (None, {}, None)
    assert json.loads(failed.to_line())["achieved"] is None


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


@pytest.mark.parametrize("size", [10, 65_535, 65_536, 65_537, 200_000])
def test_a_torn_line_of_any_length_is_dropped(tmp_path: Path, size: int) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_text("whole\n" + "x" * size)
    with RecordWriter(path) as writer:
        writer.write([record("a")])
    assert path.read_text() == "whole\n" + record("a").to_line() + "\n"


def test_lines_have_a_version() -> None:
    assert json.loads(record("a").to_line())["schema"] == 3
    old = Record.from_line('{"cell": "c", "clip": "x", "status": "ok"}')
    assert old.schema == 3


@pytest.mark.parametrize("version", ["4", "0", '"new"', "null"])
def test_a_version_that_nobody_knows_is_refused_with_its_line(tmp_path: Path, version: str) -> None:
    path = tmp_path / "trials.jsonl"
    line = f'{{"cell": "c", "clip": "x", "status": "ok", "schema": {version}}}'
    path.write_text(record("a").to_line() + "\n" + line + "\n")
    for read in (read_keys, lambda path: list(read_records(path))):
        with pytest.raises(StoreError, match=r"line 2, field 'schema': .* of schema 1 to 3, got .*version"):
            read(path)


def test_keys_without_figures(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    with RecordWriter(path) as writer:
        writer.write([record("a"), Record(cell="c", clip="b", status="failed"), record("d")])
    with path.open("a") as file:
        file.write('{"cell": "c", "clip": "torn')
    assert read_keys(path) == {
        ("pgd, SNR 30 dB", "a"): "ok",
        ("c", "b"): "failed",
        ("pgd, SNR 30 dB", "d"): "ok",
    }
    path.write_text('{"cell": "c", "status": "ok"}\n')
    with pytest.raises(StoreError, match="line 1, field 'clip': expected one, got none"):
        read_keys(path)


def test_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    def of(cell: str, clip: str, status: str) -> Record:
        return Record(cell=cell, clip=clip, status=status)  # type: ignore[arg-type]

    lines = [
        of("c", "a", "failed"), of("c", "b", "ok"), of("c", "e", "failed"), of(LOADING, "f", "failed"),
        of("d", EVERY, "failed"), of("g", EVERY, "failed"), of("c", "a", "ok"), of("c", "b", "ok"),
        of("c", "e", "failed"), of("d", "a", "skipped"), of("d", "f", "ok"), of("h", "a", "ok"),
        of("h", EVERY, "failed"), of(LOADING, "k", "failed"),
    ]  # fmt: skip
    expected = {
        ("c", "b"): "ok", ("c", "a"): "ok", ("c", "e"): "failed", ("d", "a"): "skipped", ("d", "f"): "ok",
        ("g", EVERY): "failed", ("h", "a"): "ok", (LOADING, "k"): "failed",
    }  # fmt: skip
    found = list(latest(lines))
    assert len(found) == len(expected)
    assert {each.key: each.status for each in found} == expected
    with RecordWriter(tmp_path / "trials.jsonl") as writer:
        writer.write(lines)
    assert read_keys(tmp_path / "trials.jsonl") == expected
