"""The verb, on the shipped clips and a model so small that fitting takes moments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sottovoce.cli.study import app
from sottovoce.errors import InputError, UnknownName

MODEL = """
import torch
from sottovoce.targets.classifier import ModuleClassifier
from sottovoce.targets.zoo.keyword_cnn import CLASSES

def make(seed=SEED):
    module = torch.nn.Linear(16000, 12)
    source = torch.Generator().manual_seed(seed)
    module.weight.data = torch.randn(12, 16000, generator=source)
    module.bias.data = torch.zeros(12)
    return ModuleClassifier(module, CLASSES, 16000, clip_samples=16000)
"""


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, seed in (("small_model", 1), ("other_model", 2)):
        (tmp_path / f"{name}.py").write_text(MODEL.replace("SEED", str(seed)), encoding="utf-8")
    return tmp_path


def test_list_names_all_five() -> None:
    text = run("list")
    assert [name for name in ("V1", "V2", "V3", "V4", "V5") if name in text] == ["V1", "V2", "V3", "V4", "V5"]


def test_studies_share_what_was_fitted(folder: Path) -> None:
    options = ["--model", "python:small_model:make", "--out", "out"]
    text = run("run", "V2", *options)
    assert "NOT the paper's scale" in text and "23.80" in text and "87.80" in text
    fitted = sorted((folder / "out" / "perturbations").iterdir())
    assert len(fitted) == 24
    times = [path.stat().st_mtime_ns for path in fitted]
    assert "V4: " in run("run", "V4", *options)
    facts = json.loads((folder / "out" / "V4" / "results.json").read_text("utf-8"))
    assert facts["setting"]["data"] == "embedded"
    assert [path.stat().st_mtime_ns for path in fitted] == times
    # 12 classes have five clips each: three to fit on, two to judge on.
    rows = json.loads((folder / "out" / "V2" / "results.json").read_text("utf-8"))["values"]["classes"]
    assert {(row["fit_clips"], row["valid_clips"]) for row in rows.values()} == {(3, 2)}


def test_a_folder_of_another_setting_is_refused(folder: Path) -> None:
    run("run", "V1", "--model", "python:small_model:make", "--out", "out")
    with pytest.raises(InputError, match="where seed was another"):
        run("run", "V1", "--model", "python:small_model:make", "--out", "out", "--seed", "1")


def test_a_model_with_new_weights_is_refused(folder: Path) -> None:
    run("run", "V1", "--model", "python:small_model:make", "--out", "out")
    path = folder / "out" / "setting.json"
    path.write_text(path.read_text("utf-8").replace("small_model", "other_model"), encoding="utf-8")
    with pytest.raises(InputError, match="other scores"):
        run("run", "V1", "--model", "python:other_model:make", "--out", "out")


def test_mistakes() -> None:
    with pytest.raises(UnknownName, match="unknown study 'V9'"):
        run("run", "V9")
    with pytest.raises(UnknownName, match="did you mean 'uap-hc'"):
        run("run", "V2", "--attack", "uap-hx")
    with pytest.raises(UnknownName, match="unknown scale"):
        run("run", "V2", "--scale", "huge")
    with pytest.raises(InputError, match="speechcommands:DIR"):
        run("run", "V2", "--scale", "full")
