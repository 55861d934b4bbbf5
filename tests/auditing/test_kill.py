"""Real processes, killed and interrupted: afterwards a run is as if nobody had disturbed it, to the clip."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc to see who is alive"),
]
SameRuns = Callable[[Path, Path], None]
PATIENCE_SECONDS = 120.0
STOPPED = 3

MODEL = """
import os
import time
from pathlib import Path

import torch
from sottovoce.targets.families.classifier import ModuleClassifier


class Mean(torch.nn.Module):
    '''Slow enough to be killed in the middle.'''

    def forward(self, waveforms):
        time.sleep(float(os.environ.get("SLEEP", "0")))
        mean = waveforms.mean(dim=1, keepdim=True)
        return 50.0 * torch.cat([mean, -mean], dim=1)


def make():
    Path("pids").mkdir(exist_ok=True)
    Path("pids", str(os.getpid())).touch()
    return ModuleClassifier(Mean(), ["up", "down"], 8000)
"""
PROGRAM = """
import sys
from pathlib import Path

from sottovoce.auditing.engines.pool_engine import PoolEngine
from sottovoce.auditing.plan.plan_file import make_plan, read_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.errors import SottovoceError

if __name__ == "__main__":
    plan, out, workers = make_plan(read_plan(Path("plan.yaml"))), Path(sys.argv[1]), int(sys.argv[2])
    try:
        if workers:
            with PoolEngine(workers, ["cpu"]) as pool:
                run_audit(plan, out, engine=pool)
        else:
            run_audit(plan, out, device="cpu")
    except SottovoceError as error:
        print(f"{type(error).__name__}: {error}")
        sys.exit(3)
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_clip: Callable[..., None]) -> Plan:
    """Eight clips, one at a time, through two cells; its program and its model in the current folder."""
    for number in range(4):
        write_clip(tmp_path / "clips" / "up" / f"{number}.wav", np.full(400 + 80 * number, 1000))
        write_clip(tmp_path / "clips" / "down" / f"{number}.wav", np.full(400 + 80 * number, -1000))
    (tmp_path / "slow_mean.py").write_text(MODEL)
    (tmp_path / "program.py").write_text(PROGRAM)
    made = make_plan({
        "model": "python:slow_mean:make", "data": "clips", "attacks": ["fgsm"], "probe": 0, "batch": 1,
        "budgets": ["snr(db=3)", "snr(db=-3)"], "metrics": ["success", "snr"],
    })  # fmt: skip
    (tmp_path / "plan.yaml").write_text(made.to_yaml())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "slow_mean", raising=False)
    return made


@contextmanager
def started(out: Path, workers: int, sleep: float = 0.1) -> Iterator[subprocess.Popen[str]]:
    """The program at work in a session of its own, so that signals reach what they are sent to alone."""
    process = subprocess.Popen(
        [sys.executable, "program.py", str(out), str(workers)],
        env={**os.environ, "SLEEP": str(sleep), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(what: str, happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.01)


def recorded(out: Path) -> int:
    path = out / "trials.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def state(pid: int) -> tuple[str, int]:
    """How a process is, and who began it; ("Z", 0) once it is gone."""
    try:
        status, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return status, int(parent)
    except (FileNotFoundError, ProcessLookupError):
        return "Z", 0


def alive(pid: int) -> bool:
    return state(pid)[0] != "Z"


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that opened the model for it, and are its own."""
    known = [int(path.name) for path in Path("pids").iterdir()] if Path("pids").exists() else []
    return [pid for pid in known if alive(pid) and state(pid)[1] == process.pid]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_is_killed_at_any_moment(plan: Plan, same_runs: SameRuns, workers: int) -> None:
    run_audit(plan, Path("whole"), device="cpu")
    chance, out = random.Random(7), Path("run")
    for _ in range(3):
        before = recorded(out)
        if before == 16:
            break
        with started(out, workers) as process:
            wanted = before + chance.randrange(1, 4)
            wait_for("records", lambda wanted=wanted: recorded(out) >= min(wanted, 16))
            time.sleep(chance.random() * 0.2)
            helpers = workers_of(process)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert len(helpers) <= workers
        # Nobody is left behind, even in the middle of a task.
        wait_for("the end of the workers", lambda helpers=helpers: not any(map(alive, helpers)))
        for record in RunFolder(out).records():
            assert all((out / file).exists() for file in record.audio.values())
    assert recorded(out) >= 3
    run_audit(plan, out, device="cpu")
    same_runs(out, Path("whole"))


def test_a_worker_that_is_killed(plan: Plan, same_runs: SameRuns) -> None:
    run_audit(plan, Path("whole"), device="cpu")
    out, chance = Path("run"), random.Random(3)
    with started(out, 2) as process:
        for wanted in (1, 5):
            wait_for("records", lambda wanted=wanted: recorded(out) >= wanted)
            wait_for("workers", lambda: len(workers_of(process)) > 0)
            os.kill(chance.choice(workers_of(process)), signal.SIGKILL)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, output) == (0, "")
    # It went on by itself, to the end.
    same_runs(out, Path("whole"))


@pytest.mark.parametrize(
    ("workers", "number"), [(0, signal.SIGINT), (0, signal.SIGTERM), (2, signal.SIGINT), (2, signal.SIGTERM)]
)
def test_a_run_that_is_asked_to_stop(
    plan: Plan, same_runs: SameRuns, workers: int, number: signal.Signals
) -> None:
    run_audit(plan, Path("whole"), device="cpu")
    out = Path("run")
    with started(out, workers) as process:
        wait_for("records", lambda: recorded(out) >= 2)
        # To every process, as the key of a terminal does it.
        os.killpg(process.pid, number)
        at_signal = recorded(out)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == STOPPED
    assert output == (
        f"Stopped: stopped as requested; finished trials are in {out}: "
        "run the same command again to continue.\n"
    )
    # What was under way is there, and no more than that.
    assert at_signal <= recorded(out) <= at_signal + max(1, workers) + 1 < 16
    assert workers_of(process) == []
    run_audit(plan, out, device="cpu")
    same_runs(out, Path("whole"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_signal_does_not_wait(plan: Plan, workers: int) -> None:
    out = Path("run")
    with started(out, workers, sleep=1.0) as process:
        wait_for("records", lambda: recorded(out) >= 1)
        time.sleep(0.5)  # into the next batch, which takes seconds
        helpers = workers_of(process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0 and "KeyboardInterrupt" in output
    wait_for("the end of the workers", lambda: not any(map(alive, helpers)))
    kept = (out / "trials.jsonl").read_bytes()
    assert kept.endswith(b"\n")
    with started(out, 0, sleep=0.0) as process:
        assert process.wait(PATIENCE_SECONDS) == 0
    assert recorded(out) == 16


def test_a_disk_that_is_full(plan: Plan, tmp_path: Path, same_runs: SameRuns) -> None:
    run_audit(plan, Path("whole"), device="cpu")
    small = tmp_path / "small"
    small.mkdir()
    # Room for the folder and a few records.
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    if sys.platform != "linux" or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        with started(small / "run", 2, sleep=0.0) as process:
            output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == STOPPED and "No space left on device" in output
        assert output.startswith("StoreError: cannot write ") and "what was recorded before is safe" in output
        kept = (small / "run" / "trials.jsonl").read_bytes()
        assert kept.endswith(b"\n") and 0 < kept.count(b"\n") < 16
        subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
        run_audit(plan, small / "run", device="cpu")
        same_runs(small / "run", Path("whole"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_workers_that_cannot_start(plan: Plan) -> None:
    """A script without its guard would start itself again and again."""
    source = PROGRAM.replace('if __name__ == "__main__":', "if True:")
    Path("program.py").write_text(source)
    with started(Path("run"), 1) as process:
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == STOPPED
    assert "expected worker processes to start, got 3 in a row" in output
    assert recorded(Path("run")) == 0
