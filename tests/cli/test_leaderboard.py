"""`sottovoce leaderboard` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sottovoce.audit.plan import make_plan
from sottovoce.audit.run import run_audit
from sottovoce.cli.leaderboard import app
from sottovoce.errors import InputError


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
    done = CliRunner().invoke(app, ["check", str(claim), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "SNR -3 dB, success" in done.output and f"{claim.stem}: holds on these clips" in done.output
    as_json = CliRunner().invoke(app, ["check", str(claim), "--device", "cpu", "--json", "--clips", "3"])
    content = json.loads(as_json.stdout)
    assert content["holds"] and content["lines"][0]["clips"] == 3


def test_a_forged_claim_ends_with_1(site: Path) -> None:
    (path,) = (site / "claims").glob("*.json")
    claim = json.loads(path.read_text())
    claim["worst"][0]["success"] = {"value": 0.0, "low": 0.0, "high": 0.1, "n": 5}
    letters = claim["outcomes"]["success"]["snr(db=-3)"]
    claim["outcomes"]["success"]["snr(db=-3)"] = letters.replace("1", "0")
    path.write_text(json.dumps(claim))
    done = CliRunner().invoke(app, ["check", str(path), "--device", "cpu"])
    assert done.exit_code == 1
    assert "does not hold" in done.output


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
