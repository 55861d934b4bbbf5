"""Work in several processes of this machine.

`workers` and `spawned` are for functions whose results are wanted in order. `ProcessPool` is for long work of
processes that keep something open: one that dies takes its own task with it and nothing else.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar, final

import torch

from sottovoce.errors import SottovoceError

Submit = Callable[[Callable[[], Any]], "Future[Any]"]
Work = TypeVar("Work")
Answer = TypeVar("Answer")

READY = "ready"
TRIES = 3
"""How often a process may end before it is ready."""
LEAVE_SECONDS = 5.0
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM)
"""A key that stops the run reaches every process of a terminal, and a batch system signals all of a job: the
process that began the workers decides, and closes their pipes."""


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
    with spawned(processes) as submit:
        yield submit


@contextmanager
def spawned(processes: int) -> Iterator[Submit]:
    """So many other processes of one thread each, even if it is one."""
    # Spawned, not forked: this process may hold a CUDA device, and torch's threads do not outlive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield pool.submit


def _now(job: Callable[[], Any]) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(job())
    return done


@final
@dataclass(frozen=True)
class Died(Generic[Work]):
    """A task over which its process died, and how that ended."""

    task: Work
    why: str


@dataclass
class Member(Generic[Work]):
    """One process. task: what it is at, or will be as soon as it is ready."""

    number: int
    process: SpawnProcess
    connection: Connection
    ready: bool = False
    task: Work | None = None


@final
class ProcessPool(Generic[Work, Answer]):
    """Processes that are started when there is work for them, each with its share of the cores.

    Each has a pipe to this process, which is how both notice that the other is gone: one that dies over a
    task is replaced and its task reported as `Died`, and when this one is killed the others end.

    begin: for each process what it calls once it has started; that gives what does a task. Both must be
    picklable, and what does a task must not raise.
    """

    def __init__(self, begin: Sequence[Callable[[], Callable[[Work], Answer]]]) -> None:
        self._begin = list(begin)
        self._members: list[Member[Work] | None] = [None] * len(self._begin)
        self._starts = 0
        atexit.register(self.close)

    def run(
        self, tasks: Iterable[Work | None], stop: Callable[[], bool] = lambda: False
    ) -> Generator[tuple[Work, Answer] | Died[Work]]:
        """Every task with its answer, in the order in which they end.

        Tasks are taken one by one, never many more than there are processes; None says that there is nothing
        to do before another task is done. Once `stop()` is true no other is taken, and those under way are
        waited for.
        """
        waiting = iter(tasks)
        try:
            self._deal(waiting, stop)
            while busy := {each.connection: each for each in self._members if each and each.task is not None}:
                for connection in wait(list(busy)):
                    outcome = self._hear(busy[connection])  # type: ignore[index]
                    if outcome is not None:
                        # The next task first: what is done with this outcome takes a moment.
                        self._deal(waiting, stop)
                        yield outcome
        finally:
            # Whoever is still at work was left alone by an error, and nobody will ask for the answer.
            for member in self._members:
                if member is not None and member.task is not None:
                    self._end(member)

    def close(self) -> None:
        """Let the processes end."""
        atexit.unregister(self.close)
        members = [member for member in self._members if member is not None]
        for member in members:
            member.connection.close()
        for member in members:
            if member.task is None:
                member.process.join(LEAVE_SECONDS)
            self._end(member)

    def _deal(self, waiting: Iterator[Work | None], stop: Callable[[], bool]) -> None:
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

    def _hear(self, member: Member[Work]) -> tuple[Work, Answer] | Died[Work] | None:
        """What a process has to say; None where it is only ready, or had to be started again."""
        task = member.task
        assert task is not None
        try:
            answer = member.connection.recv()
        except (EOFError, OSError):
            return self._bury(member)
        if answer == READY:
            member.ready, self._starts = True, 0
            return None if self._send(member) else self._bury(member)
        member.task = None
        return task, answer

    def _bury(self, member: Member[Work]) -> Died[Work] | None:
        """A process died: over its task, or before it came to it, and then another takes the task."""
        task, why = member.task, self._end(member)
        assert task is not None
        if member.ready:
            return Died(task, why)
        self._starts += 1
        if self._starts >= TRIES:
            raise SottovoceError(
                f"expected worker processes to start, got {TRIES} in a row that did not ({why}); look at "
                'what they printed. In a script of your own, put the run under if __name__ == "__main__":.'
            )
        self._replace(member)
        return None

    def _send(self, member: Member[Work]) -> bool:
        try:
            member.connection.send(member.task)
        except OSError:
            return False
        return True

    def _replace(self, member: Member[Work]) -> None:
        """Another process for a task that the last one never saw."""
        task = member.task
        self._end(member)
        self._start(member.number).task = task

    def _start(self, number: int) -> Member[Work]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        cores = share_cores(number, len(self._members))
        process = context.Process(
            target=_serve, args=(theirs, self._begin[number], cores), name=f"worker {number}"
        )
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
        member = self._members[number] = Member[Work](number, process, ours)
        return member

    def _end(self, member: Member[Work]) -> str:
        """Make sure that a process is gone; how it ended."""
        member.connection.close()
        member.process.join(0.5)
        if member.process.is_alive():
            member.process.kill()
            member.process.join()
        self._members[member.number] = None
        code = member.process.exitcode or 0
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def count_cores() -> int:
    """The cores that this process may use."""
    return len(_cores())


def share_cores(number: int, workers: int) -> tuple[int, ...]:
    """The cores of one worker of so many: all have nearly as many, and at least one."""
    cores = _cores()
    if workers > len(cores):
        return (cores[number % len(cores)],)
    return tuple(cores[number * len(cores) // workers : (number + 1) * len(cores) // workers])


def _cores() -> list[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:  # not every system can say
        return list(range(os.cpu_count() or 1))


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Libraries that count the cores as they are loaded are told of fewer, while a process starts."""
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


def _serve(connection: Connection, begin: Callable[[], Callable[[Any], Any]], cores: tuple[int, ...]) -> None:
    """A process of a pool: do tasks until the pipe is closed."""
    for number in NOT_FOR_WORKERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NOT_FOR_WORKERS)
    threading.Thread(target=_follow_parent, daemon=True).start()
    _keep_to(cores)
    do = begin()
    try:
        connection.send(READY)
        while True:
            connection.send(do(connection.recv()))
    except (EOFError, OSError):
        return


def _follow_parent() -> None:
    """End with the process that began this one, in the middle of a task if need be."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _keep_to(cores: tuple[int, ...]) -> None:
    """Keep to a share of the cores.

    Threads and processes that are begun from here, such as those that score quality, keep to it too.
    """
    with suppress(AttributeError, OSError):  # not every system can, and some forbid it
        os.sched_setaffinity(0, cores)
    torch.set_num_threads(min(len(cores), torch.get_num_threads()))
