"""Caps and free coordinates: laws, and points worked out by hand."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import NormName
from sottovoce.core.draws import Draws
from sottovoce.core.sphere import Caps, FreeCoordinates, angle, draw_sets, project_to_cap
from sottovoce.errors import InputError

RIGHT = math.pi / 2


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 0.0], [0.0, 2.0], RIGHT),
        ([1.0, 0.0], [1.0, 1.0], math.pi / 4),
        ([3.0, 0.0], [-0.5, 0.0], math.pi),
        ([1.0, 0.0], [1.0, 1e-9], 1e-9),
        ([-1.0, 1e-9], [1.0, 0.0], math.pi - 1e-9),
        ([0.0, 0.0], [1.0, 0.0], 0.0),
    ],
)
def test_angles(first: list[float], second: list[float], expected: float) -> None:
    assert float(angle(rows(first), rows(second))) == pytest.approx(expected, abs=1e-15)


def test_a_point_goes_down_its_great_circle() -> None:
    # From (0, 3), a right angle away from (1, 0), to 30 degrees on a circle of radius 2.
    found = project_to_cap(rows([0.0, 3.0]), rows([1.0, 0.0]), one(math.pi / 6), one(2.0))
    assert found[0].tolist() == pytest.approx([math.sqrt(3), 1.0])


def test_a_point_on_the_far_side() -> None:
    # 135 degrees away, delta . u < 0: to 60 degrees on the same side.
    found = project_to_cap(rows([-1.0, -1.0]), rows([1.0, 0.0]), one(math.pi / 3), one(1.0))
    assert found[0].tolist() == pytest.approx([0.5, -math.sqrt(3) / 2])


def test_the_opposite_of_the_direction_has_a_way_too() -> None:
    u = rows([0.6, 0.8, 0.0])
    found = project_to_cap(-u, u, one(1.0), one(3.0))
    assert float(angle(found, u)) == pytest.approx(1.0)
    assert float(found.norm()) == pytest.approx(3.0)
    assert found[0, 2] == 0.0  # where u has nothing, such as in padding, the way has nothing


def test_what_lies_inside_is_only_brought_to_the_sphere() -> None:
    found = project_to_cap(rows([4.0, 3.0]), rows([1.0, 0.0]), one(1.0), one(1.0))
    assert found[0].tolist() == pytest.approx([0.8, 0.6])


def test_nothing_becomes_the_direction() -> None:
    found = project_to_cap(rows([0.0, 0.0]), rows([0.6, 0.8]), one(0.1), one(2.0))
    assert found[0].tolist() == pytest.approx([1.2, 1.6])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(2, 40),
    alpha=st.floats(0.0, math.pi),
    eps=st.floats(1e-4, 10.0),
    single=st.booleans(),
)
def test_every_projection_is_in_the_cap_and_on_the_sphere(
    seed: int, size: int, alpha: float, eps: float, single: bool
) -> None:
    kind = torch.float32 if single else torch.float64
    source = torch.Generator().manual_seed(seed)
    points, u = (torch.randn(5, size, generator=source, dtype=torch.float64) for _ in range(2))
    u = (u / u.norm(dim=1, keepdim=True)).to(kind)
    points[0] = -u[0]
    sets = Caps(u, torch.full((5,), eps))
    wanted = torch.full((5,), alpha, dtype=torch.float64)
    found = sets.project(points.to(kind), wanted)
    slack = 2e-6 if single else 1e-9
    assert bool((sets.size(found) <= wanted + slack).all())
    assert found.double().norm(dim=1).tolist() == pytest.approx([eps] * 5, rel=1e-6)
    inside = sets.size(points) <= alpha - slack
    assert sets.size(found)[inside].tolist() == pytest.approx(sets.size(points)[inside].tolist(), abs=5e-6)
    # Once more changes nothing, and no point of the cap's edge on the same great circle is nearer.
    assert torch.allclose(sets.project(found, wanted), found, atol=1e-5 * eps)


def test_free_coordinates_by_hand() -> None:
    u = torch.tensor([[1.0, -1.0, 1.0, 0.0]])  # the last is padding
    sets = FreeCoordinates(u, torch.tensor([0.5]), torch.tensor([[2, 0, 1, 3]]))
    assert sets.whole.tolist() == [3.0]
    assert sets.centre.tolist() == [[0.5, -0.5, 0.5, 0.0]]
    point = torch.tensor([[-9.0, 0.2, -0.1, 7.0]])
    assert sets.project(point, one(0)).tolist() == [[0.5, -0.5, 0.5, 0.0]]
    two = sets.project(point, one(2))
    assert two[0].tolist() == pytest.approx([0.5, 0.2, -0.1, 0.0])
    assert sets.settle(two).tolist() == [[0.5, 0.5, -0.5, 0.0]]
    assert sets.size(sets.settle(two)).tolist() == [2.0]
    assert sets.settle(sets.project(point, one(3))).tolist() == [[-0.5, 0.5, -0.5, 0.0]]
    # 0 keeps the sign of the direction; then only the first of the order differs.
    flat = torch.tensor([[0.5, 0.2, 0.0, 0.0]])
    assert sets.settle(flat).tolist() == [[0.5, 0.5, 0.5, 0.0]]
    assert sets.size(sets.settle(flat)).tolist() == [1.0]
    assert sets.size(sets.centre).tolist() == [0.0]


def test_directions_belong_to_the_clip() -> None:
    waves = [torch.zeros(size).add(0.1).numpy() for size in (6, 9, 4)]
    whole = AudioBatch.of(waves, 1000, ["a", "b", "c"])
    alone = AudioBatch.of(waves[:1], 1000, ["a"])
    radii = torch.tensor([2.0, 2.0, 2.0])
    for norm in get_args(NormName):
        first, second = (draw_sets(norm, radii[: len(clips)], clips, Draws(3)) for clips in (whole, alone))
        assert torch.equal(first.centre[0, :6], second.centre[0])
        assert not first.centre[~whole.mask].any()
        assert draw_sets(norm, radii[:1], alone, Draws(4)).centre.tolist() != second.centre.tolist()
    vertices = draw_sets("linf", radii, whole, Draws(3))
    assert isinstance(vertices, FreeCoordinates)
    assert set(vertices.centre[whole.mask].tolist()) == {2.0, -2.0}
    assert vertices.whole.tolist() == [6.0, 9.0, 4.0]
    assert sorted(vertices.rank[2].tolist()) == list(range(9))
    assert sorted(vertices.rank[2, :4].tolist()) == [0, 1, 2, 3]
    caps = draw_sets("l2", radii, whole, Draws(3))
    assert caps.centre.norm(dim=1).tolist() == pytest.approx([2.0] * 3)


def test_radii_that_are_none() -> None:
    with pytest.raises(InputError, match="radius above 0"):
        Caps(torch.ones(2, 3), torch.tensor([1.0, 0.0]))
    with pytest.raises(InputError, match="2 samples or more"):
        project_to_cap(rows([-1.0]), rows([1.0]), one(0.1), one(1.0))
