"""A model whose limits are known by hand, and clips for it.

The model says "up" when a clip's mean is above zero and "down" otherwise. A clip that is constant at a has
its nearest mistake at delta = -a in every sample: a perturbation as strong as the clip, so 0 dB SNR.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.core.transform import Defended, Transform
from sottovoce.errors import ScoreError

MODEL = """
import torch
from sottovoce.targets.families.classifier import ModuleClassifier


class Mean(torch.nn.Module):
    def forward(self, waveforms):
        mean = waveforms.mean(dim=1, keepdim=True)
        return 50.0 * torch.cat([mean, -mean], dim=1)


def make():
    return ModuleClassifier(Mean(), ["up", "down"], 8000)
"""


def write(path: Path, samples: np.ndarray, rate: int = 8000) -> None:
    """A 16-bit file of exactly these integers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples.astype(np.int16), rate, subtype="PCM_16")


WriteClip = Callable[..., None]


@pytest.fixture
def write_clip() -> WriteClip:
    """Writes a file: path, integers, and a rate that is 8000 Hz if not given."""
    return write


@pytest.fixture
def mean_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The model by name; its module lies in the current folder, as a user's would."""
    (tmp_path / "mean_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mean_model", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return "python:mean_model:make"


@pytest.fixture
def mean_clips(tmp_path: Path) -> Path:
    """Six clips of different lengths, constant at +-1000 to 3000 of 32768, one of them labelled wrong."""
    folder = tmp_path / "clips"
    for number, length in enumerate((400, 800, 640)):
        level = 1000 * (number + 1)
        write(folder / "up" / f"{number}.wav", np.full(length, level))
        write(folder / "down" / f"{number}.wav", np.full(length, -level if number else level))
    return folder


class Overflowing(Transform):
    """Makes NaN of one clip and leaves the others alone, as a model does that overflows on it."""

    def __init__(self, clip: str) -> None:
        self.clip = clip

    def apply(self, batch: AudioBatch, draws: Draws) -> torch.Tensor:
        bad = torch.tensor([name.partition("\x1f")[0] == self.clip for name in batch.ids])
        return batch.waveforms.masked_fill(bad[:, None], torch.nan)


CheckNan = Callable[[Target, AudioBatch], None]


@pytest.fixture
def check_nan() -> CheckNan:
    """Checks that NaN is no answer: the second clip, whose scores it is, has an error, and no other clip."""

    def check(target: Target, batch: AudioBatch) -> None:
        name = batch.ids[1]
        broken = Defended(target, (Overflowing(name),))
        with torch.no_grad():
            with pytest.raises(
                ScoreError, match=rf"^clip {name!r}: expected scores with a finite best one, got NaN"
            ):
                broken.decode(batch, draws=Draws(3))
            with pytest.raises(ScoreError, match=rf"^clip {name!r}: "):
                broken.decode(batch.select([1]), draws=Draws(3))
            others = [row for row in range(len(batch)) if row != 1]
            heard = target.decode(batch.select(others), draws=Draws(3))
            assert broken.decode(batch.select(others), draws=Draws(3)) == heard

    return check


def outside(variable: str, name: str, file: str) -> Path:
    """Material that is not part of the repository: named by a variable, or in ../shared beside it."""
    folder = Path(os.environ.get(variable, Path(__file__).parents[2] / "shared" / name))
    if not (folder / file).exists():
        pytest.skip(f"needs {file} in the folder named by {variable}")
    return folder / file


@pytest.fixture(scope="session")
def whisper_tiny() -> Path:
    """OpenAI's tiny checkpoint, with its vocabulary beside it."""
    return outside("SOTTOVOCE_MODELS", "models", "whisper-tiny.pt")


@pytest.fixture(scope="session")
def librispeech() -> Path:
    """A folder of read English: `transcripts.tsv` and the files it names."""
    return outside("SOTTOVOCE_DATA", "data", "librispeech")


@pytest.fixture(scope="session")
def spoken_words() -> Path:
    """Recorded commands: `train|valid|test/WORD/SPEAKER_TAKE`."""
    return outside("SOTTOVOCE_DATA", "data", "speech_commands")
