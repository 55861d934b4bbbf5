"""Sparsity where it is known: finite random sets, linear models in both norms, and the search on them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.auditing.sparsity.closed_forms import (
    angle_of_random_set,
    cap_share,
    coordinate_bounds,
    coordinates_of_random_set,
    expected_linear_angle,
    linear_angle,
    linear_coordinates,
)
from sottovoce.auditing.sparsity.search import Landscape, Look, attack, find_nearest
from sottovoce.core.sphere import Caps, FreeCoordinates

HAND = torch.tensor([3.0, 1.0, 2.0])
ONES = torch.ones(3)


def test_the_share_of_a_cap() -> None:
    # On the usual sphere a cap takes (1 - cos alpha) / 2 of it (Archimedes).
    for alpha in (0.0, 0.3, math.pi / 3, math.pi / 2, 2.0, math.pi):
        assert cap_share(alpha, 3) == pytest.approx((1 - math.cos(alpha)) / 2)
    assert cap_share(math.pi / 2, 100) == pytest.approx(0.5)


def test_the_angle_to_a_random_set() -> None:
    # ((1 + cos a) / 2)^k from 0 to pi: by hand pi / 2 for k = 1, 3 pi / 8 for k = 2.
    assert angle_of_random_set(3, 1) == pytest.approx(math.pi / 2)
    assert angle_of_random_set(3, 2) == pytest.approx(1.178097, abs=1e-6)
    assert angle_of_random_set(3, 2) == pytest.approx(3 * math.pi / 8)
    # k = 1 says nothing of the formula: by symmetry it is pi / 2 in any dimension.
    assert angle_of_random_set(50, 1) == pytest.approx(math.pi / 2)


@pytest.mark.parametrize(
    ("dimensions", "count", "found", "error"),
    [(3, 10, 0.5539, 0.002), (20, 5, 1.3033, 0.002), (100, 50, 1.3454, 0.0003)],
)
def test_the_angle_to_a_random_set_by_monte_carlo(
    dimensions: int, count: int, found: float, error: float
) -> None:
    """Means of 20,000 draws made elsewhere; the formula as printed says 0.4781, 1.2617 and 1.3219."""
    assert angle_of_random_set(dimensions, count) == pytest.approx(found, abs=2 * error)


def test_the_angle_to_a_random_set_drawn_here() -> None:
    source = np.random.default_rng(7)
    points = source.standard_normal((20_000, 2, 3))
    cosines = points[..., 0] / np.linalg.norm(points, axis=2)
    drawn = np.arccos(cosines).min(axis=1)
    assert angle_of_random_set(3, 2) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / math.sqrt(20_000))


def test_free_coordinates_of_a_random_set() -> None:
    # By hand: sum of 1 - 2^-m for m = 0..8 is 9 - (2 - 2^-8) = 7.00390625.
    assert coordinates_of_random_set(8, 1) == pytest.approx(7.00390625)
    assert coordinates_of_random_set(8, 4) == pytest.approx(5.511, abs=5e-4)
    assert coordinates_of_random_set(10, 100) == pytest.approx(3.112, abs=5e-4)
    # Two vertices in one dimension: 0 or 1 free, 1 with probability 1/4.
    assert coordinates_of_random_set(1, 2) == pytest.approx(0.25)


@pytest.mark.parametrize(("dimensions", "count"), [(8, 1), (8, 4), (10, 100), (10, 1024)])
def test_the_bounds_hold(dimensions: int, count: int) -> None:
    low, high = coordinate_bounds(dimensions, count)
    assert low <= coordinates_of_random_set(dimensions, count) <= high


def test_the_bounds_by_hand() -> None:
    assert coordinate_bounds(8, 4) == pytest.approx((1.5, 6 + math.e / (math.e - 1)))


def test_linear_models_by_hand() -> None:
    identity, other = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
    # u already has the signs of w, so all three give 6: as u gives it, nothing need be free.
    assert linear_coordinates(HAND, ONES, identity, 6.0, 1.0) == 0
    # Against u: none free -6, then -6 + 2 * 3 = 0, then 2.
    assert linear_coordinates(-HAND, ONES, identity, 2.0, 1.0) == 2
    # By way of 1 and 2: -6, -4, 0, and with all free 6.
    assert linear_coordinates(-HAND, ONES, other, 2.0, 1.0) == 3
    assert linear_coordinates(-HAND, ONES, identity, 7.0, 1.0) is None
    # A plane at 0.5 of a sphere of radius 1, whose normal is a right angle away: pi / 2 - arccos(0.5).
    assert linear_angle(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]), 0.5, 1.0) == pytest.approx(
        math.pi / 6
    )
    assert linear_angle(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0]), 0.5, 1.0) == 0.0
    assert linear_angle(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0]), 1.5, 1.0) == math.inf


def test_the_expected_angle_of_a_linear_model() -> None:
    assert expected_linear_angle(3072, 0.6, 1.0) == pytest.approx(math.asin(0.6), abs=1e-4)
    # On the usual sphere: int_b^pi (t - b) sin t dt / 2 = ((pi - b) - sin b) / 2, with b = pi / 3.
    assert expected_linear_angle(3, 0.5, 1.0) == pytest.approx(
        (math.pi - math.pi / 3 - math.sin(math.pi / 3)) / 2
    )


class Plane(Landscape):
    """Fools where w . delta >= margin."""

    def __init__(self, weights: Tensor, margin: float) -> None:
        self.weights, self.margin, self.passes = weights, margin, 0

    def look(self, delta: Tensor, turn: str) -> Look:
        self.passes += 1
        value = delta @ self.weights - self.margin
        return Look(value, self.weights.expand_as(delta), value >= -1e-9)


def drawn(seed: int, rows: int, size: int) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(rows, size, generator=source, dtype=torch.float64)


@pytest.mark.parametrize("share", [0.1, 0.6, 0.95])
def test_the_search_finds_what_a_linear_model_has(share: float) -> None:
    weights, normal = drawn(1, 1, 600)[0], drawn(2, 8, 600)
    sets = Caps(normal / normal.norm(dim=1, keepdim=True), torch.full((8,), 2.0))
    plane = Plane(weights, share * 2.0 * float(weights.norm()))
    start = attack(plane, sets, 40)
    assert bool(start.fools.all())
    found = find_nearest(plane, sets, 40, start)
    assert plane.passes == 80
    exact = [linear_angle(weights, u, share * 2.0, 2.0) for u in sets.u]
    assert found.size.tolist() == pytest.approx(exact, abs=0.004)
    assert bool((found.size >= torch.tensor(exact) - 1e-6).all())  # nobody finds what is not there
    assert found.delta.norm(dim=1).tolist() == pytest.approx([2.0] * 8)
    assert found.size.mean() == pytest.approx(math.asin(share), abs=3 / math.sqrt(600))


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_the_search_finds_the_free_coordinates_of_a_linear_model(share: float) -> None:
    weights = drawn(3, 1, 600)[0]
    u = drawn(4, 6, 600).sign()
    source = torch.Generator().manual_seed(5)
    ranks = torch.stack([torch.randperm(600, generator=source) for _ in range(6)])
    sets = FreeCoordinates(u, torch.full((6,), 0.5), ranks)
    margin = share * 0.5 * float(weights.abs().sum())
    plane = Plane(weights, margin)
    found = find_nearest(plane, sets, 40, attack(plane, sets, 40))
    for row in range(6):
        exact = linear_coordinates(weights, u[row], ranks[row].argsort(), margin, 0.5)
        assert exact is not None
        assert exact <= found.size[row] <= exact + 12  # within 2 % of the coordinates
    assert found.size.mean() / 600 == pytest.approx(share, abs=0.1)


def test_a_larger_radius_is_never_sparser() -> None:
    weights, normal = drawn(6, 1, 200)[0], drawn(7, 4, 200)
    u = normal / normal.norm(dim=1, keepdim=True)
    sizes = []
    for eps in (1.0, 1.5, 3.0, 10.0):
        sets, plane = Caps(u, torch.full((4,), eps)), Plane(weights, 0.9 * float(weights.norm()))
        sizes.append(find_nearest(plane, sets, 40, attack(plane, sets, 40)).size)
    assert all(bool((later < sooner).all()) for sooner, later in pairwise(sizes))


def test_scale_changes_nothing() -> None:
    weights, normal = drawn(8, 1, 200)[0], drawn(9, 4, 200)
    u = normal / normal.norm(dim=1, keepdim=True)
    found = []
    for scale in (1.0, 8.0):
        sets, plane = Caps(u, torch.full((4,), scale)), Plane(weights, scale * 0.5 * float(weights.norm()))
        found.append(find_nearest(plane, sets, 40, attack(plane, sets, 40)).size)
    assert found[0].tolist() == pytest.approx(found[1].tolist(), abs=1e-9)


def test_a_direction_that_fools_by_itself_is_at_zero() -> None:
    weights = torch.tensor([0.0, 1.0], dtype=torch.float64)
    u = torch.tensor([[0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    sets, plane = Caps(u, torch.ones(2)), Plane(weights, 0.5)
    found = find_nearest(plane, sets, 40, attack(plane, sets, 40))
    assert found.at_once.tolist() == [True, False]
    assert found.size.tolist()[0] == 0.0
    # From straight below, to the plane at half the radius: pi - arccos(0.5).
    assert found.size.tolist()[1] == pytest.approx(2 * math.pi / 3, abs=0.006)


def test_where_nothing_fools_there_is_no_size() -> None:
    weights = drawn(10, 1, 50)[0]
    sets, plane = Caps(torch.eye(50)[:3].double(), torch.ones(3)), Plane(weights, 2 * float(weights.norm()))
    start = attack(plane, sets, 40)
    found = find_nearest(plane, sets, 40, start)
    assert not start.fools.any()
    assert found.size.tolist() == [math.inf] * 3
    assert not found.fools.any()
