"""What is opened, and how often: a model once a grid, and to read a plan none at all."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sottovoce.auditing.engines.pool_engine import PoolEngine
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.auditing.run import executor as bench
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.run_grid import run_folders, run_grid
from sottovoce.cli.main import app
from sottovoce.core.target import Target
from sottovoce.leaderboard.claims.claim import Claim
from sottovoce.targets import open_target as opening
from sottovoce.targets.open_target import Openings, declared_kind, guess, kind_of

SHARED = {
    "data": "clips", "attacks": ["noise"], "budgets": ["snr(db=-3)"], "probe": 0, "metrics": ["success"],
    "audio": "none", "limit": 2,
}  # fmt: skip
MODEL = """
from sottovoce.testing.toys import ToyClassifier
from sottovoce.testing.sequence_toys import ToyCtc


def one():
    return ToyClassifier()


def spoken():
    return ToyCtc()
"""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each model was opened."""
    found: Counter[str] = Counter()
    real = opening.open_target

    def watched(spec: str, device: str) -> Target:
        found[spec] += 1
        return real(spec, device)

    for module in (opening, bench):
        monkeypatch.setattr(module, "open_target", watched)
    return found


@pytest.fixture
def two_models(mean_model: str, mean_clips: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "other_model.py").write_text((tmp_path / "mean_model.py").read_text())
    sys.modules.pop("other_model", None)
    return [mean_model, "python:other_model:make"]


def test_two_models_and_five_seeds_are_two_models(
    two_models: list[str], opened: Counter[str], tmp_path: Path
) -> None:
    grid = make_grid({**SHARED, "targets": two_models, "seeds": [0, 1, 2, 3, 4]})
    assert opened == {}
    folders = run_grid(grid, tmp_path / "grid", device="cpu")
    assert [len(list(folder.records())) for folder in folders] == [2] * 10
    assert opened == {model: 1 for model in two_models}


def test_the_command_opens_no_more(two_models: list[str], opened: Counter[str], tmp_path: Path) -> None:
    Path("plan.yaml").write_text(yaml.safe_dump({**SHARED, "targets": two_models, "seeds": [0, 1]}))
    words = ["audit", "plan.yaml", "--device", "cpu", "--json", "--out", "grid"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert opened == {model: 1 for model in two_models}
    opened.clear()
    # Going on, and looking ahead, do not either.
    assert CliRunner().invoke(app, ["audit", "--resume", "grid", "--device", "cpu"]).exit_code == 0
    assert opened == {model: 1 for model in two_models}
    opened.clear()
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert done.exit_code == 0 and len(json.loads(done.stdout)["runs"]) == 4, done.output
    assert opened == {model: 1 for model in two_models}


@pytest.mark.slow
def test_the_driver_of_workers_opens_no_more(
    two_models: list[str], opened: Counter[str], tmp_path: Path
) -> None:
    grid = make_grid({**SHARED, "targets": two_models, "seeds": [0, 1, 2]})
    with PoolEngine(2, ["cpu"]) as pool:
        folders = run_grid(grid, tmp_path / "grid", engine=pool)
    assert [len(list(folder.records())) for folder in folders] == [2] * 6
    # Workers are processes of their own; this is what the driver looks at.
    assert opened == {model: 1 for model in two_models}


def test_more_models_than_are_kept_are_opened_again(
    two_models: list[str], opened: Counter[str], tmp_path: Path
) -> None:
    (tmp_path / "third_model.py").write_text((tmp_path / "mean_model.py").read_text())
    three = [*two_models, "python:third_model:make"]
    run_grid(make_grid({**SHARED, "targets": three, "seeds": [0, 1]}), tmp_path / "grid", device="cpu")
    assert opened == {three[0]: 1, three[1]: 1, three[2]: 2}


def test_models_that_leave_no_room_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []

    class Big(Target):  # type: ignore[misc]
        says = "words"

    def open_big(spec: str, device: str) -> Target:
        if len(openings._open) > 0:
            raise MemoryError("no room for two")
        held.append(spec)
        return Big.__new__(Big)

    Big.__abstractmethods__ = frozenset()
    monkeypatch.setattr(opening, "open_target", open_big)
    openings = Openings("cpu")
    assert [openings.kind(model) for model in ("python:a:b", "python:c:d")] == ["words, no gradient"] * 2
    assert held == ["python:a:b", "python:c:d"]
    assert openings.take("python:a:b") is None and openings.take("python:c:d") is not None


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("keyword", "class"), ("keyword(variant=pgd)", "class"), ("speaker", "class"), ("detector", "class"),
        ("recogniser", "words"), ("recogniser(beams=3)", "words"), ("deepspeech2:nowhere", "words"),
        ("whisper:/nowhere/keyword.pt", "words"), ("whisper(model=x)", "words"), ("speechbrain:x", "words"),
        ("huggingface:x", None), ("python:a:b", None), ("transfer(source=keyword)", None), ("keywort", None),
    ],
)  # fmt: skip
def test_what_a_name_tells_of_its_models(model: str, says: str | None, opened: Counter[str]) -> None:
    assert declared_kind(model) == says
    assert guess(model) == (says or "class")
    assert opened == {}


def test_what_only_the_model_can_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spoken_models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert kind_of("python:spoken_models:spoken") == "words"
    assert kind_of("python:spoken_models:one") == "class"
    assert kind_of("python:spoken_models:absent") == "class"
    spoken = make_plan({"model": "python:spoken_models:spoken"})
    assert [str(attack) for attack in spoken.attacks] == ["noise", "fgsm", "pgd(step=0.25)"]
    sys.modules.pop("spoken_models")


def test_python_and_the_command_make_one_plan(
    opened: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = {"limit": 2, "attacks": ["noise"], "audio": "none", "metrics": ["success"], "probe": 0}
    plan = make_plan({"model": "recogniser"})
    assert opened == {}
    assert [str(attack) for attack in plan.attacks] == ["noise", "fgsm", "pgd(step=0.25)"]
    assert [str(budget) for budget in plan.budgets] == ["snr(db=30)", "snr(db=40)"]
    assert plan.batch == 8
    assert plan == next(iter(make_grid({"model": "recogniser"}).plans().values()))
    short = make_plan({"model": "recogniser", **small})
    run_audit(short, Path("python"), device="cpu")
    words = ["--model", "recogniser", "--limit", "2", "--attacks", "noise", "--audio", "none"]
    words += ["--metrics", "success", "--probe", "0", "--device", "cpu", "--out", "command"]
    done = CliRunner().invoke(app, ["audit", *words])
    assert done.exit_code == 0, done.output
    for name in ("plan.yaml", "trials.jsonl"):
        assert Path("python", name).read_bytes() == Path("command", name).read_bytes()


def test_what_is_read_opens_nothing(two_models: list[str], opened: Counter[str], tmp_path: Path) -> None:
    folder = run_audit(make_plan({**SHARED, "model": two_models[0]}), tmp_path / "run", device="cpu")
    run_grid(make_grid({**SHARED, "targets": two_models}), tmp_path / "grid", device="cpu")
    opened.clear()
    for path in (folder.path / "plan.yaml", tmp_path / "grid" / "plan.yaml"):
        # As a stranger may have left it: what a model says would have to be asked of the model.
        path.write_text("".join(line for line in path.read_text().splitlines(True) if "batch" not in line))
    assert RunFolder(folder.path).plan().batch == 32
    assert len(run_folders(tmp_path / "grid")) == 2
    assert Claim.model_construct(plan={"model": two_models[0]}).parsed_plan().batch == 32
    assert opened == {}
