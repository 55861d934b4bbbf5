"""The folder of a run: plan, about, trials and probes, audio/, perturbations/, report.html."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import soundfile
import torch
from torch import Tensor

from sottovoce import __version__
from sottovoce.audit.plan import Plan, make_plan, read_plan
from sottovoce.core.record import Record, RecordWriter, read_records
from sottovoce.core.universal import Perturbation
from sottovoce.errors import InputError, StoreError
from sottovoce.perception.learned import OWN


class RunFolder:
    """Where one plan's results live. Opening it again with the same plan goes on; another plan is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def records_path(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def probes_path(self) -> Path:
        return self.path / "probes.jsonl"

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    def prepare(self, plan: Plan, about: dict[str, Any]) -> None:
        """Make the folder, or check that it holds this plan."""
        prepare_folder(self.path, "plan.yaml", plan.to_yaml(), about)

    def plan(self) -> Plan:
        if not (self.path / "plan.yaml").exists():
            raise InputError(
                f"expected the folder of a run with a plan.yaml, got {str(self.path)!r}; check the path."
            )
        return make_plan(read_plan(self.path / "plan.yaml"))

    def about(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.path / "about.json").read_text(encoding="utf-8"))
        return content

    def records(self) -> Iterator[Record]:
        return read_records(self.records_path)

    def writer(self) -> RecordWriter:
        return RecordWriter(self.records_path)

    def probes(self) -> Iterator[Record]:
        """Attacks that were tried again on a few clips with other settings; see `sottovoce.audit.probe`."""
        return read_records(self.probes_path)

    def probe_writer(self) -> RecordWriter:
        return RecordWriter(self.probes_path)

    def perturbation_path(self, cell: str) -> Path:
        return self.path / "perturbations" / f"{cell}.safetensors"

    def save_perturbation(self, perturbation: Perturbation, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.with_name(f"{path.name}.part")
        perturbation.save(torn)
        torn.replace(path)

    def save_audio(self, kind: str, clip: str, waveform: Tensor, sample_rate: int, bits: int | None) -> str:
        """Write one clip, unless it is there; returns its path in the folder.

        FLAC of 16 bits, or a WAV of floats for a run on another grid.
        """
        exact = bits == 16
        path = self.path / "audio" / kind / f"{_file_name(clip)}{'.flac' if exact else '.wav'}"
        if not path.exists():
            samples = waveform.detach().cpu().numpy()
            # Integers, because how libsndfile scales and rounds floats hangs on the format and on settings.
            content = np.round(samples * 32768).astype(np.int16) if exact else samples.astype(np.float32)
            torn = path.with_name(f"{path.stem}.part{path.suffix}")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                soundfile.write(torn, content, sample_rate, subtype="PCM_16" if exact else "FLOAT")
                torn.replace(path)
            except (OSError, soundfile.LibsndfileError) as error:
                raise StoreError(
                    f"cannot write {path}: {error}; what was recorded before is safe: free some space and "
                    "give the same command again to go on."
                ) from None
        return path.relative_to(self.path).as_posix()


def prepare_folder(path: Path, name: str, plan: str, about: dict[str, Any]) -> None:
    """Make a folder with a plan's text in the file `name`, or check that it holds that very plan."""
    kept = path / name
    try:
        if kept.exists():
            if kept.read_text(encoding="utf-8") != plan:
                raise InputError(
                    f"expected an empty folder or this plan's, got {path} with another plan; choose "
                    "another folder with --out, or delete this one."
                )
            return
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(
                f"expected an empty folder or this plan's, got {path}, which holds other things; "
                "choose another folder with --out."
            )
        path.mkdir(parents=True, exist_ok=True)
        (path / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        kept.write_text(plan, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"expected a folder that can be written, got {path} ({error.strerror}); choose another "
            "with --out."
        ) from None


def _file_name(clip: str) -> str:
    """An id as a path that stays below its folder: what is unusual, and `..`, is percent-encoded."""
    return quote(clip, safe="/ ").replace("..", "%2E%2E").lstrip("/")


def describe(run_id: str, device: str, data_note: str = "") -> dict[str, Any]:
    """What is needed to repeat a run, beyond its plan."""
    return {
        "run": run_id,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "data_note": data_note,
        "ear_weights": os.environ.get(OWN) or "shipped",
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
        "versions": {
            "sottovoce": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy", "soundfile", "soxr")},
        },
    }
