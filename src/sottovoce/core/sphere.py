"""Perturbations of full length, and sets of them that grow around a direction (Olivier 2023, section 4.2.2).

For L2 these are spherical caps, for L-infinity vertices of a cube with some free coordinates.
A perturbation here uses the whole radius: it lies on the sphere, or is a vertex of the cube. Each row of a
batch has a direction u of its own, so these sets are no budgets.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import NormName, unit
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError


class GrowingSets(ABC):
    """Sets of perturbations `(rows, n)`, one of each size a row, from the direction alone to all there are.

    A search walks on points; `settle` makes of a point the perturbation that is tried.
    """

    @property
    @abstractmethod
    def whole(self) -> Tensor:
        """The size at which a set holds every perturbation, `(rows,)` float64."""

    @property
    @abstractmethod
    def centre(self) -> Tensor:
        """The perturbation along each row's own direction, `(rows, n)`: the set of size 0."""

    @abstractmethod
    def size(self, delta: Tensor) -> Tensor:
        """The size of the smallest set that holds a perturbation, `(rows,)` float64."""

    @abstractmethod
    def project(self, point: Tensor, size: Tensor) -> Tensor:
        """The nearest point of the sets of those sizes, `(rows,)`; a point of zeros becomes the direction."""

    @abstractmethod
    def settle(self, point: Tensor) -> Tensor:
        """The perturbation that a point stands for."""

    @abstractmethod
    def smaller(self, size: Tensor, share: Tensor) -> Tensor:
        """Sizes that are less by a share, both `(rows,)`."""

    @abstractmethod
    def step(self, point: Tensor, gradient: Tensor, size: Tensor, stride: Tensor) -> Tensor:
        """A point moved up a gradient, not yet projected.

        A stride, `(rows,)`, of 1 crosses about the whole set of that size.
        """


@final
@dataclass(frozen=True, eq=False)
class Caps(GrowingSets):
    """Caps of a sphere: all perturbations of length eps that form at most an angle with u.

    Sizes are angles in radians, up to pi.
    u: `(rows, n)`, of length 1. eps: `(rows,)`, above 0.
    """

    u: Tensor
    eps: Tensor

    def __post_init__(self) -> None:
        _check(self.u, self.eps)

    @property
    def whole(self) -> Tensor:
        return torch.full((len(self.u),), math.pi, dtype=torch.float64, device=self.u.device)

    @property
    def centre(self) -> Tensor:
        return self.u * self.eps[:, None].to(self.u)

    def size(self, delta: Tensor) -> Tensor:
        return angle(delta, self.u)

    def project(self, point: Tensor, size: Tensor) -> Tensor:
        return project_to_cap(point, self.u, size, self.eps)

    def settle(self, point: Tensor) -> Tensor:
        return point

    def smaller(self, size: Tensor, share: Tensor) -> Tensor:
        return size * (1.0 - share)

    def step(self, point: Tensor, gradient: Tensor, size: Tensor, stride: Tensor) -> Tensor:
        reach = self.eps * torch.sin(size.clamp(max=math.pi / 2))
        return point + (stride * reach)[:, None].to(point) * unit(gradient)


@final
@dataclass(frozen=True, eq=False)
class FreeCoordinates(GrowingSets):
    """Vertices of a cube that equal eps * u but for the first m coordinates of an order.

    Sizes are m, up to the number of coordinates.
    u: `(rows, n)`, 1 and -1, and 0 where there is no coordinate. eps: `(rows,)`, above 0.
    rank: `(rows, n)` int64, the place of each coordinate in the order, from 0.

    Points lie inside the cube and are judged at its vertices, by their signs; 0 has the sign of u.
    """

    u: Tensor
    eps: Tensor
    rank: Tensor

    def __post_init__(self) -> None:
        _check(self.u, self.eps)

    @property
    def whole(self) -> Tensor:
        return (self.u != 0).sum(dim=1).double()

    @property
    def centre(self) -> Tensor:
        return self.u * self.eps[:, None].to(self.u)

    def size(self, delta: Tensor) -> Tensor:
        changed = (delta.sign() != self.u) & (self.u != 0)
        return torch.where(changed, self.rank + 1, 0).amax(dim=1).double()

    def project(self, point: Tensor, size: Tensor) -> Tensor:
        edge = self.eps[:, None].to(point)
        free = (self.rank < size[:, None]) & (self.u != 0)
        return torch.where(free, point.clamp(-edge, edge), edge * self.u)

    def settle(self, point: Tensor) -> Tensor:
        sign = torch.where(point == 0, self.u, point.sign())
        return self.eps[:, None].to(point) * sign * (self.u != 0)

    def smaller(self, size: Tensor, share: Tensor) -> Tensor:
        return (size * (1.0 - share)).floor()

    def step(self, point: Tensor, gradient: Tensor, size: Tensor, stride: Tensor) -> Tensor:
        return point + (stride * self.eps)[:, None].to(point) * gradient.sign()


def angle(one: Tensor, other: Tensor) -> Tensor:
    """Between the rows of two tensors `(rows, n)`, in radians, `(rows,)` float64.

    By the arc tangent, which keeps its digits near 0 and pi; between a row of zeros and anything it is 0.
    """
    first, second = unit(one.detach().double()), unit(other.detach().double())
    # Kahan's formula: both lengths are exact where the angle is tiny, and where it is nearly pi.
    difference = torch.linalg.vector_norm(first - second, dim=1)
    total = torch.linalg.vector_norm(first + second, dim=1)
    found: Tensor = 2.0 * torch.atan2(difference, total)
    empty = (first == 0).all(dim=1) | (second == 0).all(dim=1)
    return torch.where(empty, 0.0, found)


def along(rows: Tensor, u: Tensor) -> Tensor:
    """The part of each row along u, `(rows, n)`; u has a length of 1."""
    return (rows * u).sum(dim=1, keepdim=True) * u


def project_to_cap(point: Tensor, u: Tensor, alpha: Tensor, eps: Tensor) -> Tensor:
    """The nearest point, along the sphere of radius eps, of the cap of angle alpha around u.

    point, u: `(rows, n)`, u of length 1. alpha, eps: `(rows,)`.

    Equations 4.14 to 4.17 of Olivier (2023) miss this point: they scale the part across u by sin(alpha) times
    the length of the whole, so that the result lies at another angle than alpha, and within the ball. Here a
    point outside goes down the great circle to u until the angle is alpha. Of -u, which has no such circle of
    its own, one is taken.
    """
    wide, point = point.dtype, point.double()
    u, alpha, eps = u.double(), alpha.double(), eps.double()
    found = unit(point)
    found = torch.where((found == 0).all(dim=1, keepdim=True), u, found)
    across = found - along(found, u)
    across = across - along(across, u)
    lost = torch.linalg.vector_norm(across, dim=1, keepdim=True) < 1e-12
    across = torch.where(lost, _perpendicular(u), unit(across)) if bool(lost.any()) else unit(across)
    edge = torch.cos(alpha)[:, None] * u + torch.sin(alpha)[:, None] * across
    outside = (angle(found, u) > alpha)[:, None]
    return (torch.where(outside, edge, found) * eps[:, None]).to(wide)


def _perpendicular(u: Tensor) -> Tensor:
    """A row of length 1 at a right angle to each row of u, on two coordinates that u has."""
    if u.shape[1] < 2:
        raise InputError("expected clips of 2 samples or more, got 1; a sphere of one dimension has no caps.")
    top = u.abs().topk(2, dim=1).indices
    pair = u.gather(1, top)
    turned = torch.stack([-pair[:, 1], pair[:, 0]], dim=1)
    return unit(torch.zeros_like(u).scatter(1, top, turned))


def draw_sets(norm: NormName, eps: Tensor, clips: AudioBatch, draws: Draws) -> GrowingSets:
    """A random direction a clip, uniform on the sphere or among the vertices, and for these a random order.

    eps: the radius of each clip, `(batch,)`. The rest depends on the seed of the draws and the clip's name.
    """
    normal = draws.turn("direction").normal(clips)
    if norm == "l2":
        return Caps(unit(normal), eps)
    u = torch.where(normal < 0, -1.0, 1.0) * clips.mask
    return FreeCoordinates(u, eps, _random_ranks(clips, draws.turn("order")))


def _random_ranks(clips: AudioBatch, draws: Draws) -> Tensor:
    """The place of each sample in a random order of its clip, `(batch, time)` int64; padding is last."""
    ranks = torch.arange(clips.waveforms.shape[1]).repeat(len(clips), 1)
    for row, (name, length) in enumerate(zip(clips.ids, clips.lengths.tolist(), strict=True)):
        ranks[row, :length] = torch.from_numpy(draws.generator(name).permutation(np.arange(length)))
    return ranks.to(clips.device)


def _check(u: Tensor, eps: Tensor) -> None:
    if u.ndim != 2 or eps.shape != (len(u),) or not bool((eps > 0).all()):
        raise InputError(
            f"expected a direction and a radius above 0 a row, got {tuple(u.shape)} and {tuple(eps.shape)}; "
            "give tensors of shape (rows, n) and (rows,)."
        )
