"""What lies in a folder: runs, grids, certificates, studies and leaderboards, to be listed and searched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from sottovoce.auditing.run.about_run import ABOUT, read_about
from sottovoce.core.record import TRIALS, read_records
from sottovoce.errors import DamagedFile
from sottovoce.leaderboard.named_folders import RUN_PLAN, RUNS, kind_of

DEEPEST = 6
MOST_ITEMS = 10_000
INSIDE = {"audio", "perturbations", "claims", "plans"}
"""Folders that belong to a run or a site and hold no others."""
Kind = Literal["run", "grid", "certificates", "study", "leaderboard"]
Sort = Literal["newest", "oldest", "name"]


@dataclass(frozen=True)
class Item:
    """One thing that can be opened. path: from the folder that is served, with slashes."""

    kind: Kind
    path: str
    title: str
    started: str
    about: tuple[tuple[str, str], ...] = ()
    pages: tuple[tuple[str, str], ...] = ()
    """Titles and paths."""
    trouble: str = ""
    """What a reader should know before opening it: nothing in it could be run, or a file of it is damaged."""
    words: str = field(default="", repr=False)
    """All that a search looks at."""


@dataclass(frozen=True)
class FolderContents:
    root: Path

    def items(self) -> list[Item]:
        """As they are now: a run may be in progress."""
        found = []
        for path in _walk(self.root, 0):
            item = self._describe(path)
            if item is not None:
                found.append(item)
            if len(found) >= MOST_ITEMS:
                break
        return found

    def search(self, text: str = "", kind: str = "", sort: Sort = "newest") -> list[Item]:
        """Those that have all words of a text."""
        words = text.lower().split()
        found = [
            item
            for item in self.items()
            if (not kind or item.kind == kind) and all(word in item.words for word in words)
        ]
        if sort == "name":
            return sorted(found, key=lambda item: item.path)
        return sorted(found, key=lambda item: (item.started, item.path), reverse=sort == "newest")

    def _describe(self, path: Path) -> Item | None:
        kind = kind_of(path)
        if kind == "run" or kind == "grid":
            return self._run(path, kind)
        if kind == "certificates":
            return self._item("certificates", path, _entries(path / "certify.yaml"), ("curve.png",))
        if (path / "study.html").is_file():
            facts = _json(path / "results.json")
            title = f"{facts.get('study', path.name)}: {facts.get('title', '')}".strip(": ")
            return self._item("study", path, {"paper": facts.get("paper", "")}, ("study.html",), title)
        if _is_site(path):
            return self._item("leaderboard", path, {}, ("index.html",), "Leaderboard")
        return None

    def _run(self, path: Path, kind: Literal["run", "grid"]) -> Item:
        entries = _entries(path / RUN_PLAN)
        pages = ("report.html",) if kind == "run" else ("index.html",)
        return self._item(kind, path, entries, (*pages, RUN_PLAN))

    def _item(
        self, kind: Kind, path: Path, entries: dict[str, Any], pages: Sequence[str], title: str = ""
    ) -> Item:
        place = path.relative_to(self.root).as_posix()
        about, trouble = _about(path)
        if kind == "run":
            trouble = trouble or _failed_whole(path / TRIALS)
        shown = tuple((name, text) for name in SHOWN if (text := _text(entries.get(name))))
        title = title or _text(entries.get("model")) or _targets(entries) or path.name
        words = [kind, place, title, about.get("run", ""), trouble, *map(_text, entries.values())]
        return Item(
            kind=kind,
            path=place,
            title=title,
            started=about.get("started", "") or _changed(path),
            about=shown,
            pages=tuple((Path(name).stem, f"{place}/{name}") for name in pages if (path / name).is_file()),
            trouble=trouble,
            words=" ".join(words).lower(),
        )


SHOWN = ("defenses", "defense", "attacks", "goals", "budgets", "data", "limit", "seed", "seeds", "paper")


def _walk(path: Path, depth: int) -> Iterator[Path]:
    """Folders, those above first. Links are not followed: they may lead out of the folder or in circles. The
    copies of runs that a leaderboard holds are not runs."""
    yield path
    if depth >= DEEPEST or kind_of(path) in ("run", "certificates"):
        return
    site = _is_site(path.parent) and path.name == RUNS
    try:
        below = sorted(each.name for each in os.scandir(path) if each.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in below:
        if name not in INSIDE and not name.startswith(".") and not (site and _is_copy(path / name)):
            yield from _walk(path / name, depth + 1)


def _is_site(path: Path) -> bool:
    return (path / "index.html").is_file() and (path / "claims").is_dir()


def _is_copy(path: Path) -> bool:
    """Whether a folder has the plan of a run and nothing that a run leaves: `leaderboard.site` makes such."""
    return kind_of(path) == "run" and not any((path / name).exists() for name in (ABOUT, TRIALS))


def _targets(entries: dict[str, Any]) -> str:
    found = entries.get("targets")
    if not isinstance(found, list):
        return ""
    return ", ".join(str(each.get("model", "")) if isinstance(each, dict) else str(each) for each in found)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(each)}" for key, each in value.items())
    return "" if value is None else str(value)


def _entries(path: Path) -> dict[str, Any]:
    """Entries as written: a plan with a part that is not installed can still be listed."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _about(path: Path) -> tuple[dict[str, Any], str]:
    """What is known of a run, and what is wrong with the file; nothing is where there is none."""
    if not (path / ABOUT).is_file():
        return {}, ""
    try:
        return read_about(path), ""
    except DamagedFile as error:
        return {}, str(error).replace(str(path / ABOUT), ABOUT)


def _failed_whole(path: Path) -> str:
    """Why nothing of a run could be run; "" where something was, or nothing is on record."""
    try:
        state = path.stat()
    except OSError:
        return ""
    return _read_failures(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=MOST_ITEMS)
def _read_failures(path: Path, changed: int, size: int) -> str:
    """changed, size: of the file, which is read again when they differ, up to what did not fail."""
    reason = ""
    try:
        for record in read_records(path):
            if record.status != "failed":
                return ""
            reason = reason or record.reason
    except DamagedFile as error:
        return str(error).replace(str(path), path.name)
    return f"nothing could be run: {reason}" if reason else ""


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _changed(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
