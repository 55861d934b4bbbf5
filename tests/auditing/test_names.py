"""No name that a user can give a clip is one that means something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.driver import run_audit
from sottovoce.core.record import LOADING
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError
from sottovoce.leaderboard.run_reading import read_run

ROWS = """path,label,id
clips/up/0.wav,up,*
clips/up/1.wav,up,load
clips/down/1.wav,down,1
clips/broken.wav,down,**
"""
CELL = "fgsm_evade_snr-db--3"


def test_clips_called_star_and_load_are_clips(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (mean_clips / "broken.wav").write_text("no sound")
    (tmp_path / "list.csv").write_text(ROWS)
    entries = {"model": mean_model, "data": "list.csv", "attacks": ["fgsm"], "budgets": ["snr(db=-3)"]}
    plan = make_plan({**entries, "probe": 2, "audio": "none", "metrics": ["success"]})
    folder = run_audit(plan, tmp_path / "run", device="cpu")
    first = {path: path.read_bytes() for path in (folder.records_path, folder.probes_path)}
    expected = {(CELL, "*"): "ok", (CELL, "load"): "ok", (CELL, "1"): "ok", (LOADING, "**"): "failed"}
    assert folder.keys() == expected
    assert {record.key: record.status for record in folder.records()} == expected
    for again in ({}, {"keep_going": True}, {"retry_failed": True}):
        run_audit(plan, tmp_path / "run", device="cpu", **again)
        assert folder.keys() == expected
        if not again.get("retry_failed"):
            assert {path: path.read_bytes() for path in first} == first
    assert len(folder.records_path.read_bytes().splitlines()) == 5, "only the broken clip was tried again"
    for found in (summarise(plan, folder.records()), read_run(folder).summary):
        (cell,) = found.cells
        assert (cell.clips, cell.failed, cell.estimates["success"].n) == (3, 0, 3)
        assert [record.clip for record in found.failures] == ["**"]
        assert found.to_json()["failed"][0]["cell"] is None


def test_a_clip_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected an id for every clip, got an empty one for a\.wav"):
        Corpus("mine", (Entry("", Path("a.wav"), "yes"),))
