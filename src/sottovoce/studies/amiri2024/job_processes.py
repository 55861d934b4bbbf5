"""Jobs of study A in several processes at once: each opens the workshop anew, and writes its results."""

from __future__ import annotations

import ctypes
import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial

import torch

from sottovoce.core.processes import Died, ProcessPool
from sottovoce.errors import InputError, SottovoceError
from sottovoce.studies.amiri2024.job_plan import JOBS, Job
from sottovoce.studies.amiri2024.jobs import Workshop, run_job
from sottovoce.studies.study import Tell

FAILED = ".failed"
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
    _clear(shop)
    failed: dict[Job, str] = {}
    waiting = _todo(shop, jobs, failed, until)
    if processes == 1:
        with _one_thread():
            for job in waiting:
                assert job is not None  # nothing is under way that it could wait for
                done = sum(shop.result(one).exists() for one in jobs)
                tell(done / len(jobs), f"{job.kind}, fold {job.fold + 1}, seed {job.seed}")
                _note(shop, failed, job, _try(shop, job))
    else:
        pool = ProcessPool[Job, str]([partial(_begin, open_shop)] * processes)
        with closing(pool):
            for outcome in pool.run(waiting):
                if isinstance(outcome, Died):
                    why = f"its process died ({outcome.why}), perhaps for want of memory"
                    _note(shop, failed, outcome.task, why)
                else:
                    _note(shop, failed, *outcome)
                done = sum(shop.result(job).exists() for job in jobs)
                tell(done / len(jobs), f"{done} of {len(jobs)} jobs")
    # The first of the list, whichever ended first.
    for job in jobs:
        if job in failed:
            raise InputError(
                f"job {job.name} failed: {failed[job]}; fix that and run the same command again to continue."
            )


def _todo(
    shop: Workshop, jobs: Sequence[Job], failed: Mapping[Job, str], until: float
) -> Iterator[Job | None]:
    """Jobs that can be begun; None where what is left must wait for one that is under way."""
    todo = [job for job in jobs if not shop.result(job).exists()]
    while todo and time.time() < until:
        todo = [job for job in todo if job.needs not in failed]
        ready = next((job for job in todo if shop.ready(job)), None)
        if ready is not None:
            todo.remove(ready)
        if todo or ready is not None:
            yield ready


def _begin(open_shop: Open) -> Callable[[Job], str]:
    """What a process that has just started does jobs with."""
    torch.set_num_threads(1)
    _reuse_memory()
    return partial(_try, open_shop())


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _reuse_memory()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _try(shop: Workshop, job: Job) -> str:
    """Why a job failed, or nothing."""
    try:
        run_job(shop, job)
    except (SottovoceError, RuntimeError) as error:
        return str(error)
    except Exception as error:
        # Unexpected: keep the traceback for whoever fixes it.
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def _note(shop: Workshop, failed: dict[Job, str], job: Job, reason: str) -> None:
    """Keep why a job failed, where it did."""
    if reason:
        failed[job] = reason
        shop.result(job).with_suffix(FAILED).write_text(reason, encoding="utf-8")


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


def _clear(shop: Workshop) -> None:
    """Without what is said of failures before."""
    for left in (shop.folder / JOBS).glob(f"*{FAILED}"):
        left.unlink()
