"""Universal perturbations: laid over clips of any length, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, DbMax, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.universal_attack import Perturbation
from sottovoce.errors import InputError
from sottovoce.testing import ToyClassifier


def test_cut_to_shorter_clips_and_repeated_over_longer_ones() -> None:
    wave = Perturbation(torch.tensor([0.1, 0.2, 0.3]), 1000)
    clips = AudioBatch.of([[0.0] * 7, [0.0] * 2], 1000)
    laid = wave.over(clips)
    assert laid[0].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1])
    assert laid[1].tolist() == pytest.approx([0.1, 0.2, 0, 0, 0, 0, 0])


def test_applied_inside_a_budget() -> None:
    wave = Perturbation(torch.tensor([0.5, -0.5]), 1000)
    clips = AudioBatch.of([[0.25] * 40, [0.0] * 20], 1000)
    trial = wave(ToyClassifier(), clips, Evade(), LInf(0.125), draws=Draws(0))
    assert trial.delta[0].tolist() == [0.125, -0.125] * 20
    assert trial.delta[1].tolist() == [0.125, -0.125] * 10 + [0.0] * 20


def test_saved_and_loaded(tmp_path: Path) -> None:
    wave = Perturbation(torch.tensor([0.1, -0.2]), 16000, made_by="by hand, für alle")
    wave.save(tmp_path / "wave.safetensors")
    loaded = Perturbation.load(tmp_path / "wave.safetensors")
    assert torch.equal(loaded.waveform, wave.waveform)
    assert (loaded.sample_rate, loaded.made_by) == (16000, "by hand, für alle")


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="perturbation's 1000 Hz, got 8000 Hz"):
        Perturbation(torch.ones(3), 1000).over(AudioBatch.of([[0.0] * 9], 8000))
    for bad in (torch.ones(2, 2), torch.ones(0), torch.tensor([torch.nan])):
        with pytest.raises(InputError, match="one finite waveform"):
            Perturbation(bad, 1000)
    with pytest.raises(InputError, match="expected a perturbation saved by sottovoce"):
        Perturbation.load(tmp_path / "missing.safetensors")
    (tmp_path / "text.safetensors").write_text("not a perturbation")
    with pytest.raises(InputError, match="expected a perturbation saved by sottovoce"):
        Perturbation.load(tmp_path / "text.safetensors")


def test_a_relative_budget_says_how_loud_it_is_played() -> None:
    # The clips have lengths 0.5 and 1 (3-4-5 triangles): 20 dB below them lie 0.05 and 0.1.
    clean = AudioBatch.of([[0.3, 0.4], [0.6, 0.8]], 8000)
    perturbation = Perturbation(torch.tensor([0.0, 1e-4]), 8000)
    loud = perturbation.played(clean, Snr(20))
    assert torch.allclose(loud, torch.tensor([[0.0, 0.05], [0.0, 0.1]]))
    assert torch.allclose(perturbation.played(clean, Snr(40)), loud / 10)
    # The peaks are 0.4 and 0.8.
    assert torch.allclose(perturbation.played(clean, DbMax(-20)), torch.tensor([[0.0, 0.04], [0.0, 0.08]]))


def test_an_absolute_budget_only_bounds_it() -> None:
    clean = AudioBatch.of([[0.3, 0.4]], 8000)
    perturbation = Perturbation(torch.tensor([0.0, 0.2]), 8000)
    assert torch.allclose(perturbation.played(clean, L2(0.5)), torch.tensor([[0.0, 0.2]]))
    assert torch.allclose(perturbation.played(clean, LInf(0.1)), torch.tensor([[0.0, 0.1]]))
