"""Targets: capabilities, limits on clips, and modules that come back as they were."""

from __future__ import annotations

import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.target import Scores, check_clips, evaluating
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.testing import ToyClassifier, ToyCtc


def silence(samples: int, sample_rate: int = 1000) -> AudioBatch:
    return AudioBatch.of([torch.zeros(100), torch.zeros(samples)], sample_rate, ["fine", "odd"])


def test_clips_that_cannot_be_heard() -> None:
    toy = ToyClassifier()
    check_clips(toy, silence(20))
    with pytest.raises(InputError, match="the model expects audio at 1000 Hz, got 16000 Hz; resample"):
        check_clips(toy, silence(100, 16000))
    with pytest.raises(InputError, match=r"clip 'odd': expected at least 20 samples \(20 ms\), got 19"):
        check_clips(toy, silence(19))
    fixed = ModuleClassifier(torch.nn.Linear(200, 2), ["a", "b"], 1000, clip_samples=200)
    check_clips(fixed, silence(200))
    with pytest.raises(InputError, match=r"clip 'odd': expected at most 200 samples \(0.2 s\), got 201"):
        check_clips(fixed, silence(201))


def test_capabilities() -> None:
    toy = ToyClassifier()
    assert toy.capability(Scores) is toy
    with pytest.raises(MissingCapability, match="ToyCtc has no class scores: it is a speech recogniser"):
        ToyCtc().capability(Scores)


def test_evaluating_hands_back_every_mode() -> None:
    module = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2)).train()
    module[0].eval()
    with pytest.raises(RuntimeError), evaluating(module):
        assert [part.training for part in module.modules()] == [False, False, False]
        raise RuntimeError
    assert [part.training for part in module.modules()] == [True, False, True]
