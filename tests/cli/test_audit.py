"""`sottovoce audit` with plan files, several targets, dry runs and resuming."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from sottovoce.api.settings import Way, lay_over, parse_seeds
from sottovoce.cli.dry_run import number, size, span
from sottovoce.cli.main import app
from sottovoce.errors import InputError, SottovoceError, UnknownName

QUICK = ("--snr=-3", "--probe", "0", "--audio", "none", "--metrics", "success,snr,accuracy,clean-accuracy")


def audit(*words: str) -> Result:
    return CliRunner().invoke(app, ["audit", *words], env={"COLUMNS": "120"})


def refused(*words: str) -> str:
    """The sentence that a mistake ends in."""
    done = audit(*words)
    assert isinstance(done.exception, SottovoceError), done.output
    return str(done.exception)


def records(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_several_models_make_runs_and_a_page(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    both = f"{mean_model},python:mean_model:absent"
    done = audit("--model", both, "--data", "clips", "--attacks", "noise,fgsm", *QUICK, "--out", "grid")
    assert done.exit_code == 1, done.output  # one of them cannot be opened
    # 5 of 5, Clopper-Pearson from 0.478: the sixth is heard wrong before any attack, 5 of 6 right.
    assert re.search(r"python-mean-model-make +none +success +83 \[36,100\] +100 \[48,100\]", done.output)
    assert "python-mean-model-absent" in done.output and "nothing could be run" in done.output
    assert "failed: python-mean-model-absent: noise_evade_snr-db--3 and 1 other cell:" in done.output
    assert "sottovoce audit --resume grid --retry-failed" in done.output
    assert "all runs: grid/index.html" in done.output
    grid = tmp_path / "grid"
    assert {path.name for path in grid.iterdir()} >= {"plan.yaml", "about.json", "runs", "index.html"}
    assert (grid / "runs" / "python-mean-model-make" / "report.html").exists()
    # The model appears, and what failed is done again, and only that.
    good = grid / "runs" / "python-mean-model-make" / "trials.jsonl"
    before = good.read_bytes()
    (tmp_path / "mean_model.py").write_text((tmp_path / "mean_model.py").read_text() + "\nabsent = make\n")
    del sys.modules["mean_model"]
    again = audit("--resume", "grid", "--retry-failed")
    assert again.exit_code == 0, again.output
    assert good.read_bytes() == before
    late = records(grid / "runs" / "python-mean-model-absent")
    assert [line["status"] for line in late] == ["failed"] * 2 + ["ok"] * 12


def test_seeds_of_a_plan_file_and_json(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = {"targets": [mean_model], "data": "clips", "seeds": [3, 4], "attacks": ["noise"]}
    Path("plan.yaml").write_text(yaml.safe_dump(plan))
    done = audit("plan.yaml", *QUICK, "--json")
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert list(content["runs"]) == ["python-mean-model-make_seed-3", "python-mean-model-make_seed-4"]
    assert content["folder"].startswith("runs/grid-")
    (cell,) = content["runs"]["python-mean-model-make_seed-4"]["cells"]
    assert (cell["id"], cell["clips"]) == ("noise_evade_snr-db--3", 6)


def test_one_target_in_a_list_is_a_plain_run(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    Path("plan.yaml").write_text(yaml.safe_dump({"targets": [mean_model], "data": "clips", "seeds": [3]}))
    done = audit("plan.yaml", "--attacks", "noise", *QUICK, "--out", "run")
    assert done.exit_code == 0, done.output
    assert yaml.safe_load((tmp_path / "run" / "plan.yaml").read_text())["model"] == mean_model
    assert (tmp_path / "run" / "report.html").exists()
    assert "report: run/report.html" in done.output


def test_resume_goes_on_with_the_plan_of_the_folder(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    words = ("--model", mean_model, "--data", "clips", "--attacks", "noise,fgsm", *QUICK, "--out", "run")
    assert audit(*words).exit_code == 0
    path = tmp_path / "run" / "trials.jsonl"
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:7]))
    done = audit("--resume", "run")
    assert done.exit_code == 0, done.output
    assert path.read_text().splitlines(keepends=True) == whole
    assert "leave them out" in refused("--resume", "run", "--attacks", "pgd")
    assert "'nowhere' is not the folder of a run: it does not exist" in refused("--resume", "nowhere")


def test_labels_without_a_class(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (mean_clips / "left").mkdir()
    (mean_clips / "left" / "1.wav").write_bytes((mean_clips / "up" / "0.wav").read_bytes())
    words = ("--model", mean_model, "--data", "clips", "--attacks", "noise", *QUICK, "--out", "run")
    told = refused(*words)
    assert "got others for 1 of 7 clips: left (1). Its classes: down, up. Add --labels skip" in told
    assert not Path("run").exists()
    done = audit(*words, "--labels", "skip")
    assert done.exit_code == 0, done.output
    assert "skipped: 1 clip: the model has no class 'left'" in done.output
    dry = audit(*words[:-1], "other", "--dry-run")
    assert "this run will fail: corpus 'clips': expected labels that the model has a class" in dry.output
    assert "labels" in refused(*words, "--labels", "drop")


def test_no_attack_at_all(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    words = ("--model", mean_model, "--data", "clips", "--attacks", "none")
    done = audit(*words, "--out", "run")
    assert done.exit_code == 0, done.output
    # 5 of 6, Clopper-Pearson from 0.3588 to 0.9958.
    assert re.search(r"no defense +83 \[36,100\] +6", done.output)
    assert "success" not in done.output and "SNR" not in done.output
    content = json.loads(audit(*words, "--out", "run", "--json").stdout)
    assert content["clean"][0]["metrics"]["clean-accuracy"]["value"] == pytest.approx(5 / 6)
    assert (content["strongest"], content["heard"]["curves"], content["speakers"]) == ([], [], None)
    viewed = CliRunner().invoke(app, ["view", "run", "--no-browser"], env={"COLUMNS": "120"})
    assert viewed.exit_code == 0, viewed.output
    assert "nothing was attacked" in viewed.output
    dry = audit(*words, "--out", "other", "--dry-run")
    assert "6 clips x 1 cells = 6 trials" in dry.output
    # One of each clip; and before, four clips are decoded and scored twice.
    assert "in all 22 passes forward and 0 back" in dry.output
    told = refused(*words, "--snr", "30", "--goals", "evade")
    assert "expected no goals and no budgets with --attacks none, got --snr, --goals" in told
    assert "expected none alone" in refused(*words[:-1], "none,pgd")


def test_a_clip_that_is_too_long(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    words = ("--model", mean_model, "--data", "clips", "--attacks", "none", "--out", "run")
    done = audit(*words, "--longest", "0.09")
    # Of 400, 800 and 640 samples at 8000 Hz two lengths are under 720.
    assert done.exit_code == 1, done.output
    assert done.output.count("expected a clip of at most 0.09 s, got 0.1 s (800 samples at 8000 Hz)") == 2


def test_a_dry_run_attacks_nothing_and_tells_everything(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    words = ("--model", mean_model, "--data", "clips", "--attacks", "noise,pgd(steps=7),cw-asr", *QUICK)
    done = audit(*words, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "6 clips x 2 cells = 12 trials; recorded: 0 done, 0 failed; to do: 12" in done.output
    # 6 clips: 3 passes a clip for noise; 11 forward and 7 back for seven steps.
    assert re.search(r"noise +plain +1 +6 +18 +0 ", done.output)
    assert re.search(r"pgd\(steps=7\) +plain +1 +6 +66 +42 ", done.output)
    assert "will not run: 1 cell, such as cw-asr_evade_snr-db--3" in done.output
    assert 'exclude: [{attack: "cw-asr"}]' in done.output
    # Four clips are decoded and scored twice, to see whether the model repeats itself.
    assert re.search(r"clips decoded twice first +16 +0 ", done.output)
    assert re.search(r"in all 100 passes forward and 42 back, about \d+ s with 1 worker on cpu", done.output)
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_of_a_grid_as_json(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    words = (
        "--model",
        f"{mean_model},python:mean_model:absent",
        "--data",
        "clips",
        "--attacks",
        "noise",
        *QUICK,
    )
    assert audit(*words, "--out", "grid").exit_code == 1
    done = audit(*words, "--out", "grid", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    mean, absent = content["runs"]
    assert (mean["run"], mean["done"], mean["todo"], mean["forward"]) == ("python-mean-model-make", 6, 0, 0)
    assert "absent" in absent["error"]
    assert (content["total"]["trials"], content["total"]["complete"]) == (6, False)


def test_a_preset_is_filled_in(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    done = audit("--model", mean_model, "--data", "clips", "--preset", "quick", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    (run,) = json.loads(done.stdout)["runs"]
    names = [(line["attack"], line["cells"]) for line in run["attacks"]]
    assert names == [("noise", 2), ("fgsm", 2), ("pgd(steps=20, step=0.25)", 2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "quik"], "did you mean 'quick'"),
        (["--engine", "rai"], "did you mean 'ray'"),
        (["--address", "10.0.0.1:6379"], "--engine ray"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--seeds", "0,x"], "--seeds expected integers separated by commas, such as 0,1,2"),
        (["--seed", "1", "--seeds", "2"], "'seed' or 'seeds'"),
        (["--model", "keyword,keyword"], "twice"),
        (["typo.yaml"], "did you mean 'targets'"),
        (["rule.yaml", "--dry-run"], "did you mean 'deepfool'"),
    ],
)
def test_a_mistake_is_told_before_any_work(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("typo.yaml").write_text("tragets: [keyword]")
    Path("rule.yaml").write_text("exclude: [{attack: deepfol}]")
    assert message in refused(*words)
    assert not (tmp_path / "runs").exists()


def test_options_are_laid_over_a_file() -> None:
    file = {"targets": ["keyword", {"model": "speaker", "batch": 2, "limit": 5}], "seeds": [1, 2], "limit": 9}
    assert lay_over(file, {"batch": 4, "attacks": None}) == {
        "targets": ["keyword", {"model": "speaker", "limit": 5}],
        "seeds": [1, 2],
        "limit": 9,
        "batch": 4,
    }
    assert lay_over(file, {"seed": 7, "limit": 3, "attacks": "pgd(steps=1, step=.5),cw"}) == {
        "targets": ["keyword", {"model": "speaker", "batch": 2}],
        "seed": 7,
        "limit": 3,
        "attacks": ["pgd(steps=1, step=.5)", "cw"],
    }
    assert lay_over({"model": "sound"}, {"model": "keyword(variant=pgd),speaker"}) == {
        "targets": ["keyword(variant=pgd)", "speaker"]
    }


def test_numbers_as_people_read_them() -> None:
    assert [number(value) for value in (0, 999, 1234, 5.2e6, 7e9)] == ["0", "999", "1.23 k", "5.2 M", "7 G"]
    assert [span(value) for value in (4.4, 90, 5400, 172800)] == ["4 s", "1.5 min", "1.5 h", "2.0 d"]
    assert [size(value) for value in (5 * 2**20, 3 * 2**29)] == ["5 MiB", "1.5 GiB"]
    assert parse_seeds("0,1, 2") == [0, 1, 2]
    with pytest.raises(InputError):
        parse_seeds("one")


def test_ways_to_run() -> None:
    assert Way(device="cpu").inline and not Way(device="cpu", workers=2).inline
    assert not Way(device="cpu", engine="ray").inline
    assert Way(device="cpu", workers=3).count == 3
    with pytest.raises(UnknownName):
        Way(engine="spark").check()


@pytest.mark.slow
def test_workers_give_the_same_records(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    words = ("--model", mean_model, "--data", "clips", "--attacks", "noise,pgd(steps=5)", *QUICK)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for out, workers in (("one", "1"), ("two", "2")):
        command = [sys.executable, "-c", "from sottovoce.cli.main import main; main()", "audit"]
        done = subprocess.run(
            [*command, *words, "--out", out, "--workers", workers],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, env=env,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    one, two = (sorted(records(tmp_path / out), key=str) for out in ("one", "two"))
    assert one == two


@pytest.mark.slow
def test_an_interrupt_ends_with_130_and_says_how_to_go_on(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    words = (
        "--model",
        mean_model,
        "--data",
        "clips",
        "--attacks",
        "pgd(steps=6000)",
        "--batch",
        "1",
        *QUICK,
    )
    command = [sys.executable, "-c", "from sottovoce.cli.main import main; main()", "audit", *words]
    child = subprocess.Popen(
        [*command, "--out", "run"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    path = tmp_path / "run" / "trials.jsonl"
    for _ in range(1200):
        if path.exists() and path.stat().st_size:
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    shown, _ = child.communicate(timeout=200)
    assert child.returncode == 130
    assert "To continue: sottovoce audit --resume run" in shown
    assert 0 < len(records(tmp_path / "run")) < 6
