"""Shares and means over clips that several perturbations were tried on."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.studies.vadillo2022.evaluate import mean, rate


def test_each_clip_counts_once() -> None:
    # Two perturbations on 36 clips, 20 fooled by each: the interval of 20 in 36, published as [.38, .72].
    hits = np.zeros((2, 36), dtype=bool)
    hits[0, :20] = hits[1, 16:] = True
    found = rate(hits)
    assert found.value == pytest.approx(20 / 36)
    assert (round(found.low, 2), round(found.high, 2), found.n) == (0.38, 0.72, 36)


def test_one_perturbation_alone() -> None:
    assert rate(np.array([True, True, False, True])).value == 0.75


def test_mean_is_over_clips_of_means_over_perturbations() -> None:
    found = mean(np.array([[-40.0, -30.0], [-50.0, -20.0]]))
    assert (found.value, found.n) == (-35.0, 2)
    assert -45.0 <= found.low <= -35.0 <= found.high <= -25.0
