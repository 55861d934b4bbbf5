"""`sottovoce leaderboard` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.cli.leaderboard import app
from sottovoce.errors import InputError

OWN = ["--device", "cpu", "--model", "python:mean_model:make", "--data", "clips"]


@pytest.fixture
def site(mean_model: str, mean_clips: Path, tmp_path: Path) -> Path:
    entries = {
        "model": mean_model,
        "data": "clips",
        "attacks": ["fgsm"],
        "budgets": ["snr(db=-3)", "snr(db=3)"],
    }
    run_audit(make_plan({**entries, "probe": 0, "audio": "none"}), tmp_path / "run", device="cpu")
    done = CliRunner().invoke(app, ["run", "--out", "site"])
    assert done.exit_code == 0, done.output
    assert "leaderboard: site/index.html" in done.output
    return tmp_path / "site"


def test_a_site_is_made_and_a_claim_of_it_holds(site: Path) -> None:
    assert (site / "index.html").exists()
    (claim,) = (site / "claims").glob("*.json")
    done = CliRunner().invoke(app, ["check", str(claim), *OWN])
    assert done.exit_code == 0, done.output
    assert "SNR -3 dB, success" in done.output and f"{claim.stem}: holds on these clips" in done.output
    as_json = CliRunner().invoke(app, ["check", str(claim), *OWN, "--json", "--clips", "3"])
    content = json.loads(as_json.stdout)
    assert content["holds"] and content["lines"][0]["clips"] == 3


def test_a_forged_claim_ends_with_1(site: Path) -> None:
    (path,) = (site / "claims").glob("*.json")
    claim = json.loads(path.read_text())
    claim["worst"][0]["success"] = {"value": 0.0, "low": 0.0, "high": 1 - 0.025**0.2, "n": 5}
    letters = claim["outcomes"]["success"]["snr(db=-3)"]
    claim["outcomes"]["success"]["snr(db=-3)"] = letters.replace("1", "0")
    path.write_text(json.dumps(claim))
    done = CliRunner().invoke(app, ["check", str(path), *OWN])
    assert done.exit_code == 1
    assert "does not hold" in done.output and "not checked: clips fooled unheard, doubts" in done.output


def test_a_claim_that_cannot_be_checked_ends_with_1(site: Path) -> None:
    """One clip of six, which is heard wrong before any attack and so is never judged."""
    (path,) = (site / "claims").glob("*.json")
    wrong = json.loads(path.read_text())["outcomes"]["clean"].index(0)
    seed = next(s for s in range(100) if np.random.default_rng(s).permutation(6)[0] == wrong)
    done = CliRunner().invoke(app, ["check", str(path), *OWN, "--clips", "1", "--seed", str(seed)])
    assert done.exit_code == 1, done.output
    assert "SNR 3 dB: not checked" in done.output and f"{path.stem}: not checked on these" in done.output


def test_a_run_in_a_bucket_is_read_as_one_here(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("SOTTOVOCE_CACHE", str(tmp_path / "cache"))
    fsspec.filesystem("memory").put(str(tmp_path / "run"), "/board/run", recursive=True)
    try:
        done = CliRunner().invoke(app, ["memory://board/run", "--out", "other"])
    finally:
        fsspec.filesystem("memory").rm("/board", recursive=True)
    assert done.exit_code == 0, done.output
    claims = [list((folder / "claims").glob("*.json")) for folder in (site, tmp_path / "other")]
    assert len(claims[0]) == 1 and claims[0][0].read_bytes() == claims[1][0].read_bytes()


def test_mistakes_are_sentences(site: Path) -> None:
    for words, reason in (
        (["nowhere"], "check the path"),
        (["check", "nowhere.json"], "check the file"),
        (["check", "run/about.json"], "field 'schema'"),
    ):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, InputError) and reason in str(done.exception)
    assert CliRunner().invoke(app, ["run", "--ot", "x"]).exit_code == 2


def test_help_tells_of_both_verbs() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "site" in shown and "check" in shown
