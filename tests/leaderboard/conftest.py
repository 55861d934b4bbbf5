"""Runs written by hand, record by record, so that what a leaderboard must say of them is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.core.record import Record

PLAN: dict[str, Any] = {
    "model": "python:nobody:makes",
    "attacks": ["noise", "fgsm", "pgd(steps=5)"],
    "budgets": ["snr(db=20)", "snr(db=40)"],
    "probe": 0,
    "audio": "none",
}
ABOUT = {
    "run": "0123456789",
    "started": "2026-03-01T12:00:00+00:00",
    "corpus": "abcdef",
    "versions": {"sottovoce": "0.1.0"},
}
WriteRun = Callable[..., Path]


def judged(cell: str, clip: str, *, right: bool = True, broken: bool | None = None, **more: Any) -> Record:
    """A clip that a classifier heard, and that an attack broke or not; one heard wrong has no success."""
    nan = float("nan")
    success = [nan if not right or broken is None else float(broken), 1.0]
    parts = {"success": success, "clean-accuracy": [float(right), 1.0], "snr": [20.0, 1.0], **more}
    return Record(cell=cell, clip=clip, status="ok", label="yes", achieved=bool(broken), parts=parts)


def write(folder: Path, records: Sequence[Record], plan: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.yaml").write_text(make_plan({**PLAN, **(plan or {})}).to_yaml())
    (folder / "about.json").write_text(json.dumps(ABOUT))
    (folder / "trials.jsonl").write_text("".join(record.to_line() + "\n" for record in records))
    return folder


def by_outcome(outcomes: Mapping[str, str], **more: Any) -> list[Record]:
    """Cell to one letter a clip a, b, c and so on: 1 broken, 0 not, x heard wrong before."""
    return [
        judged(cell, clip, right=letter != "x", broken=None if letter == "x" else letter == "1", **more)
        for cell, letters in outcomes.items()
        for clip, letter in zip("abcdefghijklmnopqrstuvwxyz", letters, strict=False)
    ]


FOUR = {
    "noise_evade_snr-db-20": "1111x",
    "fgsm_evade_snr-db-20": "1100x",
    "pgd-steps-5_evade_snr-db-20": "0110x",
    "noise_evade_snr-db-40": "0000x",
    "fgsm_evade_snr-db-40": "0000x",
    "pgd-steps-5_evade_snr-db-40": "1000x",
}
"""Five clips, one heard wrong. At 20 dB any attack breaks a, b and c: 3 of 4; at 40 dB a: 1 of 4."""


@pytest.fixture
def write_run() -> WriteRun:
    """Writes a folder: path, records, and entries of the plan that differ."""
    return write


@pytest.fixture
def make_records() -> Callable[..., list[Record]]:
    return by_outcome


@pytest.fixture
def make_record() -> Callable[..., Record]:
    return judged


@pytest.fixture
def four(tmp_path: Path) -> Path:
    return write(tmp_path / "four", by_outcome(FOUR))
