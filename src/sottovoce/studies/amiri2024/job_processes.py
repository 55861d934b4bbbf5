"""Jobs of study A in several processes at once, which share nothing but the folder."""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from sottovoce.errors import InputError, SottovoceError
from sottovoce.studies.amiri2024.job_plan import JOBS, Job
from sottovoce.studies.amiri2024.jobs import Workshop, run_job
from sottovoce.studies.study import Tell

CLAIM, FAILED = ".claim", ".failed"
WAIT_SECONDS = 0.5
# Of glibc's mallopt: the size from which memory is mapped separately, and how much freed memory is kept.
_TRIM, _MMAP = -1, -3
_TRIM_BYTES, _MMAP_BYTES = 2**31 - 1, 2**30
Open = Callable[[], Workshop]
"""Opens the workshop in another process; must be picklable."""


def run_jobs(
    shop: Workshop,
    open_shop: Open,
    jobs: Sequence[Job],
    *,
    processes: int,
    until: float = math.inf,
    tell: Tell = lambda done, note: None,
) -> None:
    """Do what is not done yet. until: when no job is begun any more, as `time.time` has it.

    Each process has one thread: that is faster on a CPU than several threads for one job, and it leaves a GPU
    to many processes.
    """
    _check_needs(shop, jobs)
    _clear(shop, CLAIM, FAILED)
    if processes == 1:
        work(lambda: shop, jobs, until, tell)
    else:
        context = multiprocessing.get_context("spawn")
        # Daemons: whoever ends the study, by whatever means, must not wait for a job to finish.
        workers = [
            context.Process(target=work, args=(open_shop, jobs, until), daemon=True) for _ in range(processes)
        ]
        for one in workers:
            one.start()
        while any(one.is_alive() for one in workers):
            time.sleep(WAIT_SECONDS)
            _fail_ended(shop, jobs, workers)
            done = sum(shop.result(job).exists() for job in jobs)
            tell(done / max(len(jobs), 1), f"{done} of {len(jobs)} jobs")
        _fail_ended(shop, jobs, workers)
        if any(one.exitcode for one in workers) and not _failures(shop, jobs):
            raise InputError(
                "a process of study A was ended before it finished; run the same command again to continue."
            )
    _clear(shop, CLAIM)
    for job, reason in _failures(shop, jobs).items():
        raise InputError(
            f"job {job.name} failed: {reason}; fix that and run the same command again to continue."
        )


def work(open_shop: Open, jobs: Sequence[Job], until: float, tell: Tell = lambda done, note: None) -> None:
    """Do jobs that nobody else has begun, as soon as what they need is there, until none is left."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _reuse_memory()
    try:
        shop = open_shop()
        todo = [job for job in jobs if not shop.result(job).exists()]
        while todo and time.time() < until:
            todo = [job for job in todo if not (job.needs and _mark(shop, job.needs, FAILED).exists())]
            ready = [job for job in todo if shop.ready(job)]
            if not ready and todo:
                time.sleep(WAIT_SECONDS)
            for job in ready:
                todo.remove(job)
                if _claim(shop, job):
                    tell(1 - len(todo) / len(jobs), f"{job.kind}, fold {job.fold + 1}, seed {job.seed}")
                    _try(shop, job)
                    break
    finally:
        torch.set_num_threads(threads)


def _try(shop: Workshop, job: Job) -> None:
    try:
        run_job(shop, job)
    except (SottovoceError, RuntimeError) as error:
        _fail(shop, job, str(error))
    except Exception as error:
        # Unexpected: keep the traceback for whoever fixes it.
        traceback.print_exc()
        _fail(shop, job, f"{type(error).__name__}: {error}")


def _fail(shop: Workshop, job: Job, reason: str) -> None:
    _mark(shop, job, FAILED).write_text(reason, encoding="utf-8")


def _fail_ended(shop: Workshop, jobs: Sequence[Job], workers: Sequence[BaseProcess]) -> None:
    """Mark what a process was doing when it was ended, so that nobody waits for that."""
    ended = {str(one.pid): one.exitcode for one in workers if one.exitcode}
    for job in jobs if ended else ():
        claim = _mark(shop, job, CLAIM)
        owner = claim.read_text(encoding="utf-8") if claim.exists() else ""
        over = shop.result(job).exists() or _mark(shop, job, FAILED).exists()
        if owner in ended and not over:
            _fail(shop, job, f"its process was ended (exit code {ended[owner]}), perhaps for want of memory")


def _check_needs(shop: Workshop, jobs: Sequence[Job]) -> None:
    asked = set(jobs)
    for job in jobs:
        if job.needs and job.needs not in asked and not shop.ready(job):
            raise InputError(
                f"job {job.name} needs the result of {job.needs.name}, which is missing; run the jobs of "
                f"{job.needs.kind} first."
            )


def _reuse_memory() -> None:
    """Keep freed memory for the next tensor. Activations of a CNN are large and short-lived, and to get them
    from the system page by page takes up to half of a job's time. Nothing changes where there is no glibc."""
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP, _MMAP_BYTES)
        library.mallopt(_TRIM, _TRIM_BYTES)


def _clear(shop: Workshop, *suffixes: str) -> None:
    for left in (shop.folder / JOBS).iterdir():
        if left.suffix in suffixes:
            left.unlink()


def _claim(shop: Workshop, job: Job) -> bool:
    """Whether this process is the first to want the job."""
    try:
        with _mark(shop, job, CLAIM).open("x", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _mark(shop: Workshop, job: Job, suffix: str) -> Path:
    return shop.result(job).with_suffix(suffix)


def _failures(shop: Workshop, jobs: Sequence[Job]) -> dict[Job, str]:
    marks = {job: _mark(shop, job, FAILED) for job in jobs}
    return {job: path.read_text(encoding="utf-8") for job, path in marks.items() if path.exists()}
