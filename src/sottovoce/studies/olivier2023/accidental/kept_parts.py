"""Parts of a study's work, each kept in a file when it is done: a stopped run goes on after the last."""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.processes import in_order, workers
from sottovoce.errors import DamagedFile, InputError, StoreError

Arrays = dict[str, NDArray[Any]]
Make = Callable[[], Arrays]
SETTING = "setting.json"
SECONDS = "seconds"


@final
class KeptParts:
    """A folder of parts that were made with one setting."""

    def __init__(self, folder: Path, setting: Mapping[str, Any]) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        path = folder / SETTING
        wanted = json.loads(json.dumps(setting))
        try:
            if path.exists():
                _compare(folder, json.loads(path.read_text(encoding="utf-8")), wanted)
                return
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
        except json.JSONDecodeError as error:
            raise DamagedFile(f"expected a setting in {path}, got: {error}; choose another --out.") from None
        except OSError as error:
            raise StoreError(
                f"expected a folder that can be written, got {folder} ({error.strerror}); choose another "
                "--out."
            ) from None

    def make(self, jobs: Mapping[str, Make], processes: int, tell: Callable[[int, str], None]) -> None:
        """Make those of these parts that are not there. tell: how many are done, and the last one's name."""
        wanted = {name: job for name, job in jobs.items() if not self._path(name).exists()}
        done = len(jobs) - len(wanted)
        tell(done, "")
        with workers(processes) as submit:
            tagged = ((name, partial(_make, self._path(name), job)) for name, job in wanted.items())
            for number, (name, _) in enumerate(in_order(submit, tagged, 2 * processes), start=1):
                tell(done + number, name)

    def read(self, name: str) -> Arrays:
        """A part that was made. `seconds` counts the time of all that were read, once each."""
        found = _read(self._path(name))
        self.seconds[name] = float(found.pop(SECONDS))
        return found

    def _path(self, name: str) -> Path:
        return self.folder / "parts" / f"{name}.npz"


def _compare(folder: Path, kept: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    changed = sorted(name for name in {*kept, *wanted} if kept.get(name) != wanted.get(name))
    if changed:
        raise InputError(
            f"expected a folder of the same setting, got {folder}, where {', '.join(changed)} was another; "
            "choose another --out, or the same options."
        )


def _make(path: Path, make: Make) -> None:
    began = time.monotonic()
    found = make()
    found[SECONDS] = np.array(time.monotonic() - began)
    whole = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole.open("wb") as file:
            np.savez_compressed(file, **found)  # type: ignore[arg-type]
        whole.replace(path)
    except OSError as error:
        raise StoreError(f"expected to write {path}, got: {error.strerror}; choose another --out.") from None


def _read(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DamagedFile(
            f"expected a part of the study in {path}, got: {error}; delete the file, and it is made again."
        ) from None
