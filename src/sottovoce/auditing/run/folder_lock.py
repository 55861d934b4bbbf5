"""One run a folder: whoever writes to it holds a lock, which the system lets go when the process ends."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sottovoce.errors import InputError, StoreError

try:
    import fcntl
except ImportError:  # not every system has it
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock of a folder. It is made where it is missing, and removed if nothing came into it.

    Refused where another process holds it. The file that a killed process left behind holds nothing.
    """
    made = [each for each in (path, *path.parents) if not each.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle = _take(path / NAME)
    except StoreError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot write to {path} ({error.strerror}); choose another folder with --out."
        ) from None
    try:
        yield
    finally:
        # Removed while it is held: whoever opened it meanwhile sees that it is gone and takes a new one.
        with suppress(OSError):
            (path / NAME).unlink()
        os.close(handle)
        with suppress(OSError):
            for each in made:
                each.rmdir()


def _take(path: Path) -> int:
    if fcntl is None:
        raise StoreError(
            "this system has no flock, which keeps two runs from writing to one folder; run on Linux or "
            "macOS."
        )
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                _sign(handle)
                return handle
        except BlockingIOError:
            holder = os.pread(handle, 1024, 0).decode(errors="replace")
            os.close(handle)
            raise StoreError(
                f"{path.parent} is in use by another run: {_who(holder)}; wait for it to end, or choose "
                "another "
                "folder with --out."
            ) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the file that was opened is still the one with this name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(who).encode(), 0)


def _who(content: str) -> str:
    try:
        who = json.loads(content)
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
