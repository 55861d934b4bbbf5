"""Exact tests: multinomial, two rows of counts (Freeman-Halton), signed ranks with ties; and Holm's rule.

The first two sum the chances of all outcomes that are no likelier than the observed one. Where there are too
many to look at, outcomes are drawn, and the standard error of the p-value is given with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from sottovoce.errors import InputError

OUTCOMES = 30_000_000
"""As many are looked at, which takes a few seconds."""
DRAWN = 1_000_000
TIE = 1e-7
"""Chances that differ by less than this share are taken for equal: they are sums of rounded logarithms."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class Tested(NamedTuple):
    """A p-value. error: its standard error, 0 where it is exact. outcomes: how many were looked at."""

    p: float
    error: float
    outcomes: int
    method: Literal["exact", "Monte Carlo"]

    def __str__(self) -> str:
        how = "exact" if self.method == "exact" else f"Monte Carlo, standard error {self.error:.2g}"
        return f"{show_p(self.p)} ({how})"


class SignedRanks(NamedTuple):
    """Wilcoxon's test. statistic: the sum of ranks of positive differences. n: differences other than 0."""

    statistic: float
    p: float
    n: int


def multinomial_test(
    observed: Sequence[int], shares: Sequence[float], *, outcomes: int = OUTCOMES, seed: int = 0
) -> Tested:
    """Whether counts come from a distribution with these shares, by the exact multinomial test.

    shares: relative ones; they need not add up to 1. A count where the share is 0 has p = 0.
    """
    counts, chances = _check_counts(observed), np.asarray(shares, dtype=np.float64)
    if chances.shape != counts.shape or not (chances >= 0).all() or not chances.sum() > 0:
        raise InputError(
            f"expected {len(counts)} shares of 0 or more, not all 0, got {list(shares)}; give one per count."
        )
    chances = chances / chances.sum()
    total = int(counts.sum())
    if total == 0:
        return Tested(np.nan, 0.0, 0, "exact")
    if (counts[chances == 0] > 0).any():
        return Tested(0.0, 0.0, 0, "exact")
    kept = chances > 0
    counts, chances = counts[kept], chances[kept]
    upto = np.arange(total + 1)
    weights = [upto * np.log(chance) - gammaln(upto + 1) for chance in chances]

    def draw(source: np.random.Generator, size: int) -> Counts:
        return source.multinomial(total, chances, size=size)

    return _tail(counts, weights, float(gammaln(total + 1)), draw, outcomes, seed)


def two_row_test(
    first: Sequence[int], second: Sequence[int], *, outcomes: int = OUTCOMES, seed: int = 0
) -> Tested:
    """Whether two rows of counts come from one distribution (Freeman and Halton 1951): Fisher's exact test
    for more than two columns. Unlike the multinomial test it takes neither row for the truth."""
    counts, others = _check_counts(first), _check_counts(second)
    if counts.shape != others.shape:
        raise InputError(f"expected two rows of the same length, got {len(counts)} and {len(others)}.")
    columns = counts + others
    counts, columns = counts[columns > 0], columns[columns > 0]
    size, total = int(counts.sum()), int(columns.sum())
    if size in (0, total):
        return Tested(np.nan, 0.0, 0, "exact")
    weights = [_log_choose(column, np.arange(min(column, size) + 1)) for column in columns]

    def draw(source: np.random.Generator, rows: int) -> Counts:
        return source.multivariate_hypergeometric(columns, size, size=rows, method="marginals")

    return _tail(counts, weights, -float(_log_choose(total, np.array([size]))[0]), draw, outcomes, seed)


def signed_rank_test(differences: ArrayLike) -> SignedRanks:
    """Wilcoxon's signed-rank test, two-sided and exact, ties and all; differences of 0 are dropped.

    The distribution is that of the ranks at hand, each with either sign: with ties it is no table's.
    """
    gaps = np.asarray(differences, dtype=np.float64)
    gaps = gaps[gaps != 0]
    if not len(gaps):
        return SignedRanks(0.0, np.nan, 0)
    # Midranks are whole numbers of halves, so that sums of their doubles can be counted.
    doubled = np.rint(2 * scipy.stats.rankdata(np.abs(gaps))).astype(np.int64)
    ways = np.zeros(int(doubled.sum()) + 1)
    ways[0] = 1.0
    for rank in doubled.tolist():
        ways[rank:] = (ways[rank:] + ways[: len(ways) - rank].copy()) / 2
        ways[:rank] /= 2
    reached = int(doubled[gaps > 0].sum())
    p = min(1.0, 2 * min(float(ways[: reached + 1].sum()), float(ways[reached:].sum())))
    return SignedRanks(reached / 2, p, len(gaps))


def holm(p_values: ArrayLike) -> Floats:
    """p-values corrected for their number by Holm's step-down rule; NaN stays and does not count."""
    found = np.array(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(found))
    order = known[np.argsort(found[known], kind="stable")]
    steps = found[order] * np.arange(len(order), 0, -1)
    found[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return found


def show_p(p: float) -> str:
    """A p-value as it is printed: never as 0 unless it is."""
    if np.isnan(p):
        return "–"
    if p == 0:
        return "0"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def _tail(
    observed: Counts,
    weights: Sequence[Floats],
    constant: float,
    draw: Callable[[np.random.Generator, int], Counts],
    outcomes: int,
    seed: int,
) -> Tested:
    """The chance of outcomes that are no likelier than the observed one.

    weights: of each cell, the logarithm that a count adds to that of an outcome's chance. All outcomes have
    the same sum.
    """
    total = int(observed.sum())
    bound = _scores(observed[None], weights)[0] + TIE
    many = _count(weights, total)
    if many <= outcomes:
        p = sum(float(np.exp(scores[scores <= bound] + constant).sum()) for scores in _all(weights, total))
        return Tested(min(1.0, p), 0.0, many, "exact")
    drawn, hits, block = 0, 0, 100_000
    source = np.random.default_rng(seed)
    while drawn < DRAWN:
        hits += int((_scores(draw(source, block), weights) <= bound).sum())
        drawn += block
    # The observed outcome counts among the drawn ones: so the p-value is valid, and never 0.
    p = (hits + 1) / (drawn + 1)
    return Tested(p, float(np.sqrt(p * (1 - p) / drawn)), drawn, "Monte Carlo")


def _scores(counts: Counts, weights: Sequence[Floats]) -> Floats:
    """Of outcomes `(rows, cells)`: sums of weights, `(rows,)`."""
    found: Floats = np.sum([weight[counts[:, cell]] for cell, weight in enumerate(weights)], axis=0)
    return found


def _count(weights: Sequence[Floats], total: int) -> int:
    """How many outcomes there are; whole numbers of Python, as there may be very many."""
    ways = [1] + [0] * total
    for weight in weights:
        sums = np.cumsum(np.array([0, *ways], dtype=object))
        ways = [sums[place + 1] - sums[max(0, place + 1 - len(weight))] for place in range(total + 1)]
    return int(ways[total])


def _all(weights: Sequence[Floats], total: int) -> list[Floats] | map[Floats]:
    """Sums of weights of every outcome, a block for each count of the first cell: memory stays small."""
    if len(weights) == 1:
        return [weights[0][total : total + 1]]
    return map(lambda first: _below(weights, total, first), range(min(total, len(weights[0]) - 1) + 1))


def _below(weights: Sequence[Floats], total: int, first: int) -> Floats:
    """Sums of weights of the outcomes with `first` in the first cell, cell by cell."""
    left, scores = np.array([total - first]), weights[0][first : first + 1]
    for weight in weights[1:-1]:
        sizes = np.minimum(left, len(weight) - 1) + 1
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        count = np.arange(len(starts)) - starts
        left = np.repeat(left, sizes) - count
        scores = np.repeat(scores, sizes) + weight[count]
    fits = left < len(weights[-1])
    found: Floats = scores[fits] + weights[-1][left[fits]]
    return found


def _log_choose(n: int, k: NDArray[np.int64]) -> Floats:
    found: Floats = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return found


def _check_counts(counts: Sequence[int]) -> Counts:
    found = np.asarray(counts)
    if found.ndim != 1 or not len(found) or (found < 0).any() or (found != np.rint(found)).any():
        raise InputError(f"expected counts, whole numbers of 0 or more, got {counts!r}.")
    return found.astype(np.int64)
