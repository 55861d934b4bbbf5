"""Corpora from URLs that fsspec opens, such as s3://BUCKET/DIR: listed there, and read clip by clip.

Keys and endpoints are found by fsspec in the environment (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, FSSPEC_S3_...) and in ~/.config/fsspec. `filecache::s3://BUCKET/DIR` keeps on this machine
what was once read.
"""

from __future__ import annotations

import json
import logging
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from inspect import signature
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, final

from sottovoce import registry
from sottovoce.data.audio_file import Recording, read_audio
from sottovoce.data.corpora import SUFFIXES, call_corpus, entries_of, of_lines, some
from sottovoce.data.load import BoundedSource, Corpus, Entry
from sottovoce.errors import InputError, MissingExtra, SottovoceError

CACHE = "SOTTOVOCE_CACHE"
"""The variable that names the folder for copies; ~/.cache/sottovoce where it is not set."""
AT_ONCE = 64
"""Files fetched together: s3fs asks for them side by side."""

_OBJECT_STORES = {"s3", "gs", "gcs", "abfs", "az", "oci", "http"}
_STAMPS = ".stamps.json"
_PLACES = ("path", "file", "folder")
# What filesystems call the version of a file; the first that is there is taken, beside the size.
_VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")


def open_remote(spec: str) -> Corpus:
    """A corpus whose place is a URL: `folder:URL`, `csv:URL`, `pack:URL#test`, `librispeech:URL`, or a URL.

    Folders, tables and packs are read where they are. Any other corpus is copied to this machine once.
    """
    name, _, url = spec.partition(":")
    if name not in registry.names("corpus"):
        name, url = _kind(spec), spec
    if name == "folder":
        return folder(url)
    if name == "csv":
        return table(url)
    taken = list(signature(registry.find("corpus", name)).parameters)
    if not taken or taken[0] not in _PLACES:
        return call_corpus(name, [url])
    base, mark, part = url.partition("#")
    corpus = call_corpus(name, [f"{copy(base)}{mark}{part}"])
    return replace(corpus, note="; ".join(filter(None, (corpus.note, f"copied from {base}"))))


def folder(url: str) -> Corpus:
    """A folder of class folders, as `sottovoce.data.corpora.folder` reads it; other files are left out."""
    files = listing(url)
    shown = [name for name in sorted(files, key=_parts) if not any(one[:1] == "." for one in _parts(name))]
    clips = [name for name in shown if _is_audio(name) and len(_parts(name)) == 2]
    deeper = [name for name in shown if _is_audio(name) and len(_parts(name)) > 2]
    if not clips or deeper:
        got = f"some in {posixpath.dirname(deeper[0])}/" if deeper else f"{len(shown)} other files"
        raise InputError(
            f"{url}: expected CLASS/clip.wav (or {', '.join(SUFFIXES)}) and no audio elsewhere, got {got}; "
            "make one folder per label, or list the files in a CSV with the columns path and label."
        )
    others = [name for name in shown if name not in set(clips)]
    note = f"left out {len(others)} files that are not clips of a class ({some(others)})" if others else ""
    entries = [
        _entry(url, Entry(os.path.splitext(one)[0], Path(one), _parts(one)[0]), _stamp(files[one]))
        for one in clips
    ]
    return Corpus(posixpath.basename(url.rstrip("/")), tuple(entries), note)


def table(url: str) -> Corpus:
    """A CSV as `sottovoce.data.corpora.table` reads it; its paths count from its own folder."""
    with reaching(url) as (system, path):
        content = system.cat_file(path)
    base, _, file = url.rpartition("/")
    rows = list(entries_of(TextIOWrapper(BytesIO(content), "utf-8-sig", newline=""), Path(file), url))
    stamps = _stamps(base, [_name(entry) for _, entry in rows])
    lines = [(line, _entry(base, entry, (stamps or {}).get(_name(entry), ""))) for line, entry in rows]
    return of_lines(url, Path(file).stem, lines, absent=partial(_absent, stamps))


@final
@dataclass(frozen=True)
class Far(BoundedSource):
    """A file below a URL, fetched whole when it is asked for. stamp: its size and version, if known."""

    base: str
    name: str
    stamp: str = ""

    @property
    def url(self) -> str:
        return f"{self.base.rstrip('/')}/{self.name}"

    def read(self, longest_seconds: float) -> Recording:
        with reaching(self.base) as (system, root):
            content = system.cat_file(_below(root, self.name))
        return read_audio(BytesIO(content), self.url, longest_seconds=longest_seconds)


def filesystem(url: str) -> tuple[Any, str]:
    """The fsspec filesystem of a URL, and the path in it."""
    try:
        core = import_module("fsspec.core")
        system, path = core.url_to_fs(url)
    except ImportError as error:
        raise MissingExtra(
            f"{url} needs the package fsspec and what it uses for such addresses ({error}); pip install "
            '"sottovoce[remote]", or the package that is named.'
        ) from None
    except ValueError as error:
        raise InputError(
            f"expected a URL that fsspec can open, got {url!r} ({error}); check the part before ://."
        ) from None
    return system, path.rstrip("/")


@contextmanager
def reaching(url: str) -> Iterator[tuple[Any, str]]:
    """The filesystem and path of a URL; whatever goes wrong there is one clear error."""
    place = filesystem(url)
    try:
        yield place
    except (SottovoceError, MemoryError):
        raise
    except FileNotFoundError:
        raise InputError(f"{url}: expected a file or folder, got nothing there; check the URL.") from None
    # Each filesystem has errors of its own: of keys, of names, of the network.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(
            f"{url}: expected a place that can be reached, got {type(error).__name__} ({reason}); check the "
            "URL, and the keys and endpoint that fsspec finds in the environment."
        ) from error


def listing(url: str) -> dict[str, dict[str, Any]]:
    """What is known of each file below a URL, by its path from there on; a file's own is its name."""
    with reaching(url) as (system, root):
        system.invalidate_cache()
        found: Mapping[str, dict[str, Any]] = system.find(root, detail=True)
    if not found:
        raise InputError(f"{url}: expected a file or folder, got nothing there; check the URL.")
    # A filesystem may give paths with or without a slash in front.
    top = root.strip("/")
    return {
        posixpath.relpath(path.strip("/"), top) if path.strip("/") != top else posixpath.basename(top): info
        for path, info in found.items()
        if info.get("type", "file") == "file"
    }


def write_bytes(system: Any, path: str, content: bytes) -> None:
    """All of a file, in a folder that need not be there yet."""
    make_parents(system, path)
    system.pipe_file(path, content)


def make_parents(system: Any, path: str) -> None:
    """The folder of a file. Object stores know no folders, and s3fs would look for a bucket to make."""
    kinds = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    if not set(kinds) & _OBJECT_STORES:
        system.makedirs(posixpath.dirname(path), exist_ok=True)


def cache_root() -> Path:
    """Where copies are kept; it may not be there yet."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "sottovoce")


def cache_folder(*names: str) -> Path:
    """A folder for copies; see `CACHE`."""
    place = cache_root().joinpath(*names)
    place.mkdir(parents=True, exist_ok=True)
    return place


def copy(url: str) -> Path:
    """A file or folder on this machine, fetched unless it is there already in the same version."""
    url = url.rstrip("/")
    files = listing(url)
    name = posixpath.basename(url)
    home = cache_folder("data", sha256(url.encode()).hexdigest()[:16])
    with _alone(home):
        _fetch(url, files, home / name)
    # A file is listed under its own name, and lies in a folder of that name.
    return home / name / name if set(files) == {name} else home / name


def _fetch(url: str, files: Mapping[str, dict[str, Any]], place: Path) -> None:
    """Make `place` hold these files and no other. What a kill left half done is fetched again."""
    place.mkdir(exist_ok=True)
    stamps = {name: _stamp(info) for name, info in files.items()}
    kept = place.parent / _STAMPS
    there: dict[str, str] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    for name in set(there) - set(stamps):
        (place / name).unlink(missing_ok=True)
    there = {name: stamp for name, stamp in there.items() if stamps.get(name) == stamp}
    missing = [name for name in stamps if name not in there or not (place / name).is_file()]
    if missing:
        size = sum(files[name].get("size") or 0 for name in missing) / 1e6
        logging.getLogger(__name__).warning(
            "copying %d files (%.0f MB) from %s to %s", len(missing), size, url, place
        )
    single = set(files) == {place.name}
    for first in range(0, len(missing), AT_ONCE):
        some_names = missing[first : first + AT_ONCE]
        for name in some_names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
        with reaching(url) as (system, root):
            far = [root] if single else [posixpath.join(root, name) for name in some_names]
            system.get(far, [str(place / name) for name in some_names])
        there |= {name: stamps[name] for name in some_names}
        fresh = kept.with_suffix(".part")
        fresh.write_text(json.dumps(there), "utf-8")
        fresh.replace(kept)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Workers of one machine wait for the first of them to copy."""
    with (home / ".lock").open("w") as file:
        try:
            import fcntl
        except ImportError:
            # Without locks they all copy the same bytes to the same place.
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stamp(info: Mapping[str, Any]) -> str:
    version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
    return f"{info.get('size')} {version}"


def _name(entry: Entry) -> str:
    return posixpath.normpath(entry.path.as_posix())


def _entry(base: str, entry: Entry, stamp: str) -> Entry:
    """An entry of a file below a URL; its path is for messages."""
    source = Far(base, _name(entry), stamp)
    return replace(entry, path=Path(source.url), source=source)


def _stamps(base: str, names: Iterable[str]) -> dict[str, str] | None:
    """Stamps of those files that are there, found by listing their folders; None where there are no lists."""
    with reaching(base) as (system, root):
        if "http" in system.protocol:
            # The web has none: files that are missing fail when they are read.
            return None
        system.invalidate_cache()
        paths = {name: _below(root, name) for name in names}
        there: dict[str, str] = {}
        for folder in {posixpath.dirname(path) for path in paths.values()}:
            with suppress(FileNotFoundError):
                there |= {info["name"].strip("/"): _stamp(info) for info in system.ls(folder, detail=True)}
    return {name: there[path.strip("/")] for name, path in paths.items() if path.strip("/") in there}


def _absent(stamps: Mapping[str, str] | None, entries: Sequence[Entry]) -> list[str]:
    if stamps is None:
        return []
    names = [entry.source.name for entry in entries if isinstance(entry.source, Far)]
    return [name for name in names if name not in stamps]


def _below(root: str, name: str) -> str:
    """A path from a folder on, which may lead out of it again."""
    kind, mark, place = root.rpartition("://")
    return f"{kind}{mark}{posixpath.normpath(posixpath.join(place, name))}"


def _kind(url: str) -> str:
    suffix = posixpath.splitext(url.partition("#")[0])[1].lower()
    return {".csv": "csv", ".npz": "pack"}.get(suffix, "folder")


def _is_audio(name: str) -> bool:
    return posixpath.splitext(name)[1].lower() in SUFFIXES


def _parts(name: str) -> list[str]:
    return name.split("/")
