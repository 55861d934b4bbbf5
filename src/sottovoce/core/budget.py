"""Budgets: sets of allowed perturbations, each with a size and a projection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import CheckedSettings, limits

NormName = Literal["l2", "linf"]
# A clip of zeros has no level; half a 16-bit step is taken for its peak and its RMS.
SILENCE = 0.5 / 32768


class Budget(CheckedSettings, ABC):
    """How much an attack may change each clip: a set of allowed perturbations `delta (batch, time)`.

    Shipped are `sv.budgets.Snr`, `L2`, `LInf`, `DbMax` and `Audible`. A subclass says how large a
    perturbation is (`excess`) and finds the nearest allowed one (`project`). To work with gradient attacks it
    must be a `Searchable`, and the simplest way to that is a `Ball`. `sv.testing.check_budget` tests it.

    >>> clip = sv.AudioBatch.of([[0.5, 0.0, 0.0, 0.0]], sample_rate=16000)
    >>> budget = sv.budgets.LInf(0.1)
    >>> budget.excess(torch.tensor([[0.2, 0.0, 0.0, 0.0]]), clip).round(decimals=3).tolist()
    [2.0]
    >>> budget.project(torch.tensor([[0.2, 0.05, 0.0, 0.0]]), clip).round(decimals=3)
    tensor([[0.1000, 0.0500, 0.0000, 0.0000]])
    """

    @abstractmethod
    def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """The size as a multiple of what is allowed, `(batch,)` float64: at most 1 inside the budget."""

    @abstractmethod
    def project(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """The nearest allowed perturbation, `(batch, time)`."""

    @abstractmethod
    def __str__(self) -> str:
        """The budget as reports show it, such as "SNR 30 dB"."""


class Searchable(Budget):
    """A budget that gradient attacks can search: it also has a radius, directions and random points.

    >>> clip = sv.AudioBatch.of([[0.3, -0.4, 0.0, 0.0]], sample_rate=16000)  # a length of 0.5 in L2
    >>> budget = sv.budgets.Snr(20)
    >>> isinstance(budget, sv.Searchable), round(budget.radius(clip).item(), 6)  # 20 dB below 0.5
    (True, 0.05)
    >>> budget.steepest(torch.tensor([[0.0, 3.0, 4.0, 0.0]]), clip).round(decimals=3)
    tensor([[0.0000, 0.6000, 0.8000, 0.0000]])
    """

    @abstractmethod
    def radius(self, clean: AudioBatch) -> Tensor:
        """The length of a step to the edge, `(batch,)`, in the amplitude of the waveform."""

    @abstractmethod
    def steepest(self, gradient: Tensor, clean: AudioBatch) -> Tensor:
        """The direction of steepest ascent within the budget for a gradient `(batch, time)`.

        A step to the edge is `radius` times this direction. A gradient of zero stays zero.
        """

    @abstractmethod
    def fill(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        """The perturbation scaled to the edge of the budget. Zero stays zero."""

    @abstractmethod
    def sample(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """A random perturbation inside, to start from."""

    @abstractmethod
    def noise(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """White noise that fills the budget."""


class Ball(Searchable):
    """All perturbations within a radius, in the L2 or the L-infinity norm. A subclass gives the radius.

    The projection, the directions and the random points follow from the norm.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class HalfPeak(sv.Ball):
    ...     norm = "linf"
    ...     relative = True  # it follows the level of the clip
    ...     def radius(self, clean):
    ...         return 0.5 * clean.peak
    ...     def __str__(self):
    ...         return "half of the peak"
    >>> clip = sv.AudioBatch.of([[0.5, -0.25]], sample_rate=16000)
    >>> HalfPeak().project(torch.tensor([[0.4, -0.1]]), clip)
    tensor([[ 0.2500, -0.1000]])
    """

    @property
    @abstractmethod
    def norm(self) -> NormName:
        """The norm: "l2" or "linf"."""

    @property
    @abstractmethod
    def relative(self) -> bool:
        """Whether the radius depends on the level of the clip, as a ratio in decibels does."""

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
        """The sign of the gradient for L-infinity, the normalised gradient for L2."""
        if self.norm == "linf":
            return gradient.sign()
        return unit(gradient)

    @final
    def sample(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """Uniform in the L-infinity cube; a random direction of uniform length in the L2 ball.

        Uniform in volume would, in so many dimensions, always be at the surface.
        """
        noise = self.noise(clean, draws)
        return noise if self.norm == "linf" else noise * draws.turn("length").fractions(clean, 1)

    @final
    def noise(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """Gaussian on the surface of an L2 ball, uniform inside an L-infinity one."""
        radius = self.radius(clean).to(clean.waveforms.dtype)[:, None]
        return radius * (draws.uniform(clean) if self.norm == "linf" else unit(draws.normal(clean)))


@dataclass(frozen=True)
class Absolute(Ball):
    """A ball with the same radius for every clip; full scale is 1."""

    eps: float = field(metadata=limits(above=0, hint="full scale is 1, so 0.01 is usual"))

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
    """L-infinity: no sample changes by more than `eps`, where full scale is 1.

    >>> clip = sv.AudioBatch.of([[0.5, 0.5]], sample_rate=16000)
    >>> sv.budgets.LInf(0.1).project(torch.tensor([[0.3, -0.05]]), clip)
    tensor([[ 0.1000, -0.0500]])
    """

    @property
    def norm(self) -> NormName:
        return "linf"

    def __str__(self) -> str:
        return f"Linf {self.eps:g}"


@final
@dataclass(frozen=True)
class L2(Absolute):
    """L2: the Euclidean length of the perturbation is at most `eps`, summed over all samples of a clip.

    A longer clip gets less for each sample; `snr` and `dbmax` follow the level of the clip instead.

    >>> clip = sv.AudioBatch.of([[0.5, 0.5]], sample_rate=16000)
    >>> sv.budgets.L2(1.0).project(torch.tensor([[3.0, 4.0]]), clip)
    tensor([[0.6000, 0.8000]])
    """

    @property
    def norm(self) -> NormName:
        return "l2"

    def __str__(self) -> str:
        return f"L2 {self.eps:g}"


@final
@dataclass(frozen=True)
class Snr(Ball):
    """A signal-to-noise ratio of at least `db` decibels: the higher, the quieter the perturbation.

    db: 20 to 60 is usual. 20 dB lets the perturbation have a tenth of the clip's amplitude, 40 dB a
        hundredth.
    shape: "l2" allows every perturbation of that ratio. "linf" bounds each sample by the largest eps that
        guarantees it: eps = ||x||_2 10^(-db/20) / sqrt(N) for a clip of N samples.

    >>> clip = sv.AudioBatch.of([[0.3, -0.4, 0.0, 0.0]], sample_rate=16000)  # a length of 0.5 in L2
    >>> round(sv.budgets.Snr(20).radius(clip).item(), 6)
    0.05
    >>> round(sv.budgets.Snr(20, shape="linf").radius(clip).item(), 6)  # 0.05 / sqrt(4)
    0.025
    """

    db: float = field(metadata=limits())
    shape: NormName = field(default="l2", metadata=limits(one_of=("l2", "linf")))

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
    """The perturbation's peak relative to the clip's peak is at most `db` decibels: dB_x,max.

    db: usually negative; -20 allows a peak of a tenth of the clip's.

    >>> clip = sv.AudioBatch.of([[0.5, -0.25]], sample_rate=16000)
    >>> round(sv.budgets.DbMax(-20).radius(clip).item(), 6)
    0.05
    """

    db: float = field(metadata=limits())

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
    """Each row scaled to a Euclidean length of 1, `(batch, time)`. Zero stays zero."""
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
