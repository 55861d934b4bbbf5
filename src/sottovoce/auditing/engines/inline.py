"""One task after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import final

from sottovoce.auditing.bench import Bench
from sottovoce.auditing.engines.engine import Engine
from sottovoce.auditing.opening import find_device
from sottovoce.auditing.task import Done, Lost, Task
from sottovoce.core.target import Target


@final
class Inline(Engine):
    """No process besides this one."""

    bench: Bench

    def __init__(self, device: str = "auto") -> None:
        self.device = find_device(device)
        self.bench = Bench(self.device)

    def offer(self, model: str, target: Target) -> None:
        self.bench.offer(model, target)

    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[Done | Lost]:
        waiting = iter(tasks)
        while not stop():
            task = next(waiting, None)
            if task is None:
                return
            yield self.bench.do(task)

    def close(self) -> None:
        self.bench.clear()
