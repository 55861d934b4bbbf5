"""Simulated listeners, for tests, dry runs and training where no person has answered.

Every name starts with "simulated-", so that no answer of theirs is taken for a person's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.perception.ears.auditory import Auditory
from sottovoce.perception.ears.ear import Ear, check_pair

PREFIX = "simulated-"


class Listener(ABC):
    """Someone who is played a reference and a change of it of some strength: "same or different?".

    A subclass is a frozen dataclass with a `name` and a `seed`, and writes `probability`.
    """

    simulated: ClassVar[bool] = True
    name: str
    seed: int

    @abstractmethod
    def probability(self, strength: float) -> float:
        """P("different") at a strength, lapses included."""

    @final
    def answer(self, strength: float, trial: int) -> bool:
        """Whether "different" is the answer in a trial; asked again, the same."""
        chance = Draws(self.seed).turn("answer", trial).generator(self.name).random()
        return bool(chance < self.probability(strength))


@final
@dataclass(frozen=True, kw_only=True)
class PsychometricListener(Listener):
    """P = lapse/2 + (1 - lapse) Phi((strength - mu) / sigma): the just noticeable difference is mu.

    lapse: the share of trials that are answered by a coin.
    """

    mu: float
    sigma: float
    lapse: float = 0.0
    seed: int = 0
    name: str = f"{PREFIX}psychometric"

    def __post_init__(self) -> None:
        _check(self.name, self.lapse)
        if not self.sigma > 0.0:
            raise InputError(f"expected a sigma above 0, got {self.sigma}; give the spread of the answers.")

    def probability(self, strength: float) -> float:
        z = (strength - self.mu) / (self.sigma * math.sqrt(2.0))
        return _lapse(0.5 * math.erfc(-z), self.lapse)


@final
@dataclass(frozen=True, kw_only=True)
class CurveListener(Listener):
    """P along a direction of change, read off a table with straight lines between its points.

    strengths: rising. probabilities: P("different") of attentive trials; past the ends, that of the end.
    """

    strengths: tuple[float, ...]
    probabilities: tuple[float, ...]
    lapse: float = 0.0
    seed: int = 0
    name: str = f"{PREFIX}curve"

    def __post_init__(self) -> None:
        _check(self.name, self.lapse)
        if len(self.strengths) != len(self.probabilities) or len(self.strengths) < 2:
            raise InputError(
                f"expected two strengths or more with a probability each, got {len(self.strengths)} and "
                f"{len(self.probabilities)}; give both in one order."
            )
        if not (np.diff(self.strengths) > 0).all():
            raise InputError(f"expected rising strengths, got {list(self.strengths)}; sort them.")
        if not all(0.0 <= value <= 1.0 for value in self.probabilities):
            raise InputError(f"expected probabilities from 0 to 1, got {list(self.probabilities)}.")

    def probability(self, strength: float) -> float:
        return _lapse(float(np.interp(strength, self.strengths, self.probabilities)), self.lapse)


@final
@dataclass(frozen=True, kw_only=True)
class InattentiveListener(Listener):
    """Throws a coin, whatever is played."""

    seed: int = 0
    name: str = f"{PREFIX}inattentive"

    def __post_init__(self) -> None:
        _check(self.name, 0.0)

    def probability(self, strength: float) -> float:
        return 0.5


@final
@dataclass(frozen=True, kw_only=True)
class SimulatedListener:
    """An ear with a person's failings, asked about pairs of clips instead of strengths.

    Each trial is heard at distance exp(bias + noise z) times the ear's, z standard normal: `noise` is how
    much attention wavers, a positive `bias` that of someone who is quick to say "different". A share `lapse`
    of the trials is answered by a coin. Draws depend on the ids of both clips, not on their place.
    """

    ear: Ear = field(default_factory=Auditory)
    lapse: float = 0.02
    noise: float = 0.2
    bias: float = 0.0
    seed: int = 0
    name: str = f"{PREFIX}listener"
    simulated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self.name, self.lapse)
        if not self.noise >= 0.0 or not math.isfinite(self.bias):
            raise InputError(
                f"expected noise of 0 or more and a finite bias, got {self.noise} and {self.bias}; both are "
                "natural logarithms of a distance."
            )

    def probability(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        """P("different"), `(batch,)`, the mean over what wavers."""
        check_pair(clean, changed)
        points, weights = np.polynomial.hermite_e.hermegauss(15)
        distance = self.ear.distance(clean, changed).detach()
        scales = np.exp(self.bias + self.noise * points)
        heard = sum(
            (
                weight * self.ear.probability(scale * distance)
                for scale, weight in zip(scales, weights, strict=True)
            ),
            start=distance.new_zeros(()),
        )
        return self.lapse / 2 + (1.0 - self.lapse) * heard / float(weights.sum())

    def answers(self, clean: AudioBatch, changed: AudioBatch, trial: int = 0) -> list[bool]:
        """Whether "different" is the answer to each pair in a trial."""
        check_pair(clean, changed)
        distance = self.ear.distance(clean, changed).detach()
        names = [f"{first}\x1f{second}" for first, second in zip(clean.ids, changed.ids, strict=True)]
        draws = Draws(self.seed).turn(self.name, "answer", trial)
        sources = [draws.generator(name) for name in names]
        wavering = [math.exp(self.bias + self.noise * source.standard_normal()) for source in sources]
        heard = self.ear.probability(distance * distance.new_tensor(wavering)).tolist()
        return [source.random() < _lapse(p, self.lapse) for source, p in zip(sources, heard, strict=True)]

    def curve(self, strengths: Sequence[float], probabilities: Sequence[float]) -> CurveListener:
        """The same listener along a direction, from `probability` at its strengths (lapses are in it)."""
        return CurveListener(
            strengths=tuple(map(float, strengths)),
            probabilities=tuple(map(float, probabilities)),
            seed=self.seed,
            name=self.name,
        )


def _lapse(probability: float, lapse: float) -> float:
    return lapse / 2 + (1.0 - lapse) * probability


def _check(name: str, lapse: float) -> None:
    if not name.startswith(PREFIX):
        raise InputError(
            f"a simulated listener needs a name that starts with {PREFIX!r}, so that nobody takes the "
            f"answers for a person's; got {name!r}."
        )
    if not 0.0 <= lapse <= 1.0:
        raise InputError(f"expected a lapse rate from 0 to 1, got {lapse}; give a share of trials.")
