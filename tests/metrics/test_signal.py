"""Whole-clip distortion: values by hand, a frame loop as reference, and the law that padding is ignored."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.errors import InputError
from sottovoce.metrics.signal_distortion import l2, linf, segmental_snr_db, snr_db

RATE_HZ = 1000  # frames of 30 samples that step by 7: small enough to check by eye
MEASURES = {
    "snr": snr_db,
    "segmental": lambda clean, delta, lengths: segmental_snr_db(clean, delta, lengths, sample_rate=RATE_HZ),
    "linf": linf,
    "l2": l2,
}


def clip(*samples: float) -> Tensor:
    return torch.tensor([samples])


def length(clean: Tensor) -> Tensor:
    return torch.full((len(clean),), clean.shape[1], dtype=torch.int64)


def segmental(clean: Tensor, delta: Tensor) -> float:
    return float(segmental_snr_db(clean, delta, length(clean), sample_rate=RATE_HZ))


def test_norms_by_hand():
    clean, delta = clip(0.0, 0.0, 0.0), clip(0.3, -0.4, 0.0)
    assert float(linf(clean, delta, length(clean))) == pytest.approx(0.4, abs=1e-7)
    assert float(l2(clean, delta, length(clean))) == pytest.approx(0.5, abs=1e-7)


@pytest.mark.parametrize(
    ("clean", "delta", "expected"),
    [
        (clip(0.5, -0.5), clip(0.05, 0.05), 20.0),
        (clip(0.5, 0.5, 0.5, 0.5), clip(0.0, 0.5, 0.0, 0.0), 6.020599913279624),  # 10 log10 4
        (clip(0.1, 0.0), clip(0.1, 0.0), 0.0),
        (clip(0.5, 0.5), clip(0.0, 0.0), math.inf),
        (clip(0.0, 0.0), clip(0.1, 0.0), -math.inf),
        (clip(0.0, 0.0), clip(0.0, 0.0), math.nan),
    ],
)
def test_snr_by_hand(clean, delta, expected):
    assert float(snr_db(clean, delta, length(clean))) == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_results_are_float64_one_a_clip():
    clean = torch.full((3, 40), 0.5)
    for measure in MEASURES.values():
        result = measure(clean, clean / 10, length(clean))
        assert result.shape == (3,) and result.dtype == torch.float64


def test_segmental_snr_of_a_constant_ratio_is_that_ratio():
    clean = torch.linspace(0.1, 0.9, 200)[None]
    assert segmental(clean, clean / 10) == pytest.approx(20.0, abs=1e-5)


@pytest.mark.parametrize(
    ("gain", "expected"), [(1e-3, 35.0), (0.0, 35.0), (100.0, -10.0), (10 ** (-34.9 / 20), 34.9)]
)
def test_segmental_snr_holds_each_frame_to_its_range(gain, expected):
    clean = torch.full((1, 100), 0.005)
    assert segmental(clean, gain * clean) == pytest.approx(expected, abs=1e-4)


def test_segmental_snr_averages_decibels_over_frames():
    # 37 samples make two frames, [0, 30) and [7, 37). Sample 0 is in the first alone, sample 36 in the second
    # alone, each at an end of its window: 10 dB and 30 dB, mean 20 (the plain SNR would be 12.97 dB).
    clean, delta = torch.zeros(1, 37), torch.zeros(1, 37)
    clean[0, 0] = clean[0, 36] = 0.5
    delta[0, 0], delta[0, 36] = 0.5 * 10 ** (-10 / 20), 0.5 * 10 ** (-30 / 20)
    assert segmental(clean, delta) == pytest.approx(20.0, abs=1e-5)


def test_segmental_snr_leaves_out_frames_without_any_sound():
    # Frames that see the first 30 samples have 20 dB, the others are digital silence on both sides.
    clean = torch.cat([torch.full((1, 30), 0.5), torch.zeros(1, 300)], dim=1)
    assert segmental(clean, clean / 10) == pytest.approx(20.0, abs=1e-5)
    assert math.isnan(segmental(torch.zeros(1, 50), torch.zeros(1, 50)))


def test_segmental_snr_of_a_perturbed_silence_is_the_lower_bound():
    assert segmental(torch.zeros(1, 50), torch.full((1, 50), 0.01)) == -10.0


def test_segmental_snr_sees_the_last_sample():
    # 36 = 30 + 6: one full frame, untouched (35 dB), and a second one for the rest, 0 dB.
    clean, delta = torch.zeros(1, 36), torch.zeros(1, 36)
    clean[0, 0] = clean[0, 35] = delta[0, 35] = 0.5
    assert segmental(clean, delta) == pytest.approx(17.5)


@pytest.mark.parametrize(("time", "sample_rate"), [(1, 16000), (479, 16000), (480, 16000), (5001, 8000)])
def test_segmental_snr_matches_a_frame_by_frame_loop(time, sample_rate):
    draws = np.random.default_rng(time)
    clean, delta = draws.uniform(-0.5, 0.5, time), draws.uniform(-0.02, 0.02, time)
    delta *= np.linspace(0.1, 20, time)
    size, step = int(0.03 * sample_rate), int(0.03 * sample_rate) // 4
    window = 0.5 * (1 - np.cos(2 * np.pi * np.arange(1, size + 1) / (size + 1)))
    values, start = [], 0
    while True:
        x, v = clean[start : start + size], delta[start : start + size]
        taper = window[: len(x)]
        values.append(np.clip(10 * np.log10(np.sum((x * taper) ** 2) / np.sum((v * taper) ** 2)), -10, 35))
        if start + size >= time:
            break
        start += step
    pair = torch.from_numpy(clean)[None], torch.from_numpy(delta)[None]
    result = segmental_snr_db(*pair, torch.tensor([time]), sample_rate=sample_rate)
    assert float(result) == pytest.approx(np.mean(values), abs=1e-9)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
def test_a_delta_that_only_broadcasts_is_refused(measure):
    with pytest.raises(InputError, match="one shape"):
        measure(torch.zeros(2, 8), torch.zeros(1, 8), torch.tensor([8, 8]))


clips = st.lists(
    st.tuples(st.integers(-32767, 32767), st.integers(-3000, 3000)), min_size=1, max_size=90
).map(lambda pairs: torch.tensor(pairs, dtype=torch.float32).T / 32768)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES.keys())
@settings(max_examples=40, deadline=None)
@given(items=st.lists(clips, min_size=1, max_size=4), junk=st.sampled_from([0.0, 0.7]))
def test_alone_equals_in_a_batch(measure, items, junk):
    lengths = torch.tensor([item.shape[1] for item in items])
    padded = torch.full((2, len(items), int(lengths.max()) + 11), junk)
    for row, item in enumerate(items):
        padded[:, row, : item.shape[1]] = item
    together = measure(padded[0], padded[1], lengths)
    for row, item in enumerate(items):
        alone = measure(item[:1], item[1:], lengths[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12, equal_nan=True)


@settings(max_examples=40, deadline=None)
@given(item=clips)
def test_scaling_and_swapping_laws(item):
    clean, delta = item[:1].double(), item[1:].double()
    size = length(clean)
    before, after = snr_db(clean, delta, size), snr_db(clean, 10 * delta, size)
    torch.testing.assert_close(after, before - 20.0, rtol=0, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(snr_db(delta, clean, size), -before, rtol=0, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(linf(clean, 10 * delta, size), 10 * linf(clean, delta, size))
    torch.testing.assert_close(l2(clean, 10 * delta, size), 10 * l2(clean, delta, size))
