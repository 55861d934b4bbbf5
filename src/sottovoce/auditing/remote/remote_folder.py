"""Runs whose folder is a URL such as s3://BUCKET/RUN: made in a folder here, the stage, and kept there.

A run that is continued on another machine starts from what is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import final
from uuid import uuid4

from sottovoce.auditing.remote.folder_mirror import IDENTITY, LOCK, Mirror
from sottovoce.auditing.remote.remote_lock import BEAT_SECONDS, RemoteLock
from sottovoce.data.remote_corpora import cache_folder, listing, reaching, write_bytes
from sottovoce.errors import SottovoceError

SYNC_SECONDS = 2.0

_open: dict[Path, Mirror] = {}


def is_url(place: str) -> bool:
    return "://" in place


@contextmanager
def opened(out: str, *, stage: Path | None = None, write: bool = True) -> Iterator[Path]:
    """A folder to run in, or to read a run from: the path itself, or for a URL its stage.

    What is written to the stage is sent within seconds, and by `settle` at once. At the end, however it came,
    all of it is there.

    stage: where to make it; None: a folder of its own under ~/.cache/sottovoce.
    write: whether something will be written; then nobody else may be at work there.
    """
    if not is_url(out):
        yield Path(out).expanduser()
        return
    url = out.rstrip("/")
    name = sha256(url.encode()).hexdigest()[:16]
    if write:
        with (
            _locked(f"{url}/{LOCK}") as lock,
            _staged(url, stage or cache_folder("runs") / name, lock) as place,
        ):
            yield place
    else:
        place = stage or cache_folder("read") / name
        listing(url)
        _make_stage(url, place)
        Mirror(url, place).pull()
        yield place


def settle(folder: Path) -> None:
    """Wait until all that is in a folder is where it is kept; nothing to do for one that is kept here."""
    place = folder.resolve()
    for stage, mirror in list(_open.items()):
        if place.is_relative_to(stage):
            mirror.sync()


@contextmanager
def _locked(url: str) -> Iterator[RemoteLock]:
    lock = RemoteLock(url)
    lock.take()
    try:
        with Repeat(lock.beat, BEAT_SECONDS):
            yield lock
    finally:
        lock.release()


@contextmanager
def _staged(url: str, place: Path, lock: RemoteLock) -> Iterator[Path]:
    if not _make_stage(url, place):
        identity = uuid4().hex
        with reaching(url) as (system, root):
            write_bytes(system, f"{root}/{IDENTITY}", identity.encode())
        _identity_of(place).write_text(identity)
    mirror = Mirror(url, place, lock.check)
    mirror.pull()
    _open[place.resolve()] = mirror
    try:
        with Repeat(mirror.sync, SYNC_SECONDS):
            yield place
    finally:
        del _open[place.resolve()]
        mirror.finish()


@final
class Repeat(threading.Thread):
    """Does something again and again in the background. What fails may fare better the next time."""

    def __init__(self, action: Callable[[], None], seconds: float) -> None:
        super().__init__(daemon=True)
        self._action, self._seconds = action, seconds
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(self._seconds):
            with suppress(SottovoceError):
                self._action()

    def __enter__(self) -> Repeat:
        self.start()
        return self

    def __exit__(self, *trouble: object) -> None:
        self._ended.set()
        self.join()


def _make_stage(url: str, place: Path) -> str:
    """A folder that belongs to what is at the URL now, and the name of that, if it has one. A folder that was
    left by something else, which has been deleted there, is put aside."""
    with reaching(url) as (system, root):
        system.invalidate_cache()
        try:
            known: str = system.cat_file(f"{root}/{IDENTITY}").decode()
        except FileNotFoundError:
            known = ""
    kept = _identity_of(place)
    before = kept.read_text() if kept.exists() else ""
    if place.exists() and any(place.iterdir()) and before != known:
        place.rename(place.with_name(f"{place.name}-aside-{uuid4().hex[:8]}"))
    place.mkdir(parents=True, exist_ok=True)
    kept.write_text(known)
    return known


def _identity_of(stage: Path) -> Path:
    """Beside the stage, for a run's folder holds nothing else."""
    return stage.with_name(f"{stage.name}.id")
