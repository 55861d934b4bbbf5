"""Decibels on parts of a clip: values by hand, and the vocal part against a search over all ranges."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.errors import InputError
from sottovoce.metrics.vocal_parts import (
    db_max,
    db_mean,
    find_parts,
    intensity_level,
    part_distortion_db,
    relative_db_max,
    relative_db_mean,
    share_below,
    vocal_part,
)

FLOOR_DB = -96.32959861247399  # 20 log10(0.5 / 32768)


def row(*samples: float) -> Tensor:
    return torch.tensor([samples], dtype=torch.float64)


def everything(waveforms: Tensor) -> Tensor:
    return torch.ones_like(waveforms, dtype=torch.bool)


def vocal(*samples: float, share: float = 0.95) -> tuple[int, int]:
    starts, ends = vocal_part(row(*samples), torch.tensor([len(samples)]), share=share)
    assert starts.dtype == ends.dtype == torch.int64
    return int(starts), int(ends)


def brute_force(samples: list[int], share: Fraction) -> tuple[int, int]:
    energies = [sample * sample for sample in samples]
    n, total = len(samples), sum(energies)
    if total == 0:
        return 0, n
    ranges = [(a, b) for a in range(n) for b in range(a, n + 1) if sum(energies[a:b]) >= share * total]
    return min(ranges, key=lambda found: (found[1] - found[0], found[0]))


def test_db_max_and_db_mean_by_hand():
    waveforms = row(0.1, -1.0, 0.1, 0.0)
    assert float(db_max(waveforms, everything(waveforms))) == pytest.approx(0.0)
    # mean |x| = 1.2 / 4 = 0.3
    assert float(db_mean(waveforms, everything(waveforms))) == pytest.approx(-10.457574905606752)
    mask = torch.tensor([[True, False, True, False]])
    assert float(db_max(waveforms, mask)) == pytest.approx(-20.0)
    assert float(db_mean(waveforms, mask)) == pytest.approx(-20.0)


def test_silence_has_the_floor_and_is_the_quietest():
    silence, whisper = row(0.0, 0.0), row(1e-9, 0.0)
    for measure in (db_max, db_mean):
        assert float(measure(silence, everything(silence))) == pytest.approx(FLOOR_DB)
        assert float(measure(whisper, everything(whisper))) == pytest.approx(FLOOR_DB)
        assert float(measure(silence, everything(silence), floor=1e-10)) == pytest.approx(-200.0)


def test_an_empty_mask_has_no_value():
    waveforms = row(0.5, 0.5)
    nothing = ~everything(waveforms)
    assert math.isnan(float(db_max(waveforms, nothing)))
    assert math.isnan(float(db_mean(waveforms, nothing)))


def test_relative_decibels_by_hand():
    clean, delta = row(1.0, 0.0, 0.0, 0.0), row(0.01, 0.01, -0.01, 0.01)
    assert float(relative_db_max(clean, delta, everything(clean))) == pytest.approx(-40.0)
    # mean |clean| = 0.25, mean |delta| = 0.01: 20 log10(0.04)
    assert float(relative_db_mean(clean, delta, everything(clean))) == pytest.approx(-27.958800173440752)
    assert float(relative_db_max(clean, 0 * clean, everything(clean))) == pytest.approx(FLOOR_DB)


def test_relative_decibels_refuse_a_delta_that_only_broadcasts():
    clean = torch.zeros(2, 4)
    with pytest.raises(InputError, match="one shape"):
        relative_db_max(clean, torch.zeros(1, 4), everything(clean))


def test_part_distortion_by_hand():
    # Energy: 9 samples of 0.01 hold 0.0009 of 1.0009, so the one loud sample is the vocal part.
    clean = row(0.01, 0.01, 0.01, 1.0, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01)
    delta = torch.full_like(clean, 0.001)
    result = {
        name: float(value) for name, value in part_distortion_db(clean, delta, torch.tensor([10])).items()
    }
    assert result == pytest.approx(
        {
            "whole_max": -60.0,
            "whole_mean": 20 * math.log10(0.001 / 0.109),
            "vocal_max": -60.0,
            "vocal_mean": -60.0,
            "background_max": -20.0,
            "background_mean": -20.0,
        }
    )


def test_parts_cover_the_clip_and_not_the_padding():
    clean = torch.tensor([[0.0, 0.5, 0.5, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0, 0.0]])
    parts = find_parts(clean, torch.tensor([4, 1]))
    assert parts.whole.tolist() == [[True, True, True, True, False], [True, False, False, False, False]]
    assert parts.vocal.tolist() == [[False, True, True, False, False], [True, False, False, False, False]]
    assert parts.background.tolist() == [[True, False, False, True, False], [False] * 5]
    result = part_distortion_db(clean, 0.1 * clean, torch.tensor([4, 1]))
    assert result["background_max"].isnan().tolist() == [False, True]
    assert result["background_mean"].isnan().tolist() == [False, True]


@pytest.mark.parametrize(
    ("samples", "share", "expected"),
    [
        ((0.5,), 0.95, (0, 1)),
        ((0.0,), 0.95, (0, 1)),
        ((0.0, 0.0, 0.0), 0.95, (0, 3)),  # silence: the whole clip
        ((0.0, 0.0, -0.7, 0.0), 0.95, (2, 3)),
        ((0.5, 0.5, 0.5, 0.5), 0.5, (0, 2)),  # ties: the earliest
        ((0.1,) * 20, 0.95, (0, 19)),  # exactly 95 %, and 0.1 is on no binary grid
        ((0.3,) * 20, 0.55, (0, 11)),  # the double 0.55 lies above 55/100
        ((0.0, 0.1, 0.0, 0.2, 0.0), 1.0, (1, 4)),
        ((0.25, 0.0, 0.0, 0.25, 0.25), 0.6, (3, 5)),
        ((2.0**-23, 0.0, 1.0, 0.0), 1.0, (0, 3)),  # one 24-bit step beside full scale still counts
        ((1e-170, 1e-170, 1e-200), 0.95, (0, 2)),  # squares that underflow on their own scale
    ],
)
def test_vocal_part_by_hand(samples, share, expected):
    assert vocal(*samples, share=share) == expected


def test_a_long_clip_of_equal_samples():
    starts, ends = vocal_part(torch.full((1, 1_000_000), 0.1), torch.tensor([1_000_000]))
    assert (int(starts), int(ends)) == (0, 950_000)


@pytest.mark.parametrize("share", [0.0, 1.01, -1.0, math.nan])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(InputError, match="share"):
        vocal(0.5, share=share)


@settings(max_examples=200, deadline=None)
@given(
    samples=st.lists(st.sampled_from([0, 0, 1, -1, 2, 3, -100, 32767, -32768]), min_size=1, max_size=18),
    percent=st.integers(1, 100),
)
@example(samples=[0, 1, 1, 0, 1, 1], percent=50)
def test_vocal_part_is_the_shortest_and_earliest(samples, percent):
    expected = brute_force(samples, Fraction(percent, 100))
    assert vocal(*(sample / 32768 for sample in samples), share=percent / 100) == expected


@settings(max_examples=60, deadline=None)
@given(samples=st.lists(st.integers(-32768, 32767), min_size=1, max_size=30), power=st.integers(-20, 20))
def test_vocal_part_does_not_depend_on_loudness_or_sign(samples, power):
    quiet = [sample / 32768 for sample in samples]
    assert vocal(*quiet) == vocal(*(-sample * 2.0**power for sample in quiet))


clips = st.lists(
    st.tuples(st.integers(-32767, 32767), st.integers(-3000, 3000)), min_size=1, max_size=40
).map(lambda pairs: torch.tensor(pairs, dtype=torch.float32).T / 32768)


@settings(max_examples=60, deadline=None)
@given(items=st.lists(clips, min_size=1, max_size=4), junk=st.sampled_from([0.0, 0.7]))
def test_alone_equals_in_a_batch(items, junk):
    lengths = torch.tensor([item.shape[1] for item in items])
    padded = torch.full((2, len(items), int(lengths.max()) + 5), junk)
    for index, item in enumerate(items):
        padded[:, index, : item.shape[1]] = item
    together = part_distortion_db(padded[0], padded[1], lengths)
    levels = intensity_level(padded[0], lengths)
    for index, item in enumerate(items):
        only = lengths[index : index + 1]
        alone = part_distortion_db(item[:1], item[1:], only)
        for name, value in alone.items():
            pair = together[name][index : index + 1], value
            torch.testing.assert_close(*pair, rtol=1e-12, atol=1e-12, equal_nan=True)
        assert intensity_level(item[:1], only) == [levels[index]]


@settings(max_examples=60, deadline=None)
@given(samples=st.lists(st.integers(1, 3000), min_size=1, max_size=30))
def test_ten_times_the_amplitude_is_twenty_decibels_more_and_swapping_turns_the_sign(samples):
    delta = row(*(sample / 32768 for sample in samples))
    clean = delta.flip(1).cumsum(1) / len(samples)
    mask = everything(clean)
    for measure in (relative_db_max, relative_db_mean):
        before = measure(clean, delta, mask)
        torch.testing.assert_close(measure(clean, 10 * delta, mask), before + 20.0)
        torch.testing.assert_close(measure(delta, clean, mask), -before)


@pytest.mark.parametrize(
    ("int16_mean", "expected"),
    # 50 dB is a mean of 316.23, 70 dB one of 3162.28.
    [(0, "low"), (316, "low"), (317, "medium"), (3162, "medium"), (3163, "high"), (32767, "high")],
)
def test_intensity_level_by_hand(int16_mean, expected):
    clean = torch.tensor([[int16_mean / 32768, -int16_mean / 32768, 0.0]])
    assert intensity_level(clean, torch.tensor([2])) == [expected]


def test_share_below_is_strict_and_leaves_out_what_has_no_value():
    values_db = torch.tensor([-40.0, -32.0, -31.0, -50.0, math.nan])
    assert share_below(values_db) == 0.5
    assert share_below(values_db, threshold_db=-45.0) == 0.25
    assert math.isnan(share_below(torch.tensor([math.nan])))


def test_a_word_in_noise_is_found():
    draws = np.random.default_rng(0)
    samples = draws.normal(0, 0.001, 16000)
    samples[5000:9000] += 0.3 * np.sin(2 * np.pi * 440 * np.arange(4000) / 16000)
    starts, ends = vocal_part(torch.from_numpy(samples)[None], torch.tensor([16000]))
    # A steady tone of 4000 samples needs 95 % of them, within one period (36 samples).
    assert int(starts) >= 5000 - 36 and int(ends) <= 9000 + 36
    assert 3800 - 36 <= int(ends - starts) <= 3800 + 36
