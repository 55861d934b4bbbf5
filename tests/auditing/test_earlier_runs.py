"""Run folders of earlier versions stay readable: their figures are those that the version then printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sottovoce
from sottovoce.auditing.certificates.certify_folder import CertifyFolder
from sottovoce.auditing.plan import plan_file as plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.main import app
from sottovoce.errors import InputError

KEPT = Path(__file__).parents[1] / "fixtures" / "run-0.1.0"


@pytest.fixture()
def kept(tmp_path: Path) -> Path:
    """A copy: showing a run writes its report."""
    return Path(shutil.copytree(KEPT, tmp_path / "kept"))


def test_records_of_schema_2_keep_their_figures(kept: Path) -> None:
    folder = RunFolder(kept / "recogniser")
    summary = summarise(folder.plan(), folder.records())
    found = {item.cell.id: item.estimates for item in summary.cells}
    # As version 0.1.0 printed them: no error in 7 words before the attack, 3 under it.
    assert found["pgd-steps-5_evade_snr-db-30"]["wer"].value == pytest.approx(3 / 7)
    assert found["noise_evade_snr-db-30"]["wer"].value == 0.0
    assert found["pgd-steps-5_evade_snr-db-30"]["success"].value == 1.0
    assert {record.judged_by for record in folder.records()} == {""}


@pytest.mark.parametrize("run", ["classifier", "recogniser", "grid/runs/keyword_seed-0"])
def test_an_earlier_run_is_shown(kept: Path, run: str) -> None:
    shown = CliRunner().invoke(app, ["view", str(kept / run), "--no-browser"])
    assert shown.exit_code == 0, shown.output
    assert (kept / run / "report.html").stat().st_size > 100_000


def test_earlier_runs_are_compared(kept: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(
        app, ["leaderboard", "site", str(kept / "grid"), "--out", str(tmp_path / "site")]
    )
    assert made.exit_code == 0, made.output
    assert (tmp_path / "site" / "index.html").exists()


def test_earlier_certificates_are_read(kept: Path) -> None:
    found = list(CertifyFolder(kept / "certificates").records())
    assert [(each.clip, each.successes) for each in found] == [("yes-3", 871), ("go-4", 1000)]


@pytest.mark.parametrize("run", ["classifier", "recogniser", "grid"])
def test_earlier_runs_are_not_gone_on_with(kept: Path, run: str) -> None:
    before = {path: path.read_bytes() for path in (kept / run).rglob("*") if path.is_file()}
    done = CliRunner().invoke(app, ["audit", "--resume", str(kept / run)])
    assert isinstance(done.exception, InputError), done.output
    assert str(done.exception) == (
        f"{kept / run} was started with sottovoce 0.1.0, and this is {sottovoce.__version__}, whose figures "
        "may differ; finish it with 0.1.0, or start a new run in another folder with --out."
    )
    left = {path: path.read_bytes() for path in (kept / run).rglob("*") if path.is_file()}
    assert {path for path in left if path.name != ".lock"} == set(before)
    assert all(left[path] == content for path, content in before.items())


@pytest.mark.parametrize("run", ["classifier", "recogniser", "grid/runs/keyword_seed-1"])
def test_plans_of_earlier_runs_have_their_ids(kept: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "__version__", "0.1.0")
    folder = RunFolder(kept / run)
    assert folder.plan().run_id == folder.about()["run"]
    assert folder.plan().to_yaml() == (kept / run / "plan.yaml").read_text()
