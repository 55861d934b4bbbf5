"""What a command loads before it does anything: help and the list of parts wait for no library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import sottovoce.cli
from sottovoce.cli.parts import ask_all

HEAVY = ("torch", "scipy", "scipy.stats", "scipy.signal", "matplotlib", "transformers", "jinja2", "soundfile")

EVERY_HELP = """
import sys
import typer
from typer.testing import CliRunner
from sottovoce.cli.main import app

def verbs(command, words):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from verbs(inner, [*words, name])

for words in verbs(typer.main.get_command(app), []):
    done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0 and "Usage" in done.stdout, words
    print(" ".join(words) or "sottovoce")
"""

VERB = "import sys; from sottovoce.cli.main import main; sys.argv[1:] = {words}; main()"


def loaded_by(script: str) -> tuple[str, set[str]]:
    """What a script prints in a process of its own, and which of the heavy libraries it loaded."""
    tail = f"\nfinally:\n    import sys; print('LOADED', *[one for one in {HEAVY} if one in sys.modules])"
    body = "try:\n" + "\n".join("    " + line for line in script.splitlines())
    done = subprocess.run([sys.executable, "-c", body + tail], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shown, _, loaded = done.stdout.rpartition("LOADED")
    return shown, set(loaded.split())


def test_importing_sottovoce_loads_no_library() -> None:
    assert loaded_by("import sottovoce") == ("", set())


def test_no_help_loads_a_library() -> None:
    shown, loaded = loaded_by(EVERY_HELP)
    assert loaded == set()
    verbs = {"sottovoce", "audit", "certify", "view", "measure", "parts", "leaderboard check", "study run"}
    assert verbs | {"train harden", "metric train", "listen serve", "listen simulate"} <= set(
        shown.splitlines()
    )


def test_listing_the_parts_loads_no_library() -> None:
    shown, loaded = loaded_by(VERB.format(words=["parts"]))
    assert loaded == set()
    assert "steps=40" in shown and "Auto-PGD (Croce & Hein 2020)" in shown


def test_listing_the_studies_loads_no_library() -> None:
    shown, loaded = loaded_by(VERB.format(words=["study", "list"]))
    assert loaded == set()
    assert "Vadillo" in shown


def test_loading_every_part_loads_neither_statistics_nor_drawing() -> None:
    script = """
from sottovoce import registry
for kind in registry.kinds():
    for name in registry.names(kind):
        registry.find(kind, name)
"""
    assert loaded_by(script)[1] & {"scipy.stats", "scipy.signal", "matplotlib", "transformers"} == set()


def test_what_is_kept_of_the_parts_is_what_they_say() -> None:
    kept = json.loads(Path(sottovoce.cli.__path__[0], "parts.json").read_text("utf-8"))
    assert kept == ask_all(), "a part has changed: python tools/describe_parts.py"
