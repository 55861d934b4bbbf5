"""Defenses to be got wrong, by hand."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sottovoce import registry
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import read_records

DEFENSES = """
from dataclasses import dataclass

import torch

from sottovoce.core.transform import Transform


@dataclass(frozen=True, kw_only=True)
class Steps(Transform):
    '''Rounds to 64ths, and has the gradient of rounding: zero.'''

    def apply(self, batch, draws):
        return torch.round(64.0 * batch.waveforms) / 64.0


@dataclass(frozen=True, kw_only=True)
class Mirror(Transform):
    '''Turns the signal upside down, so that a model of the mean hears the opposite.'''

    def apply(self, batch, draws):
        return -batch.waveforms
"""


@pytest.fixture
def odd_defenses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers `steps` and `mirror`."""
    (tmp_path / "odd_defenses.py").write_text(DEFENSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_defenses", raising=False)
    registry.names("transform")  # plugins first, so that the copy has them
    monkeypatch.setattr(registry, "_PARTS", copy.deepcopy(registry._PARTS))
    registry._PARTS["transform"] |= {"steps": "odd_defenses:Steps", "mirror": "odd_defenses:Mirror"}


@pytest.fixture
def same_runs() -> Callable[[Path, Path], None]:
    """Checks that two folders hold the same records, each once: decisions equal, numbers to 1e-4."""

    def check(ours: Path, theirs: Path) -> None:
        for name in ("records_path", "probes_path"):
            both = [list(read_records(getattr(RunFolder(path), name))) for path in (ours, theirs)]
            assert len({record.key for record in both[0]}) == len(both[0])
            rows = [{record.key: record for record in records} for records in both]
            assert rows[0].keys() == rows[1].keys()
            for key, one in rows[0].items():
                twin = rows[1][key]
                assert replace(one, parts={}) == replace(twin, parts={})
                assert one.parts.keys() == twin.parts.keys()
                for metric, parts in one.parts.items():
                    assert parts == pytest.approx(twin.parts[metric], abs=1e-4, nan_ok=True), (key, metric)

    return check
