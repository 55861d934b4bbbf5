"""PESQ in separate processes: on every core, and so that a crash of the library does not end the run.

The library uses one core, and crashes on clips with more utterances than it has room for (two minutes of
speech are too many). This file is also the worker's program. It imports nothing of sottovoce, so that a
worker starts in a moment, and never runs the script that its parent was started from.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Answer = tuple[float, str]
"""A score, or NaN and why there is none."""

ALONE_SECONDS = 15.0
"""A single clip up to here cannot have too many utterances, and is scored without a worker."""
CRASHED = "the pesq library crashed on it, as it does on clips of many utterances"


def score_pairs(
    pairs: Sequence[tuple[Samples, Samples]], sample_rate: int, mode: str, *, workers: int | None = None
) -> list[Answer]:
    """PESQ of clean and changed clips `(time,)`, one answer a pair, in order.

    sample_rate: 8000 or 16000. mode: "wb" or "nb".
    workers: processes, as many as there are cores if not said. They stay until this process ends.
    """
    tasks = [(sample_rate, clean, changed, mode) for clean, changed in pairs]
    if workers is None and len(tasks) == 1 and len(tasks[0][1]) <= ALONE_SECONDS * sample_rate:
        return [_score(*tasks[0])]
    if workers is None:
        # Imported here: a worker starts without torch.
        from sottovoce.core.processes import count_cores

        workers = count_cores()
    # A forked child must not talk to its parent's workers.
    return list(_threads(workers, os.getpid()).map(_ask, tasks))


class _Worker:
    """A process that scores one pair after the other."""

    def __init__(self) -> None:
        # -P: the folder of this file is no place to look for modules. A session of its own: a key that stops
        # the run reaches the parent alone, and the worker ends when the parent closes the pipe.
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(self.close)

    def ask(self, task: tuple[Any, ...]) -> Answer:
        """The answer; EOFError or OSError where the process died over it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        pickle.dump(task, self.process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self.process.stdin.flush()
        answer: Answer = pickle.load(self.process.stdout)
        return answer

    def close(self) -> None:
        atexit.unregister(self.close)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                _close(pipe)


_own = threading.local()


def _ask(task: tuple[Any, ...]) -> Answer:
    """Runs in a thread that has a worker to itself."""
    worker: _Worker | None = getattr(_own, "worker", None)
    if worker is None:
        worker = _own.worker = _Worker()
    try:
        return worker.ask(task)
    except (EOFError, OSError, pickle.UnpicklingError):
        _own.worker = None
        worker.close()
        return float("nan"), CRASHED


@cache
def _threads(workers: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="pesq")


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:
        return  # what a dead process did not read is lost anyway


def _score(sample_rate: int, clean: Samples, changed: Samples, mode: str) -> Answer:
    import pesq

    try:
        value = float(pesq.pesq(sample_rate, clean, changed, mode))
    except pesq.BufferTooShortError:
        return float("nan"), "shorter than a quarter of a second"
    except pesq.NoUtterancesError:
        return float("nan"), "no utterance detected"
    except (pesq.PesqError, RuntimeError, ValueError) as error:
        # The library gives its messages as bytes.
        text = error.args[0] if error.args else type(error).__name__
        return float("nan"), text.decode() if isinstance(text, bytes) else str(text)
    return (value, "") if np.isfinite(value) else (value, "the pesq library gave no number")


def _serve() -> None:
    """Answer tasks until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is no answer
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_score(*task), answers)
        answers.flush()


if __name__ == "__main__":
    _serve()
