"""The search for the nearest perturbation that works: one strong attack, then a run a direction from it.

The published search bisects the size of the set and attacks anew at each of ten sizes, in 100 directions:
20,000 passes a clip. Success is not monotone in the size, so a bisection can discard the better half. Here
every run starts from a perturbation that works, and shrinks the set around the direction for as long as some
work.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from sottovoce.core.budget import unit
from sottovoce.core.sphere import GrowingSets

FIRST_SHARE, MORE, LESS, PATIENCE, MOST = 0.5, 1.3, 0.5, 4, 0.7
"""A set shrinks by `FIRST_SHARE` at first; by `MORE` times as much after a success, up to `MOST`, and by
`LESS` times as much after `PATIENCE` failures in a row."""
LAST_STRIDE = 0.02
STRIDE, DAMPED = 0.7, 0.7
"""Of the steps around a direction, as shares of the set, and how much shorter they get when nothing works."""
CARRIED, CARRIED_NEAR = 0.75, 0.7
"""How much of the last gradients is carried on, by the strong attack and around a direction."""


class Look(NamedTuple):
    """What one pass over perturbations tells, a row each.

    value: the higher, the nearer to success. gradient: of the value, `(rows, n)`. fools: whether it succeeds.
    """

    value: Tensor
    gradient: Tensor
    fools: Tensor


class Landscape(ABC):
    """What a search looks at: a model around some clean inputs, as a function of the perturbation."""

    @abstractmethod
    def look(self, delta: Tensor, turn: str) -> Look:
        """One pass with a gradient over `delta (rows, n)`. turn: names the step, for what is random."""

    random: bool = False
    """Whether the same perturbation may fool at one time and not at another."""

    def confirm(self, delta: Tensor, fools: Tensor, turn: str, *, last: bool = False) -> Tensor:
        """Which rows of those that fool do so again; only where answers are random is anything asked.

        last: whether the search is over, and this settles what it found.
        """
        return fools


@final
@dataclass(frozen=True, eq=False)
class Attacked:
    """What a strong attack found: the best perturbation a row, and whether it works."""

    delta: Tensor
    value: Tensor
    fools: Tensor

    def repeat(self, rows: Tensor) -> Attacked:
        """The same for other rows, by number."""
        return Attacked(self.delta[rows], self.value[rows], self.fools[rows])


@final
@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest perturbation that works, a row each.

    size: of the smallest set that holds it, `(rows,)` float64; inf where none works.
    at_once: whether the direction itself works.
    """

    delta: Tensor
    size: Tensor
    at_once: Tensor

    @property
    def fools(self) -> Tensor:
        return self.size.isfinite()


def attack(landscape: Landscape, sets: GrowingSets, passes: int) -> Attacked:
    """Gradient ascent over all perturbations of full length; the best one that works is kept, or the best.

    The first pass looks at the clean input, the second at what a single step gives.
    """
    start = torch.zeros_like(sets.centre)
    look = landscape.look(start, "attack 0")
    best = Attacked(sets.centre, torch.full_like(look.value, -math.inf), torch.zeros_like(look.fools))
    whole, point, slope = sets.whole, start, torch.zeros_like(start)
    for turn in range(1, passes):
        stride = _stride(turn, passes).to(look.value).expand(len(point))
        slope = CARRIED * slope + unit(look.gradient)
        point = sets.project(sets.step(point, slope, whole, stride), whole)
        delta = sets.settle(point)
        look = landscape.look(delta, f"attack {turn}")
        works = landscape.confirm(delta, look.fools, f"attack {turn}")
        better = (works & ~best.fools) | ((works == best.fools) & (look.value > best.value))
        best = Attacked(
            torch.where(better[:, None], delta, best.delta),
            torch.where(better, look.value, best.value),
            torch.where(better, works, best.fools),
        )
    return best


def _stride(turn: int, passes: int) -> Tensor:
    """From 1 down a cosine."""
    done = (turn - 1) / max(passes - 2, 1)
    return torch.tensor(LAST_STRIDE + (1.0 - LAST_STRIDE) * 0.5 * (1.0 + math.cos(math.pi * done)))


def find_nearest(landscape: Landscape, sets: GrowingSets, passes: int, start: Attacked) -> Nearest:
    """The nearest perturbation to each row's direction, from one that works where there is one.

    The first pass looks at the direction itself. While nothing works, a row climbs in the whole set.
    """
    centre = sets.centre
    look = landscape.look(centre, "direction 0")
    at_once = landscape.confirm(centre, look.fools, "direction 0")
    found = Nearest(
        torch.where(at_once[:, None], centre, start.delta),
        torch.where(
            at_once,
            0.0,
            torch.where(start.fools, sets.size(start.delta), torch.full_like(sets.whole, math.inf)),
        ),
        at_once,
    )
    finds = [found]
    share = torch.full_like(sets.whole, FIRST_SHARE)
    misses = torch.zeros_like(sets.whole)
    # Rows without a start climb from their own direction: what the shared attack did not find may lie there.
    point = torch.where(start.fools[:, None], start.delta, centre)
    # The gradient at the direction is none of the perturbation that the others start from.
    known = ~start.fools
    stride, slope = torch.full_like(sets.whole, STRIDE), torch.zeros_like(centre)
    for turn in range(1, passes):
        wanted = torch.where(found.fools, sets.smaller(found.size.clamp(max=1e18), share), sets.whole)
        slope = torch.where(known[:, None], CARRIED_NEAR * slope + unit(look.gradient), slope)
        point = sets.project(sets.step(point, slope, wanted, stride), wanted)
        delta = sets.settle(point)
        look = landscape.look(delta, f"direction {turn}")
        size = sets.size(delta)
        works = landscape.confirm(delta, look.fools & (size < found.size), f"direction {turn}")
        found = Nearest(
            torch.where(works[:, None], delta, found.delta), torch.where(works, size, found.size), at_once
        )
        if landscape.random and bool(works.any()):
            finds.append(found)
        misses = torch.where(works, 0.0, misses + 1)
        tired = misses >= PATIENCE
        stride = torch.where(tired, stride * DAMPED, stride)
        share = torch.where(works, (share * MORE).clamp(max=MOST), torch.where(tired, share * LESS, share))
        misses = torch.where(tired, 0.0, misses)
        known = torch.ones_like(known)
    return _still_working(landscape, finds) if landscape.random else found


def _still_working(landscape: Landscape, finds: Sequence[Nearest]) -> Nearest:
    """Of each row the nearest find that fools once more. finds: ever nearer ones.

    The nearest of many that were tried at random is the luckiest: it is asked again, with draws of their own.
    """
    sure = finds[-1]
    size, delta, open_rows = torch.full_like(sure.size, math.inf), sure.delta, sure.fools
    for number, found in enumerate(reversed(finds)):
        asked = open_rows & found.fools
        works = landscape.confirm(found.delta, asked, f"again {number}", last=True)
        size = torch.where(works, found.size, size)
        delta = torch.where(works[:, None], found.delta, delta)
        open_rows = open_rows & ~works
        if not bool(open_rows.any()):
            break
    return Nearest(delta, size, sure.at_once & (size == 0))
