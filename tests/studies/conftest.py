"""A bench with a model, clips and perturbations whose every answer can be worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.universal_attack import Perturbation
from sottovoce.data.load import Entry
from sottovoce.studies.study import MINI, StudySetting
from sottovoce.studies.vadillo2022.fitting_split import FittingSplit
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup
from sottovoce.targets.families.classifier import Classifier

RATE = 16000


class FirstSample(Classifier):
    """Says "yes" from a first sample of zero on, else "no", and never "silence"."""

    classes = ("yes", "no", "silence")
    sample_rate = RATE

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        first = batch.waveforms[:, 0]
        return torch.stack([first, -first, torch.full_like(first, -2.0)], dim=1)


Maker = Callable[[dict[str, list[np.ndarray]], dict[str, list[tuple[np.ndarray, int]]]], UniversalSetup]


@pytest.fixture
def make_bench(tmp_path: Path) -> Maker:
    """From clips by class, and perturbations by class with how many of 10 training clips each has fooled."""

    def make(
        clips: dict[str, list[np.ndarray]], perturbations: dict[str, list[tuple[np.ndarray, int]]]
    ) -> UniversalSetup:
        pools = {}
        for label, rows in clips.items():
            entries = []
            for number, row in enumerate(rows):
                path = tmp_path / f"{label}-{number}.wav"
                soundfile.write(path, row, RATE, subtype="PCM_16")
                entries.append(Entry(f"{label}-{number}", path, label))
            pools[label] = tuple(entries)
        (tmp_path / "perturbations").mkdir()
        for label, found in perturbations.items():
            for number, (waveform, fooled) in enumerate(found, start=1):
                story = json.dumps({"fooled": fooled, "clips": 10})
                one = Perturbation(torch.as_tensor(waveform, dtype=torch.float32), RATE, story)
                one.save(tmp_path / "perturbations" / f"{label}-{number}.safetensors")
        setting = StudySetting(scale=MINI)
        material = FittingSplit("made by hand", pools, pools, setting)
        return UniversalSetup(setting, FirstSample(), material, tmp_path, "cpu", lambda done, note: None)

    return make
