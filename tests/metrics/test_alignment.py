"""Shifts that were put in are found, and none where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError
from sottovoce.metrics.alignment import cut_to_overlap, find_shifts, overlap

RATE = 1000


def noise(length: int, seed: int = 0) -> Tensor:
    return 0.1 * torch.from_numpy(np.random.default_rng(seed).standard_normal(length))


def late(clip: Tensor, shift: int) -> Tensor:
    """The clip after `shift` samples of silence (or without its first ones), of the same length."""
    room = torch.zeros(abs(shift), dtype=clip.dtype)
    return torch.cat([room, clip])[: len(clip)] if shift >= 0 else torch.cat([clip, room])[-len(clip) :]


def shift_of(clean: Tensor, changed: Tensor, **options: float) -> int:
    lengths = torch.tensor([len(clean)])
    return int(find_shifts(clean[None], changed[None], lengths, sample_rate=RATE, **options))


@settings(max_examples=25, deadline=None)
@given(shift=st.integers(-250, 250), gain=st.floats(0.1, 3.0), seed=st.integers(0, 99))
def test_a_shift_is_found_whatever_the_gain(shift: int, gain: float, seed: int):
    clean = noise(1000, seed)
    assert shift_of(clean, gain * late(clean, shift)) == shift


def test_one_sample_of_a_smooth_clip_is_found():
    clean = torch.nn.functional.avg_pool1d(noise(2000)[None], 9, 1, 4)[0]
    assert shift_of(clean, late(clean, 1)) == 1


def test_a_shift_under_noise_is_found():
    clean = noise(2000)
    assert shift_of(clean, late(clean, -37) + 0.5 * noise(2000, 1)) == -37


@pytest.mark.parametrize("snr_gain", [0.0, 0.01, 0.3, 1.0, 3.0, 30.0])
def test_what_was_only_added_to_is_in_place(snr_gain: float):
    clean = noise(2000)
    assert shift_of(clean, clean + snr_gain * noise(2000, 1)) == 0


def test_what_lies_nowhere_is_in_place():
    tone = torch.sin(torch.arange(1000, dtype=torch.float64) * 2 * torch.pi / 20)
    assert shift_of(tone, tone + 0.1 * noise(1000)) == 0  # every 20 samples are as good
    assert shift_of(noise(1000), -noise(1000)) == 0  # upside down
    assert shift_of(tone, -tone) == 0  # upside down, or 10 samples late
    assert shift_of(torch.zeros(1000), noise(1000)) == 0
    assert shift_of(noise(1000), torch.zeros(1000)) == 0
    assert shift_of(noise(1000), noise(1000, 1)) == 0  # nothing in common
    assert shift_of(noise(1), noise(1, 1)) == 0


def test_what_was_cut_out_moves_nothing():
    # A hum, and a word at the end that is missing in the changed clip: the hum alone fits at every period.
    hum = 0.01 * torch.sin(torch.arange(1000, dtype=torch.float64) * 2 * torch.pi / 20)
    word = torch.cat([torch.zeros(700, dtype=torch.float64), noise(300)])
    assert shift_of(hum + word, hum) == 0
    assert shift_of(hum, hum + word) == 0


def test_the_search_ends_where_it_should():
    clean = noise(2000)
    assert shift_of(clean, late(clean, 600)) == 0  # beyond half a second
    assert shift_of(clean, late(clean, 600), max_shift_seconds=0.7) == 600
    assert shift_of(clean[:200], late(clean[:200], 150)) == 0  # more than half of the clip is gone


def test_clips_are_aligned_each_by_itself():
    lengths = torch.tensor([900, 400, 700])
    clean = torch.full((3, 1200), 5.0, dtype=torch.float64)  # what padding holds is ignored
    changed = -clean
    for row, (length, shift) in enumerate(zip(lengths.tolist(), (12, -3, 0), strict=True)):
        clean[row, :length] = noise(length, row)
        changed[row, :length] = late(noise(length, row), shift)
    assert find_shifts(clean, changed, lengths, sample_rate=RATE).tolist() == [12, -3, 0]


def test_the_overlap_is_the_same_sound():
    clips = [noise(900, 0), noise(400, 1), noise(700, 2)]
    clean = AudioBatch.of(clips, RATE)
    shifts = torch.tensor([12, -3, 0])
    moved = [late(clip, shift) for clip, shift in zip(clips, shifts.tolist(), strict=True)]
    one, two = overlap(clean, AudioBatch.of(moved, RATE), shifts)
    assert one.lengths.tolist() == two.lengths.tolist() == [888, 397, 700]
    assert torch.equal(one.waveforms, two.waveforms)
    assert torch.equal(one.clip(0), clean.clip(0)[:888])
    assert torch.equal(one.clip(1), clean.clip(1)[3:])


def test_what_is_in_place_comes_back_as_it_is():
    clean, changed = AudioBatch.of([noise(50)], RATE), AudioBatch.of([noise(50, 1)], RATE)
    one, two = overlap(clean, changed, torch.tensor([0]))
    assert one is clean and two is changed


@pytest.mark.parametrize(("before", "after"), [(40, 0), (0, 90), (40, 90), (0, 0)])
def test_clips_of_two_lengths_are_cut_to_what_they_share(before: int, after: int):
    clean = noise(1000)
    changed = torch.cat([torch.zeros(before, dtype=torch.float64), clean, noise(after, 1)])
    one, two, shift = cut_to_overlap(clean, changed, sample_rate=RATE)
    assert shift == before
    assert torch.equal(one, clean) and torch.equal(two, clean)
    two, one, shift = cut_to_overlap(changed, clean, sample_rate=RATE)
    assert shift == -before
    assert torch.equal(one, two)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="one shape"):
        find_shifts(torch.zeros(1, 5), torch.zeros(1, 6), torch.tensor([5]), sample_rate=RATE)
    with pytest.raises(InputError, match="one rate"):
        overlap(AudioBatch.of([noise(5)], 1000), AudioBatch.of([noise(5)], 2000), torch.tensor([1]))
    with pytest.raises(InputError, match="one length"):
        overlap(AudioBatch.of([noise(5)], 1000), AudioBatch.of([noise(6)], 1000), torch.tensor([1]))
