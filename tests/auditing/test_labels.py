"""Clips whose label is no class of the model: none of a run starts, or all but them does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sottovoce.auditing.certificates.certify_folder import read_curve
from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify
from sottovoce.auditing.estimate.run_estimate import estimate
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.driver import LOADING, run_audit
from sottovoce.auditing.run.run_grid import run_grid
from sottovoce.errors import InputError
from sottovoce.report.report_page import write_report
from sottovoce.targets.open_target import open_target

REFUSED = (
    "corpus 'clips': expected labels that the model has a class for, got others for 3 of 9 clips: left (2), "
    'right (1). Its classes: down, up. Add --labels skip (in Python labels="skip") to run the '
    "other 6"
)


@pytest.fixture
def odd_clips(mean_clips: Path, write_clip: object) -> Path:
    """The six clips, and three with labels that the model has no class for."""
    for name in ("left/1", "left/2", "right/1"):
        write_clip(mean_clips / f"{name}.wav", np.full(400, 1000))  # type: ignore[operator]
    return mean_clips


def make(model: str, **settings: object) -> Plan:
    base = {
        "model": model, "data": "clips", "attacks": ["noise"], "budgets": ["snr(db=-3)"], "probe": 0,
        "audio": "none", "metrics": ["success"],
    }  # fmt: skip
    return make_plan(base | settings)


def test_labels_are_refused_before_anything_is_written(
    mean_model: str, odd_clips: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        run_audit(make(mean_model), tmp_path / "run")
    assert str(caught.value).startswith(REFUSED)
    assert not (tmp_path / "run").exists()


def test_what_is_skipped_is_recorded_once(mean_model: str, odd_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, labels="skip")
    folder = run_audit(plan, tmp_path / "run")
    found = {record.key: record for record in folder.records()}
    assert sorted(clip for cell, clip in found if cell != LOADING) == [
        "down/0", "down/1", "down/2", "up/0", "up/1", "up/2",
    ]  # fmt: skip
    left = {clip: record for (cell, clip), record in found.items() if cell == LOADING}
    assert {clip: (each.status, each.label, each.reason) for clip, each in left.items()} == {
        "left/1": ("skipped", "left", "the model has no class 'left'"),
        "left/2": ("skipped", "left", "the model has no class 'left'"),
        "right/1": ("skipped", "right", "the model has no class 'right'"),
    }
    summary = summarise(plan, folder.records())
    assert summary.skipped == {"the model has no class 'left'": 2, "the model has no class 'right'": 1}
    assert summary.failures == []
    assert summary.to_json()["skipped"] == [
        {"clips": 2, "reason": "the model has no class 'left'"},
        {"clips": 1, "reason": "the model has no class 'right'"},
    ]
    page = write_report(folder).read_text(encoding="utf-8")
    assert "<dt>skipped</dt><dd>2 clips: the model has no class &#39;left&#39;; 1 clip: the model" in page
    note = "skipped 3 of 9 clips whose label the model does not know: left (2), right (1)"
    assert json.loads((folder.path / "about.json").read_text())["data_note"] == note
    # The same command again adds nothing, nor does one that tries what failed.
    before = folder.records_path.read_bytes()
    run_audit(plan, tmp_path / "run")
    run_audit(plan, tmp_path / "run", retry_failed=True)
    assert folder.records_path.read_bytes() == before


def test_the_limit_counts_what_can_run(mean_model: str, odd_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, labels="skip", limit=4)
    (cell,) = summarise(plan, run_audit(plan, tmp_path / "run").records()).cells
    assert cell.clips == 4


def test_a_plan_that_refuses_is_written_as_before_there_was_a_choice(mean_model: str) -> None:
    assert "labels" not in make(mean_model).to_yaml()
    assert "longest" not in make(mean_model).to_yaml()
    assert "labels: skip\n" in make(mean_model, labels="skip").to_yaml()
    assert "longest: 60.0\n" in make(mean_model, longest=60).to_yaml()
    with pytest.raises(InputError, match="labels"):
        make(mean_model, labels="drop")
    with pytest.raises(InputError, match="longest"):
        make(mean_model, longest=0)


def test_a_grid_fails_that_run_alone(mean_model: str, odd_clips: Path, tmp_path: Path) -> None:
    grid = make_grid(
        {
            "targets": [{"model": mean_model}, {"model": mean_model, "labels": "skip"}],
            "data": "clips", "attacks": ["noise"], "budgets": ["snr(db=-3)"], "probe": 0, "audio": "none",
            "metrics": ["success"],
        }
    )  # fmt: skip
    refused, skipping = run_grid(grid, tmp_path / "grid")
    (lone,) = refused.records()
    assert lone.status == "failed" and lone.reason.startswith(REFUSED)
    assert sorted(record.status for record in skipping.records()) == ["ok"] * 6 + ["skipped"] * 3


def test_a_dry_run_tells_as_much(mean_model: str, odd_clips: Path) -> None:
    target = open_target(mean_model, "cpu")
    with pytest.raises(InputError, match=r"left \(2\), right \(1\)"):
        estimate("run", make(mean_model), target, Path("nowhere"), device="cpu")
    found = estimate("run", make(mean_model, labels="skip"), target, Path("nowhere"), device="cpu")
    assert (found.clips, found.trials) == (6, 6)
    assert found.notes == ("skipped 3 of 9 clips whose label the model does not know: left (2), right (1)",)


def test_clips_to_fit_on_are_asked_for_their_labels_too(
    mean_model: str, mean_clips: Path, tmp_path: Path, write_clip: object
) -> None:
    for name in ("up/1", "left/1"):
        write_clip(tmp_path / "fit" / f"{name}.wav", np.full(400, 1000))  # type: ignore[operator]
    settings = {"attacks": ["uap(epochs=1)"], "budgets": ["l2(eps=0.5)"], "fit": "fit"}
    with pytest.raises(InputError, match=r"corpus 'fit': .* got others for 1 of 2 clips: left \(1\)"):
        run_audit(make(mean_model, **settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    folder = run_audit(make(mean_model, labels="skip", **settings), tmp_path / "run")
    assert {record.status for record in folder.records()} == {"ok"}


def certify(model: str, **settings: object) -> CertifyPlan:
    base = {"model": model, "data": "clips", "defense": "gaussian(sigma=0.1)", "passes": 64, "select": 20}
    return CertifyPlan(**base | settings)  # type: ignore[arg-type]


def test_certificates_refuse_and_skip_alike(mean_model: str, odd_clips: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run_certify(certify(mean_model), tmp_path / "run", device="cpu")
    assert str(caught.value).startswith(REFUSED)
    assert not (tmp_path / "run").exists()
    plan = certify(mean_model, labels="skip")
    folder = run_certify(plan, tmp_path / "run", device="cpu")
    curve = read_curve(list(folder.records()), sigma=0.1)
    assert (curve.clips, curve.failed) == (6, ())
    assert curve.to_json()["skipped"] == {
        "left/1": "the model has no class 'left'",
        "left/2": "the model has no class 'left'",
        "right/1": "the model has no class 'right'",
    }
    before = folder.records_path.read_bytes()
    run_certify(plan, tmp_path / "run", device="cpu")
    assert folder.records_path.read_bytes() == before


def test_certificates_are_written_as_before_there_was_a_choice(mean_model: str) -> None:
    assert "labels" not in certify(mean_model).to_yaml() and "longest" not in certify(mean_model).to_yaml()
    assert "labels: skip\n" in certify(mean_model, labels="skip").to_yaml()
    with pytest.raises(InputError, match="--longest above 0 seconds, got 0"):
        certify(mean_model, longest=0)


def test_a_clip_that_is_too_long_fails_alone(
    mean_model: str, mean_clips: Path, tmp_path: Path, write_clip: object
) -> None:
    # 240 samples at 1 Hz: four minutes, and 1.92 million samples at the model's rate.
    write_clip(mean_clips / "up" / "slow.wav", np.full(240, 1000), rate=1)  # type: ignore[operator]
    folder = run_audit(make(mean_model, longest=100), tmp_path / "run")
    (late,) = (record for record in folder.records() if record.status == "failed")
    assert (late.cell, late.clip) == (LOADING, "up/slow")
    assert "expected a clip of at most 100 s, got 240 s (240 samples at 1 Hz)" in late.reason
    assert sum(record.status == "ok" for record in folder.records()) == 6


def test_a_clip_with_a_name_that_no_file_can_have(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    rows = [f"up/0.wav,up,{'é' * 100}", f"up/1.wav,up,{'long/' * 900}end", "up/2.wav,up,plain"]
    (mean_clips / "list.csv").write_text("path,label,id\n" + "\n".join(rows) + "\n")
    plan = make(mean_model, data="clips/list.csv", audio="all")
    found = list(run_audit(plan, tmp_path / "run").records())
    assert [record.status for record in found] == ["ok"] * 3
    places = [record.audio["adversarial"] for record in found]
    assert len(set(places)) == 3
    assert all((tmp_path / "run" / place).is_file() for place in places)
    assert places[2] == "audio/noise_evade_snr-db--3/plain.flac"
