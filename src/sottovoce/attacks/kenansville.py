"""Attacks by removal: take away what a listener hardly misses, without asking the model for a gradient.

Abdullah et al. (2021), "Hear 'no evil', see 'Kenansville'": speech is split into components, by a discrete
Fourier transform or by singular spectrum analysis, and the weakest are dropped. The budget says how much
energy may go; a search for the least that changes the transcript then asks the model for nothing but text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, final

import torch
from scipy.fft import next_fast_len
from torch import Tensor

from sottovoce.core.attack import Attack, Sight, decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget, NormName
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.quantisation import nearest_step
from sottovoce.core.target import Target
from sottovoce.errors import InputError

Reduce = Callable[[float], Tensor]
"""From a Euclidean length to the perturbation `(time,)` that takes away as much as that length allows."""


@dataclass(frozen=True, kw_only=True)
class Removal(Attack):
    """What attacks by removal share; a subclass says what a clip loses at a given size.

    search: look for the smallest perturbation that reaches the goal, clip by clip; without a success, and
        where this is off, the budget is used up.
    steps: halvings of the search. Success need not grow with size: the smallest of all successes is kept.
    depth_db: how far below the budget the search looks, in decibels.
    bits: the grid on which a success must hold.
    """

    search: bool = True
    steps: int = 8
    depth_db: float = 40.0
    bits: int | None = 16

    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    sees: ClassVar[Sight] = "decisions"
    norms: ClassVar[tuple[NormName, ...]] = ("l2",)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.depth_db <= 0:
            raise InputError(
                f"expected at least 1 step and a depth above 0 dB, got {self.steps} and {self.depth_db}; "
                "8 and 40 are usual."
            )
        self.check_settings()

    def check_settings(self) -> None:
        """Raise `InputError` where a setting of the subclass makes no sense. Default: it has none."""
        return None

    @abstractmethod
    def reducer(self, clip: Tensor) -> Reduce:
        """Prepare one clip, `(time,)` float64 without padding."""

    @final
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        reducers = [self.reducer(clean.clip(row).double()) for row in range(len(clean))]
        radius = budget.radius(clean).double()
        full = _reduced(reducers, radius, clean)
        return self._least(target, clean, goal, reducers, radius, full, draws) if self.search else full

    def _least(
        self,
        target: Target,
        clean: AudioBatch,
        goal: Goal,
        reducers: Sequence[Reduce],
        radius: Tensor,
        full: Tensor,
        draws: Draws,
    ) -> Tensor:
        """The smallest success found by bisection in decibels; `full` where there is none."""
        best, size = full.clone(), torch.full_like(radius, torch.inf)
        quiet, loud = torch.full_like(radius, -self.depth_db), torch.zeros_like(radius)
        delta, level = full, loud
        for _ in range(self.steps + 1):
            won = self._succeeds(target, clean, delta, goal, draws)
            length = torch.linalg.vector_norm(delta.double(), dim=1)
            smaller = won & (length < size)
            best, size = torch.where(smaller[:, None], delta, best), torch.where(smaller, length, size)
            loud = torch.where(won, level, loud)
            # At the budget itself a failure says nothing of smaller perturbations: the search goes on below.
            quiet = torch.where(won | (level >= 0.0), quiet, level)
            level = (quiet + loud) / 2
            delta = _reduced(reducers, radius * 10.0 ** (level / 20.0), clean)
        return best

    def _succeeds(self, target: Target, clean: AudioBatch, delta: Tensor, goal: Goal, draws: Draws) -> Tensor:
        heard = nearest_step(clean.waveforms + within(clean, delta), self.bits)
        batch = clean.with_waveforms(heard)
        texts = goal.read(target, batch, decode(target, batch, draws), draws=draws.turn("judge"))
        return torch.tensor(goal.achieved(texts), device=delta.device)


@final
@dataclass(frozen=True, kw_only=True)
class Kenansville(Removal):
    """Zero the weakest bins of the clip's Fourier transform: as many as the budget's energy covers."""

    def reducer(self, clip: Tensor) -> Reduce:
        spectrum, weights = one_sided(clip)
        energies = weights * spectrum.abs().square()
        order = energies.argsort(stable=True)
        total = energies[order].cumsum(dim=0)

        def reduce(radius: float) -> Tensor:
            weakest = order[: int(torch.searchsorted(total, radius**2, right=True))]
            lost = torch.zeros_like(spectrum)
            lost[weakest] = -spectrum[weakest]
            delta: Tensor = torch.fft.irfft(lost, n=len(clip))
            return delta

        return reduce


@final
@dataclass(frozen=True, kw_only=True)
class KenansvilleSsa(Removal):
    """Drop the weakest components of singular spectrum analysis (Golyandina et al. 2001).

    Windows of the clip are the columns of a matrix; the eigenvectors of its covariance are patterns of the
    length of a window, and a component is what the windows hold of one pattern, averaged where they overlap.

    window_samples: length of a window; half of a shorter clip.
    """

    window_samples: int = 200

    def check_settings(self) -> None:
        if self.window_samples < 2:
            raise InputError(
                f"expected a window of at least 2 samples, got {self.window_samples}; 200 is usual."
            )

    def reducer(self, clip: Tensor) -> Reduce:
        window = min(self.window_samples, (len(clip) + 1) // 2)
        windows = clip.unfold(0, window, 1)
        _, patterns = torch.linalg.eigh(windows.T @ windows)

        @cache
        def weakest(count: int) -> Tensor:
            """The sum of the `count` weakest components; eigenvalues come in rising order."""
            return projected(clip, patterns[:, :count] @ patterns[:, :count].T)

        def reduce(radius: float) -> Tensor:
            low, high = 0, window + 1
            while high - low > 1:
                middle = (low + high) // 2
                fits = float(torch.linalg.vector_norm(weakest(middle))) <= radius
                low, high = (middle, high) if fits else (low, middle)
            return -weakest(low)

        return reduce


def one_sided(clip: Tensor) -> tuple[Tensor, Tensor]:
    """The spectrum of a real clip and the weights by which its squared magnitudes sum to the clip's energy.

    Every bin stands for two, but for the one at 0 Hz and, where the length is even, the one at the Nyquist
    frequency.
    """
    spectrum: Tensor = torch.fft.rfft(clip)
    weights = torch.full((len(spectrum),), 2.0, dtype=clip.dtype, device=clip.device)
    weights[0] = 1.0
    if len(clip) % 2 == 0:
        weights[-1] = 1.0
    return spectrum, weights / len(clip)


def projected(clip: Tensor, projector: Tensor) -> Tensor:
    """Each window of the clip `(time,)` through a `(window, window)` matrix, averaged where windows overlap.

    Away from the ends that is a filter: its tap at distance d is the mean of the d-th diagonal, counting the
    missing places as zeros. At the ends fewer windows overlap, and they are averaged one by one.
    """
    window, time = len(projector), len(clip)
    edge = min(2 * window - 2, time)
    if time < 2 * window - 1 or window < 2:
        return _averaged(clip, projector)
    places = torch.arange(window, device=clip.device)
    taps = clip.new_zeros(2 * window - 1)
    taps.index_add_(0, (places - places[:, None] + window - 1).flatten(), projector.flatten())
    size = next_fast_len(time + 2 * window - 2, real=True)
    filtered: Tensor = torch.fft.irfft(torch.fft.rfft(clip, n=size) * torch.fft.rfft(taps, n=size), n=size)
    outcome = filtered[window - 1 : window - 1 + time] / window
    outcome[: window - 1] = _averaged(clip[:edge], projector)[: window - 1]
    outcome[time - window + 1 :] = _averaged(clip[time - edge :], projector)[edge - window + 1 :]
    return outcome


def _averaged(clip: Tensor, projector: Tensor) -> Tensor:
    """`projected`, window by window."""
    window = len(projector)
    windows = clip.unfold(0, window, 1) @ projector
    total, count = torch.zeros_like(clip), torch.zeros_like(clip)
    for place in range(window):
        total[place : place + len(windows)] += windows[:, place]
        count[place : place + len(windows)] += 1.0
    return total / count


def _reduced(reducers: Sequence[Reduce], radius: Tensor, clean: AudioBatch) -> Tensor:
    """The perturbation of each clip at its size, `(batch, time)`."""
    delta = torch.zeros_like(clean.waveforms)
    for row, (reduce, size) in enumerate(zip(reducers, radius.tolist(), strict=True)):
        part = reduce(size)
        delta[row, : len(part)] = part.to(delta.dtype)
    return delta
