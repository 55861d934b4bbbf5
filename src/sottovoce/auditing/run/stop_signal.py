"""Stopping a run from outside: the first signal asks, the second does not wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ASKED = "stopping after the trials in progress; press again to abort"


@contextmanager
def stopping(tell: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM has come. A SIGINT after that is a KeyboardInterrupt.

    tell: called when the first one comes. Signals reach only the main thread; elsewhere nothing changes.
    """
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not asked:
            asked = True
            tell(ASKED)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that Python did not set cannot be set again
                signal.signal(number, handler)
