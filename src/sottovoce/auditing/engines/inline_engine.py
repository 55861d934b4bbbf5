"""One task after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import final

from sottovoce.auditing.engines.engine import Engine
from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.tasks import FinishedTask, LostTask, Task
from sottovoce.core.target import Target
from sottovoce.targets.open_target import find_device


@final
class InlineEngine(Engine):
    """No process besides this one."""

    bench: Executor

    def __init__(self, device: str = "auto") -> None:
        self.device = find_device(device)
        self.bench = Executor(self.device)

    def offer(self, model: str, target: Target) -> None:
        self.bench.offer(model, target)

    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[FinishedTask | LostTask]:
        waiting = iter(tasks)
        while not stop():
            task = next(waiting, None)
            if task is None:
                return
            yield self.bench.do(task)

    def close(self) -> None:
        self.bench.clear()
