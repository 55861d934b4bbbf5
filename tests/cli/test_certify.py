"""`sottovoce certify` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from sottovoce.cli.certify import certify
from sottovoce.core.vote import Passes
from sottovoce.defenses.votes import Majority
from sottovoce.errors import InputError


def sottovoce(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sottovoce.cli.main import main; main()", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def command(*words: str) -> None:
    """The command in this process."""
    app = typer.Typer()
    app.command()(certify)
    typer.main.get_command(app).main(words, standalone_mode=False)


@pytest.mark.slow
def test_the_keyword_model_with_few_passes(tmp_path: Path) -> None:
    words = ["certify", "--limit", "3", "--passes", "64", "--select", "16", "--sigma", "0.005"]
    done = sottovoce(*words, "--out", "run", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["clips"] == 3
    assert [point["radius"] for point in content["radii"]][:2] == [0.0, 0.0025]
    lines = [json.loads(line) for line in (tmp_path / "run" / "certificates.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    # 64 of 64 at alpha = 0.001: 0.897687, 1.268484 sigma.
    assert all(line["radius"] is None or line["radius"] <= 0.00634243 for line in lines)
    assert any(line["radius"] == pytest.approx(0.00634242, abs=1e-7) for line in lines)
    names = {"about.json", "certificates.jsonl", "certify.yaml", "curve.png"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names
    before = (tmp_path / "run" / "certificates.jsonl").read_bytes()
    again = sottovoce(*words, "--out", "run", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "run" / "certificates.jsonl").read_bytes() == before
    assert "radius (L2)" in again.stdout
    assert "SNR (dB)" in again.stdout
    assert "abstained" in again.stdout
    assert "confidence 0.999" in again.stdout


def test_a_vote_elects_with_its_own_passes(
    mean_model: str,
    mean_clips: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    heard: list[int] = []
    elect = Majority.elect

    def listen(vote: Majority, passes: Passes) -> list[str]:
        heard.append(passes.count)
        return elect(vote, passes)

    monkeypatch.setattr(Majority, "elect", listen)
    monkeypatch.chdir(tmp_path)
    words = ["--model", mean_model, "--data", "clips", "--limit", "1", "--passes", "64", "--out", "run"]
    command(*words, "--defense", "gaussian(sigma=0.1)+majority(passes=3)")
    assert heard == [3]
    assert yaml.safe_load(Path("run/certify.yaml").read_text())["select"] == 3
    assert "from 3 passes each; 64 passes counted" in capsys.readouterr().out


def test_a_bad_clip_ends_with_exit_code_1(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (mean_clips / "down" / "0.wav").unlink()
    (mean_clips / "up" / "broken.wav").write_bytes(b"no audio")
    words = ("--model", mean_model, "--data", "clips", "--passes", "64", "--sigma", "0.1")
    done = sottovoce("certify", *words, "--out", "run", folder=tmp_path)
    assert done.returncode == 1
    assert "failed: up/broken" in done.stdout
    assert "to repeat these: run the same command with --retry-failed" in done.stdout
    assert "100 [48,100]" in done.stdout  # 5 of 5: Clopper-Pearson from 0.478


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = sottovoce("certify", "--wer", "0.5", folder=tmp_path)
    assert done.returncode == 2
    assert "expected none for a classifier" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sigma", "0"], "sigma: expected a number above 0"),
        (["--passes", "0"], "passes: expected 1 or more"),
        (["--select", "0"], "select: expected 1 to 100,000 passes"),
        (["--alpha", "1"], "alpha: expected a number between 0 and 1"),
        (["--batch", "0"], "batch: expected 1 pass or more"),
        (["--defense", "gaussian(snr_db=20)"], "follows the clip"),
        (["--defense", "mad(sigma=0.01)"], "low frequencies"),
        (["--defense", "gaussian", "--sigma", "0.1"], "got both"),
        (["--radius", "1"], "1000 passes at sigma 0.01 can certify at most"),
        (["--limit", "0"], "limit of 1 clip"),
        (["--defense", "gaussian+one"], "one takes a single pass, got 100"),
        (["--defense", "gaussian+majority(passes=3)", "--select", "100"], "vote of 100 passes"),
    ],
)
def test_mistakes_are_told_before_any_work(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        command(*words)
    assert list(tmp_path.iterdir()) == []
