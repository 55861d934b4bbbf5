"""Going on: what failed is kept or tried again, and a folder that was never finished is no obstacle."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import EVERY, LOADING, Record, read_records
from sottovoce.errors import InputError, MissingCapability, StoreError

TRAP = "        if waveforms.shape[1] == 800:\n            raise RuntimeError('no clip of 800')\n"
CELL = "fgsm_evade_snr-db--3"


def make(model: str, clips: Path, **settings: object) -> Plan:
    base = {
        "model": model, "data": str(clips), "attacks": ["fgsm"], "budgets": ["snr(db=-3)"], "probe": 0,
        "audio": "none", "metrics": ["success"],
    }  # fmt: skip
    return make_plan(base | settings)


def rewrite(path: Path, source: str) -> None:
    path.write_text(source)
    sys.modules.pop(path.stem, None)


def statuses(folder: RunFolder) -> dict[tuple[str, str], str]:
    return {record.key: record.status for record in folder.records()}


def test_what_failed_is_kept_or_tried_again(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan, file = make(mean_model, mean_clips), tmp_path / "mean_model.py"
    good = file.read_text()
    rewrite(file, good.replace("        mean = waveforms", TRAP + "        mean = waveforms", 1))
    first = statuses(run_audit(plan, tmp_path / "run"))
    assert {clip for (_, clip), status in first.items() if status == "failed"} == {"up/1", "down/1"}
    rewrite(file, good)
    assert statuses(run_audit(plan, tmp_path / "run")) == first
    folder = run_audit(plan, tmp_path / "run", retry_failed=True)
    assert set(statuses(folder).values()) == {"ok"}
    # The old lines are still there, and nobody counts them.
    assert len(list(read_records(folder.records_path))) == 8
    summary = summarise(plan, folder.records())
    assert (summary.cells[0].clips, summary.cells[0].failed, summary.failures) == (6, 0, [])


@pytest.mark.parametrize("broken", [b"?", b"?" * 844])
def test_a_clip_that_can_be_loaded_now(
    broken: bytes, mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    file = mean_clips / "up" / "1.wav"
    good = file.read_bytes()
    file.write_bytes(broken)
    plan = make(mean_model, mean_clips)
    first = statuses(run_audit(plan, tmp_path / "run"))
    assert first.pop((LOADING, "up/1")) == "failed"
    assert len(first) == 5 and set(first.values()) == {"ok"}
    file.write_bytes(good)
    assert (LOADING, "up/1") in statuses(run_audit(plan, tmp_path / "run"))
    folder = run_audit(plan, tmp_path / "run", retry_failed=True)
    assert statuses(folder) == {**first, (CELL, "up/1"): "ok"}
    # Had the second try been killed before it was recorded, the first would still count.
    folder.records_path.write_bytes(b"".join(folder.records_path.read_bytes().splitlines(True)[:-1]))
    assert statuses(run_audit(plan, tmp_path / "run")) == {
        **first,
        (LOADING, "up/1"): "failed",
    }


def test_a_model_that_cannot_be_opened(mean_clips: Path, tmp_path: Path, mean_model: str) -> None:
    file = tmp_path / "mean_model.py"
    good = file.read_text()
    rewrite(file, "def make():\n    raise OSError('weights are gone')\n")
    plan = make(mean_model, mean_clips, budgets=["snr(db=3)", "snr(db=-3)"])
    with pytest.raises(Exception, match="weights are gone"):
        run_audit(plan, tmp_path / "run")
    folder = run_audit(plan, tmp_path / "run", keep_going=True)
    found = list(folder.records())
    assert [(record.cell, record.clip, record.status) for record in found] == [
        ("fgsm_evade_snr-db-3", EVERY, "failed"),
        ("fgsm_evade_snr-db--3", EVERY, "failed"),
    ]
    assert all("weights are gone" in record.reason for record in found)
    rewrite(file, good)
    # Kept as recorded, and not even opened.
    assert list(run_audit(plan, tmp_path / "run", keep_going=True).records()) == found
    again = statuses(run_audit(plan, tmp_path / "run", retry_failed=True))
    assert len(again) == 12 and set(again.values()) == {"ok"}


def test_a_cell_with_clips_on_record_did_run(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    whole = statuses(folder)
    with folder.writer() as writer:
        writer.write([Record(cell=CELL, clip=EVERY, status="failed", reason="no such module")])
    assert statuses(folder) == folder.keys() == whole
    # Nor is what is missing of it given up.
    lines = folder.records_path.read_bytes().splitlines(keepends=True)
    folder.records_path.write_bytes(b"".join([*lines[:4], lines[-1]]))
    assert statuses(run_audit(plan, tmp_path / "run")) == whole


@pytest.mark.parametrize("where", ["check", "label"])
def test_anything_that_an_own_part_raises_is_a_failure(
    mean_model: str, mean_clips: Path, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a cell as it is put together, or over one clip as it is looked at."""

    def trip(*words: object) -> None:
        if where == "check" or words[1] == ["up"]:
            raise AttributeError("no attribute 'power'")

    labels = "targets.families.classifier.ModuleClassifier.check_labels"
    place = "attacks.pgd.Fgsm.check" if where == "check" else labels
    monkeypatch.setattr(f"sottovoce.{place}", trip)
    plan = make(mean_model, mean_clips, attacks=["fgsm", "noise"])
    found = list(run_audit(plan, tmp_path / "run", keep_going=True).records())
    failed = {record.key: record.reason for record in found if record.status == "failed"}
    wanted = [(CELL, EVERY)] if where == "check" else [(LOADING, f"up/{number}") for number in range(3)]
    assert failed == dict.fromkeys(wanted, "AttributeError: no attribute 'power'")
    assert len(found) - len(failed) == 6


def test_what_no_record_can_hold_is_that_clips_failure(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of one's own may give anything: a line that nobody can read again would end the run."""
    true = "up/1"
    monkeypatch.setattr(
        "sottovoce.auditing.run.run_cell._heard",
        lambda trial, row, untouched: {"mood": 3} if trial.clean.ids[row] == true else {},
    )
    folder = run_audit(make(mean_model, mean_clips), tmp_path / "run")
    failed = {record.key: record.reason for record in folder.records() if record.status == "failed"}
    assert failed == {
        (
            CELL,
            true,
        ): "field 'facts.mood': expected a valid string, got 3; correct the model, the attack or the "
        "metric that gave it."
    }
    assert len(statuses(folder)) == 6


def test_a_cell_that_cannot_be_put_together(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips, attacks=["fgsm", "cw-asr"])
    with pytest.raises((InputError, MissingCapability)) as caught:
        run_audit(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    found = {record.key: record for record in run_audit(plan, tmp_path / "run", keep_going=True).records()}
    (broken,) = (record for record in found.values() if record.status == "failed")
    assert (broken.cell, broken.clip, broken.reason) == (
        "cw-asr_evade_snr-db--3",
        EVERY,
        str(caught.value),
    )
    assert len(found) == 7


def test_a_kill_while_the_folder_is_made(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips)
    whole = run_audit(plan, tmp_path / "whole")
    (tmp_path / "run").mkdir()
    for name in ("about.json", "corpus.json"):
        (tmp_path / "run" / name).write_bytes((whole.path / name).read_bytes())
    (tmp_path / "run" / "plan.yaml.part").write_text("model: key")
    (tmp_path / "run" / ".lock").write_text("")
    assert statuses(run_audit(plan, tmp_path / "run")) == statuses(whole)


def test_a_plan_from_before_it_had_more_entries(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    old = "".join(
        line for line in plan.to_yaml().splitlines(True) if not line.startswith(("bits:", "gpu_share:"))
    )
    (folder.path / "plan.yaml").write_text(old)
    run_audit(plan, tmp_path / "run")
    (folder.path / "plan.yaml").write_text("model: [")
    with pytest.raises(InputError, match="another plan"):
        run_audit(plan, tmp_path / "run")


def test_records_of_another_schema(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    whole = statuses(folder)
    lines = folder.records_path.read_text().splitlines(True)
    # As they were before records had a version.
    folder.records_path.write_text("".join(lines).replace(',"schema":3', ""))
    assert statuses(run_audit(plan, tmp_path / "run")) == whole
    folder.records_path.write_text("".join([*lines[:2], lines[2].replace('"schema":3', '"schema":7')]))
    with pytest.raises(
        StoreError, match=r"line 3, field 'schema': expected a record of schema 1 to 3, got .* 7"
    ):
        run_audit(plan, tmp_path / "run")


def test_another_version_does_not_add_to_a_run(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    lines = folder.records_path.read_bytes().splitlines(keepends=True)
    folder.records_path.write_bytes(b"".join(lines[:3]))
    about = folder.about()
    about["versions"]["sottovoce"] = "0.0.9"
    (folder.path / "about.json").write_text(json.dumps(about))
    said = r"run was started with sottovoce 0\.0\.9, and this is .*; finish it with 0\.0\.9, or start"
    with pytest.raises(InputError, match=said):
        run_audit(plan, tmp_path / "run")
    assert folder.records_path.read_bytes() == b"".join(lines[:3])
    # A run that does not say what made it goes on.
    del about["versions"]
    (folder.path / "about.json").write_text(json.dumps(about))
    assert len(statuses(run_audit(plan, tmp_path / "run"))) == 6
