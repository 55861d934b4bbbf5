"""The clips of a corpus with digests, so that a run does not continue with other clips than it started
with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import orjson

import sottovoce
from sottovoce.data.load import Corpus, Entry, readable
from sottovoce.data.remote_corpora import Far, cache_root
from sottovoce.errors import InputError

Manifest = dict[str, str]
"""A digest of each clip, by its id: label, place, stamp of the file and what else is known of it."""
SHOWN = 3
STRETCH, STRETCHES = 4096, 8
"""How many pieces of a file are hashed, of how many bytes, evenly over its length; a short file is hashed
whole."""


def take_manifest(corpus: Corpus, data: str) -> Manifest:
    """The manifest of a corpus. data: as the plan names it; places count from there where they lie below."""
    roots = [data_root(data), Path(sottovoce.__file__).parent, cache_root()]
    stamps: dict[Path, str | None] = {}
    return {entry.id: _digest(entry, roots, stamps) for entry in corpus}


def hash_manifest(manifest: Mapping[str, str]) -> str:
    return blake2b(orjson.dumps(sorted(manifest.items())), digest_size=16).hexdigest()


def tell_changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """How many clips are new, gone and different, and which come first."""
    found = {
        "added": [clip for clip in now if clip not in before],
        "missing": [clip for clip in before if clip not in now],
        "changed": [clip for clip in now if before.get(clip, now[clip]) != now[clip]],
    }
    return ", ".join(f"{len(clips)} {what} ({_some(clips)})" for what, clips in found.items() if clips)


def refuse(corpus: Corpus, changes: str) -> InputError:
    return InputError(
        f"corpus {corpus.name!r}: its clips changed since this run was started: {changes or 'others'}; "
        "restore them, or start a new run in another folder with --out."
    )


def _some(clips: list[str]) -> str:
    return ", ".join(clips[:SHOWN]) + (", ..." if len(clips) > SHOWN else "")


def data_root(data: str) -> Path:
    """The folder that a corpus's name points to."""
    path = Path(data).expanduser()
    if not path.exists():
        path = Path(data.partition(":")[2].partition("#")[0]).expanduser()
    return path if path.is_dir() else path.parent


def _digest(entry: Entry, roots: list[Path], stamps: dict[Path, str | None]) -> str:
    if entry.path not in stamps:
        stamps[entry.path] = entry.source.stamp if isinstance(entry.source, Far) else _stamp(entry.path)
    content = [
        entry.label,
        _place(entry.path, roots),
        stamps[entry.path],
        entry.start,
        entry.frames,
        sorted(entry.facts.items()),
    ]
    return blake2b(orjson.dumps(content), digest_size=8).hexdigest()


def _stamp(path: Path) -> str | None:
    """Of the size and the content; None for what is no file here, such as the name of what makes clips."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            found = blake2b(str(size).encode(), digest_size=8)
            last = max(size - STRETCH, 0)
            for place in sorted({last * turn // (STRETCHES - 1) for turn in range(STRETCHES)}):
                file.seek(place)
                found.update(file.read(STRETCH))
    except OSError:
        return None
    return found.hexdigest()


def _place(path: Path, roots: list[Path]) -> str:
    for root in roots:
        if path.is_relative_to(root):
            return readable(path.relative_to(root).as_posix())
    return readable(path.as_posix())
