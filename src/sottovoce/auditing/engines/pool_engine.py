"""Several processes on this machine, each with its share of the cores and a device of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import final

from sottovoce.auditing.engines.engine import Engine
from sottovoce.auditing.engines.pool_worker import Raised, begin_worker
from sottovoce.auditing.run.tasks import FinishedTask, LostTask, Task
from sottovoce.core.processes import Died, ProcessPool
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.targets.open_target import find_devices


@final
class PoolEngine(Engine):
    """A pool of processes, started when there is work for them.

    workers: how many; None: as many as there are GPUs.
    devices: dealt out in turn; None: every GPU, or else the fastest device there is.
    """

    def __init__(self, workers: int | None = None, devices: Sequence[str] | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"expected --workers of 1 or more, got {workers}.")
        devices = tuple(devices or find_devices())
        self.workers = workers or len(devices)
        self.device = ", ".join(dict.fromkeys(devices[: self.workers]))
        self.pool = ProcessPool[Task, FinishedTask | Raised](
            [partial(begin_worker, devices[number % len(devices)]) for number in range(self.workers)]
        )

    def offer(self, model: str, target: Target) -> None:
        """Each process opens its own."""

    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[FinishedTask | LostTask]:
        with closing(self.pool.run(tasks, stop)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Died):
                    yield LostTask(outcome.task, outcome.why)
                    continue
                answer = outcome[1]
                if isinstance(answer, Raised):
                    raise answer.error()
                yield answer

    def close(self) -> None:
        self.pool.close()
