"""Mirror of a remote run folder: local changes are uploaded, remote files are downloaded on opening.

Stores such as S3 cannot append to a file. So the lines of `trials.jsonl` go there as objects
`trials/NUMBER-RANDOM.jsonl`, one a batch of records, and none is ever written over. When a run ends its lines
are put together as `trials.jsonl`, and the parts go. Reading is the union of both, so that a kill in between
loses nothing.
"""

from __future__ import annotations

import os
import posixpath
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, final
from uuid import uuid4

from sottovoce.auditing.run.run_folder import PART
from sottovoce.core.files.strict_json import Mistake
from sottovoce.core.record import Record
from sottovoce.data.remote_corpora import AT_ONCE, filesystem, listing, make_parents, write_bytes
from sottovoce.errors import InputError, StoreError

LOCK, IDENTITY = "lock.json", "mirror.id"
"""Files that exist only remotely: the lock, and an id that ties a local stage to its remote folder."""
LOGS = ("trials", "probes")
_PIECE = re.compile(rf"(?P<log>(?:.+/)?(?:{'|'.join(LOGS)}))/(?P<number>\d+)-[0-9a-f]+\.jsonl")
_WHOLE = re.compile(rf"(?P<log>(?:.+/)?(?:{'|'.join(LOGS)}))\.jsonl")


@final
class Mirror:
    """Keeps a remote folder in step with a local one.

    url: the folder there. stage: the folder here, of one run or of a grid with its runs/.
    may_write: asked before anything is written there; raises where it must not be. None: it never may.
    """

    def __init__(self, url: str, stage: Path, may_write: Callable[[], None] | None = None) -> None:
        self.url, self.stage, self._may_write = url.rstrip("/"), stage, may_write
        self._system, self._root = filesystem(self.url)
        self._guard = threading.RLock()
        # Of files there, the size and time of the copy here; of logs, the bytes here whose lines are there.
        self._there: dict[str, tuple[int, int] | None] = {}
        self._offsets: dict[str, int] = {}
        self._pieces: dict[str, list[str]] = {}
        self._number = 0

    def pull(self) -> None:
        """Make the folder here hold what is there, and send the lines that only it has."""
        with self._guard, self._writing():
            files = self._list()
            logs: dict[str, list[str]] = {}
            for name in sorted(files):
                piece, whole = _PIECE.fullmatch(name), _WHOLE.fullmatch(name)
                if piece:
                    self._number = max(self._number, int(piece["number"]))
                    self._pieces.setdefault(piece["log"], []).append(name)
                found = piece or whole
                if found:
                    # Sorted, "trials.jsonl" comes before "trials/...": the order in which they were written.
                    logs.setdefault(found["log"], []).append(name)
                elif name not in (LOCK, IDENTITY):
                    self._there[name] = None
            self._fetch({name: files[name].get("size") for name in self._there})
            self._there = {name: _state(self.stage / name) for name in self._there}
            here = {log for log in (*LOGS, *self._run_logs()) if (self.stage / f"{log}.jsonl").exists()}
            for log in sorted(here | set(logs)):
                self._join(log, logs.get(log, []))

    def sync(self) -> None:
        """Send what is new: files, then the sounds that new lines name, then the lines."""
        with self._guard, self._writing():
            self._send(name for name in self._files(sounds=False))
            for log in (*LOGS, *self._run_logs()):
                fresh = self._fresh(log)
                if fresh:
                    self._send(_sounds(log, fresh))
                    self._append(log, fresh)
                    self._offsets[log] = self._offsets.get(log, 0) + len(fresh)

    def finish(self) -> None:
        """Send all that is left, put the lines of each log together, and drop its parts."""
        with self._guard, self._writing():
            self.sync()
            self._send(self._files(sounds=True))
            for log, pieces in self._pieces.items():
                self._ask()
                self._system.put_file(str(self.stage / f"{log}.jsonl"), self._at(f"{log}.jsonl"))
                self._system.rm([self._at(name) for name in pieces])
            self._pieces = {}

    def _list(self) -> dict[str, dict[str, Any]]:
        try:
            return listing(self.url)
        except InputError:
            # Nothing there yet, or nothing that can be reached; the filesystem knows which.
            self._system.invalidate_cache()
            if self._system.exists(self._root) and self._system.find(self._root):
                raise
            return {}

    def _fetch(self, sizes: dict[str, int | None]) -> None:
        """Files that are not here, or differ. Those of a run that went on elsewhere are the newer ones."""
        missing = [name for name, size in sizes.items() if _size(self.stage / name) != size]
        for names in _some(missing):
            for name in names:
                (self.stage / name).parent.mkdir(parents=True, exist_ok=True)
            torn = [f"{self.stage / name}{PART}" for name in names]
            self._system.get([self._at(name) for name in names], torn)
            for name, place in zip(names, torn, strict=True):
                os.replace(place, self.stage / name)

    def _join(self, log: str, sources: list[str]) -> None:
        """Lines of a log from both sides on both sides, each once."""
        path = self.stage / f"{log}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = _whole_lines(path.read_bytes()) if path.exists() else []
        here, there = {_digest(line) for line in own}, set[bytes]()
        with path.open("ab") as file:
            file.truncate(sum(map(len, own)))
            for names in _some(sources):
                found = self._system.cat([self._at(name) for name in names])
                for name in names:
                    for line in _whole_lines(_content(found, self._at(name))):
                        mark = _digest(line)
                        there.add(mark)
                        if mark not in here:
                            here.add(mark)
                            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        only_here = b"".join(line for line in own if _digest(line) not in there)
        if only_here and self._may_write is not None:
            self._send(_sounds(log, only_here))
            self._append(log, only_here)
        self._offsets[log] = path.stat().st_size

    def _fresh(self, log: str) -> bytes:
        """Whole lines of a log that have not been sent."""
        path = self.stage / f"{log}.jsonl"
        start = self._offsets.get(log, 0)
        if (_size(path) or 0) <= start:
            return b""
        with path.open("rb") as file:
            file.seek(start)
            return b"".join(_whole_lines(file.read()))

    def _append(self, log: str, lines: bytes) -> None:
        self._number += 1
        name = f"{log}/{self._number:06d}-{uuid4().hex[:8]}.jsonl"
        self._ask()
        write_bytes(self._system, self._at(name), lines)
        self._pieces.setdefault(log, []).append(name)

    def _send(self, names: Iterable[str]) -> None:
        """Files that are not there in their present state."""
        states = {name: _state(self.stage / name) for name in names}
        changed = [
            name for name, state in states.items() if state is not None and self._there.get(name) != state
        ]
        for some in _some(changed):
            self._ask()
            for name in some:
                make_parents(self._system, self._at(name))
            self._system.put([str(self.stage / name) for name in some], [self._at(name) for name in some])
        self._there |= {name: states[name] for name in changed}

    def _files(self, *, sounds: bool) -> Iterator[str]:
        """Files here that go there as they are. sounds: whether those below audio/, which may be many."""
        for folder, below, files in os.walk(self.stage):
            if not sounds and "audio" in below:
                below.remove("audio")
            for file in files:
                name = Path(folder, file).relative_to(self.stage).as_posix()
                if not file.startswith(".") and not file.endswith(PART) and not _WHOLE.fullmatch(name):
                    yield name

    def _run_logs(self) -> list[str]:
        """The logs of the runs of a grid."""
        runs = sorted(self.stage.glob("runs/*"))
        return [f"runs/{run.name}/{log}" for run in runs for log in LOGS]

    def _ask(self) -> None:
        if self._may_write is None:
            raise StoreError(f"{self.url} was opened for reading alone; open it for writing.")
        self._may_write()

    def _at(self, name: str) -> str:
        return posixpath.join(self._root, name)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (InputError, StoreError):
            raise
        # Each filesystem has errors of its own.
        except Exception as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise StoreError(
                f"cannot write {self.url}: {type(error).__name__} ({reason}); what was recorded is safe in "
                f"{self.stage}: run the same command again to continue."
            ) from error


def _sounds(log: str, lines: bytes) -> list[str]:
    """The audio files that lines of a log name."""
    base = posixpath.dirname(log)
    try:
        found = [name for line in lines.splitlines() for name in Record.from_line(line).audio.values()]
    except Mistake as error:
        raise error.in_file(
            f"{log}.jsonl", "a record", "restore that line from a copy, or delete it"
        ) from None
    return [posixpath.join(base, name) for name in found]


def _whole_lines(content: bytes) -> list[bytes]:
    """Complete lines, without an incomplete last one."""
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def _content(found: Any, path: str) -> bytes:
    """What `cat` returned for a path: for a single path it returns the bytes alone."""
    content: bytes = found if isinstance(found, bytes) else found[path]
    return content


def _digest(line: bytes) -> bytes:
    return blake2b(line, digest_size=16).digest()


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _some(names: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(names), AT_ONCE):
        yield names[first : first + AT_ONCE]
