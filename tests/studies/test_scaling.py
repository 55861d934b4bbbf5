"""A perturbation turned to a norm or a level has exactly that norm or level."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.batch import AudioBatch
from sottovoce.core.universal_attack import Perturbation
from sottovoce.studies.vadillo2022.scaling import to_db_max, to_l2

PERTURBATION = Perturbation(torch.tensor([0.003, -0.004, 0.0, 0.0]), 16000)


def test_l2_by_hand() -> None:
    # |(3, -4)| = 5, so a norm of 0.1 is 20 times as loud.
    found = to_l2(PERTURBATION, 0.1).waveform
    assert found.tolist() == pytest.approx([0.06, -0.08, 0.0, 0.0])


def test_level_by_hand() -> None:
    # 20 dB under a peak of 0.5 is a peak of 0.05; the second clip is cut before the peak of the perturbation.
    clean = AudioBatch.of([np.array([0.0, 0.5, 0.1]), np.array([-0.2])], 16000)
    found = to_db_max(PERTURBATION, clean, -20.0)
    assert found[0].tolist() == pytest.approx([0.0375, -0.05, 0.0])
    assert found[1].tolist() == pytest.approx([0.02, 0.0, 0.0])


@given(
    level=st.floats(-90, 0),
    peak=st.integers(1, 32767),
    samples=st.lists(st.floats(-0.5, 0.5).filter(lambda x: abs(x) > 1e-4), min_size=1, max_size=5),
)
def test_level_is_the_one_asked_for(level: float, peak: int, samples: list[float]) -> None:
    clean = AudioBatch.of([np.array([0.0, peak / 32768, 0.0])], 16000)
    delta = to_db_max(Perturbation(torch.tensor(samples), 16000), clean, level)
    ratio = float(delta.abs().max()) / (peak / 32768)
    assert 20 * np.log10(ratio) == pytest.approx(level, abs=1e-4)


def test_digital_silence_counts_as_half_a_step() -> None:
    clean = AudioBatch.of([np.zeros(4)], 16000)
    assert float(to_db_max(PERTURBATION, clean, 0.0).abs().max()) == pytest.approx(0.5 / 32768)


def test_zeros_stay_zeros() -> None:
    nothing = Perturbation(torch.zeros(4), 16000)
    assert not to_l2(nothing, 0.1).waveform.any()
    assert not to_db_max(nothing, AudioBatch.of([np.ones(4) / 2], 16000), -10.0).any()
