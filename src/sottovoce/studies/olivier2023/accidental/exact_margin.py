"""From which margin on a network classifies RXOR without a mistake.

The points of margin eps have coordinates between eps and 1 in size; their class is whether the signs differ,
and a network says so where its output is above zero. Without biases a ReLU network is positively homogeneous:
its sign depends on the angle alone, so on the ratio t of the smaller coordinate to the larger, in each of
eight half-quadrants. Along t it is piecewise linear, and every kink has a closed form. The margin is the
largest t at which the sign is wrong: the network is right on all points of a larger margin, and is wrong on
some of every smaller one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sottovoce.studies.olivier2023.accidental.network_batch import Networks

SLACK = 1e-12
"""Relative rounding of an output that is zero by its structure, such as at a kink beside dead units."""
AT_ONCE = 250
GRID_STEP, GRID_FROM = 0.0125, 0.05
SIGNS = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))


def exact_margins(networks: Networks) -> Tensor:
    """`(networks,)` in float64, of a homogeneous design."""
    if not networks.design.homogeneous:
        raise ValueError(f"expected ReLU networks without biases and normalisation, got {networks.design}")
    found = [_exact(some) for some in networks.chunks(AT_ONCE)]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.float64)


def _exact(networks: Networks) -> Tensor:
    weights = [layer.weight.detach().double() for layer in networks.layers()]
    starts, along, differ = _half_quadrants()
    count = len(networks)
    left = torch.zeros(count, 8, 1, dtype=torch.float64)
    right = torch.ones_like(left)
    # The hidden units on each piece of [0, 1]: constant + slope * t, (networks, 8, pieces, units).
    constant = starts.expand(count, 8, 2)[:, :, None]
    slope = along.expand(count, 8, 2)[:, :, None]
    first: tuple[Tensor, Tensor] | None = None
    for place, weight in enumerate(weights[:-1]):
        constant, slope = _weighed(weight, constant), _weighed(weight, slope)
        left, right, pieces = _cut(left, right, -constant / slope)
        constant, slope = _spread(constant, pieces), _spread(slope, pieces)
        active = constant + slope * ((left + right) / 2)[..., None] > 0
        constant, slope = constant * active, slope * active
        if first is not None:
            first = _spread(first[0], pieces), _spread(first[1], pieces)
            if networks.design.skip and place == 1:
                constant, slope = constant + first[0], slope + first[1]
        elif place == 0:
            first = constant, slope
    constant, slope = (_weighed(weights[-1], one)[..., 0] for one in (constant, slope))
    slack = SLACK * _largest(weights, networks.design.skip)[:, None, None]
    ends = _last_mistakes(constant + slope * left, constant + slope * right, left, right, differ, slack)
    return ends.flatten(1).amax(dim=1)


def _half_quadrants() -> tuple[Tensor, Tensor, Tensor]:
    """Points `start + t * along` of the square around 0, `(8, 2)` each, and whether their signs differ."""
    starts, along, differ = [], [], []
    for first, second in SIGNS:
        starts += [(first, 0.0), (0.0, second)]
        along += [(0.0, second), (first, 0.0)]
        differ += [first != second] * 2
    return torch.tensor(starts).double(), torch.tensor(along).double(), torch.tensor(differ)


def _weighed(weight: Tensor, units: Tensor) -> Tensor:
    return torch.einsum("noi,nkpi->nkpo", weight, units)


def _cut(left: Tensor, right: Tensor, kinks: Tensor) -> tuple[Tensor, Tensor, int]:
    """Cut each piece at the kinks `(networks, 8, pieces, units)` inside it; pieces may have no length."""
    inside = (kinks > left[..., None]) & (kinks < right[..., None])
    kinks = torch.where(inside, kinks, left[..., None]).sort(dim=-1).values
    lefts = torch.cat([left[..., None], kinks], dim=-1)
    rights = torch.cat([kinks, right[..., None]], dim=-1)
    return lefts.flatten(2), rights.flatten(2), lefts.shape[-1]


def _spread(units: Tensor, pieces: int) -> Tensor:
    """The same units on each of the pieces that theirs was cut into."""
    return units.repeat_interleave(pieces, dim=2)


def _largest(weights: list[Tensor], skip: bool) -> Tensor:
    """A bound of every sum inside a network on the square, `(networks,)`."""
    units = torch.ones(len(weights[0]), 2, 1, dtype=torch.float64)
    for weight in weights:
        units = weight.abs() @ units + (units.sum(dim=1, keepdim=True) if skip else 0.0)
    return units[:, 0, 0]


def _last_mistakes(
    at_left: Tensor, at_right: Tensor, left: Tensor, right: Tensor, differ: Tensor, slack: Tensor
) -> Tensor:
    """The largest t of each piece at which the sign is wrong; 0 where it is nowhere."""
    wrong_left, wrong_right = (
        torch.where(differ[:, None], one <= slack, one > slack) for one in (at_left, at_right)
    )
    share = (at_left / (at_left - at_right)).clamp(0.0, 1.0).nan_to_num(0.0)
    crossing = left + (right - left) * share
    found = torch.where(wrong_right, right, torch.where(wrong_left, crossing, 0.0))
    return torch.where(right - left > SLACK, found, 0.0)


def grid_margins(networks: Networks, at_once: int = 50) -> Tensor:
    """The same for any network, on a grid of the square: the largest margin of a point that it gets wrong.

    The grid has every margin of the thesis, and none below .05: such a margin is 0 here. Between its points
    nothing is known, so a margin may be larger.
    """
    points, differ, margins = _grid()
    found = []
    for some in networks.chunks(at_once):
        with torch.no_grad():
            says = some.scores(points.expand(len(some), -1, -1))[..., 0] > 0
        found.append(torch.where(says != differ, margins, 0.0).amax(dim=1))
    return torch.cat(found).double() if found else torch.empty(0, dtype=torch.float64)


def _grid() -> tuple[Tensor, Tensor, Tensor]:
    places = torch.linspace(GRID_FROM, 1.0, round((1.0 - GRID_FROM) / GRID_STEP) + 1)
    both = torch.cat([-places.flip(0), places])
    points = torch.cartesian_prod(both, both)
    return points, (points[:, 0] > 0) != (points[:, 1] > 0), points.abs().amin(dim=1)
