"""What a service was asked and what it answered, kept in one file that all processes of a run share.

A request costs money and time: no sound is sent twice, and what was sent is counted over workers and resumes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import final

from sottovoce.errors import InputError, Stopped, StoreError

ANSWERS = "answers.sqlite"
"""The name of the file in the folder of a run or of a grid."""
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS requests (run TEXT PRIMARY KEY, sent INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value REAL) WITHOUT ROWID;
"""
_BUSY_SECONDS = 60.0


@final
class AnswerStore:
    """Answers by the key of what was asked, and how many requests were sent.

    path: the file; None keeps all in memory. run: whose requests are counted.
    lost: why some keys have no answer. It is forgotten with the store, so that they are asked again later.
    """

    def __init__(self, path: Path | None = None, run: str = "") -> None:
        self.path, self.run, self.lost = path, run, dict[str, str]()
        self._guard = Lock()
        if path is not None and not path.parent.is_dir():
            raise InputError(
                f"the folder of the run, {path.parent}, is not on this machine, and answers of a service are "
                "kept there; use --workers instead of a cluster."
            )
        with self._reading():
            self._base = sqlite3.connect(
                path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._base.executescript(_TABLES)

    def find(self, keys: Iterable[str]) -> dict[str, str]:
        """The answers that are known."""
        found = {}
        with self._reading():
            for key in keys:
                row = self._base.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = str(row[0])
        return found

    def keep(self, key: str, text: str) -> None:
        """Record an answer."""
        with self._reading():
            self._base.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))

    def book(self, per_minute: float = 0.0) -> float:
        """Count a request that is about to be sent; the seconds to wait before.

        Raises `Stopped` where it would be one too many. per_minute: the most in a minute, 0 for any number.
        """
        with self._writing():
            limit, sent = self._state("limit"), self.sent()
            if limit is not None and sent >= limit:
                raise Stopped(
                    f"{sent} requests were sent, as many as --max-requests allows; the answers are kept. Run "
                    f"the same command with a --max-requests above {sent} to go on."
                )
            self._base.execute(
                "INSERT INTO requests VALUES (?, 1) ON CONFLICT (run) DO UPDATE SET sent = sent + 1",
                (self.run,),
            )
            now = time.time()
            turn = max(now, self._state("next") or 0.0)
            if per_minute:
                self._set("next", turn + 60.0 / per_minute)
            return turn - now

    def hold(self, seconds: float) -> None:
        """Let every process wait so long before its next request."""
        with self._writing():
            self._set("next", max(time.time() + seconds, self._state("next") or 0.0))

    def limit(self, most: int | None) -> None:
        """Refuse requests beyond so many, those of earlier times included; None: no limit."""
        with self._writing():
            self._set("limit", most)

    def sent(self, run: str | None = None) -> int:
        """The requests of a run; None: of all."""
        where, values = ("", ()) if run is None else (" WHERE run = ?", (run,))
        row = self._base.execute(f"SELECT COALESCE(SUM(sent), 0) FROM requests{where}", values).fetchone()
        return int(row[0])

    def close(self) -> None:
        self._base.close()

    def _state(self, name: str) -> float | None:
        row = self._base.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if row is None or row[0] is None else float(row[0])

    def _set(self, name: str, value: float | None) -> None:
        self._base.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One thread at a time; what goes wrong with the file is said in words."""
        with self._guard:
            try:
                yield
            except sqlite3.Error as error:
                raise StoreError(
                    f"{self.path}: answers of a service cannot be kept there ({error}); free some space, or "
                    "delete the file to ask everything anew."
                ) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One process at a time."""
        with self._reading():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")


@final
@dataclass(frozen=True)
class AskedService:
    """Where the answers of a model behind an address are kept, and how many requests it may be sent."""

    answers: Path
    max_requests: int | None = None

    def limit(self) -> str:
        """The file of the answers, with the limit set."""
        store = AnswerStore(self.answers)
        store.limit(self.max_requests)
        store.close()
        return str(self.answers)

    def sent(self, run: str) -> int:
        """The requests of a run so far."""
        if not self.answers.exists():
            return 0
        store = AnswerStore(self.answers)
        try:
            return store.sent(run)
        finally:
            store.close()


_store: ContextVar[AnswerStore | None] = ContextVar("answers", default=None)


@contextmanager
def keeping_answers(path: Path, run: str = "") -> Iterator[None]:
    """Services that are asked in this block keep their answers in this file; elsewhere each in its memory."""
    store = AnswerStore(path, run)
    token = _store.set(store)
    try:
        yield
    finally:
        _store.reset(token)
        store.close()


def current_answers() -> AnswerStore | None:
    """The store of the block around."""
    return _store.get()
