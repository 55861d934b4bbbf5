"""Several processes on this machine, each with its share of the cores and a device of its own.

Each process has a pipe to this one, which is how both notice that the other is gone: a process that dies over
a task is replaced and its task reported as lost, and when this one is killed the others end.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import final

import torch

from sottovoce.auditing.engines.engine import Engine
from sottovoce.auditing.engines.pool_worker import NOT_FOR_WORKERS, READY, Raised, serve
from sottovoce.auditing.run.tasks import FinishedTask, LostTask, Task
from sottovoce.core.target import Target
from sottovoce.errors import InputError, SottovoceError
from sottovoce.metrics.pesq_workers import count_cores
from sottovoce.targets.open_target import find_device

TRIES = 3
"""How often a process may end before it is ready."""
LEAVE_SECONDS = 5.0
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass
class Member:
    """One process. task: what it is at, or will be as soon as it is ready."""

    number: int
    process: SpawnProcess
    connection: Connection
    ready: bool = False
    task: Task | None = None


@final
class PoolEngine(Engine):
    """A pool of processes, started when there is work for them.

    workers: how many; None: as many as there are GPUs.
    devices: dealt out in turn; None: every GPU, or else the fastest device there is.
    """

    def __init__(self, workers: int | None = None, devices: Sequence[str] | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"expected --workers of 1 or more, got {workers}.")
        self.devices = tuple(devices or find_devices())
        self.workers = workers or len(self.devices)
        self.device = ", ".join(dict.fromkeys(self.devices[: self.workers]))
        self._members: list[Member | None] = [None] * self.workers
        self._starts = 0
        atexit.register(self.close)

    def offer(self, model: str, target: Target) -> None:
        """Each process opens its own."""

    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[FinishedTask | LostTask]:
        waiting = iter(tasks)
        try:
            self._deal(waiting, stop)
            while busy := {each.connection: each for each in self._members if each and each.task}:
                for connection in wait(list(busy)):
                    outcome = self._hear(busy[connection])  # type: ignore[index]
                    if outcome is not None:
                        # Hand out the next task first: writing the results of this one takes a moment.
                        self._deal(waiting, stop)
                        yield outcome
        finally:
            # Whoever is still at work was left alone by an error, and nobody will ask for the answer.
            for member in self._members:
                if member is not None and member.task is not None:
                    self._end(member)

    def close(self) -> None:
        atexit.unregister(self.close)
        members = [member for member in self._members if member is not None]
        for member in members:
            member.connection.close()
        for member in members:
            if member.task is None:
                member.process.join(LEAVE_SECONDS)
            self._end(member)

    def _deal(self, waiting: Iterator[Task], stop: Callable[[], bool]) -> None:
        """A task for every process that has none; a process for every task, up to their number."""
        for number, member in enumerate(self._members):
            if stop() or (member is not None and member.task is not None):
                continue
            task = next(waiting, None)
            if task is None:
                return
            if member is None:
                member = self._start(number)
            member.task = task
            if member.ready and not self._send(member):
                self._replace(member)

    def _hear(self, member: Member) -> FinishedTask | LostTask | None:
        """What a process has to say; None where it is only ready, or had to be started again."""
        assert member.task is not None
        try:
            answer = member.connection.recv()
        except (EOFError, OSError):
            return self._mourn(member)
        if answer == READY:
            member.ready, self._starts = True, 0
            return None if self._send(member) else self._mourn(member)
        member.task = None
        if isinstance(answer, Raised):
            raise answer.error()
        assert isinstance(answer, FinishedTask)
        return answer

    def _mourn(self, member: Member) -> LostTask | None:
        """A process died: over its task, or before it came to it, and then another takes the task."""
        task, why = member.task, self._end(member)
        assert task is not None
        if member.ready:
            return LostTask(task, why)
        self._starts += 1
        if self._starts >= TRIES:
            raise SottovoceError(
                f"expected worker processes to start, got {TRIES} in a row that did not ({why}); look at "
                'what they printed. In a script of your own, put the run under if __name__ == "__main__":.'
            )
        self._replace(member)
        return None

    def _send(self, member: Member) -> bool:
        try:
            member.connection.send(member.task)
        except OSError:
            return False
        return True

    def _replace(self, member: Member) -> None:
        """Another process for a task that the last one never saw."""
        task = member.task
        self._end(member)
        self._start(member.number).task = task

    def _start(self, number: int) -> Member:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        cores = share_cores(number, self.workers)
        device = self.devices[number % len(self.devices)]
        process = context.Process(target=serve, args=(theirs, device, cores), name=f"worker {number}")
        # It inherits what is held back here, and lets it through once it ignores it: a key that is struck
        # while it starts is no more for it than one struck later. To start the tracker lets it through.
        resource_tracker.ensure_running()
        held = signal.pthread_sigmask(signal.SIG_BLOCK, NOT_FOR_WORKERS)
        try:
            with _threads(len(cores)):
                process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        theirs.close()
        member = self._members[number] = Member(number, process, ours)
        return member

    def _end(self, member: Member) -> str:
        """Make sure that a process is gone; how it ended."""
        member.connection.close()
        member.process.join(0.5)
        if member.process.is_alive():
            member.process.kill()
            member.process.join()
        self._members[member.number] = None
        code = member.process.exitcode or 0
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def find_devices() -> tuple[str, ...]:
    """Every GPU; without one, the fastest device there is."""
    if torch.cuda.is_available():
        return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    return (find_device(),)


def share_cores(number: int, workers: int) -> tuple[int, ...]:
    """The cores of one of several workers: an equal share, at least one."""
    try:
        cores = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        cores = list(range(count_cores()))
    if workers > len(cores):
        return (cores[number % len(cores)],)
    return tuple(cores[number * len(cores) // workers : (number + 1) * len(cores) // workers])


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Show fewer cores to libraries that count them on loading, while a process starts."""
    before = {name: os.environ.get(name) for name in THREADS}
    for name, value in before.items():
        os.environ[name] = str(min(int(value), most) if value and value.isdigit() else most)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
