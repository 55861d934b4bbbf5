"""The shipped keyword classifier: what it is, and how often it is right."""

from __future__ import annotations

import csv
import os
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sottovoce.errors import InputError
from sottovoce.targets.zoo import keyword_cnn
from sottovoce.targets.zoo.keyword_cnn import CLASSES, KeywordCnn
from sottovoce.training.keyword.keyword_pack import make_silence, read_clip, read_folder
from sottovoce.training.keyword.train_keyword import predict

CLIPS = Path(str(resources.files("sottovoce.data"))) / "clips"
ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("SOTTOVOCE_DATA", ROOT.parent / "shared" / "data"))
COMMANDS = DATA / "speech_commands"


@pytest.fixture(scope="module")
def model() -> KeywordCnn:
    return keyword_cnn.load()


def share_right(model: KeywordCnn, clips: np.ndarray, labels: list[str]) -> float:
    named = [CLASSES[place] for place in predict(model, clips).tolist()]
    return float(np.mean([name == label for name, label in zip(named, labels, strict=True)]))


def test_classes_are_those_of_the_paper() -> None:
    words = "silence unknown yes no up down left right on off stop go"
    assert " ".join(CLASSES) == words
    assert (keyword_cnn.SAMPLE_RATE, keyword_cnn.CLIP_SAMPLES) == (16_000, 16_000)


def test_two_convolutions_one_fully_connected_and_no_normalisation(model: KeywordCnn) -> None:
    layers = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    assert [type(layer) for layer in layers] == [nn.Conv2d, nn.Conv2d, nn.Linear]


def test_number_of_weights_by_hand(model: KeywordCnn) -> None:
    # 40 (15 x 7 + 1) + 72 (40 x 7 x 5 + 1) + 12 (72 x 12 x 5 + 1)
    assert sum(weight.numel() for weight in model.parameters()) == 4_240 + 100_872 + 51_852


def test_shipped_file_is_small() -> None:
    file = resources.files("sottovoce.targets.zoo") / "weights" / "keyword_cnn.safetensors"
    assert len(file.read_bytes()) < 5_000_000


def test_loads_frozen_and_in_evaluation_mode(model: KeywordCnn) -> None:
    assert not any(module.training for module in model.modules())
    assert not any(weight.requires_grad for weight in model.parameters())


def test_logits_of_an_item_do_not_depend_on_its_batch(model: KeywordCnn) -> None:
    waveforms = torch.randn(3, 16_000, generator=torch.Generator().manual_seed(0)) * 0.1
    logits = model(waveforms)
    assert logits.shape == (3, 12)
    torch.testing.assert_close(logits[1:2], model(waveforms[1:2]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", [0.0, 1e-4, 0.1])
def test_gradient_reaches_the_waveform(model: KeywordCnn, level: float) -> None:
    waveforms = torch.randn(2, 16_000, generator=torch.Generator().manual_seed(0)) * level
    waveforms.requires_grad_()
    model(waveforms).logsumexp(dim=1).sum().backward()
    assert waveforms.grad is not None
    assert waveforms.grad.isfinite().all()
    assert (waveforms.grad.abs().amax(dim=1) > 0).all() == (level > 0)


@pytest.mark.parametrize("shape", [(16_000,), (1, 15_999), (1, 1, 16_000)])
def test_other_shapes_are_refused(model: KeywordCnn, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"expects waveforms \(batch, 16000\), got"):
        model(torch.zeros(shape))


def test_embedded_clips_are_mostly_understood(model: KeywordCnn) -> None:
    with (CLIPS / "clips.csv").open() as file:
        rows = list(csv.DictReader(file))
    clips = np.stack([read_clip(CLIPS / row["path"]) for row in rows])
    assert share_right(model, clips, [row["label"] for row in rows]) >= 0.85


def test_digital_silence_is_silence(model: KeywordCnn) -> None:
    assert share_right(model, np.zeros((1, 16_000), dtype=np.int16), ["silence"]) == 1.0


@pytest.mark.slow
@pytest.mark.skipif(
    not COMMANDS.is_dir(), reason="needs speech_commands in the folder named by SOTTOVOCE_DATA"
)
def test_real_test_split(model: KeywordCnn) -> None:
    spoken = read_folder(COMMANDS, splits=("test",))
    assert len(spoken.clips) == 881
    right = share_right(model, spoken.clips, spoken.labels.tolist())
    assert right >= 0.93
    silence = make_silence(80, "test", seed=0)
    quiet = share_right(model, silence.clips, silence.labels.tolist())
    assert (right * 881 + quiet * 80) / 961 >= 0.93
