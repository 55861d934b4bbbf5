"""A budget of audibility: how likely a listener, or a model of one, notices the change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from sottovoce import registry
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Searchable, unit
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.errors import InputError
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.masking.masked_noise import MaskedSpectrum

NOISE = Draws(0, ("audible", "radius"))
"""The noise that measures how far the budget of a clip reaches."""
DISTANCES = (-12.0, 12.0)
"""Powers of ten between which the distances of every ear lie."""
MARGIN = 1e-6
"""What single precision may add to a distance from one batch to the next."""
NEAR = 0.01
"""How near to the edge of the budget is near enough, as a share of the distance allowed."""
TRIES = 16
SLOPES = (0.25, 4.0)
"""Powers of the gain that a distance may rise with, for the next guess."""


@final
@dataclass(frozen=True)
class CleanClips:
    """What depends on the clean clips alone.

    shape: the spectrum that the clips mask, in which noise and gradients hide best.
    radius: `(batch,)`, the L2 norm at which noise of that spectrum fills the budget.
    """

    shape: MaskedSpectrum
    radius: Tensor


@final
@dataclass(frozen=True)
class Audible(Searchable):
    """A listener notices the change with a probability of at most `p`, as a model of hearing estimates it.

    This is not a norm ball: how much may be added depends on the clip, and on where in time and frequency it
    is added. A perturbation that is too loud is scaled down. Gradient steps are taken relative to what the
    clip masks, so that more is added where more is hidden.

    p: between 0 and 1; 0.5 is one just noticeable difference.
    ear: the name of a model of hearing, such as "learned" or "masking".

    >>> clips = sv.open_data("embedded", model="keyword", limit=1)
    >>> trial = sv.attack("keyword", clips, "noise", budget=sv.budgets.Audible(0.5))
    >>> bool(trial.delta.any())
    True
    """

    p: float = field(metadata=limits(above=0, below=1, hint="0.25 is one listener in four"))
    ear: str = "learned"
    # A batch is a key by identity, and takes what is known of it along when it goes.
    _known: WeakKeyDictionary[AudioBatch, CleanClips] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        open_ear(self.ear)

    def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """The distance heard over the largest one that is allowed."""
        return self._ratio(delta, clean)

    def project(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """Turned down until it is inside; what is inside is left alone."""
        delta = delta.detach()
        return _scaled(delta, find_gain(self._heard(delta, clean), delta, turn_up=False))

    def fill(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        delta = delta.detach()
        return _scaled(delta, find_gain(self._heard(delta, clean), delta, turn_up=True))

    def radius(self, clean: AudioBatch) -> Tensor:
        """The L2 size at which noise with the spectrum of what the clip masks fills the budget."""
        return self._of(clean).radius

    def steepest(self, gradient: Tensor, clean: AudioBatch) -> Tensor:
        """The gradient in the spectrum that the clip masks, at an L2 length of 1 (`MaskedSpectrum.climb`)."""
        return unit(self._of(clean).shape.climb(unit(gradient), clean))

    def sample(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """Noise with the spectrum of what the clip masks, of a uniform gain up to where it is heard."""
        shaped = self._of(clean).shape.noise(clean, draws)
        inside = self.fill(shaped, clean) * draws.turn("length").fractions(clean, 1).to(shaped.dtype)
        return self.project(inside, clean)

    def noise(self, clean: AudioBatch, draws: Draws) -> Tensor:
        return self.fill(draws.normal(clean), clean)

    def __str__(self) -> str:
        return f"P(heard) {100 * self.p:g} %" + ("" if self.ear == "learned" else f" ({self.ear})")

    def _heard(self, delta: Tensor, clean: AudioBatch) -> Callable[[Tensor], Tensor]:
        """The excess of the perturbation at a gain a clip, `(batch,)` to `(batch,)`."""
        return lambda gain: self._ratio(_scaled(delta, gain), clean)

    def _ratio(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        with torch.no_grad():
            changed = clean.with_waveforms(clean.waveforms + delta)
            distance = open_ear(self.ear).distance(clean, changed)
        return distance.double() / largest_distance(self.ear, self.p, distance.device, distance.dtype)

    def _of(self, clean: AudioBatch) -> CleanClips:
        known = self._known.get(clean)
        if known is None:
            with torch.no_grad():
                shape = MaskedSpectrum.of(clean)
                filled = self.fill(shape.noise(clean, NOISE), clean)
            known = CleanClips(shape, torch.linalg.vector_norm(filled.double(), dim=1))
            self._known[clean] = known
        return known


@cache
def open_ear(name: str) -> Ear:
    """A registered ear; ears have settings and no state, so one of each will do."""
    ear: Ear = registry.build("ear", name)
    return ear


@lru_cache(maxsize=64)
def largest_distance(ear: str, p: float, device: torch.device, dtype: torch.dtype) -> float:
    """The largest distance at which an ear hears a difference with a probability of at most `p`.

    Found on grids of distances, each a thousand times finer than the last: an ear answers a thousand
    distances as fast as one.
    """
    low, high = DISTANCES
    for _ in range(3):
        grid = torch.logspace(low, high, 1001, dtype=torch.float64)
        with torch.no_grad():
            heard = open_ear(ear).probability(grid.to(device, dtype)) > p
        first = int(heard.double().argmax())
        if first == 0:
            raise InputError(
                f"p: the ear {ear!r} never gives a probability as low as {p:g}; choose a higher p, or "
                "another ear."
            )
        low, high = (float(grid[place].log10()) for place in (first - 1, first))
    return float(10.0**low) * (1.0 - MARGIN)


def find_gain(excess: Callable[[Tensor], Tensor], like: Tensor, *, turn_up: bool) -> Tensor:
    """How far perturbations can be turned up or down to the edge of a budget, `(batch,)` float64.

    Every answer is a gain at which the excess was seen to be at most 1, and where it is more than 1 at 1 or
    may be turned up, one between 1 - `NEAR` and 1 is looked for: by secants in the logarithms of gain and
    excess, which are a straight line where distance is a power of the gain, and by halving where they leave
    what is known to be inside and outside. What cannot be brought inside in so many tries becomes zero.

    excess: of a gain a clip, `(batch,)` to `(batch,)`. like: perturbations, for their number and device.
    """
    gain = torch.ones(len(like), dtype=torch.float64, device=like.device)
    value, slope = excess(gain), torch.ones_like(gain)
    low, high = gain.where(value <= 1.0, 0.0), gain.where(value > 1.0, torch.inf)
    # An ear may hear nothing at all of what is masked, so that a distance of 0 can still be turned up.
    done = (value <= 1.0) & ((value >= 1.0 - NEAR) | ~like.any(dim=1) | (not turn_up))
    for turn in range(TRIES):
        if bool(done.all()):
            break
        guess = gain * ((1.0 - NEAR / 2) / value) ** (1.0 / slope)
        fits = (guess > low) & (guess < high) & (turn % 4 != 3)
        guess = torch.where(done, low, torch.where(fits, guess, _between(low, high)))
        found = excess(guess)
        inside = found <= 1.0
        low, high = guess.where(inside & ~done, low), guess.where(~inside & ~done, high)
        bent = ((found / value).log() / (guess / gain).log()).clamp(*SLOPES)
        slope = bent.where(bent.isfinite(), slope)
        gain, value = guess, found
        done |= inside & (found >= 1.0 - NEAR)
    return low


def _between(low: Tensor, high: Tensor) -> Tensor:
    """In the middle of two gains, on a scale of decibels; an eighth or eight times where one end is open."""
    middle = (low * high).sqrt()
    return torch.where(low == 0, high / 8.0, torch.where(high.isinf(), 8.0 * low, middle))


def _scaled(delta: Tensor, gain: Tensor) -> Tensor:
    return delta * gain.to(delta.dtype)[:, None]
