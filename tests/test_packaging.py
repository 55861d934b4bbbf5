"""What an install without extras brings, and what is asked for by name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

# Packages that extras bring, by the names that they are imported by.
EXTRAS = (
    "accelerate", "alembic", "auraloss", "fastapi", "httptools", "jiwer", "lhotse", "onnxruntime", "pesq",
    "psycopg", "questplus", "ray", "s3fs", "sentencepiece", "speechbrain", "speechmos", "sqlalchemy",
    "sqlmodel", "starlette", "tensorboard", "tokenizers", "transformers", "urllib3", "uvicorn", "uvloop",
    "visqol", "zimtohrli",
)  # fmt: skip

WITHOUT = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refuse())
from sottovoce.cli.main import main
main()
"""


def without_extras(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A verb where nothing but the direct dependencies and what they bring can be imported."""
    command = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def bare(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return found[0].lower().replace("_", "-")


def test_there_are_at_most_18_direct_dependencies() -> None:
    assert len(PROJECT["dependencies"]) <= 18


def test_extras_repeat_no_dependency() -> None:
    direct = {bare(one) for one in PROJECT["dependencies"]}
    for extra, asked in PROJECT["optional-dependencies"].items():
        assert direct & {bare(one) for one in asked} == set(), extra


def test_what_the_demo_and_the_tests_install_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {bare(line) for line in lines if not line.startswith("#")}
    extras = PROJECT["optional-dependencies"]
    asked = {*PROJECT["dependencies"], *extras["test"]}
    for one in extras["test"]:
        if inner := re.fullmatch(r"sottovoce\[(\w+)\]", one):
            asked |= set(extras[inner[1]])
    assert {bare(one) for one in asked} - {"sottovoce"} <= pinned


def test_an_audit_needs_no_extra(tmp_path: Path) -> None:
    words = ("--attacks", "pgd(steps=10)", "--snr", "20", "--limit", "2", "--out", "run", "--json")
    done = without_extras("audit", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert 20.0 <= cell["metrics"]["snr"]["value"] < 40.0
    assert cell["metrics"]["stoi"]["n"] >= 1
    assert "data:image/png;base64" in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_a_corpus_that_needs_an_extra_says_what_to_type(tmp_path: Path) -> None:
    chapter = tmp_path / "test-clean" / "1" / "2"
    chapter.mkdir(parents=True)
    (chapter / "1-2.trans.txt").write_text("1-2-0000 HELLO\n")
    done = without_extras(
        "audit", "--model", "recogniser", "--data", "librispeech:test-clean", folder=tmp_path
    )
    assert done.returncode == 2
    assert 'pip install "sottovoce[corpora]"' in done.stderr and "Traceback" not in done.stderr


def test_simulated_listeners_say_what_to_type(tmp_path: Path) -> None:
    done = without_extras("listen", "simulate", "study.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert "urllib3 is not installed; use: pip install 'sottovoce[listen]'" in done.stderr
