"""The verb, on the shipped clips and a model so small that fitting takes moments."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from sottovoce.cli.study_verbs import app, split_columns
from sottovoce.errors import InputError, UnknownName
from sottovoce.studies.study import StudyTable

MODEL = """
import torch
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.zoo.keyword_cnn import CLASSES

def make(seed=SEED):
    module = torch.nn.Linear(16000, 12)
    source = torch.Generator().manual_seed(seed)
    module.weight.data = torch.randn(12, 16000, generator=source)
    module.bias.data = torch.zeros(12)
    return ModuleClassifier(module, CLASSES, 16000, clip_samples=16000)
"""


RECOGNISER = """
import torch
from sottovoce.targets.families.ctc import Ctc, Vocabulary
from sottovoce.testing.toys import ToyFilters, weights

class Speller(Ctc):
    vocabulary = Vocabulary(("", *"abcdefghijklmnopqrstuvwxyz "), case="lower")
    sample_rate, frame_seconds, shortest = 1000, 0.02, 20

    def __init__(self):
        self.module = ToyFilters(32, 20, seed=5, scale=8.0)
        self.readout = weights(6, 32, 28)

    def log_probs(self, batch, *, draws):
        scores = self.module(batch.waveforms) @ self.readout
        return scores.log_softmax(dim=-1), self.module.count(batch.lengths)

def make():
    return Speller()
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


def test_list_names_them_all() -> None:
    text = run("list")
    names = ["V1", "V2", "V3", "V4", "V5", "O5", "O6", "O7", "O8", "O12"]
    assert [name for name in names if name in text] == names


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


@pytest.fixture
def spoken(folder: Path) -> Path:
    """A toy recogniser, and three clips of noise that it is to hear words in."""
    (folder / "toy_recogniser.py").write_text(RECOGNISER, encoding="utf-8")
    source = np.random.default_rng(0)
    lines = ["path,label,speaker,language"]
    for number, length in enumerate((3000, 3400, 2600)):
        soundfile.write(
            folder / f"{number}.wav", 0.1 * source.standard_normal(length), 1000, subtype="PCM_16"
        )
        lines.append(f"{number}.wav,some words,speaker{number},en")
    (folder / "clips.csv").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_recogniser_under_attack(spoken: Path) -> None:
    options = [
        "--model",
        "python:toy_recogniser:make",
        "--data",
        "csv:clips.csv",
        "--clips",
        "2",
        "--out",
        "out",
    ]
    text = run("run", "O5", *options)
    assert "NOT the paper's model and data" in text and "NOT the paper's scale" in text and "16.98" in text
    facts = json.loads((spoken / "out" / "O5" / "results.json").read_text("utf-8"))
    wers = {(one["attack"], one["budget"]): one["wer"] for one in facts["values"]["untargeted"]}
    assert len(wers) == 20 and {found["n"] for found in wers.values()} == {2}
    assert facts["values"]["forced"][0]["success"]["n"] == 2
    # The same command runs nothing again, and the table alone needs neither model nor clips.
    records = spoken / "out" / "plans" / "untargeted" / "trials.jsonl"
    before = records.read_bytes()
    run("run", "O5", *options)
    assert records.read_bytes() == before and before.count(b"\n") == 40
    (spoken / "clips.csv").unlink()
    (spoken / "toy_recogniser.py").unlink()
    assert "16.98" in run("table", "O5", "out")


def test_options_that_a_study_has_not() -> None:
    for study, option, value in (("V2", "clips", "3"), ("O5", "attack", "uap"), ("O7", "fit", "csv:x")):
        with pytest.raises(InputError, match=f"does not use --{option}"):
            run("run", study, f"--{option}", value)


def test_a_folder_of_another_setting_is_refused(folder: Path) -> None:
    run("run", "V1", "--model", "python:small_model:make", "--out", "out")
    with pytest.raises(InputError, match="holds a study with another seed"):
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


def test_a_table_too_wide_for_the_terminal_is_split() -> None:
    """Columns of 4 + 3, 6 + 3 and 5 + 3 letters: 25 with the outer frame, so that 24 hold the first two."""
    sheet = StudyTable(
        title="Rates", columns=("name", "clean", "at 60 dB"), rows=[("cnn", "12.5 %", "3.1 %")], note="N."
    )
    assert list(split_columns(sheet, 25)) == [sheet]
    first, second = split_columns(sheet, 24)
    assert (first.title, first.columns, first.rows, first.note) == (
        "Rates", ("name", "clean"), [("cnn", "12.5 %")], ""
    )  # fmt: skip
    assert (second.title, second.columns, second.rows, second.note) == (
        "Rates, continued", ("name", "at 60 dB"), [("cnn", "3.1 %")], "N."
    )  # fmt: skip


def test_a_column_of_sentences_is_prose() -> None:
    sheet = StudyTable(title="", columns=("name", "rate", "why"), rows=[("cnn", "1.0", "because " * 8)])
    assert [sheet.prose(place) for place in range(3)] == [True, False, True]
