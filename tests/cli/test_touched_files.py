"""Files of a run that somebody changed: every verb that reads them ends with one line and exit code 2."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sottovoce
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.cli.main import main

KEPT = Path(__file__).parents[1] / "fixtures" / "run-0.1.0"
SHOW = ("view", "{run}", "--no-browser")
BOARD = ("leaderboard", "{run}", "--out", "site")
RESUME = ("audit", "--resume", "{run}")
Told = Callable[..., str]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """What a verb says on standard error: one line, with exit code 2."""
    monkeypatch.chdir(tmp_path)

    def say(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["sottovoce", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        lines = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2, lines
        assert "Traceback" not in "".join(lines)
        (found,) = [line for line in lines if line.startswith("error: ")]
        assert lines[-1] == found
        return found.removeprefix("error: ")

    return say


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that version 0.1.0 left: four trials, two probes. It says that this version did, which goes on
    with none but its own."""
    path = Path(shutil.copytree(KEPT / "classifier", tmp_path / "run"))
    about = (path / "about.json").read_text()
    assert about.count('"sottovoce": "0.1.0"') == 1
    (path / "about.json").write_text(about.replace('"0.1.0"', f'"{sottovoce.__version__}"'))
    return path


def change(path: Path, way: str, value: Any, line: int = 1) -> None:
    """Set a field of the object in a line; a value of `...` drops it."""
    lines = path.read_text().splitlines()
    content = json.loads(lines[line - 1])
    *steps, last = way.split(".")
    there: Any = content
    for step in steps:
        there = there[int(step) if isinstance(there, list) else step]
    key = int(last) if isinstance(there, list) else last
    if value is ...:
        del there[key]
    else:
        there[key] = value
    lines[line - 1] = json.dumps(content)
    path.write_text("\n".join(lines) + "\n")


RECORDS: list[tuple[str, Any]] = [
    ("cell", ["noise"]), ("clip", 7), ("clip", ...), ("status", "fine"), ("label", None), ("achieved", 1),
    ("achieved_unrounded", "no"), ("seconds", -1.0), ("seconds", float("nan")), ("sample_rate", 10**12),
    ("sample_rate", True), ("facts", []), ("facts.intensity", 3), ("parts", None), ("parts.success", 1),
    ("parts.success.0", "a"), ("parts.success.1", -1), ("parts.snr.0", float("inf")), ("unscored.snr", 5),
    ("audio", "x.flac"), ("audio.clean", "../../../secret.flac"), ("audio.adversarial", "/etc/passwd"),
    ("schema", 99), ("colour", "blue"),
]  # fmt: skip
"""The way to a field, and what it holds now. More are in `tests/core/test_strict.py`."""


@pytest.mark.parametrize(("way", "value"), RECORDS)
@pytest.mark.parametrize("verb", [SHOW, BOARD, RESUME], ids=lambda verb: verb[0])
def test_a_record_is_named_with_its_line_and_field(
    run: Path, told: Told, verb: tuple[str, ...], way: str, value: Any
) -> None:
    change(run / "trials.jsonl", way, value, line=3)
    found = told(*(word.format(run=run) for word in verb))
    assert found.startswith(f"{run}/trials.jsonl, line 3, field {way!r}: expected "), found


RAW: dict[str, tuple[bytes, bytes, str]] = {
    "twice": (
        b'"seconds":',
        b'"seconds":1.0,"seconds":',
        ", field 'seconds': expected it once, got it twice",
    ),
    "no UTF-8": (b'"label":"', b'"label":"\xff', ": expected a record, got no JSON"),
    "torn": (b'"label":"', b'"label":', ": expected a record, got no JSON"),
}


@pytest.mark.parametrize(("old", "new", "said"), RAW.values(), ids=RAW)
@pytest.mark.parametrize("verb", [SHOW, BOARD, RESUME], ids=lambda verb: verb[0])
def test_a_line_is_named(
    run: Path, told: Told, verb: tuple[str, ...], old: bytes, new: bytes, said: str
) -> None:
    path = run / "trials.jsonl"
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(first + b"\n" + rest.replace(old, new, 1))
    assert told(*(word.format(run=run) for word in verb)).startswith(f"{path}, line 2{said}")


def test_a_probe_is_named(run: Path, told: Told) -> None:
    change(run / "probes.jsonl", "facts", 5, line=2)
    assert told("view", str(run), "--no-browser").startswith(f"{run}/probes.jsonl, line 2, field 'facts': ")


ABOUT: list[tuple[str, Any, int]] = [
    ("run", 5, 2), ("started", None, 3), ("device", [], 4), ("data_note", 1, 5),
    ("machine", True, 7), ("versions", [], 8), ("versions.torch", 2.1, 11), ("workers", "two", 16),
    ("workers", -1, 16), ("workers", True, 16), ("workers", 1.5, 16), ("corpus", 7, 17),
    ("corpus", "../x", 17), ("colour", "blue", 18),
]  # fmt: skip
"""The way to an entry, what it holds now, and its line."""


@pytest.mark.parametrize(("way", "value", "line"), ABOUT)
def test_what_is_known_of_a_run_is_checked(run: Path, told: Told, way: str, value: Any, line: int) -> None:
    path = run / "about.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    change(path, way, value)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1) + "\n")
    found = told("leaderboard", str(run), "--out", "site")
    assert found.startswith(f"{path}, line {line}, field {way!r}: expected "), found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[1]", ": expected what is known of the run, an object in JSON, got [1]"),
        (b'{"run": "\xff"}', ": expected what is known of the run, an object in JSON, got no JSON"),
        (b'{\n "run": "a",\n "run": "b"\n}', ", line 3, field 'run': expected it once, got it twice"),
        (b"[" * 100_000, ": expected what is known of the run, an object in JSON, got no JSON"),
    ],
)
@pytest.mark.parametrize("verb", [SHOW, BOARD, RESUME], ids=lambda verb: verb[0])
def test_what_is_known_of_a_run_is_an_object(
    run: Path, told: Told, verb: tuple[str, ...], text: bytes, said: str
) -> None:
    (run / "about.json").write_bytes(text)
    assert told(*(word.format(run=run) for word in verb)).startswith(f"{run}/about.json{said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", ": expected a digest of each clip, an object in JSON, got [1]"),
        ('{"up/0": 5}', ", line 1, field 'up/0': expected a digest in hexadecimal, got 5"),
        ('{"up/0": "0a", "up/0": "0b"}', ", line 1, field 'up/0': expected it once, got it twice"),
        ('{"up/0": "zz"}', ", line 1, field 'up/0': expected a digest in hexadecimal, got 'zz'"),
    ],
)
def test_the_list_of_clips_is_checked(
    mean_model: str, mean_clips: Path, tmp_path: Path, told: Told, text: str, said: str
) -> None:
    """It is read where the clips are not those of the digest in `about.json`."""
    entries = {"model": mean_model, "data": "clips", "attacks": ["noise"], "budgets": ["snr(db=3)"]}
    run_audit(make_plan({**entries, "probe": 0, "audio": "none"}), tmp_path / "run", device="cpu")
    about = (tmp_path / "run" / "about.json").read_text()
    (tmp_path / "run" / "about.json").write_text(re.sub(r'"corpus": "\w+"', '"corpus": "abcdef"', about))
    (tmp_path / "run" / "corpus.json").write_text(text)
    assert told("audit", "--resume", "run", "--device", "cpu").startswith(f"run/corpus.json{said}")


@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("clip", 5), ("clip", ...), ("status", "fine"), ("right", 1), ("errors", -1), ("words", True),
        ("radius", -0.5), ("radius", float("nan")), ("snr_db", "40"), ("lower", 1.5), ("successes", 1.5),
        ("passes", -1), ("seconds", 0), ("length_l2", -1), ("stop", None), ("colour", "blue"),
    ],
)  # fmt: skip
def test_a_certificate_is_named_with_its_line_and_field(
    tmp_path: Path, told: Told, way: str, value: Any
) -> None:
    folder = Path(shutil.copytree(KEPT / "certificates", tmp_path / "certificates"))
    change(folder / "certificates.jsonl", way, value, line=2)
    found = told("leaderboard", str(folder), "--out", "site")
    assert found.startswith(f"{folder}/certificates.jsonl, line 2, field {way!r}: expected "), found


CLAIMS: list[tuple[str, Any, str, str]] = [
    ("clips", True, '"clips": true', "a whole number, got True"),
    ("clips", "2", '"clips": "2"', "a whole number, got '2'"),
    ("clips", 2.0, '"clips": 2.0', "a whole number, got 2.0"),
    ("outcomes.clean.0", True, '"clean": [', "a whole number, got True"),
    ("target", 5, '"target": 5', "a text, got 5"),
    ("versions", [], '"versions": []', "a key and a value, got []"),
    ("worst.0.success.value", "0.5", '"value": "0.5"', "a number, got '0.5'"),
    ("worst", {}, '"worst": {}', "a list, got {}"),
]
"""The way to a field, what it holds now, how the line reads, and what is said of it."""


@pytest.mark.parametrize(("way", "value", "text", "said"), CLAIMS)
def test_a_claim_is_named_with_its_field_and_line(
    tmp_path: Path, told: Told, way: str, value: Any, text: str, said: str
) -> None:
    path = Path(shutil.copy(KEPT / "grid" / "claims" / "keyword_529de5ab.json", tmp_path / "claim.json"))
    path.write_text(json.dumps(json.loads(path.read_text())))
    change(path, way, value)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    (line,) = [n for n, each in enumerate(path.read_text().splitlines(), start=1) if text in each]
    found = told("leaderboard", "check", str(path))
    assert found.startswith(f"{path}, field {way!r}: ") and f"{said} (line {line})" in found, found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"schema": 1,\n "id": "a",\n "id": "b"}', ", field 'id': expected it once, got it twice (line 3)"),
        (b'{"schema": 1, "id": "\xff"}', ": cannot be read as a claim in JSON: 'utf-8' codec can't decode"),
        (b'{"schema": ' + b"[" * 50_000, ": cannot be read as a claim in JSON: maximum recursion depth"),
        (b'{"schema": ' + b"9" * 5_000 + b"}", ": cannot be read as a claim in JSON: Exceeds the limit"),
        (b"[]", ": expected a claim, an object in JSON, got list"),
    ],
)
def test_a_claim_that_is_no_object(tmp_path: Path, told: Told, text: bytes, said: str) -> None:
    (tmp_path / "claim.json").write_bytes(text)
    for verb in ("site", "check"):
        assert told("leaderboard", verb, "claim.json").startswith(f"claim.json{said}")
