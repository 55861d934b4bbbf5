"""A process of a pool: it does tasks until its pipe is closed, and ends with the process that began it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import final

import torch

from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.run_cell import tell
from sottovoce.auditing.run.tasks import FinishedTask, RepeatTask, Task, Unopened
from sottovoce.errors import InputError, SottovoceError

READY = "ready"
NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM)
"""A key that stops the run reaches every process of a terminal, and a batch system signals all of a job: the
process that began the workers decides, and closes their pipes."""


@final
@dataclass(frozen=True)
class Raised:
    """An error that a task ended in, as text: not every error can be sent to another process.

    kind: its class where that is one of sottovoce's, which say all in their message.
    """

    kind: type[SottovoceError] | None
    text: str

    def error(self) -> Exception:
        if self.kind is None:
            return RuntimeError(f"a worker failed:\n{self.text}")
        kinds = (Unopened, InputError, SottovoceError)
        return next(kind for kind in kinds if issubclass(self.kind, kind))(self.text)


def serve(connection: Connection, device: str, cores: tuple[int, ...]) -> None:
    """Do tasks until the pipe is closed."""
    for number in NOT_FOR_WORKERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NOT_FOR_WORKERS)
    threading.Thread(target=_follow_parent, daemon=True).start()
    _settle(device, cores)
    bench = Executor(device)
    try:
        connection.send(READY)
        while True:
            connection.send(_answer(bench, connection.recv()))
    except (EOFError, OSError):
        return


def do_task(bench: Executor, task: Task) -> FinishedTask:
    """The task done. Whatever comes in the way of its model and its cell, the plan cannot be opened here."""
    try:
        bench.treat(task.plan, steady=task.steady)
        if isinstance(task, RepeatTask):
            bench.target(task.plan)
        else:
            bench.work(task.plan, task.cell)
    except Exception as error:
        raise Unopened(tell(error)) from error
    return bench.do(task)


def _answer(bench: Executor, task: Task) -> FinishedTask | Raised:
    try:
        return do_task(bench, task)
    except SottovoceError as error:
        return Raised(type(error), str(error))
    except Exception:
        return Raised(None, traceback.format_exc())


def _follow_parent() -> None:
    """End with the process that began this one, in the middle of a task if need be."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _settle(device: str, cores: tuple[int, ...]) -> None:
    """Keep to a share of the cores, and so do threads and processes that are begun from here, such as those
    that score quality: each of them asks which cores it may use."""
    with suppress(AttributeError, OSError):  # not every system can, and some forbid it
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(min(len(cores), torch.get_num_threads()))
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
