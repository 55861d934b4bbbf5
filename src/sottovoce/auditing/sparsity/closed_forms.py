"""What sparsity is where it can be worked out: finite random sets of perturbations, and linear models.

Olivier (2023), section 4.2.3 and appendix B.1, with equations 4.9 and B.8 corrected: the share of the sphere
that a cap of at most a right angle takes has a factor of 1/2 (Li 2011). Without it the share jumps from 1 to
0 at pi/2.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import integrate, special
from torch import Tensor

from sottovoce.core.sphere import angle

Floats = NDArray[np.float64]


def cap_share(alpha: float, dimensions: int) -> float:
    """The share of a sphere in so many dimensions that a cap of that angle takes (B.8, corrected)."""
    half = 0.5 * special.betainc((dimensions - 1) / 2, 0.5, math.sin(alpha) ** 2)
    return float(half if alpha <= math.pi / 2 else 1.0 - half)


def angle_of_random_set(dimensions: int, count: int) -> float:
    """The expected angle from a direction to the nearest of some uniform perturbations (4.9, corrected)."""

    def beyond(alpha: float) -> float:
        return (1.0 - cap_share(alpha, dimensions)) ** count

    return float(integrate.quad(beyond, 0.0, math.pi, points=[math.pi / 2], limit=200)[0])


def coordinates_of_random_set(dimensions: int, count: int) -> float:
    """The expected number of free coordinates until one of so many uniform vertices is met (4.10)."""
    return sum((1.0 - 2.0**-m) ** count for m in range(dimensions + 1))


def coordinate_bounds(dimensions: int, count: int) -> tuple[float, float]:
    """What `coordinates_of_random_set` lies between (4.11), for counts up to 2 ** dimensions."""
    free = dimensions - math.log2(count)
    return free / 4, free + math.e / (math.e - 1)


def linear_angle(weights: Tensor, u: Tensor, distance: float, eps: float) -> float:
    """The angle from u, `(n,)`, to the nearest perturbation of length eps that crosses a plane.

    The model says another class where weights . delta >= distance * ||weights||. inf: none does.
    """
    if distance > eps:
        return math.inf
    return max(0.0, float(angle(u[None], weights[None])) - math.acos(max(-1.0, distance / eps)))


def linear_coordinates(weights: Tensor, u: Tensor, order: Tensor, margin: float, eps: float) -> int | None:
    """The fewest first coordinates of an order that must be free for weights . delta >= margin, where the
    others stay at eps * u; None where all are too few. u: signs, `(n,)`; order: `(n,)` int64."""
    sizes, fixed = weights.abs()[order].double(), (weights * u)[order].double()
    zero = torch.zeros(1, dtype=torch.float64)
    reach = torch.cat([zero, sizes.cumsum(0)]) + fixed.sum() - torch.cat([zero, fixed.cumsum(0)])
    enough = (eps * reach >= margin).nonzero()
    return int(enough[0, 0]) if len(enough) else None


def expected_linear_angle(dimensions: int, distance: float, eps: float) -> float:
    """The mean of `linear_angle` over directions: arcsin(distance / eps) in many dimensions."""
    beta = math.acos(distance / eps)

    def density(t: Floats | float) -> Floats | float:
        # Over its peak at pi/2, so that large powers do not vanish.
        return np.sin(t) ** (dimensions - 2)

    near = 12.0 / math.sqrt(dimensions)
    low, high = max(0.0, math.pi / 2 - near), min(math.pi, math.pi / 2 + near)
    whole = integrate.quad(density, low, high)[0]
    return float(integrate.quad(lambda t: max(0.0, t - beta) * density(t), low, high)[0] / whole)
