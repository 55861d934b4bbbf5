"""`sottovoce metric` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sottovoce.cli.metric_verbs import app
from sottovoce.data.load import Clip
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.ears import learned
from sottovoce.perception.ears.learned_network import EarShape, LearnedNetwork, save_network
from sottovoce.perception.jnd.answers import SameDifferentAnswer, write_answers

RATE = 16_000


def write(folder: Path, *, simulated: bool = True, heard: bool = True) -> Path:
    """Noise at two levels over three references; the louder one is heard, or nothing is."""
    clips, answers = [], []
    for number in range(3):
        source = np.random.default_rng(number)
        samples = 0.1 * source.standard_normal(3200)
        for name, gain in ((f"r{number}", 0.0), (f"r{number}q", 1e-4), (f"r{number}l", 0.1)):
            grid = np.rint((samples + gain * source.standard_normal(3200)).clip(-1, 0.999) * 32768) / 32768
            clips.append(Clip(name, torch.from_numpy(grid.astype(np.float32)), RATE, ""))
            if gain:
                answers.append(
                    SameDifferentAnswer(
                        listener="simulated-1" if simulated else "anna",
                        simulated=simulated,
                        reference=f"r{number}",
                        changed=name,
                        different=heard and gain > 0.01,
                    )
                )
    write_answers(folder, answers, clips)
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Shipped features of a tiny network."""
    monkeypatch.setattr(learned, "FOLDER", tmp_path / "weights")
    network = LearnedNetwork(EarShape(bands=8, channels=(4, 4)))
    save_network(tmp_path / "weights" / "learned-pre.safetensors", network, {"listeners": "simulated"})


def train(*words: str) -> str:
    options = ["--steps", "3", "--batch", "4", "--check", "2", "--device", "cpu"]
    found = CliRunner().invoke(app, ["train", *words, *options], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("variant", ["pre", "lin", "fin"])
def test_weights_report_and_a_warning(tmp_path: Path, variant: str) -> None:
    out = tmp_path / "mine.safetensors"
    said = train(str(write(tmp_path / "a")), "--variant", variant, "--out", str(out))
    assert "held-out answers" in said
    assert "simulated listeners" in said
    assert learned.Learned(weights=str(out)).facts["variant"] == variant
    report = json.loads(out.with_suffix(".json").read_text())
    assert report["listeners"] == "simulated"
    assert set(report["figures"]["valid"]) >= {"accuracy", "auc", "calibration"}


@pytest.mark.usefixtures("small")
def test_people_are_not_called_simulated(tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    said = train(str(write(tmp_path / "a", simulated=False)), "--variant", "lin", "--out", str(out))
    assert "simulated" not in said
    assert learned.Learned(weights=str(out)).facts["listeners"] == "people"


@pytest.mark.usefixtures("small")
def test_answers_that_are_all_same(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="all 'same'"):
        train(str(write(tmp_path / "a", heard=False)))


def test_bad_options(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        train(str(tmp_path), "--variant", "best")
    with pytest.raises(InputError, match="safetensors"):
        train(str(tmp_path), "--out", "weights.bin")
    with pytest.raises(InputError, match="expected an answers folder"):
        train(str(tmp_path / "none"))
    with pytest.raises(InputError, match="sottovoce metric train"):
        learned.Learned(weights=str(tmp_path / "none"))
