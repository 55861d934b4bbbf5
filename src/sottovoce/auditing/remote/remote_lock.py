"""Lock of a remote folder: an object that names the run that is writing, renewed while it runs.

Such places have no locks. Whoever finds a fresh name stays away; whoever writes theirs looks again a moment
later whether it is still theirs; and a name that was not renewed for minutes counts for nothing.
"""

from __future__ import annotations

import json
import os
import socket
import time
from datetime import UTC, datetime
from typing import Any, final
from uuid import uuid4

from sottovoce.data.remote_corpora import reaching, write_bytes
from sottovoce.errors import StoreError

BEAT_SECONDS = 60.0
STALE_SECONDS = 300.0
PAUSE_SECONDS = 0.5


@final
class RemoteLock:
    """The lock object of a place. url: of the object itself."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._token = uuid4().hex
        self._since = _now()

    def take(self) -> None:
        holder = self._read()
        if holder is not None and not _is_stale(holder):
            raise StoreError(
                f"expected a folder that no other run is using, got {self.url} of process "
                f"{holder['pid']} on {holder['host']} since {holder['since']}; wait for it to end, or choose "
                "another folder with --out. After a crash this lock expires within "
                f"{STALE_SECONDS / 60:.0f} minutes."
            )
        self.renew()
        # Two that found no lock have both written theirs by now: the later one holds.
        time.sleep(PAUSE_SECONDS)
        self.check()

    def check(self) -> None:
        """Raise where another run has taken the place."""
        holder = self._read()
        if holder is None or holder["token"] != self._token:
            who = "nobody" if holder is None else f"process {holder['pid']} on {holder['host']}"
            raise StoreError(
                f"expected this run to hold {self.url}, got {who}: it took the place while this run did not "
                "answer; nothing more is written there."
            )

    def renew(self) -> None:
        content = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": self._since,
            "beat": time.time(),
            "token": self._token,
        }
        with reaching(self.url) as (system, path):
            write_bytes(system, path, json.dumps(content).encode())

    def beat(self) -> None:
        self.check()
        self.renew()

    def release(self) -> None:
        holder = self._read()
        if holder is not None and holder["token"] == self._token:
            with reaching(self.url) as (system, path):
                system.rm_file(path)

    def _read(self) -> dict[str, Any] | None:
        with reaching(self.url) as (system, path):
            system.invalidate_cache()
            try:
                found = json.loads(system.cat_file(path))
            except (FileNotFoundError, ValueError):
                return None
        whole = isinstance(found, dict) and {"host", "pid", "since", "beat", "token"} <= found.keys()
        return found if whole else None


def _is_stale(holder: dict[str, Any]) -> bool:
    if time.time() - holder["beat"] > STALE_SECONDS:
        return True
    return holder["host"] == socket.gethostname() and not _is_alive(holder["pid"])


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
