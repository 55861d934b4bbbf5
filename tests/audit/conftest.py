"""Defenses to be got wrong, by hand."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest

from sottovoce import registry

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
