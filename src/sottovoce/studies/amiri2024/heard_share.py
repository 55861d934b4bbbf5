"""How much of study A's attacks is heard, by the measures of A3: run where those are installed."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from sottovoce.errors import SottovoceError
from sottovoce.studies.amiri2024.attack_quality import JUDGES
from sottovoce.studies.amiri2024.detector_attacks import read_examples

PREFIX = "quality-"


def measure_job(path: Path) -> Path:
    """Measure the examples `jobs/NAME.npz` of a job; leaves `jobs/quality-NAME.json` beside them.

    One value per clip, null where a measure has none; a measure that is not available has its reason.
    """
    out = path.with_name(f"{PREFIX}{path.stem}.json")
    if out.exists():
        return out
    cells: dict[str, dict[str, list[float | None]]] = {}
    absent: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name, (clean, heard) in read_examples(path).items():
        cells[name] = {}
        for judge in JUDGES:
            if judge.id in absent:
                continue
            try:
                found = judge.measure(clean, heard)
            except SottovoceError as error:
                absent[judge.id] = str(error)
                continue
            values = found.values if judge.kind == "metric" else found.heard
            if values is not None:
                cells[name][judge.id] = [float(one) if math.isfinite(one) else None for one in values]
            reasons |= {f"{judge.title}, {clip}": why for clip, why in found.reasons.items()}
    content: dict[str, Any] = {"of": path.stem, "cells": cells, "absent": absent, "reasons": reasons}
    part = out.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(out)
    return out


def unmeasured(folder: Path) -> list[Path]:
    """Examples that were not measured yet."""
    found = sorted(one for one in folder.glob("*.npz") if ".part" not in one.name)
    return [one for one in found if not one.with_name(f"{PREFIX}{one.stem}.json").exists()]
