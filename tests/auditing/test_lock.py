"""One run a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.folder_lock import NAME, hold
from sottovoce.errors import InputError, StoreError

HOLDER = """
import sys, time
from pathlib import Path
from sottovoce.auditing.run.folder_lock import hold

with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_run_is_told_who_holds_the_folder(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make_plan({"model": mean_model, "data": str(mean_clips), "attacks": ["fgsm"], "probe": 0})
    with hold(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / NAME).read_text())["pid"] == os.getpid()
        used = f"{tmp_path / 'run'} is in use by another run: process {os.getpid()}"
        told = rf"{used} on \S+ since \d{{4}}-\d\d-\d\dT.*--out"
        with pytest.raises(StoreError, match=told):
            run_audit(plan, tmp_path / "run")
    run_audit(plan, tmp_path / "run")
    assert not (tmp_path / "run" / NAME).exists()


def test_a_folder_that_stayed_empty_is_gone_again(tmp_path: Path) -> None:
    with hold(tmp_path / "runs" / "run"):
        assert (tmp_path / "runs" / "run").is_dir()
    assert list(tmp_path.iterdir()) == []
    with hold(tmp_path / "runs" / "run"):
        (tmp_path / "runs" / "other").mkdir()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["other"]


def test_a_plan_that_is_refused_leaves_nothing(mean_clips: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        run_audit(make_plan({"model": "python:nowhere:make", "data": str(mean_clips)}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_a_killed_process_left_holds_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(StoreError, match=f"process {process.pid} on"), hold(tmp_path / "run"):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / "run" / NAME).exists()
    with hold(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / NAME).read_text())["pid"] == os.getpid()
