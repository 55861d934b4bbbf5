"""How much may be added to a clip: sets of allowed perturbations, each with its own size and projection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError

NormName = Literal["l2", "linf"]
# A clip of zeros has no level to be relative to; half a 16-bit step stands in for its peak and its RMS.
SILENCE = 0.5 / 32768


class Budget(ABC):
    """A set of allowed perturbations `delta (batch, time)`, clip by clip."""

    @abstractmethod
    def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """Size over what is allowed, `(batch,)` float64: at most 1 inside the budget."""

    @abstractmethod
    def project(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """The nearest allowed perturbation, `(batch, time)`."""

    @abstractmethod
    def __str__(self) -> str:
        """As people say it: "SNR 30 dB"."""


class Searchable(Budget):
    """A budget that can be searched step by step: it knows its own lengths, directions and random points."""

    @abstractmethod
    def radius(self, clean: AudioBatch) -> Tensor:
        """`(batch,)`, in the amplitude of the waveform: how far a direction reaches, to measure steps by."""

    @abstractmethod
    def steepest(self, gradient: Tensor, clean: AudioBatch) -> Tensor:
        """The direction that climbs a gradient `(batch, time)` fastest for what it takes of the budget; a
        step to the edge is `radius` times as long (zero stays zero)."""

    @abstractmethod
    def fill(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """The perturbation turned up or down to the edge of the budget (zero stays zero)."""

    @abstractmethod
    def sample(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """A random perturbation inside, to start from."""

    @abstractmethod
    def noise(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """White noise that fills the budget."""


class Ball(Searchable):
    """All perturbations within a radius, in the L2 or the L-infinity norm; a subclass says how far."""

    @property
    @abstractmethod
    def norm(self) -> NormName: ...

    @property
    @abstractmethod
    def relative(self) -> bool:
        """Whether the radius follows the level of the clip, as a ratio in decibels does."""

    @final
    def size(self, delta: Tensor) -> Tensor:
        """The norm of each perturbation, `(batch,)` float64."""
        exact = delta.detach().double()
        return exact.abs().amax(dim=1) if self.norm == "linf" else _length(exact)[:, 0]

    @final
    def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        return self.size(delta) / self.radius(clean).double()

    @final
    def project(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        radius = self.radius(clean).to(delta.dtype)[:, None]
        if self.norm == "linf":
            return delta.clamp(-radius, radius)
        length = _length(delta).clamp_min(torch.finfo(delta.dtype).tiny)
        return delta * (radius / length).clamp(max=1.0)

    @final
    def fill(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        size = self.size(delta)
        gain = torch.where(size > 0, self.radius(clean).double() / size, 0.0)
        return (delta.double() * gain[:, None]).to(delta.dtype)

    @final
    def steepest(self, gradient: Tensor, clean: AudioBatch) -> Tensor:
        """Sign of the gradient for L-infinity, the normalised gradient for L2."""
        if self.norm == "linf":
            return gradient.sign()
        return unit(gradient)

    @final
    def sample(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """Uniform in the L-infinity cube; a random direction and a uniform length in the L2 ball, where
        uniform in volume would always mean the surface."""
        noise = self.noise(clean, draws)
        return noise if self.norm == "linf" else noise * draws.turn("length").fractions(clean, 1)

    @final
    def noise(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """Gaussian on the surface of an L2 ball, uniform inside an L-infinity one."""
        radius = self.radius(clean).to(clean.waveforms.dtype)[:, None]
        return radius * (draws.uniform(clean) if self.norm == "linf" else unit(draws.normal(clean)))


@dataclass(frozen=True)
class Absolute(Ball):
    """A ball with one radius for every clip, on the scale where full swing is 1."""

    eps: float

    def __post_init__(self) -> None:
        _check_positive("eps", self.eps)

    @property
    @final
    def relative(self) -> bool:
        return False

    @final
    def radius(self, clean: AudioBatch) -> Tensor:
        return torch.full((len(clean),), self.eps, device=clean.device)


@final
@dataclass(frozen=True)
class LInf(Absolute):
    """No sample changes by more than `eps`."""

    @property
    def norm(self) -> NormName:
        return "linf"

    def __str__(self) -> str:
        return f"Linf {self.eps:g}"


@final
@dataclass(frozen=True)
class L2(Absolute):
    """The perturbation's Euclidean length is at most `eps`."""

    @property
    def norm(self) -> NormName:
        return "l2"

    def __str__(self) -> str:
        return f"L2 {self.eps:g}"


@final
@dataclass(frozen=True)
class Snr(Ball):
    """A signal-to-noise ratio of at least `db`.

    In L2 (the default) the ball holds every such perturbation. In L-infinity it is the largest cube that
    fits: eps = ||x||_2 10^(-db/20) / sqrt(N), which guarantees the ratio for a clip of N samples.
    """

    db: float
    shape: NormName = "l2"

    def __post_init__(self) -> None:
        _check_number("db", self.db)
        if self.shape not in ("l2", "linf"):
            raise InputError(f"expected shape 'l2' or 'linf', got {self.shape!r}; choose one of them.")

    @property
    def norm(self) -> NormName:
        return self.shape

    @property
    def relative(self) -> bool:
        return True

    def radius(self, clean: AudioBatch) -> Tensor:
        samples = clean.lengths.double().sqrt()
        level = clean.length_l2.maximum(SILENCE * samples)
        allowed = level * _ratio(-self.db)
        return allowed / samples if self.shape == "linf" else allowed

    def __str__(self) -> str:
        return f"SNR {self.db:g} dB" + (" (Linf)" if self.shape == "linf" else "")


@final
@dataclass(frozen=True)
class DbMax(Ball):
    """The perturbation's peak lies at least `-db` decibels under the clip's peak: dB_x,max(delta) <= db."""

    db: float

    def __post_init__(self) -> None:
        _check_number("db", self.db)

    @property
    def norm(self) -> NormName:
        return "linf"

    @property
    def relative(self) -> bool:
        return True

    def radius(self, clean: AudioBatch) -> Tensor:
        return clean.peak.clamp_min(SILENCE) * _ratio(self.db)

    def __str__(self) -> str:
        return f"dB_max {self.db:g} dB"


def unit(rows: Tensor) -> Tensor:
    """Each row at a Euclidean length of 1, `(batch, time)` (zero stays zero)."""
    length = _length(rows)
    if bool((length < 1e-12).any()):
        # Scaled first: the square of a gradient of 1e-20 would vanish in single precision.
        tiny = torch.finfo(rows.dtype).tiny
        rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(tiny)
        length = _length(rows).clamp_min(tiny)
    return rows / length


def _length(rows: Tensor) -> Tensor:
    """Euclidean length of each row, `(batch, 1)`."""
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return length


def _ratio(db: float) -> float:
    """Decibels as a ratio of amplitudes."""
    return float(10.0 ** (db / 20.0))


def _check_number(name: str, value: float) -> None:
    if not isinstance(value, int | float) or not torch.isfinite(torch.tensor(float(value))):
        raise InputError(f"expected a finite number for {name}, got {value!r}; give decibels such as 30.")


def _check_positive(name: str, value: float) -> None:
    _check_number(name, value)
    if value <= 0:
        raise InputError(f"expected {name} above 0, got {value!r}; full swing is 1, so 0.01 is usual.")
