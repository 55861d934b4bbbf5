"""What is in the folders that are named: runs, grids of runs, certificates and claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.errors import InputError
from sottovoce.leaderboard.certificate_rows import PLAN as CERTIFY_PLAN

RUN_PLAN = "plan.yaml"
RUNS = "runs"


@dataclass
class NamedFolders:
    runs: list[RunFolder] = field(default_factory=list)
    certificates: list[Path] = field(default_factory=list)
    claims: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, paths: Iterable[Path]) -> NamedFolders:
        """Each once, in order."""
        found = cls()
        seen: set[Path] = set()
        for path in paths:
            before = len(seen)
            for kind, each in _sort(path):
                if each.resolve() not in seen:
                    seen.add(each.resolve())
                    found._add(kind, each)
                else:
                    before = -1
            if len(seen) == before:
                raise InputError(
                    "expected the folder of a run, of a grid of runs, of certificates or of claims, got "
                    f"{str(path)!r}, which {'holds none of these' if path.exists() else 'does not exist'}; "
                    "check the path."
                )
        return found

    def _add(self, kind: str, path: Path) -> None:
        if kind == "run":
            self.runs.append(RunFolder(path))
        elif kind == "certificates":
            self.certificates.append(path)
        else:
            self.claims.append(path)


def kind_of(path: Path) -> Literal["run", "grid", "certificates", ""]:
    """ "run", "grid", "certificates" or "" for a folder."""
    if (path / CERTIFY_PLAN).is_file():
        return "certificates"
    if not (path / RUN_PLAN).is_file():
        return ""
    return "grid" if (path / RUNS).is_dir() else "run"


def _sort(path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        if path.suffix == ".json":
            yield "claim", path
        return
    kind = kind_of(path)
    if kind == "grid":
        yield from (("run", each) for each in folders(path / RUNS) if kind_of(each) == "run")
    elif kind:
        yield kind, path
    elif path.is_dir():
        yield from (("claim", each) for each in sorted(path.glob("*.json")))
        for each in folders(path):
            if kind_of(each):
                yield from _sort(each)


def folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir())
