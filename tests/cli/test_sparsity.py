"""`sottovoce sparsity` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.cli.main import app
from sottovoce.cli.over_corpus.sparsity import sparsity
from sottovoce.errors import InputError

FEW = ("--passes", "10", "--directions", "2", "--device", "cpu")


def command(*words: str) -> None:
    """The command in this process."""
    own = typer.Typer()
    own.command()(sparsity)
    typer.main.get_command(own).main(words, standalone_mode=False)


def test_the_table_and_the_files(
    mean_model: str, mean_clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("--model", mean_model, "--data", "clips", "--l2", "2", "--linf", "0.1", *FEW, "--out", "run")
    shown = capsys.readouterr().out
    assert "adversarial sparsity over 6 clips, 2 directions each" in shown
    assert "Radians to the nearest perturbation that fools" in shown
    assert "Samples that must be free to change" in shown
    assert "60 [15,95]" in shown  # 3 of 5: Clopper-Pearson from 0.147 to 0.947
    assert "100 [48,100]" in shown
    assert "counts as all its samples or pi" in shown
    assert "At most 30 passes with a gradient" in shown
    names = {"about.json", "sparsity.jsonl", "sparsity.yaml", "sparsity.png"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names


def test_the_door_finds_what_the_command_line_finds(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    words = ["--model", mean_model, "--data", "clips", "--snr", "0,-3", *FEW, "--json"]
    done = CliRunner().invoke(app, ["sparsity", *words])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    found = sv.sparsity(mean_model, "clips", snr=[0, -3], passes=10, directions=2, device="cpu")
    assert (str(found.folder), found.plan.run_id) == (told["folder"], told["run"])
    assert json.loads(json.dumps([row.to_json() for row in found.table])) == told["rows"]
    lines = (found.folder / "sparsity.jsonl").read_text().splitlines()
    assert json.loads(json.dumps(found.rows)) == [json.loads(line) for line in lines]
    assert [row["title"] for row in told["rows"]] == ["SNR 0 dB", "SNR -3 dB"]


def test_an_audit_of_the_same_model_gets_a_section(
    mean_model: str, mean_clips: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sv.audit(mean_model, "clips", attacks="noise", snr=[0], metrics=["success"], limit=2, out="run")
    assert 'id="sparsity"' not in Path(run.report).read_text()
    command("--model", mean_model, "--data", "clips", "--l2", "2", "--limit", "2", *FEW, "--out", "run")
    assert "report: run/report.html" in capsys.readouterr().out
    assert (tmp_path / "run" / "sparsity" / "sparsity.jsonl").exists()
    page = Path(run.report).read_text()
    assert 'id="sparsity"' in page
    assert "the nearest perturbation that fools lies" in page
    assert '<img src="data:image/png;base64,' in page
    # The folder is still the audit's.
    assert sv.read_run("run").summary()
    (tmp_path / "other_model.py").write_text((tmp_path / "mean_model.py").read_text())
    with pytest.raises(InputError, match="expected the model of the audit in run"):
        command("--model", "python:other_model:make", "--data", "clips", "--l2", "2", *FEW, "--out", "run")


def test_a_bad_clip_ends_with_exit_code_1(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (mean_clips / "up" / "broken.wav").write_bytes(b"no audio")
    words = ["--model", mean_model, "--data", "clips", "--l2", "2", *FEW]
    done = CliRunner().invoke(app, ["sparsity", *words, "--out", "run"])
    assert done.exit_code == 1
    assert "failed: up/broken" in done.output
    assert "to try these again: give the same command with --retry-failed" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--snr", "loud"], "expected decibels such as 20,40"),
        (["--linf", "0.1,x"], "expected amplitudes such as 0.002,0.004 for --linf"),
        (["--l2", "0"], "expected a number above 0; full scale is 1"),
        (["--directions", "0"], "--directions from 1"),
        (["--passes", "5"], "--passes from 10"),
        (["--wer", "0.5"], "speech recogniser alone"),
        (["--batch", "0"], "--batch of 1 clip"),
        (["--limit", "0"], "limit of 1 clip"),
        (["--defenses", "nonsense"], "unknown defense"),
        (["--goal", "force(text=nope)"], "unknown class 'nope'"),
    ],
)
def test_mistakes_are_told_before_any_work(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        command(*words, "--device", "cpu")
    assert list(tmp_path.iterdir()) == []
