"""Mistakes that users make, and what sottovoce says to them: see golden/README.md.

`golden/mistakes.txt` is both the list and the answers. `$` begins a command line, `>>>` a line of Python; the
line below is what came of it. To add a mistake, write its line; then write the answers anew.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from typer.main import get_command

import sottovoce as sv
from sottovoce.cli import main as cli

GOLDEN = Path(__file__).parent / "golden" / "mistakes.txt"
RUN = Path(__file__).parent / "fixtures" / "run-0.1.0" / "classifier"
WRITE = "SOTTOVOCE_WRITE_GOLDEN"
COMMAND, PYTHON = "$ ", ">>> "
BOX = re.compile(r"[╭╮╰╯│─\s]+")
"""What Typer draws around its own messages."""
FILES = {
    "unknown-key.yaml": "model: keyword\natacks: [pgd]\n",
    "key-twice.yaml": "model: keyword\nlimit: 4\nlimit: 8\n",
    "bad-type.yaml": "model: keyword\nlimit: few\n",
    "no-yaml.yaml": "model: keyword\n  limit: 4\n",
    "empty-grid.yaml": "attacks: [noise]\nexclude: [{attack: noise}]\n",
    "listening.yaml": "title: Words\nclips: {}\nblock: []\n",
    "no-label.csv": "path\nclips/yes/1.wav\n",
    "no-file.csv": "path,label\nabsent.wav,yes\n",
    "claim.json": "{}",
    "text.wav": "no sound",
    "no-clips/notes.txt": "no clip either",
    "thesis/chapter1.txt": "something of mine",
}


def tone(path: str, *, samples: int = 16000, rate: int = 16000, channels: int = 1) -> None:
    """A clip of a quiet tone."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    sound = 0.1 * np.sin(0.05 * np.arange(samples))
    soundfile.write(path, np.stack([sound] * channels, axis=1), rate, subtype="PCM_16")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the mistakes are about; no network, no GPU and no ViSQOL."""
    monkeypatch.chdir(tmp_path)
    for label in ("yes", "no"):
        tone(f"clips/{label}/1.wav")
    for label in ("yes", "banana"):
        tone(f"fruit/{label}/1.wav")
    tone("clean.wav")
    tone("shorter.wav", samples=8000)
    tone("8khz.wav", rate=8000)
    broken = np.zeros(16000, dtype=np.float32)
    broken[7] = np.nan
    soundfile.write("nan.wav", broken, 16000, subtype="FLOAT")
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "empty").mkdir()
    shutil.copytree(RUN, tmp_path / "old-run")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for package in ("visqol", "ray"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "path", [*sys.path])
    # Typer builds the command anew on each call, which takes longer than most mistakes.
    monkeypatch.setattr(cli, "app", get_command(cli.app))
    return tmp_path


def typed(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The exit code of a command line, and what it complains about."""
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    capsys.readouterr()
    try:
        cli.main()
        code: object = 0
    except SystemExit as end:
        code = end.code
    except Exception as error:
        return f"NOT CAUGHT {said(error)}"
    out, err = capsys.readouterr()
    if not err:
        complaints = [line for line in out.splitlines() if line.startswith("failed")]
        return f"exit {code}: {' '.join(complaints)}"
    message = err.partition("for help.")[2] or err
    return f"exit {code}: {BOX.sub(' ', message).strip().removeprefix('Error ')}"


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def run(line: str) -> str:
    """What a line of Python raises."""
    try:
        eval(line, {"sv": sv, "torch": torch})
    except Exception as error:
        return said(error)
    return "no error"


def answered(text: str, answer: Callable[[str], str]) -> Iterator[str]:
    """The lines of the golden file, each mistake with its answer in place of the one that is there."""
    skip = False
    for line in text.splitlines():
        if line.startswith((COMMAND, PYTHON)):
            yield line
            yield answer(line)
        elif not skip or not line or line.startswith("#"):
            yield line
        skip = line.startswith((COMMAND, PYTHON))


def test_mistakes(desk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(line: str) -> str:
        if line.startswith(COMMAND):
            found = typed(line.removeprefix(COMMAND), capsys, monkeypatch)
        else:
            found = run(line.removeprefix(PYTHON))
        return found.replace(f"{desk}{os.sep}", "")

    kept = GOLDEN.read_text(encoding="utf-8")
    found = "\n".join(answered(kept, answer)) + "\n"
    if os.environ.get(WRITE):
        GOLDEN.write_text(found, encoding="utf-8")
        return
    assert found.splitlines() == kept.splitlines(), (
        f"messages changed; where they are better, run {WRITE}=1 python -m pytest {Path(__file__).name} and "
        "commit golden/mistakes.txt"
    )


def test_the_list_is_long_enough() -> None:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith((COMMAND, PYTHON)) for line in lines) >= 40
