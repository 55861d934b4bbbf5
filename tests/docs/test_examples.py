"""What the documents show is what the code does: every example runs, every setting is named."""

from __future__ import annotations

import copy
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner as ClickRunner
from typer.main import get_command
from typer.testing import CliRunner

from sottovoce import registry
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.cli import audit as audit_verb
from sottovoce.cli.main import app
from sottovoce.core.record import Record
from sottovoce.errors import UnknownName
from sottovoce.testing import check_attack

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
KINDS = (
    "attack",
    "universal",
    "budget",
    "goal",
    "transform",
    "vote",
    "metric",
    "ear",
    "corpus",
    "target",
    "study",
)
SECTIONS = {
    "attack": "Attacks",
    "universal": "Universal attacks",
    "budget": "Budgets",
    "goal": "Goals",
    "transform": "Transforms",
    "vote": "Votes",
    "metric": "Metrics",
    "ear": "Ears",
    "corpus": "Corpora",
    "target": "Targets",
    "study": "Studies",
}
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Fenced blocks of some languages, in order: (language, text)."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [(block["language"], block["text"]) for block in BLOCK.finditer(text)]
    return [block for block in found if block[0] in languages]


def commands(text: str) -> list[list[str]]:
    """The words of each `sottovoce ...` line, comments left out, without the first."""
    # As a shell has it: inside a word, as in pack:words.npz#train, the sign begins no comment.
    lines = [shlex.split(re.sub(r"(^|\s)#.*", "", line)) for line in text.splitlines()]
    return [words[1:] for words in lines if words and words[0] == "sottovoce"]


def rows(section: str) -> list[list[str]]:
    """The table rows below a heading of the reference, cell by cell, without code marks."""
    part = REFERENCE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, a registry that forgets, and modules that are dropped afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    registry.names("attack")  # plugins first, so that the copy has them
    monkeypatch.setattr(registry, "_PARTS", copy.deepcopy(registry._PARTS))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("my_"):
            del sys.modules[name]


def execute(text: str, space: dict[str, Any]) -> None:
    """Run a block. One that begins with a comment such as `# my_model.py` is also a file."""
    name = re.match(r"# (\w+\.py)\n", text)
    if name:
        Path(name[1]).write_text(text, encoding="utf-8")
    # Without `dont_inherit` the example would get this file's `from __future__` imports.
    exec(compile(text, name[1] if name else "<example>", "exec", dont_inherit=True), space)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_names_every_part(kind: str) -> None:
    named = {row[0] for row in rows(SECTIONS[kind])}
    # Parts of packages that happen to be installed are not sottovoce's to describe.
    own = [name for name in registry.names(kind) if registry._PARTS[kind][name].startswith("sottovoce.")]
    assert own
    assert not set(own) - named


@pytest.mark.parametrize("kind", ["attack", "universal", "budget", "goal", "transform", "vote", "ear"])
def test_the_reference_has_every_setting_with_its_default(kind: str) -> None:
    table = {(row[0], row[1]): row[2] for row in rows(SECTIONS[kind]) if len(row) == 4}
    expected: dict[tuple[str, str], str] = {}
    for name in registry.names(kind):
        part = registry.find(kind, name)
        if not registry._PARTS[kind][name].startswith("sottovoce.") or not is_dataclass(part):
            continue
        for item in fields(part):
            if item.init and not item.metadata.get("bound"):
                expected[name, item.name] = "required" if item.default is MISSING else str(item.default)
    found = {key: value for key, value in table.items() if key[1] and key[1] not in ("setting", "---")}
    assert found == expected


def test_the_reference_has_every_plan_entry_and_record_field() -> None:
    entries = [row[0] for row in rows("Plan entries")[2:]]
    assert entries == list(Plan.model_fields)
    for row in rows("Plan entries")[2:]:
        default = Plan.model_fields[row[0]].default
        if isinstance(default, str | int):
            assert row[1] == str(default)
        elif default is None:
            assert row[1] == "null"
    assert [row[0] for row in rows("Record fields")[2:]] == [item.name for item in fields(Record)]


def test_the_python_example_of_the_readme_changes_most_decisions(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = [text for _, text in blocks("README.md", "python") if "sv.open_model" in text]
    assert [line.split()[0] for line in text.splitlines()[:5] if line] == [
        "import",
        "model",
        "clips",
        "trial",
    ]
    execute(text, {"__name__": "readme"})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    found = [re.fullmatch(r"(\S+): (\S+) -> (\S+)", line) for line in lines]
    assert all(found)
    assert sum(match[2] != match[3] for match in found if match) > 6


def test_the_audit_of_the_readme_runs(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = [text for _, text in blocks("README.md", "python") if "sv.audit" in text]
    execute(text, {"__name__": "readme"})
    lines = capsys.readouterr().out.splitlines()
    cells = ["noise in snr(db=30)", "noise in snr(db=40)", "pgd in snr(db=30)", "pgd in snr(db=40)"]
    assert sorted(line.partition(":")[0] for line in lines[:-1]) == cells
    assert re.fullmatch(r"\S+: \d\d\.\d dB, runs/first/report\.html", lines[-1])


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/how-to.md"])
def test_only_the_public_api_is_imported(page: str) -> None:
    """Training from Python is no part of it yet, and the recipe says so."""
    lines = [line for _, text in blocks(page, "python") for line in text.splitlines()]
    found = {line for line in lines if "import" in line and "sottovoce" in line}
    training = {line for line in found if line.startswith("from sottovoce.training.")}
    assert found - training == {"import sottovoce as sv"}
    assert not training or page == "docs/how-to.md"


def test_the_attack_of_the_readme_keeps_the_laws() -> None:
    (text,) = [text for _, text in blocks("README.md", "python") if "class Flip" in text]
    space: dict[str, Any] = {"__name__": "readme"}
    execute(text, space)
    check_attack(space["Flip"]())


QUICK = ("certify", "train", "metric")
"""Verbs of the how-to that are run; of the others options are checked, and audits are made into plans."""


@pytest.mark.slow
def test_the_recipes_run(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python, and the commands that take seconds and need no model or clips but those that ship."""
    space: dict[str, Any] = {"__name__": "recipes"}
    shown = ""
    for language, text in blocks("docs/how-to.md", "python", "sh"):
        if language == "python":
            execute(text, space)
            shown += capsys.readouterr().out
            continue
        for words in commands(text):
            if words[0] in QUICK:
                done = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
                assert done.exit_code == 0, (words, done.output, done.exception)
    (printed,) = [text for _, text in blocks("docs/how-to.md", "text") if "resampled" in text]
    assert printed in shown
    assert re.search(r"\d+ of 12 decisions changed", shown)


def test_the_plugin_recipe_registers_its_parts(desk: Path) -> None:
    space: dict[str, Any] = {}
    (text,) = [text for _, text in blocks("docs/how-to.md", "python") if "def register(add)" in text]
    execute(text, space)
    space["register"](registry.add)
    assert "tone" in registry.names("attack")
    assert "rms" in registry.names("budget")


@pytest.mark.slow
def test_the_tutorial_runs_and_shows_what_it_says(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"__name__": "tutorial"}
    shown = ""
    for language, text in blocks("docs/tutorial.md", "python", "sh"):
        if language == "python":
            execute(text, space)
            shown += capsys.readouterr().out
            continue
        for words in commands(text):
            if "--defenses" in words:  # three attackers and their probes: minutes for six clips
                words[words.index("--limit") + 1] = "3"
            done = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
            assert done.exit_code == 0, (words, done.output, done.exception)
            shown += done.output
    # Rates are counts of a few clips and levels have three digits: the last digit may differ by machine.
    assert "bright: 0 of 3 changed\ndark: 3 of 3 changed\n" in shown
    assert re.search(r"\| keyword \| none +\| noise +\| evade \| +0\.0 \[0\.0, 45\.9\] \|", shown)
    assert re.search(r"noise +0 \[0,46\]", shown)
    assert re.search(r"go-4: go -> \w+, 4\d\.\d dB", shown)
    assert "behind quantise(bits=8)" in shown
    assert re.search(r"pgd\(steps=5\) +adaptive", shown)


@pytest.mark.parametrize("page", ["README.md", "docs/how-to.md", "docs/tutorial.md"])
def test_audit_commands_make_plans(page: str, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options and the parts are right; nothing is run."""
    plans: list[Plan] = []
    monkeypatch.setattr(audit_verb, "run", lambda plan, *rest: plans.append(plan))
    # Files that a reader has and this test has not; only what the model says is asked of it.
    spoken = ("recogniser", "whisper", "huggingface", "speechbrain", "deepspeech2", "api")
    monkeypatch.setattr(
        "sottovoce.auditing.run.driver.open_target",
        lambda spec, device: SimpleNamespace(
            says="words" if spec.startswith(spoken) else "class",
            shows="decisions" if spec.startswith("api") else "gradient",
        ),
    )
    for _, text in blocks("docs/how-to.md", "yaml"):
        Path("plan.yaml").write_text(text, encoding="utf-8")
    shown = [words for _, text in blocks(page, "sh") for words in commands(text) if words[0] == "audit"]
    # These run no plan, or that of a folder that a reader has.
    wanted = [words for words in shown if not {"--dry-run", "--resume", "--examples"} & set(words)]
    for words in wanted:
        redirect = words.index(">") if ">" in words else None
        done = CliRunner().invoke(app, words[:redirect])
        assert done.exit_code == 0, (words, done.output, done.exception)
    assert wanted
    assert len(plans) == len(wanted)


PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


def leaves(command: Any) -> Iterator[Any]:
    """The verbs below a command, or itself."""
    below = getattr(command, "commands", {})
    for each in below.values():
        yield from leaves(each)
    if not below:
        yield command


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_read(page: str, desk: Path) -> None:
    """Verbs, options and their types are right; nothing is run. Files are a reader's own."""
    whole = get_command(app)
    for each in leaves(whole):
        each.callback = lambda **given: None
    for _, text in blocks(page, "sh"):
        for words in commands(text):
            redirect = words.index(">") if ">" in words else None
            done = ClickRunner().invoke(whole, words[:redirect])
            told = re.sub(r"[\s│]+", " ", done.output)
            assert done.exit_code == 0 or "does not exist" in told, (words, done.output)


def test_a_name_that_is_not_there_would_be_noticed() -> None:
    with pytest.raises(UnknownName):
        registry.find("attack", "tone")
