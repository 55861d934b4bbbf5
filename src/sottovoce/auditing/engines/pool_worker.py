"""What a process of a pool does with a task: an answer, whatever comes in the way."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import torch

from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.run_cell import tell
from sottovoce.auditing.run.tasks import FinishedTask, RepeatTask, Task, Unopened
from sottovoce.errors import InputError, SottovoceError, Stopped


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
        kinds = (Unopened, Stopped, InputError, SottovoceError)
        return next(kind for kind in kinds if issubclass(self.kind, kind))(self.text)


def begin_worker(device: str) -> Callable[[Task], FinishedTask | Raised]:
    """What a process that has just started does tasks with."""
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
    return partial(_answer, Executor(device))


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
