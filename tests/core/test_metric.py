"""Summaries of parts: ratios of sums, intervals, and clips without a value."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.metric import Estimate, Metric, clip_values

NAN = math.nan


class Ratio(Metric):
    name, title = "ratio", "ratio"

    def measure(self, trial: Trial) -> Tensor:
        return torch.zeros(len(trial.clean), 2, dtype=torch.float64)


class Rate(Metric):
    name, title = "rate", "rate"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"

    def measure(self, trial: Trial) -> Tensor:
        return torch.zeros(len(trial.clean), 2, dtype=torch.float64)


def test_a_corpus_rate_is_the_ratio_of_sums() -> None:
    # 1 of 10 words and 2 of 2 words: 3/12, not the mean of 0.1 and 1.
    found = Ratio().summarise(np.array([[1.0, 10.0], [2.0, 2.0]]))
    assert found.value == pytest.approx(0.25)
    assert found.n == 2
    assert found.low <= 0.25 <= found.high


def test_clips_without_a_value_are_left_out() -> None:
    parts = np.array([[30.0, 1.0], [NAN, 1.0], [math.inf, 1.0], [40.0, 1.0], [NAN, NAN]])
    found = Ratio().summarise(parts)
    assert (found.value, found.n) == (pytest.approx(35.0), 2)


def test_errors_on_a_clip_without_words_count() -> None:
    assert Ratio().summarise(np.array([[1.0, 10.0], [2.0, 0.0]])).value == pytest.approx(0.3)


def test_nothing_known() -> None:
    for metric in (Ratio(), Rate()):
        found = metric.summarise(np.full((3, 2), NAN))
        assert found.n == 0 and all(map(math.isnan, (found.value, found.low, found.high)))
        assert metric.summarise(np.empty((0, 2))).n == 0


def test_exact_interval_of_a_rate() -> None:
    # Clopper-Pearson 95 % for 8 of 10, from the published tables: 0.4439 to 0.9748.
    parts = np.array([[1.0, 1.0]] * 8 + [[0.0, 1.0]] * 2 + [[NAN, 1.0]])
    found = Rate().summarise(parts)
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.4439, 0.9748), abs=5e-5)
    assert found.n == 10 and "Clopper-Pearson 95%" in found.method
    # All of 10: the lower bound is 0.025 ** (1 / 10).
    sure = Rate().summarise(np.array([[1.0, 1.0]] * 10))
    assert (sure.low, sure.high) == pytest.approx((0.69150, 1.0), abs=1e-5)


def test_level_of_the_interval() -> None:
    parts = np.array([[1.0, 1.0]] * 10)
    assert Rate().summarise(parts, level=0.9).low == pytest.approx(0.05**0.1)


def test_words() -> None:
    assert str(Estimate(0.81234, 0.5, 0.97, 10, "")) == "0.812 [0.5, 0.97]"


def test_values_of_clips() -> None:
    values = clip_values(np.array([[1.0, 4.0], [NAN, 1.0], [3.0, 0.0], [math.inf, 1.0]]))
    assert values[0] == 0.25 and np.isnan(values[1]) and np.isnan(values[2]) and np.isinf(values[3])


def test_five_speakers_are_resampled_instead_of_clips() -> None:
    # Each speaker has all words wrong or none, in four clips: five observations, not twenty.
    parts = np.repeat([[5.0, 5.0], [0.0, 5.0], [5.0, 5.0], [0.0, 5.0], [0.0, 5.0]], 4, axis=0)
    speakers = [name for name in "abcde" for _ in range(4)]
    found, by_clip = Ratio().summarise(parts, speakers), Ratio().summarise(parts)
    assert (found.value, found.n) == (pytest.approx(0.4), 20)
    assert found.method == "bootstrap over speakers 95%" and by_clip.method == "bootstrap 95%"
    # Speakers: ratios are multiples of 1/5. Of 5 draws at 0.4 none comes up 8 % of the time, all 1 %.
    assert found.low == 0.0 and found.high >= 0.8
    assert by_clip.low > 0.1 and by_clip.high < 0.7


def test_clips_are_resampled_where_speakers_are_few_or_not_known() -> None:
    parts = np.array([[float(row % 3), 4.0] for row in range(12)])
    by_clip = Ratio().summarise(parts)
    assert Ratio().summarise(parts, list("abcdabcdabcd")) == by_clip
    assert Ratio().summarise(parts, [*"abcdefabcde", ""]) == by_clip
    # Speakers of clips without a value do not count: four are left.
    parts[4::5] = NAN
    assert Ratio().summarise(parts, list("abcdeabcdeab")).method == "bootstrap 95%"


def test_exact_intervals_count_clips() -> None:
    parts = np.array([[1.0, 1.0]] * 10)
    assert Rate().summarise(parts, list("abcdefghij")) == Rate().summarise(parts)
