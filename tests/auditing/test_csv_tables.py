"""summary.csv and trials.csv of a run folder, read back with the standard library."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest

import sottovoce as sv
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.csv_tables import write_tables
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import Record

CELL = "fgsm_evade_snr-db-20"
HEADS = "target,defense,attacker,attack,goal,budget"
RECORDS = [
    Record(
        cell=CELL,
        clip="=1+1",
        status="ok",
        label="yes",
        clean_text="-yes",
        adversarial_text='@no, "no"\r\nno\rno',
        achieved=True,
        achieved_unrounded=True,
        seconds=0.5,
        sample_rate=16000,
        facts={"speaker": "+anna", "label": "mine"},
        parts={"success": (1.0, 1.0), "snr": (20.5, 1.0), "wer": (1.0, 4.0)},
    ),
    Record(
        cell=CELL,
        clip="b",
        status="ok",
        achieved=False,
        parts={"success": (math.nan, math.nan), "snr": (math.inf, 1.0), "wer": (0.0, 0.0)},
    ),
    Record(cell=CELL, clip="c", status="failed", reason="too short", label="no"),
    Record(cell="", clip="d", status="failed", reason="no sound"),
]


def plan_of(**more: Any) -> Plan:
    return make_plan({"attacks": ["fgsm"], "budgets": ["snr(db=20)"], "probe": 0, "audio": "none", **more})


def written(path: Path, records: list[Record], plan: Plan | None = None) -> RunFolder:
    path.mkdir()
    plan = plan or plan_of()
    (path / "plan.yaml").write_text(plan.to_yaml())
    (path / "trials.jsonl").write_text("".join(record.to_line() + "\n" for record in records))
    write_tables(plan, RunFolder(path))
    return RunFolder(path)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def as_text(row: dict[str, Any]) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in row.items()}


def test_texts_and_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path / "run", RECORDS)
    first, second, third, fourth = rows_of(tmp_path / "run" / "trials.csv")
    assert list(first)[:8] == [*HEADS.split(","), "cell", "clip"]
    assert (first["clip"], first["clean_text"], first["adversarial_text"]) == (
        "=1+1", "-yes", '@no, "no"\r\nno\rno',
    )  # fmt: skip
    assert (first["speaker"], first["fact_label"], first["label"]) == ("+anna", "mine", "yes")
    assert (first["achieved"], first["seconds"], first["sample_rate"]) == ("True", "0.5", "16000")
    assert (first["success"], first["snr"], first["wer"]) == ("1.0", "20.5", "0.25")
    # Neither NaN nor infinity is a number in a table, and no words have no error rate.
    assert (second["success"], second["snr"], second["wer"], second["speaker"]) == ("", "", "", "")
    assert (third["status"], third["reason"], third["snr"], third["achieved"]) == (
        "failed", "too short", "", "",
    )  # fmt: skip
    # A clip that could not be loaded has no cell.
    assert (fourth["target"], fourth["attack"], fourth["cell"], fourth["clip"]) == ("keyword", "", "", "d")
    success, snr, wer = rows_of(tmp_path / "run" / "summary.csv")
    assert (success["attack"], success["budget"], success["metric"]) == ("fgsm", "snr(db=20)", "success")
    assert (success["value"], success["clips"], snr["value"], snr["clips"]) == ("1.0", "1", "20.5", "1")
    assert (wer["value"], wer["clips"]) == ("0.25", "2")


def test_the_files_hold_what_python_gives(tmp_path: Path) -> None:
    written(tmp_path / "run", RECORDS)
    run = sv.read_run(tmp_path / "run")
    assert rows_of(tmp_path / "run" / "summary.csv") == [as_text(row) for row in run.summary()]
    assert rows_of(tmp_path / "run" / "trials.csv") == [as_text(row) for row in run.trials()]


def test_a_run_without_records_has_columns_alone(tmp_path: Path) -> None:
    written(tmp_path / "run", [])
    assert (tmp_path / "run" / "summary.csv").read_bytes() == (
        f"{HEADS},metric,value,low,high,clips\r\n".encode()
    )
    lines = (tmp_path / "run" / "trials.csv").read_text().splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"{HEADS},cell,clip,status,reason,label,")


def test_a_run_in_which_all_failed_has_its_reasons(tmp_path: Path) -> None:
    written(tmp_path / "run", RECORDS[2:])
    assert rows_of(tmp_path / "run" / "summary.csv") == []
    assert [row["reason"] for row in rows_of(tmp_path / "run" / "trials.csv")] == ["too short", "no sound"]


def test_a_path_of_this_machine_stays_here(tmp_path: Path) -> None:
    model = f"huggingface:{tmp_path}/models/mine"
    written(tmp_path / "run", RECORDS, plan_of(model=model))
    for name in ("summary.csv", "trials.csv"):
        (target,) = {row["target"] for row in rows_of(tmp_path / "run" / name)}
        assert target.startswith("huggingface:") and str(tmp_path) not in target


def test_they_follow_the_records(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_of(model=mean_model, data="clips", budgets=["snr(db=-3)"], metrics=["success"])
    run = run_audit(plan, tmp_path / "run", device="cpu").path
    whole = [(run / name).read_bytes() for name in ("summary.csv", "trials.csv")]
    times = [(run / name).stat().st_mtime_ns for name in ("summary.csv", "trials.csv")]
    run_audit(plan, run, device="cpu")
    assert times == [(run / name).stat().st_mtime_ns for name in ("summary.csv", "trials.csv")]
    # Half of the records are lost, and made again.
    lines = (run / "trials.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 6
    (run / "trials.jsonl").write_text("".join(lines[:3]))
    (run / "trials.csv").write_text("old")
    run_audit(plan, run, device="cpu")
    assert [(run / name).read_bytes() for name in ("summary.csv", "trials.csv")] == whole
    assert sorted(path.suffix for path in run.iterdir() if path.suffix == ".part") == []


@pytest.mark.parametrize("name", ["classifier", "recogniser", "grid"])
def test_an_earlier_run_without_them_is_read(name: str) -> None:
    kept = Path(__file__).parents[1] / "fixtures" / "run-0.1.0" / name
    assert not list(kept.rglob("*.csv"))
    run = sv.read_run(kept)
    assert {row["metric"] for row in run.summary()} >= {"success", "snr"}
    assert run.trials()
