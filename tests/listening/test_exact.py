"""Exact tests against tables, R's printed results, scipy and enumeration by hand."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sottovoce.errors import InputError
from sottovoce.listening.analysis.exact_tests import (
    holm,
    multinomial_test,
    show_p,
    signed_rank_test,
    two_row_test,
)


def test_multinomial_by_hand() -> None:
    # Two of one kind, none of the two others, thirds each. Outcomes of 2 in 3 cells: three of chance 1/9 (two
    # alike), three of 2/9. No likelier than the observed one: the three alike, 1/3 together.
    found = multinomial_test([2, 0, 0], [1, 1, 1])
    assert found.p == pytest.approx(1 / 3)
    assert (found.method, found.error, found.outcomes) == ("exact", 0.0, 6)


@pytest.mark.parametrize(
    ("observed", "shares", "printed"),
    [
        # R: XNomial 1.0.4, xmulti(c(17, 8, 35), rep(1/3, 3), statName = "Prob").
        ([17, 8, 35], [1, 1, 1], 8.756e-05),
        # R: EMT, multinomial.test(c(5, 2, 1), c(0.25, 0.5, 0.25)).
        ([5, 2, 1], [0.25, 0.5, 0.25], 0.0767),
    ],
)
def test_multinomial_as_printed_by_r(observed: list[int], shares: list[float], printed: float) -> None:
    assert multinomial_test(observed, shares).p == pytest.approx(printed, abs=5e-5, rel=1e-4)


def test_mendels_peas() -> None:
    # XNomial's example: 556 peas against 9:3:3:1, P value (Prob) = 0.9382, 28,838,810 outcomes.
    found = multinomial_test([315, 108, 101, 32], [9, 3, 3, 1])
    assert found.p == pytest.approx(0.9382, abs=5e-5)
    assert (found.method, found.outcomes) == ("exact", comb(559, 3))


def test_multinomial_of_two_cells_is_the_binomial_test() -> None:
    for hits in range(13):
        expected = stats.binomtest(hits, 12, 0.3).pvalue
        assert multinomial_test([hits, 12 - hits], [0.3, 0.7]).p == pytest.approx(expected)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=4).filter(any),
    st.lists(st.floats(0.05, 1.0), min_size=4, max_size=4),
)
def test_multinomial_by_enumeration(observed: list[int], shares: list[float]) -> None:
    n, chances = sum(observed), np.array(shares[: len(observed)]) / sum(shares[: len(observed)])
    every = [cells for cells in product(range(n + 1), repeat=len(observed)) if sum(cells) == n]
    masses = stats.multinomial.pmf(every, n, chances)
    mine = stats.multinomial.pmf(observed, n, chances)
    expected = masses[masses <= mine * (1 + 1e-7)].sum()
    assert multinomial_test(observed, chances.tolist()).p == pytest.approx(expected, rel=1e-6)


def test_monte_carlo_agrees_with_the_exact_value_within_its_error() -> None:
    exact = multinomial_test([17, 8, 20], [1, 1, 1])
    drawn = multinomial_test([17, 8, 20], [1, 1, 1], outcomes=10)
    assert (exact.method, drawn.method) == ("exact", "Monte Carlo")
    assert drawn.outcomes == 1_000_000
    assert drawn.error == pytest.approx((exact.p * (1 - exact.p) / 1e6) ** 0.5, rel=0.05)
    assert abs(drawn.p - exact.p) < 4 * drawn.error
    assert multinomial_test([17, 8, 20], [1, 1, 1], outcomes=10) == drawn
    assert "Monte Carlo, standard error" in str(drawn)


def test_monte_carlo_is_never_zero() -> None:
    assert multinomial_test([900, 10, 10], [1, 1, 1], outcomes=10).p == pytest.approx(1 / 1_000_001)


def test_a_count_where_nothing_can_be() -> None:
    assert multinomial_test([3, 1], [1, 0]).p == 0.0
    assert multinomial_test([3, 0], [1, 0]).p == 1.0
    assert np.isnan(multinomial_test([0, 0], [1, 1]).p)


def test_two_rows_of_two_are_fishers_test() -> None:
    # The lady tasting tea: 34/70.
    assert two_row_test([3, 1], [1, 3]).p == pytest.approx(34 / 70)
    for table in ([[8, 2], [1, 5]], [[0, 9], [4, 7]], [[12, 5], [29, 2]]):
        assert two_row_test(*table).p == pytest.approx(stats.fisher_exact(table).pvalue)


def test_two_rows_of_three_by_hand() -> None:
    # Columns 2, 1, 1; two in the first row: C(4, 2) = 6 ways. (2,0,0): 1, (1,1,0) and (1,0,1): 2 each,
    # (0,1,1): 1. No likelier than (2,0,0): itself and (0,1,1).
    assert two_row_test([2, 0, 0], [0, 1, 1]).p == pytest.approx(2 / 6)
    assert two_row_test([1, 1, 0], [1, 0, 1]).p == pytest.approx(1.0)


def test_two_rows_against_scipys_permutations() -> None:
    first, second = [3, 9, 4, 12, 20], [14, 16, 3, 8, 7]
    found = two_row_test(first, second)
    drawn = stats.fisher_exact(
        [first, second], method=stats.MonteCarloMethod(n_resamples=20_000, rng=np.random.default_rng(1))
    ).pvalue
    assert found.method == "exact"
    assert abs(found.p - drawn) < 4 * (drawn * (1 - drawn) / 20_000) ** 0.5
    by_chance = two_row_test(first, second, outcomes=10)
    assert abs(found.p - by_chance.p) < 4 * by_chance.error


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=4))
def test_two_rows_do_not_care_which_is_first(cells: list[tuple[int, int]]) -> None:
    first, second = [list(row) for row in zip(*cells, strict=True)]
    one, other = two_row_test(first, second).p, two_row_test(second, first).p
    assert one == pytest.approx(other, nan_ok=True)
    assert np.isnan(one) or 0 < one <= 1


def test_bad_counts() -> None:
    with pytest.raises(InputError, match="expected counts, whole numbers"):
        multinomial_test([1, -1], [1, 1])
    with pytest.raises(InputError, match="2 shares"):
        multinomial_test([1, 1], [1])
    with pytest.raises(InputError, match="the same length"):
        two_row_test([1, 2], [1, 2, 3])


def test_signed_ranks_of_r() -> None:
    # R's ?wilcox.test, Hollander and Wolfe's depression scores: V = 40, p = 0.01953 one-sided.
    before = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    after = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    found = signed_rank_test(before - after)
    assert found.statistic == 40.0
    assert found.p == pytest.approx(2 * 0.01953, abs=1e-5)


def test_signed_ranks_with_ties_by_hand() -> None:
    # Sizes 1, 1, 2: midranks 1.5, 1.5, 3; all positive: 6. Of 8 signs only that one reaches 6: 2/8.
    assert signed_rank_test([1, 1, 2, 0]) == (6.0, 0.25, 3)
    # -1, 1, 2: 4.5 is reached by two signs, 6 by one: 2 * 3/8.
    assert signed_rank_test([-1, 1, 2]) == (4.5, 0.75, 3)
    assert np.isnan(signed_rank_test([0.0, 0.0]).p)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-6, 6).filter(bool), min_size=2, max_size=9))
def test_signed_ranks_by_all_signs(gaps: list[int]) -> None:
    ranks = stats.rankdata(np.abs(gaps))
    sums = [ranks[np.array(signs)].sum() for signs in product([False, True], repeat=len(gaps))]
    mine = ranks[np.array(gaps) > 0].sum()
    expected = min(1.0, 2 * min(np.mean(np.array(sums) <= mine), np.mean(np.array(sums) >= mine)))
    assert signed_rank_test(gaps).p == pytest.approx(expected)


def test_signed_ranks_without_ties_are_scipys() -> None:
    gaps = np.random.default_rng(0).normal(0.4, 1.0, size=30)
    assert signed_rank_test(gaps).p == pytest.approx(stats.wilcoxon(gaps, method="exact").pvalue)


def test_holm_as_in_r() -> None:
    # R: p.adjust(c(0.01, 0.02, 0.03, 0.04), "holm") is 0.04 0.06 0.06 0.06.
    assert holm([0.01, 0.02, 0.03, 0.04]).tolist() == pytest.approx([0.04, 0.06, 0.06, 0.06])
    # By hand, out of order: 0.005 * 3, then 0.04 * 2, then 0.03... is smaller and waits its turn.
    assert holm([0.04, 0.005, 0.03]).tolist() == pytest.approx([0.06, 0.015, 0.06])
    assert holm([0.7, np.nan, 0.6]).tolist() == pytest.approx([1.0, np.nan, 1.0], nan_ok=True)
    assert holm([]).tolist() == []


def test_p_values_as_printed() -> None:
    assert [show_p(p) for p in (0.3088, 0.0004, 0.0, np.nan, 1.0)] == ["0.309", "4.0e-04", "0", "–", "1.000"]
