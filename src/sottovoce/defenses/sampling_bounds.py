"""Lower bounds of a probability from a count of passes, and when the count may stop.

The bound is that of Clopper and Pearson (1934), one-sided: it is above the true probability with a chance of
alpha at the most. Stopping early must not spoil that. The numbers of passes at which a bound is taken, the
looks, are fixed beforehand and share alpha. By the union bound all their bounds hold at once with probability
1 - alpha, so that their maximum holds too, and one may stop at any of them for any reason. Stopping because
no look that is left can change the answer, whatever the remaining passes say, costs nothing at all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, final

from scipy.special import betaincinv, ndtr, ndtri

from sottovoce.core.vote import MOST_PASSES
from sottovoce.defenses.noisy_passes import BLOCK
from sottovoce.errors import InputError

Stop = Literal["end", "reached", "out of reach", "settled", "abstains"]
"""Why passes ended: none were left; the wanted radius was reached, or cannot be; more passes would add
little; or no radius can be certified, whatever they say."""


def lower_bound(successes: int, passes: int, alpha: float) -> float:
    """Below the true probability but for a chance of alpha: the one-sided Clopper-Pearson bound."""
    return float(betaincinv(successes, passes - successes + 1, alpha)) if successes else 0.0


def certified_radius(lower: float, sigma: float) -> float | None:
    """The L2 radius that a lower bound of the probability gives; None, an abstention, up to 1/2."""
    return sigma * float(ndtri(lower)) if lower > 0.5 else None


def radius_snr_db(length_l2: float, radius: float | None) -> float | None:
    """The SNR of the loudest perturbation inside a radius, for a clip of that Euclidean length.

    None for a clip of zeros, and without a radius.
    """
    return 20.0 * math.log10(length_l2 / radius) if radius and length_l2 > 0 else None


@final
@dataclass(frozen=True)
class Look:
    """A number of passes at which a bound is taken, and its share of the error."""

    passes: int
    alpha: float

    def lower(self, successes: int) -> float:
        return lower_bound(successes, self.passes, self.alpha)

    def needed(self, level: float) -> int:
        """The fewest successes with a bound above `level`; one more than there are passes where none has."""
        return bisect_left(range(self.passes + 1), True, key=lambda count: self.lower(count) > level)


def plan_looks(passes: int, alpha: float, *, level: float | None, block: int = BLOCK) -> tuple[Look, ...]:
    """One look at the end with all of alpha, or (`level` is a number) one at every halving before it too.

    The last gets half of alpha; the others share the rest. Those at which even successes alone do not lift
    the bound above `level` are left out: that too is known beforehand.
    """
    sizes: list[int] = []
    size = passes
    while level is not None and (size := block * math.ceil(size / (2 * block))) >= 2 * block:
        if lower_bound(size, size, alpha) > level:
            sizes.insert(0, size)
    if not sizes:
        return (Look(passes, alpha),)
    return (*(Look(size, alpha / 2 / len(sizes)) for size in sizes), Look(passes, alpha / 2))


@final
@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How many passes, at what risk, and when to stop before the end.

    passes: that are counted, at the most. select: others, from which class or transcript is elected.
    alpha: how likely a radius may be too large.
    radius: stop when this L2 radius is certified, or out of reach. tolerance: stop when going on to the end
        would add less to the radius than this (L2), were it to go as before. Without either there is one
        look: the plain CERTIFY.
    """

    passes: int = 10_000
    select: int = 100
    alpha: float = 0.001
    radius: float | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise InputError(f"passes: expected 1 or more, got {self.passes}; 10000 is usual.")
        if not 1 <= self.select <= MOST_PASSES:
            raise InputError(
                f"select: expected 1 to {MOST_PASSES:,} passes, got {self.select}; 100 is usual."
            )
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha: expected a number between 0 and 1, got {self.alpha}; 0.001 is usual.")
        for name, value in (("radius", self.radius), ("tolerance", self.tolerance)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(
                    f"{name}: expected a number above 0, got {value}; leave it out to run all passes."
                )
        if self.radius is not None and self.tolerance is not None:
            raise InputError(
                f"radius and tolerance exclude each other, got {self.radius} and {self.tolerance}; drop one "
                "of them."
            )

    def check(self, sigma: float) -> None:
        """Refuse a radius that even successes alone could not certify."""
        if self.radius is None:
            return
        last = Count(self, sigma).looks[-1]
        most = certified_radius(last.lower(last.passes), sigma) or 0.0
        if self.radius > most:
            raise InputError(
                f"radius: {self.passes} passes at sigma {sigma:g} can certify at most {most:.4g}, got "
                f"{self.radius:g}; run more passes, or raise sigma."
            )


@final
@dataclass
class Count:
    """Passes and successes so far, and what they prove: the best bound of the looks that were passed."""

    sampling: Sampling
    sigma: float
    successes: int = 0
    passes: int = 0
    lower: float = 0.0
    block: int = field(default=BLOCK, kw_only=True)

    def add(self, successes: int, passes: int) -> None:
        """Take in a block. Blocks end where looks are, so that none is jumped over."""
        self.successes += successes
        self.passes += passes
        for look in self.looks:
            if look.passes == self.passes:
                self.lower = max(self.lower, look.lower(self.successes))

    def stop(self) -> Stop | None:
        """Why to stop here; None: go on. A radius once certified stays, so an abstention is never early."""
        left = [place for place, look in enumerate(self.looks) if look.passes > self.passes]
        if not left:
            return "end"
        if self.lower <= 0.5:
            return None if self._can(left, self._for_half) else "abstains"
        if self.wanted is not None:
            if self.lower > self.wanted:
                return "reached"
            return None if self._can(left, self._for_wanted) else "out of reach"
        if self.sampling.tolerance is not None and any(look.passes == self.passes for look in self.looks):
            return "settled" if self._gain() < self.sampling.tolerance else None
        return None

    @property
    def radius(self) -> float | None:
        return certified_radius(self.lower, self.sigma)

    @cached_property
    def wanted(self) -> float | None:
        """The bound that the wanted radius needs."""
        return None if self.sampling.radius is None else float(ndtr(self.sampling.radius / self.sigma))

    @cached_property
    def looks(self) -> tuple[Look, ...]:
        level = self.wanted if self.sampling.tolerance is None else 0.5
        return plan_looks(self.sampling.passes, self.sampling.alpha, level=level, block=self.block)

    @cached_property
    def _for_half(self) -> list[int]:
        return [look.needed(0.5) for look in self.looks]

    @cached_property
    def _for_wanted(self) -> list[int]:
        return [look.needed(self.wanted or 0.5) for look in self.looks]

    def _can(self, left: Sequence[int], needed: Sequence[int]) -> bool:
        """Whether successes alone from here on would reach what a look needs."""
        failures = self.passes - self.successes
        return any(self.looks[place].passes - failures >= needed[place] for place in left)

    def _gain(self) -> float:
        last = self.looks[-1]
        at_end = last.lower(self.successes * last.passes // self.passes)
        return self.sigma * float(ndtri(at_end) - ndtri(self.lower))
