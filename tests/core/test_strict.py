"""Records that strangers may have touched: whatever was done to a line, one sentence says where and what."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from sottovoce.core.files.strict_json import find_line, find_repeated
from sottovoce.core.goal import JudgedBy
from sottovoce.core.record import EVERY, LOADING, Record, latest, read_keys, read_records
from sottovoce.errors import DamagedFile, InputError, StoreError

GOOD = Record(
    cell="fgsm_evade_snr-db-20", clip="yes/3", status="ok", label="yes", clean_text="yes",
    adversarial_text="no", achieved=True, achieved_unrounded=True, judged_by="change", seconds=0.75,
    sample_rate=16000, loaded="rounded to 16 bits", facts={"intensity": "low", "speaker": "a"},
    parts={"success": [1.0, 1.0], "snr": [20.5, 1.0], "p-heard": [math.nan, 1.0], "none": [math.inf, 1.0]},
    unscored={"p-heard": "too short"}, schema=3,
    audio={"clean": "audio/clean/yes/3.flac", "adversarial": "audio/fgsm_evade_snr-db-20/yes/3.flac"},
)  # fmt: skip
RAW = "raw JSON: "
"""Before a value that `json.dumps` would not write."""

WRONG: list[tuple[str, Any]] = [
    ("cell", 5), ("cell", None), ("cell", ""), ("clip", ["a"]), ("clip", ""), ("clip", 3.5),
    ("status", "fine"), ("status", True), ("status", None), ("reason", 3), ("label", {}), ("label", None),
    ("clean_text", 1.5), ("adversarial_text", ["no"]), ("achieved", "yes"), ("achieved", 1),
    ("achieved_unrounded", 0), ("judged_by", "luck"), ("judged_by", None),
    ("seconds", -1), ("seconds", 0), ("seconds", "1.0"), ("seconds", True), ("seconds", f"{RAW}NaN"),
    ("seconds", f"{RAW}1e999"), ("seconds", f"{RAW}-Infinity"), ("seconds", 1e12),
    ("sample_rate", 10**12), ("sample_rate", 16000.5), ("sample_rate", True), ("sample_rate", -8000),
    ("sample_rate", 0), ("sample_rate", "16000"), ("sample_rate", f"{RAW}{10**100}"), ("loaded", None),
    ("facts", []), ("facts", None), ("facts.speaker", 3), ("facts.speaker", None), ("facts.speaker", ["a"]),
    ("parts", []), ("parts", None), ("parts.success", 1), ("parts.success", {}), ("parts.success.1", "1"),
    ("parts.success.0", "nan"), ("parts.success.0", True), ("parts.success.0", f"{RAW}NaN"),
    ("parts.success.0", [1]), ("parts.success.1", -1), ("parts.success.1", "inf"), ("parts.success.1", False),
    ("unscored", "x"), ("unscored.p-heard", 5), ("audio", "x"), ("audio", []), ("audio.clean", 3),
    ("audio.clean", "../../secret.flac"), ("audio.clean", "audio/../../secret.flac"), ("audio.clean", ""),
    ("audio.clean", "audio/.."), ("audio.clean", "/etc/passwd"), ("audio.clean", "audio\\..\\x.flac"),
    ("audio.clean", "C:/x.flac"), ("audio.clean", "file:///x.flac"), ("audio.other", "audio/x.flac"),
    ("schema", 99), ("schema", 0), ("schema", True), ("schema", "3"), ("schema", None), ("colour", "blue"),
]  # fmt: skip
"""The way to a field, and what it holds now."""
LINE = GOOD.to_line().encode()
NO_JSON = ": expected a record, got no JSON"
TORN: dict[str, tuple[bytes, bytes, str]] = {
    "no status": (b'"status":"ok",', b"", ", field 'status': expected one, got none"),
    "no clip": (b'"clip":"yes/3",', b"", ", field 'clip': expected one, got none"),
    "a pair of one": (b"[20.5,1.0]", b"[20.5]", ", field 'parts.snr.1': "),
    "a pair of three": (b"[20.5,1.0]", b"[20.5,1.0,1.0]", ", field 'parts.snr': "),
    "twice": (b'{"cell"', b'{"seconds":9.0,"cell"', ", field 'seconds': expected it once, got it twice"),
    "twice the same": (b'{"cell"', b'{ "label" : "yes", "cell"', ", field 'label': expected it once"),
    "twice in parts": (b'"snr":', b'"snr":[9.0,1.0],"snr":', ", field 'parts.snr': expected it once"),
    "no UTF-8": (b"low", b"l\xf6w", NO_JSON),
    "half a letter": (b"low", rb"\ud800", NO_JSON),
    "a byte of zero": (b"low", b"l\0w", NO_JSON),
    "no colon": (b'"cell":', b'"cell"', NO_JSON),
    "a list": (LINE, b"[" + LINE + b"]", ": expected a record, got [{"),
    "a number": (LINE, b"7", ": expected a record, got 7"),
    "nothing": (LINE, b"", NO_JSON),
    "very deep": (b'"low"', b"[" * 100_000 + b"]" * 100_000, NO_JSON),
}
"""What was there, what is there now, and what is said after file and line."""


def change(line: str, way: str, value: Any) -> str:
    content = json.loads(line)
    *steps, last = way.split(".")
    there: Any = content
    for step in steps:
        there = there[step]
    there[int(last) if isinstance(there, list) else last] = value
    text = json.dumps(content)
    return text.replace(json.dumps(value), value.removeprefix(RAW)) if str(value).startswith(RAW) else text


def check(path: Path, line: bytes, said: str) -> None:
    """Each reader refuses the file, in one sentence that begins with file, line and field."""
    path.write_bytes(b"\n".join([LINE, line, LINE, b""]))
    for read in (read_keys, lambda place: list(latest(read_records(place)))):
        with pytest.raises(DamagedFile) as caught:
            read(path)
        words = str(caught.value)
        assert words.startswith(f"{path}, line 2{said}"), words
        assert "\n" not in words and len(words) < 500
        assert isinstance(caught.value, StoreError) and isinstance(caught.value, InputError)


@pytest.mark.parametrize(("way", "value"), WRONG)
def test_every_field_is_checked(tmp_path: Path, way: str, value: Any) -> None:
    line = change(GOOD.to_line(), way, value)
    check(tmp_path / "trials.jsonl", line.encode(), f", field {way!r}: expected ")


@pytest.mark.parametrize(("old", "new", "said"), TORN.values(), ids=TORN)
def test_every_line_is_checked(tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    assert LINE.count(old) == 1
    check(tmp_path / "trials.jsonl", LINE.replace(old, new), said)


def test_a_good_line_is_read_as_it_was_written() -> None:
    again = Record.from_line(GOOD.to_line())
    assert {name: list(map(str, pair)) for name, pair in again.parts.items()} == {
        "success": ["1.0", "1.0"], "snr": ["20.5", "1.0"], "p-heard": ["nan", "1.0"], "none": ["inf", "1.0"],
    }  # fmt: skip
    assert {**vars(again), "parts": 0} == {**vars(GOOD), "parts": 0}
    # As another program writes JSON: with spaces, and a whole number where a fraction may be.
    loose = json.dumps({**json.loads(GOOD.to_line()), "seconds": 2}, indent=None)
    assert (Record.from_line(loose).seconds, Record.from_line(loose.encode()).clip) == (2.0, "yes/3")
    places = ["audio/clean/./a", "a", "audio/clean/..a/b..c/...", "audio/a//b.flac", "audio/é ü/%2E%2E.flac"]
    for place in places:
        assert Record.from_line(change(GOOD.to_line(), "audio.clean", place)).audio["clean"] == place


def test_every_kind_of_success_can_be_read() -> None:
    for kind in ("", *get_args(JudgedBy)):
        assert Record.from_line(change(GOOD.to_line(), "judged_by", kind)).judged_by == kind


def test_what_could_not_be_read_again_is_not_written() -> None:
    assert GOOD.checked() is GOOD
    for field, value in (("clean_text", None), ("facts", {"speaker": 3}), ("parts", {"snr": [1.0, -1.0]})):
        with pytest.raises(
            InputError, match=rf"^field '{field}[^']*': expected .*, got .*; correct the model"
        ):
            replace(GOOD, **{field: value}).checked()
    with pytest.raises(InputError, match="Type is not JSON serializable"):
        replace(GOOD, label=object()).checked()


@pytest.mark.parametrize("version", [None, 1, 2])
def test_what_old_names_meant(version: int | None) -> None:
    """Before schema 3 a failure of the clip `*` was that of its cell, and one in the cell `load` that of its
    clip in all cells. A clip of these names that was judged is a clip."""

    def read(cell: str, clip: str, status: str) -> tuple[str, str]:
        content = {"cell": cell, "clip": clip, "status": status}
        return Record.from_line(
            json.dumps(content if version is None else {**content, "schema": version})
        ).key

    assert read("c", "*", "failed") == ("c", EVERY)
    assert read("load", "x", "failed") == (LOADING, "x")
    assert read("c", "*", "ok") == ("c", "*")
    assert read("c", "load", "failed") == ("c", "load")
    new = Record(cell="load", clip="*", status="failed")
    assert Record.from_line(new.to_line()).key == ("load", "*")
    whole = [Record(cell="c", clip=EVERY, status="failed"), Record(cell=LOADING, clip="*", status="failed")]
    assert [Record.from_line(record.to_line()) for record in whole] == whole


TEXT = """{
 "run": "a",
 "versions": {
  "torch": "2",
  "a \\"b\\": {": [1, {"deep": 2}]
 }
}
"""


@pytest.mark.parametrize(
    ("way", "line"),
    [
        (("run",), 2),
        (("versions", "torch"), 4),
        (("versions", 'a "b": {', 1, "deep"), 5),
        (("versions", "none"), 3),
        (("none",), 1),
    ],
)
def test_the_line_of_a_field(way: tuple[str | int, ...], line: int) -> None:
    assert find_line(TEXT, way) == line


def test_a_key_that_comes_twice() -> None:
    assert find_repeated(TEXT.encode()) == ()
    again = TEXT.replace('"deep": 2', '"deep": 2, "e": {"deep": 1}, "deep": 3')
    assert find_repeated(again.encode()) == ("versions", 'a "b": {', 1, "deep")
