"""Agreement with listeners: against scipy and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sottovoce.data.mushra_ratings import MushraRatings, RatedItem
from sottovoce.studies.manocha2020.agreement import (
    agreement,
    clear_pairs,
    heard_shares,
    pearson,
    ratings_table,
    spearman,
    spearman_difference,
)

ROW = st.lists(st.integers(-50, 50), min_size=6, max_size=6)


@given(ROW, ROW)
def test_correlations_are_scipys(values: list[int], ratings: list[int]) -> None:
    x, y = np.array([values], dtype=float), np.array([ratings], dtype=float)
    if len(set(values)) == 1 or len(set(ratings)) == 1:
        assert np.isnan(pearson(x, y)).all() and np.isnan(spearman(x, y)).all()
        return
    assert pearson(x, y)[0] == pytest.approx(stats.pearsonr(values, ratings).statistic, abs=1e-9)
    assert spearman(x, y)[0] == pytest.approx(stats.spearmanr(values, ratings).statistic, abs=1e-9)


def test_infinite_and_missing_values() -> None:
    # An infinite value ranks above all, so 1 2 inf orders like 1 2 3; a plain correlation has none.
    values, ratings = np.array([[1.0, 2.0, np.inf]]), np.array([[10.0, 20.0, 90.0]])
    assert spearman(values, ratings)[0] == pytest.approx(1.0)
    assert np.isnan(pearson(values, ratings)[0])
    values, ratings = np.array([[1.0, np.nan, 3.0, 2.0]]), np.array([[1.0, np.nan, 2.0, 3.0]])
    assert spearman(values, ratings)[0] == pytest.approx(0.5)


def test_agreement_by_hand() -> None:
    # Means over two items: 1 2 3 beside 10 30 20: Spearman 0.5. Pairs, item one: (0, 1) right, (0, 2) right,
    # (1, 2) wrong. Item two, whose values are 1 1 3: a tie (half), right, wrong.
    values = np.array([[1.0, 3.0, 3.5], [1.0, 1.0, 3.0]])
    ratings = np.array([[10.0, 30.0, 20.0], [10.0, 30.0, 20.0]])
    clear = np.zeros((2, 3, 3), dtype=bool)
    clear[:, 0, 1] = True
    found = agreement(values, ratings, clear)
    assert found.spearman_conditions.value == pytest.approx(0.5)
    assert found.spearman_conditions.n == 3
    assert (found.pairs.value, found.pairs.n) == (0.75, 2)
    assert (found.unclear.value, found.unclear.n) == (0.5, 4)
    pooled = stats.spearmanr(values.ravel(), ratings.ravel()).statistic
    assert found.spearman_clips.value == pytest.approx(pooled)
    assert found.pearson_clips.value == pytest.approx(
        stats.pearsonr(values.ravel(), ratings.ravel()).statistic
    )
    assert found.pairs.low == 0.5 and found.pairs.high == 1.0


def test_two_untouched_clips_are_a_tie() -> None:
    values, ratings = np.array([[np.inf, np.inf]]), np.array([[90.0, 80.0]])
    found = agreement(values, ratings, np.array([[[False, True], [False, False]]]))
    assert (found.pairs.value, found.pairs.n) == (0.5, 1)


def test_items_without_a_value_are_left_out() -> None:
    values = np.array([[1.0, 2.0, 3.0], [np.nan, np.nan, np.nan]])
    ratings = np.array([[1.0, 2.0, 3.0], [30.0, 20.0, 10.0]])
    found = agreement(values, ratings, np.ones((2, 3, 3), dtype=bool))
    assert found.spearman_conditions.value == pytest.approx(1.0)
    assert (found.pairs.value, found.pairs.n, found.spearman_clips.n) == (1.0, 3, 3)


def test_difference_of_two_measures_is_paired() -> None:
    ratings = np.array([[1.0, 2.0, 3.0]] * 4)
    found = spearman_difference(ratings, -ratings, ratings)
    assert found[:3] == pytest.approx((2.0, 2.0, 2.0))


def listened(ratings: dict[str, list[float]]) -> MushraRatings:
    people = tuple("abcdefgh"[: len(next(iter(ratings.values())))])
    rows = [RatedItem("one", name, tuple(values), people, Path("x")) for name, values in ratings.items()]
    return MushraRatings(Path("."), tuple(rows), 24000)


def test_clear_pairs_are_those_of_a_paired_t_test() -> None:
    generator = np.random.default_rng(2)
    ratings = {name: (50 + offset + 10 * generator.standard_normal(8)).clip(0, 100).tolist()
               for name, offset in {"a": 0, "b": 5, "c": 12, "d": 14, "Reference": 45}.items()}  # fmt: skip
    names = list(ratings)
    found = clear_pairs(listened(ratings), names)[0]
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            wanted = j > i and stats.ttest_rel(ratings[one], ratings[other]).pvalue < 0.05
            assert found[i, j] == wanted
    assert 0 < found.sum() < 10


def test_clear_pairs_without_spread_or_with_one_listener() -> None:
    test = listened({"a": [50.0, 60.0], "b": [40.0, 50.0], "c": [50.0, 60.0], "Reference": [100.0, 100.0]})
    found = clear_pairs(test, ["a", "b", "c"])[0]
    assert found.tolist() == [[False, True, False], [False, False, True], [False, False, False]]
    lone = listened({"a": [50.0], "b": [10.0], "Reference": [100.0]})
    assert not clear_pairs(lone, ["a", "b"]).any()


def test_who_heard_a_difference() -> None:
    # Against own references of 100, 80 and 95: 100 is not heard; 85 is below 90; 92 is below 95.
    test = listened({"a": [100.0, 85.0, 92.0], "Reference": [100.0, 80.0, 95.0]})
    assert heard_shares(test, ["a", "Reference", "other"])[0, :2].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert np.isnan(heard_shares(test, ["other"])).all()
    np.testing.assert_allclose(ratings_table(test, ["a", "Reference"]), [[277 / 3, 275 / 3]])
