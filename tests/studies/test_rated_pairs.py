"""Delays are found and undone, by the waveform or by the course of the spectrum."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.errors import InputError
from sottovoce.studies.manocha2020.rated_pairs import find_shift, undo

RATE = 16000


def bursts(seed: int) -> np.ndarray:
    """Noise in bursts at fixed places, with other samples for another seed."""
    generator = np.random.default_rng(seed)
    clip = np.zeros(RATE)
    for start, size in ((1500, 1200), (4000, 600), (7000, 2500), (11000, 900), (13000, 1800)):
        clip[start : start + size] = 0.2 * generator.standard_normal(size) * np.hanning(size)
    return clip


@pytest.mark.parametrize("late", [0, 1, 7, 333, -1, -250])
def test_a_delayed_copy(late: int) -> None:
    clip = bursts(0)
    shift = find_shift(clip, np.roll(clip, late), RATE)
    assert (shift.samples, shift.by) == (late, "waveform")
    assert shift.match == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("late", [0, 160, -320])
def test_other_phases_of_the_same_course(late: int) -> None:
    # Nothing but the course of the level is shared, as between speech and what a vocoder makes of it.
    shift = find_shift(bursts(0), np.roll(bursts(1), late), RATE)
    assert shift.by == "spectrum"
    assert abs(shift.samples - late) <= 32


def test_undo_cuts_to_what_is_shared() -> None:
    clean, late = np.arange(10.0), np.arange(10.0) - 3
    one, other = undo(clean, late, 3)
    np.testing.assert_array_equal(one, other)
    assert len(one) == 7
    one, other = undo(clean, np.arange(12.0) + 2, -2)
    np.testing.assert_array_equal(one, other)
    assert len(one) == 8


def test_clips_that_are_too_short() -> None:
    with pytest.raises(InputError, match=r"more than 0\.1 s, got 1600 samples at 16000 Hz"):
        find_shift(np.ones(1600), np.ones(1600), RATE)
