"""The 16-bit grid: what is rounded stays inside its budget, and loses as little as it can."""

from __future__ import annotations

import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.quantisation import on_grid, round_clean
from sottovoce.errors import InputError

STEP = 1.0 / 32768


def clips(*rows: list[float]) -> AudioBatch:
    return AudioBatch.of(rows, 8000)


def test_clean_clips_go_to_the_nearest_step() -> None:
    rounded = round_clean(clips([1.0, -1.0, 0.6 * STEP, 0.4 * STEP, -1.6 * STEP]), 16)
    assert (rounded.waveforms / STEP).tolist() == [[32767.0, -32768.0, 1.0, 0.0, -2.0]]


def test_other_depths_and_none() -> None:
    batch = clips([0.3, -0.3])
    # Eight bits have steps of 1/128: 0.3 * 128 = 38.4.
    assert (round_clean(batch, 8).waveforms * 128).tolist() == [[38.0, -38.0]]
    assert round_clean(batch, None) is batch
    assert on_grid(batch, batch, LInf(0.1), None) is batch
    for bits in (1, 25):
        with pytest.raises(InputError, match=f"bits must be from 2 to 24, got {bits}"):
            round_clean(batch, bits)


def test_rounding_up_is_taken_back_where_it_leaves_the_budget() -> None:
    clean = clips([0.0, 0.0], [0.0, 0.0])
    # 1.6 steps round to 2, outside of 1.7 steps; the second clip's 1.4 steps round to 1, inside.
    loud = clean.with_waveforms(torch.tensor([[1.6 * STEP, 0.0], [1.4 * STEP, 0.0]]))
    found = on_grid(clean, loud, LInf(1.7 * STEP), 16)
    assert (found.waveforms / STEP).tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert on_grid(clean, loud, LInf(2.0 * STEP), 16).waveforms[0, 0] == 2.0 * STEP


def test_a_perturbation_below_the_grid_vanishes() -> None:
    clean = clips([0.5, 0.5])
    loud = clean.with_waveforms(torch.tensor([[0.5 + 0.9 * STEP, 0.5]]))
    assert torch.equal(on_grid(clean, loud, LInf(0.9 * STEP), 16).waveforms, clean.waveforms)


def test_little_is_lost_to_rounding() -> None:
    clean = round_clean(AudioBatch.of([torch.linspace(-0.2, 0.2, 4000)], 8000), 16)
    budget = Snr(60.0)
    filled = budget.project(Draws(0).normal(clean), clean)
    found = on_grid(clean, clean.with_waveforms(clean.waveforms + filled), budget, 16)
    signal, noise = clean.waveforms.double(), (found.waveforms - clean.waveforms).double()
    ratio_db = float(10 * (signal.square().sum() / noise.square().sum()).log10())
    # The perturbation is about four steps loud; rounding alone would add 1 % of its power.
    assert 60.0 <= ratio_db < 60.1


def test_clips_do_not_share_a_factor() -> None:
    clean = clips([0.0] * 8, [0.0] * 8)
    deltas = torch.stack([torch.full((8,), 1.6 * STEP), torch.full((8,), 1.6 * STEP)])
    deltas[1, 1:] = 0.0
    # The first clip must shrink to 1 step a sample (2.83 in all), the second may round up to 2.
    found = on_grid(clean, clean.with_waveforms(deltas), L2(4.6 * STEP), 16)
    assert (found.waveforms[:, 0] / STEP).tolist() == [1.0, 2.0]
