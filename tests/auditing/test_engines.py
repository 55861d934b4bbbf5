"""Engines: the same records whoever does the tasks, and nothing lost when one dies over them."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import final

import numpy as np
import pytest
import soundfile

from sottovoce.auditing.engines import pool_worker as worker
from sottovoce.auditing.engines.engine import Engine, InlineEngine
from sottovoce.auditing.engines.pool_engine import PoolEngine
from sottovoce.auditing.engines.ray_worker import Order, RayWorker
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.run_cell import CellRunner
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.tasks import (
    AttackTask,
    FinishedTask,
    FitTask,
    LostTask,
    RepeatTask,
    Task,
    Unopened,
    halves,
)
from sottovoce.core.processes import READY, share_cores
from sottovoce.core.record import EVERY, LOADING, read_records
from sottovoce.core.target import Target
from sottovoce.errors import InputError, StoreError
from sottovoce.targets.open_target import find_device, find_devices

WriteClip = Callable[..., None]


@final
class Scripted(Engine):
    """Does tasks in this process, all of them taken before the first is done; some of them kill it.

    deadly: clips over which the worker dies. seen: what was handed out, as (cell, clips).
    locked: clips whose worker cannot open the model.
    """

    def __init__(self, deadly: Iterable[str] = (), times: int = 99, locked: Iterable[str] = ()) -> None:
        self.here, self.deadly, self.times, self.locked = Executor("cpu"), set(deadly), times, set(locked)
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    def offer(self, model: str, target: Target) -> None:
        self.here.offer(model, target)

    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[FinishedTask | LostTask]:
        for task in list(tasks):
            if isinstance(task, RepeatTask):
                yield self.here.do(task)
                continue
            clips = () if isinstance(task, FitTask) else task.clips
            self.seen.append((task.cell, clips))
            if self.locked & set(clips):
                raise Unopened("OutOfMemoryError: 2 GiB")
            if self.times and (
                self.deadly & set(clips) or (isinstance(task, FitTask) and "fit" in self.deadly)
            ):
                self.times -= 1
                yield LostTask(task, "ended by SIGKILL")
            else:
                yield self.here.do(pickle.loads(pickle.dumps(task)))

    def close(self) -> None:
        self.here.clear()


def mean_plan(model: str, clips: Path, **settings: object) -> Plan:
    base = {
        "model": model, "data": str(clips), "attacks": ["fgsm"], "budgets": ["snr(db=-3)"], "probe": 0,
        "audio": "none", "metrics": ["success", "snr"],
    }  # fmt: skip
    return make_plan(base | settings)


def lines(folder: RunFolder) -> list[str]:
    return sorted(record.to_line() for record in read_records(folder.records_path))


def test_a_lost_task_is_halved_until_the_clip_that_kills_stands_alone(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan, engine = mean_plan(mean_model, mean_clips), Scripted(["up/0"])
    folder = run_audit(plan, tmp_path / "run", engine=engine)
    down = ("down/0", "down/1", "down/2")
    # Six clips, then three and three, then one and two; alone it gets a second try.
    up = ("up/0", "up/1", "up/2")
    assert [clips for _, clips in engine.seen] == [
        (*down, *up), down, up, ("up/0",), ("up/1", "up/2"), ("up/0",),
    ]  # fmt: skip
    found = {record.clip: record for record in folder.records()}
    assert [clip for clip, record in found.items() if record.status == "failed"] == ["up/0"]
    assert found["up/0"].reason == "the worker died on it twice (ended by SIGKILL); out of memory?"
    assert found["up/0"].label == "up"
    whole = run_audit(plan, tmp_path / "whole")
    assert [line for line in lines(whole) if '"up/0"' not in line] == [
        line for line in lines(folder) if '"up/0"' not in line
    ]


def test_a_task_that_is_lost_once_comes_back(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = mean_plan(mean_model, mean_clips, batch=1, attacks=["fgsm", "noise"])
    folder = run_audit(plan, tmp_path / "run", engine=Scripted(["up/0"], times=1))
    assert lines(folder) == lines(run_audit(plan, tmp_path / "whole"))


def test_a_fit_that_is_lost_twice_is_a_failed_cell(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = mean_plan(mean_model, mean_clips, attacks=["uap", "fgsm"], budgets=["l2(eps=0.5)"])
    with pytest.raises(InputError, match=r"uap_evade_l2-eps-0.5.*died on it twice"):
        run_audit(plan, tmp_path / "run", engine=Scripted(["fit"]))
    folder = run_audit(plan, tmp_path / "run", engine=Scripted(["fit"]), keep_going=True)
    keys = {record.key: record.status for record in folder.records()}
    assert keys.pop(("uap_evade_l2-eps-0.5", EVERY)) == "failed"
    assert len(keys) == 6 and set(keys.values()) == {"ok"}
    # Asked to try again, and with a worker that lives, the cell takes the place of its failure.
    again = run_audit(plan, tmp_path / "run", retry_failed=True)
    assert {record.clip for record in again.records() if record.cell == "uap_evade_l2-eps-0.5"} == {
        "down/1",
        "up/1",
    }


def test_a_model_that_no_worker_can_open_is_a_failed_run(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = mean_plan(mean_model, mean_clips, attacks=["fgsm", "noise"], batch=3)
    with pytest.raises(Unopened, match="2 GiB"):
        run_audit(plan, tmp_path / "run", engine=Scripted(locked=["down/0"]))
    folder = run_audit(plan, tmp_path / "run", engine=Scripted(locked=["down/0"]), keep_going=True)
    assert {(*record.key, record.reason) for record in folder.records()} == {
        ("fgsm_evade_snr-db--3", EVERY, "OutOfMemoryError: 2 GiB"),
        ("noise_evade_snr-db--3", EVERY, "OutOfMemoryError: 2 GiB"),
    }
    # Once something is on record there is nothing to mark as failed: the rest waits for a worker that can.
    with pytest.raises(Unopened, match="2 GiB"):
        run_audit(plan, tmp_path / "half", engine=Scripted(locked=["up/0"]), keep_going=True)
    half = RunFolder(tmp_path / "half")
    assert {record.status for record in half.records()} == {"ok"} and len(list(half.records())) == 6
    assert len(list(run_audit(plan, tmp_path / "half", engine=Scripted()).records())) == 12


def test_a_clip_that_cannot_be_loaded_is_recorded_once(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    (mean_clips / "up" / "bad.wav").write_bytes(b"this is no audio")
    plan = mean_plan(mean_model, mean_clips, budgets=["snr(db=3)", "snr(db=0)", "snr(db=-3)"])
    folder = run_audit(plan, tmp_path / "run", engine=Scripted())
    written = [record.key for record in read_records(folder.records_path)]
    assert written.count((LOADING, "up/bad")) == 1 and len(written) == 19


def test_clean_sounds_are_sent_once_a_run(mean_model: str, mean_clips: Path) -> None:
    plan = mean_plan(mean_model, mean_clips, audio="all", budgets=["snr(db=3)", "snr(db=-3)"])
    quiet, loud = (cell.id for cell in plan.cells())
    bench, clips = Executor("cpu"), ("up/0", "up/1")

    def paths(cell: str, run: str) -> list[str]:
        return [path for path, _ in bench.do(AttackTask(plan, cell, clips, run=run)).sounds]

    assert paths(quiet, "first") == [
        "audio/clean/up/0.flac", f"audio/{quiet}/up/0.flac",
        "audio/clean/up/1.flac", f"audio/{quiet}/up/1.flac",
    ]  # fmt: skip
    assert paths(loud, "first") == [f"audio/{loud}/up/0.flac", f"audio/{loud}/up/1.flac"]
    assert "audio/clean/up/0.flac" in paths(loud, "second")


def test_a_worker_without_the_clip_says_so(mean_model: str, mean_clips: Path) -> None:
    plan = mean_plan(mean_model, mean_clips)
    with pytest.raises(InputError, match=r"expected the clip 'up/9' in .*same clips"):
        Executor("cpu").do(AttackTask(plan, plan.cells()[0].id, ("up/9",)))


def test_inline_takes_no_task_once_it_is_to_stop(mean_model: str, mean_clips: Path) -> None:
    plan = mean_plan(mean_model, mean_clips)
    handed: list[str] = []

    def tasks() -> Iterator[Task]:
        for clip in ("up/0", "up/1", "up/2"):
            handed.append(clip)
            yield AttackTask(plan, plan.cells()[0].id, (clip,))

    with InlineEngine("cpu") as engine:
        done = [outcome.task for outcome in engine.run(tasks(), lambda: len(handed) == 2)]
    assert handed == ["up/0", "up/1"] and len(done) == 2


def test_halves() -> None:
    task = AttackTask(Plan(), "fgsm", ("a", "b", "c"), b"1", "run")
    assert halves(task) == [
        AttackTask(Plan(), "fgsm", ("a",), b"1", "run"),
        AttackTask(Plan(), "fgsm", ("b", "c"), b"1", "run"),
    ]


def test_cores_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert [share_cores(number, 3) for number in range(3)] == [(0, 1), (2, 3, 4), (5, 6, 7)]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 6})
    assert [share_cores(number, 3) for number in range(3)] == [(4,), (6,), (4,)]


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [find_device(name) for name in ("cpu", "cuda", "cuda:1")] == ["cpu", "cuda", "cuda:1"]
    with pytest.raises(InputError, match="--device cuda:2: torch sees 2 GPUs, cuda:0 to cuda:1 here; use"):
        find_device("cuda:2")
    for name in ("gpu", "cuda:x", "cuda:", ""):
        with pytest.raises(InputError, match=f"--device {name}: expected auto, cpu, cuda or mps."):
            find_device(name)


def test_every_gpu_has_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    assert find_devices() == ("cuda:0", "cuda:1", "cuda:2", "cuda:3")
    with PoolEngine() as pool:
        assert (pool.workers, pool.device) == (4, "cuda:0, cuda:1, cuda:2, cuda:3")
    with PoolEngine(2, ["cpu"]) as pool:
        assert (pool.workers, pool.device) == (2, "cpu")
    with pytest.raises(InputError, match="expected --workers of 1 or more, got 0"):
        PoolEngine(0)


CROWDED = """
import torch
from sottovoce.targets.families.classifier import ModuleClassifier


class Mean(torch.nn.Module):
    def forward(self, waveforms):
        if waveforms.shape[0] > {most} or waveforms.shape[1] == {width}:
            raise {error}
        mean = waveforms.mean(dim=1, keepdim=True)
        return 50.0 * torch.cat([mean, -mean], dim=1)


def make():
    return ModuleClassifier(Mean(), ["up", "down"], 8000)
"""


@pytest.mark.parametrize(
    "error",
    [
        'torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")',
        'RuntimeError("[enforce fail] DefaultCPUAllocator: can\'t allocate memory: you tried 9 bytes")',
        "MemoryError()",
    ],
)
def test_a_batch_that_does_not_fit_is_halved(
    mean_model: str, mean_clips: Path, tmp_path: Path, error: str
) -> None:
    plan = mean_plan(mean_model, mean_clips)
    whole = lines(run_audit(plan, tmp_path / "whole"))
    # At most two clips at once.
    (tmp_path / "mean_model.py").write_text(CROWDED.format(most=2, width=0, error=error))
    assert lines(run_again(plan, tmp_path / "halved")) == whole
    # One clip of each class has 800 samples, and does not fit even alone.
    (tmp_path / "mean_model.py").write_text(CROWDED.format(most=2, width=800, error=error))
    folder = run_again(plan, tmp_path / "failed")
    failed = {record.clip: record.reason for record in folder.records() if record.status == "failed"}
    assert set(failed) == {"up/1", "down/1"}
    assert all(reason.startswith("out of memory, even as a batch of one (") for reason in failed.values())
    (cell,) = summarise(plan, folder.records()).cells
    assert (cell.clips, cell.failed) == (4, 2)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many clips were tried at once, each time."""
    found: list[int] = []
    tried = CellRunner._tried
    monkeypatch.setattr(
        CellRunner, "_tried", lambda self, clips: (found.append(len(clips)), tried(self, clips))[1]
    )
    return found


def test_the_next_batch_is_no_larger_than_what_fitted(
    mean_model: str, tmp_path: Path, write_clip: WriteClip, sizes: list[int]
) -> None:
    for number in range(8):
        write_clip(tmp_path / "even" / "up" / f"{number}.wav", np.full(400, 1000))
    (tmp_path / "mean_model.py").write_text(CROWDED.format(most=2, width=0, error="MemoryError()"))
    run_again(mean_plan(mean_model, tmp_path / "even", batch=4), tmp_path / "run")
    # Four do not fit, two do: the next four are not tried together.
    assert sizes == [4, 2, 2, 2, 2]


def test_one_clip_that_does_not_fit_leaves_the_others_together(
    mean_model: str, mean_clips: Path, tmp_path: Path, sizes: list[int]
) -> None:
    # down/1 and up/1 have 800 samples, and no batch with one of them fits.
    (tmp_path / "mean_model.py").write_text(CROWDED.format(most=9, width=800, error="MemoryError()"))
    run_again(mean_plan(mean_model, mean_clips, batch=4), tmp_path / "run")
    # Four; down/0 and down/1, then each alone; down/2 and up/0, which fit. Then up/1 and up/2, and each.
    assert sizes == [4, 2, 1, 1, 2, 2, 1, 1]


def run_again(plan: Plan, out: Path) -> RunFolder:
    """A run with the model as its file is now."""
    import sys

    sys.modules.pop("mean_model", None)
    return run_audit(plan, out)


@pytest.mark.slow
def test_processes_give_the_same_records(
    mean_model: str, mean_clips: Path, tmp_path: Path, same_runs: Callable[[Path, Path], None]
) -> None:
    plan = mean_plan(
        mean_model,
        mean_clips,
        attacks=["noise", "pgd(steps=5)", "uap"],
        budgets=["l2(eps=0.5)", "l2(eps=2)"],
        defenses=["none", "gaussian(sigma=0.02)"],
        audio="all",
        batch=2,
        probe=3,
    )
    whole = run_audit(plan, tmp_path / "whole", device="cpu")
    with PoolEngine(2, ["cpu"]) as pool:
        shared = run_audit(plan, tmp_path / "shared", engine=pool)
    same_runs(shared.path, whole.path)
    assert len(list(whole.probes())) > 0
    files = [
        sorted(path.relative_to(folder.path) for path in folder.path.rglob("*")) for folder in (whole, shared)
    ]
    assert files[0] == files[1]
    for path in (path for path in files[0] if path.suffix == ".flac"):
        one, twin = (soundfile.read(folder.path / path, dtype="int16")[0] for folder in (whole, shared))
        assert np.abs(one.astype(int) - twin).max() <= 1
    assert shared.about()["workers"] == 2


@pytest.mark.slow
def test_a_key_that_is_struck_while_a_worker_starts_is_not_for_it() -> None:
    with PoolEngine(1, ["cpu"]) as pool:
        member = pool.pool._start(0)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(member.process.pid or 0, number)
        assert member.connection.poll(120) and member.connection.recv() == READY


@pytest.mark.slow
def test_what_a_worker_raises_is_raised_here(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = mean_plan(mean_model, mean_clips)
    with PoolEngine(1, ["cpu"]) as pool:
        with pytest.raises(InputError, match="expected the clip 'up/9'"):
            list(pool.run([AttackTask(plan, plan.cells()[0].id, ("up/9",))], lambda: False))
        with pytest.raises(Unopened, match=r"^KeyError: 'nothing'$"):
            list(pool.run([AttackTask(plan, "nothing", ("up/0",))], lambda: False))
        # It lives on.
        (done,) = pool.run([AttackTask(plan, plan.cells()[0].id, ("up/0",))], lambda: False)
        assert isinstance(done, FinishedTask) and done.records[0].clip == "up/0"


EXITING = """
import sys
from sottovoce.targets.families.classifier import ModuleClassifier
from mean_model import Mean


class Exiting(Mean):
    def forward(self, waveforms):
        if waveforms.shape[1] == 800:
            sys.exit(7)
        return super().forward(waveforms)


def make():
    return ModuleClassifier(Exiting(), ["up", "down"], 8000)


def refuse():
    sys.exit(7)
"""


def test_a_worker_answers_where_a_model_exits(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    """As a pool and a cluster have their tasks done, in this process: it does not end."""
    (tmp_path / "exiting_model.py").write_text(EXITING)
    plan = mean_plan("python:exiting_model:make", mean_clips)
    clips = ("down/0", "down/1", "up/0", "up/1")
    task = AttackTask(plan, plan.cells()[0].id, clips)
    for done in (worker._answer(Executor("cpu"), task), RayWorker().do(_order(task), "cpu", None)):
        assert isinstance(done, FinishedTask)
        failed = {record.clip: record.reason for record in done.records if record.status == "failed"}
        assert set(failed) == {"down/1", "up/1"} and "got SystemExit: 7" in failed["up/1"]
    plan = mean_plan("python:exiting_model:refuse", mean_clips)
    task = AttackTask(plan, plan.cells()[0].id, clips)
    answer = worker._answer(Executor("cpu"), task)
    assert isinstance(answer, worker.Raised) and answer.kind is Unopened and "SystemExit: 7" in answer.text


@pytest.mark.slow
def test_a_pool_lives_on_where_a_model_exits(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (tmp_path / "exiting_model.py").write_text(EXITING)
    plan = mean_plan("python:exiting_model:make", mean_clips)
    with PoolEngine(1, ["cpu"]) as pool:
        records = list(run_audit(plan, tmp_path / "run", engine=pool).records())
    failed = {record.clip: record.reason for record in records if record.status == "failed"}
    # Not "the worker died over it".
    assert set(failed) == {"down/1", "up/1"} and "got SystemExit: 7, which ends" in failed["up/1"]
    assert len(records) == 6


def _order(task: AttackTask) -> Order:
    return Order(task=task, packed=None, device="cpu", threads=1, folder="", version="")


def test_a_disk_that_fills_in_the_middle_of_a_line(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = mean_plan(mean_model, mean_clips, batch=2, audio="all")
    whole = lines(run_audit(plan, tmp_path / "whole"))
    room, write = 2000, os.write

    def fill(handle: int, content: bytes) -> int:
        """Some of it, while there is room; then nothing, as on a full disk."""
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        room -= (written := write(handle, content[:room]))
        return written

    with monkeypatch.context() as patch:
        patch.setattr("sottovoce.core.record.os.write", fill)
        with pytest.raises(StoreError, match=r"No space left on device; what was recorded before is safe"):
            run_audit(plan, tmp_path / "run")
    kept = (tmp_path / "run" / "trials.jsonl").read_bytes()
    assert 0 < len(kept) <= 2000 and kept.endswith(b"\n")
    assert lines(run_audit(plan, tmp_path / "run")) == whole


def test_sounds_are_there_before_the_record(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    """A record names only files that exist, at every moment."""
    plan = mean_plan(mean_model, mean_clips, batch=1, audio="all")
    moments = []

    def look(done: int, note: str) -> None:
        for record in RunFolder(tmp_path / "run").records():
            moments.append(all((tmp_path / "run" / file).exists() for file in record.audio.values()))

    run_audit(plan, tmp_path / "run", advance=look)
    assert len(moments) == 1 + 2 + 3 + 4 + 5 + 6 and all(moments)


def test_progress_adds_up(mean_model: str, mean_clips: Path, tmp_path: Path, write_clip: WriteClip) -> None:
    write_clip(mean_clips / "up" / "empty.wav", np.zeros(0))
    plan = mean_plan(mean_model, mean_clips, attacks=["uap", "fgsm"], budgets=["l2(eps=0.5)"], batch=4)
    for _ in range(2):
        told: list[int] = []
        folder = run_audit(
            plan,
            tmp_path / "run",
            begin=told.append,
            advance=lambda done, note, told=told: told.append(-done),
        )
        assert told[0] == 14 and sum(told) == 0
        # uap is judged on two clips, fgsm on six, and one cannot be loaded
        assert len(folder.records_path.read_text().splitlines()) == 2 + 6 + 1
