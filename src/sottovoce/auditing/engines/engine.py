"""The interface of an engine: it takes tasks, has them done somewhere, and returns the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, final

from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.tasks import FinishedTask, LostTask, Task
from sottovoce.core.target import Target
from sottovoce.targets.open_target import find_device


class Engine(ABC):
    """Does tasks, in any order. A subclass holds whatever that takes until it is closed.

    workers: how many tasks are done at once.
    device: where, for the reader of a run's about.json.
    bench: that of an engine that works in this very process, so that nothing is opened twice; else None.
    """

    workers: int = 1
    device: str = "auto"
    bench: Executor | None = None

    @abstractmethod
    def offer(self, model: str, target: Target) -> None:
        """The target of plans with this `model`, open in this process; an engine may have no use for it."""

    @abstractmethod
    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[FinishedTask | LostTask]:
        """The result of each task, in the order in which they end.

        Tasks are taken one by one, never many more than there are workers. Once `stop()` is true no other is
        taken, and tasks in progress are finished and returned. A task whose worker died is returned as
        `LostTask`; the engine itself continues. An error that a retry cannot fix is raised.
        """

    @abstractmethod
    def close(self) -> None:
        """Release processes and models."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@final
class InlineEngine(Engine):
    """One task after the other, in no process besides this one."""

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
