"""Study A: jobs are done once each, in an order in which what they need is there, and failures are told."""

from __future__ import annotations

import time
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sottovoce.errors import InputError
from sottovoce.studies.amiri2024 import job_processes as workers
from sottovoce.studies.amiri2024.job_plan import Job
from sottovoce.studies.amiri2024.job_processes import run_jobs

CNN, GAUSSIAN, OTHER = Job("cnn", 0, 0), Job("gaussian", 0, 0), Job("noise-KG", 0, 0)
LAST = Job("cnn", 1, 0)
MORTAL = """
import os
import signal
from types import SimpleNamespace

from sottovoce.studies.amiri2024 import job_processes as workers


def run(shop, job):
    if job.name == "cnn-f0-s0":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.name == "noise-KG-f0-s0":
        raise ValueError("no such noise")
    shop.result(job).write_text("{}")


def open_shop(folder):
    workers.run_job = run

    def result(job):
        return folder / "jobs" / f"{job.name}.json"

    def ready(job):
        return job.needs is None or result(job.needs).exists()

    return SimpleNamespace(folder=folder, result=result, ready=ready)
"""
"""A workshop for other processes: one job ends its process, one raises what nobody foresaw."""


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    (tmp_path / "jobs").mkdir()

    def result(job: Job) -> Path:
        return tmp_path / "jobs" / f"{job.name}.json"

    return SimpleNamespace(
        folder=tmp_path, result=result, ready=lambda job: job.needs is None or result(job.needs).exists()
    )


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs in the order in which they were done; those of the noise fail."""
    order: list[Job] = []

    def run(shop: Any, job: Job) -> None:
        if job == OTHER:
            raise RuntimeError("no memory")
        order.append(job)
        shop.result(job).write_text("{}")

    monkeypatch.setattr(workers, "run_job", run)
    return order


def test_what_is_needed_comes_first_and_nothing_twice(shop: Any, done: list[Job]) -> None:
    run_jobs(shop, lambda: shop, [GAUSSIAN, CNN], processes=1)
    assert done == [CNN, GAUSSIAN]
    run_jobs(shop, lambda: shop, [GAUSSIAN, CNN], processes=1)
    assert done == [CNN, GAUSSIAN]


def test_a_failure_is_told_after_the_others_are_done(shop: Any, done: list[Job]) -> None:
    with pytest.raises(InputError, match="job noise-KG-f0-s0 failed: no memory"):
        run_jobs(shop, lambda: shop, [OTHER, CNN], processes=1)
    assert done == [CNN]


def test_what_needs_a_failed_job_is_not_waited_for(
    shop: Any, done: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(shop: Any, job: Job) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(workers, "run_job", fail)
    with pytest.raises(InputError, match="job cnn-f0-s0"):
        run_jobs(shop, lambda: shop, [CNN, GAUSSIAN], processes=1)


def test_no_job_is_begun_when_time_is_up(shop: Any, done: list[Job]) -> None:
    run_jobs(shop, lambda: shop, [CNN], processes=1, until=time.time() - 1)
    assert done == []


def test_an_error_that_nobody_foresaw_is_told_after_the_others_are_done(
    shop: Any, done: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = workers.run_job

    def fail(shop: Any, job: Job) -> None:
        if job == OTHER:
            raise MemoryError
        run(shop, job)

    monkeypatch.setattr(workers, "run_job", fail)
    with pytest.raises(InputError, match="job noise-KG-f0-s0 failed: MemoryError"):
        run_jobs(shop, lambda: shop, [OTHER, CNN], processes=1)
    assert done == [CNN]


def test_what_is_needed_must_be_done_or_asked_for(shop: Any, done: list[Job]) -> None:
    with pytest.raises(InputError, match="job gaussian-f0-s0 needs the result of cnn-f0-s0"):
        run_jobs(shop, lambda: shop, [GAUSSIAN], processes=1, until=time.time() + 1)
    shop.result(CNN).write_text("{}")
    run_jobs(shop, lambda: shop, [GAUSSIAN], processes=1)
    assert done == [GAUSSIAN]


@pytest.mark.slow
def test_a_process_that_is_killed_is_not_waited_for(
    shop: Any, done: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mortal_shop.py").write_text(MORTAL)
    monkeypatch.syspath_prepend(tmp_path)
    open_shop = partial(import_module("mortal_shop").open_shop, tmp_path)
    jobs = [CNN, GAUSSIAN, OTHER, LAST]
    limit = time.time() + 60
    with pytest.raises(InputError, match=r"job cnn-f0-s0 failed: its process died"):
        run_jobs(shop, open_shop, jobs, processes=2, until=limit)
    assert time.time() < limit
    # Whoever is left does the rest, and does not try what needs the lost job.
    assert [job for job in jobs if shop.result(job).exists()] == [LAST]
    reasons = [shop.result(job).with_suffix(".failed").read_text() for job in (CNN, OTHER)]
    assert reasons == [
        "its process died (ended by SIGKILL), perhaps for want of memory",
        "ValueError: no such noise",
    ]
    # The same command tries again.
    run_jobs(shop, lambda: shop, [CNN, GAUSSIAN], processes=1)
    assert done == [CNN, GAUSSIAN]
