"""Work in several processes, with results in order."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

Submit = Callable[[Callable[[], Any]], "Future[Any]"]


def in_order(
    submit: Submit, jobs: Iterable[tuple[Any, Callable[[], Any]]], ahead: int
) -> Iterator[tuple[Any, Any]]:
    """Results of jobs in order, each with its tag. ahead: how many are in progress at once."""
    waiting: deque[tuple[Any, Future[Any]]] = deque()
    for tag, job in jobs:
        waiting.append((tag, submit(job)))
        if len(waiting) > ahead:
            tag, future = waiting.popleft()
            yield tag, future.result()
    for tag, future in waiting:
        yield tag, future.result()


@contextmanager
def workers(processes: int) -> Iterator[Submit]:
    """A pool of processes with one thread each; with one process, jobs run here."""
    if processes < 2:
        yield _now
        return
    # Spawned, not forked: this process may hold a CUDA device already.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool.submit


def _now(job: Callable[[], Any]) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(job())
    return done
