"""Several processes that serve one study: a foreman that starts them, and puts another in the place of one
that dies.

They are forked from a process in which all is ready, so that a new one is there at once and clips are in
memory once. The foreman itself serves nobody, and has nothing that could break.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import final

Wait = Callable[[], None]
Tell = Callable[[str], None]
ENDING = (signal.SIGINT, signal.SIGTERM)
PAUSE_SECONDS = 1.0


@final
class ServerProcesses:
    """work: what each does until it gets SIGTERM. It is given a function that returns once the foreman is
    gone, when it should end too. tell: hears of workers that died."""

    def __init__(self, size: int, work: Callable[[Wait], None], tell: Tell) -> None:
        self.size, self.work, self.tell = size, work, tell
        self._started: set[int] = set()
        self._stopping = False
        # Nothing is ever written: the other end is closed when this process is gone, however it went.
        self._watch, self._alive = os.pipe()

    def run(self) -> None:
        """Until SIGINT or SIGTERM; workers finish what they have begun."""
        before = {one: signal.signal(one, self._stop) for one in ENDING}
        try:
            for _ in range(self.size):
                self._start()
            self._look_after()
        finally:
            self._end()
            for one, handler in before.items():
                signal.signal(one, handler)
            os.close(self._watch)
            os.close(self._alive)

    def _look_after(self) -> None:
        last = -PAUSE_SECONDS
        while self._started:
            pid, status = os.wait()
            self._started.discard(pid)
            if self._stopping:
                continue
            how = os.waitstatus_to_exitcode(status)
            told = f"signal {-how}" if how < 0 else f"exit status {how}"
            self.tell(f"a worker ended ({told}); starting another")
            if time.monotonic() - last < PAUSE_SECONDS:
                # Whatever kills them is not over yet.
                time.sleep(PAUSE_SECONDS)
            last = time.monotonic()
            if not self._stopping:
                self._start()

    def _start(self) -> None:
        # A signal that comes in between would be handled by the wrong process.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        pid = os.fork()
        if pid == 0:
            self._be_worker()
        self._started.add(pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        if self._stopping:
            self._stop()

    def _be_worker(self) -> None:
        code = 1
        try:
            # Ctrl+C is for the foreman, who passes it on once.
            os.setpgid(0, 0)
            os.close(self._alive)
            for one in ENDING:
                signal.signal(one, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            self.work(self._wait)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # Not what the foreman has still to do: it does that itself.
            os._exit(code)

    def _wait(self) -> None:
        os.read(self._watch, 1)

    def _stop(self, *_: object) -> None:
        self._stopping = True
        for pid in list(self._started):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _end(self) -> None:
        """Let nobody stay behind, whatever went wrong."""
        self._stop()
        while self._started:
            self._started.discard(os.wait()[0])
