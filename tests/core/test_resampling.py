"""Resampling against sines, whose samples at any rate are known."""

from __future__ import annotations

import math

import pytest
import torch

from sottovoce.core.resampling import resample, resample_clips, resampled_lengths


@pytest.mark.parametrize("to_hz", [8_000, 22_050, 24_000, 48_000])
def test_a_sine_is_that_sine_at_another_rate(to_hz: int) -> None:
    seconds, hz = 0.5, 1000.0
    before = torch.sin(2 * math.pi * hz * torch.arange(8000, dtype=torch.float64) / 16_000)
    after = resample(before[None], 16_000, to_hz)[0]
    count = round(seconds * to_hz)
    wanted = torch.sin(2 * math.pi * hz * torch.arange(count, dtype=torch.float64) / to_hz)
    middle = slice(count // 4, 3 * count // 4)
    torch.testing.assert_close(after[middle], wanted[middle], atol=1e-4, rtol=0)


def test_one_rate_changes_nothing() -> None:
    clips = torch.rand(2, 50)
    assert resample(clips, 16_000, 16_000) is clips


def test_lengths_count_the_samples_that_begin_inside() -> None:
    # 10 samples at 16 kHz last 0.625 ms: 22.05 kHz has samples at 0, ..., 13 / 22050 = 0.59 ms.
    assert resampled_lengths(torch.tensor([10, 160, 1]), 16_000, 22_050).tolist() == [14, 221, 2]


def test_nothing_rings_past_an_end() -> None:
    clips = torch.zeros(2, 400)
    clips[0], clips[1, :100] = torch.rand(400), torch.rand(100)
    together, lengths = resample_clips(clips, torch.tensor([400, 100]), 16_000, 8_000)
    alone, _ = resample_clips(clips[1:, :100], torch.tensor([100]), 16_000, 8_000)
    assert lengths.tolist() == [200, 50]
    assert not together[1, 50:].any()
    torch.testing.assert_close(together[1, :50], alone[0])
