"""Attacks by removal: take away what a listener hardly misses, without a gradient.

Abdullah et al. (2021), "Hear 'no evil', see 'Kenansville'": speech is split into components, by a discrete
Fourier transform or by singular spectrum analysis, and the weakest are removed. The budget limits the energy
that is removed; a search for the least that changes the transcript needs only the model's texts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, final

import torch
from scipy.fft import next_fast_len
from torch import Tensor

from sottovoce.core.attack import Attack, decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget, NormName
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Goal
from sottovoce.core.quantisation import nearest_step
from sottovoce.core.target import Sight, Target

Reduce = Callable[[float], Tensor]
"""From a Euclidean length to the largest removal of at most that length, `(time,)`."""


@dataclass(frozen=True, kw_only=True)
class Removal(Attack):
    """What attacks by removal share; a subclass decides what a clip loses at a given size."""

    search: bool = True
    steps: int = field(default=8, metadata=limits(at_least=1))
    depth_db: float = field(default=40.0, metadata=limits(above=0))
    bits: int | None = 16

    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    sees: ClassVar[Sight] = "decisions"
    norms: ClassVar[tuple[NormName, ...]] = ("l2",)

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
        """The smallest success, found by bisection in decibels; `full` if there is none."""
        best, size = full.clone(), torch.full_like(radius, torch.inf)
        quiet, loud = torch.full_like(radius, -self.depth_db), torch.zeros_like(radius)
        delta, level = full, loud
        for _ in range(self.steps + 1):
            won = self._succeeds(target, clean, delta, goal, draws)
            length = torch.linalg.vector_norm(delta.double(), dim=1)
            smaller = won & (length < size)
            best, size = torch.where(smaller[:, None], delta, best), torch.where(smaller, length, size)
            loud = torch.where(won, level, loud)
            # A failure at the budget itself does not rule out smaller perturbations: search below it.
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
    """Kenansville (Abdullah et al. 2021): remove the weakest frequency bins of a clip.

    Needs only the model's answers. Meant for recognisers: the idea is that they rely on weak components that
    a person hardly misses.

    search: find the smallest removal that reaches the goal, clip by clip; without a success, or if this is
        off, the whole budget is used.
    steps: halvings of the search. A larger removal need not succeed where a smaller one did; the smallest
        success is kept.
    depth_db: how far below the budget the search goes, in decibels.
    bits: the grid on which a success must hold.

    >>> model = sv.testing.ToyCtc()  # a toy recogniser
    >>> attack = sv.attacks.Kenansville(steps=2)
    >>> sv.attack(model, sv.testing.clips_for(model), attack, budget="snr(db=0)").achieved
    (True, True, True, True)
    """

    name: ClassVar[str] = "kenansville"

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
    """Kenansville by singular spectrum analysis (Golyandina et al. 2001): remove the weakest components.

    Windows of the clip are the columns of a matrix. The eigenvectors of its covariance are patterns as long
    as a window, and a component is the part of the windows along one pattern, averaged where they overlap.
    The other settings are those of `kenansville`.

    window_samples: length of a window; half of the clip if that is shorter.

    >>> model = sv.testing.ToyCtc()  # a toy recogniser
    >>> attack = sv.attacks.KenansvilleSsa(steps=2, window_samples=50)
    >>> sv.attack(model, sv.testing.clips_for(model), attack, budget="snr(db=0)").achieved
    (True, True, True, True)
    """

    name: ClassVar[str] = "kenansville-ssa"
    window_samples: int = field(default=200, metadata=limits(at_least=2))

    def reducer(self, clip: Tensor) -> Reduce:
        window = min(self.window_samples, (len(clip) + 1) // 2)
        windows = clip.unfold(0, window, 1)
        _, patterns = torch.linalg.eigh(windows.T @ windows)

        @cache
        def weakest(count: int) -> Tensor:
            """The sum of the `count` weakest components; eigenvalues are in ascending order."""
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
    """The spectrum of a real clip, and weights with which its squared magnitudes sum to the clip's energy.

    Every bin counts twice, except the one at 0 Hz and, for an even length, the one at the Nyquist frequency.
    """
    spectrum: Tensor = torch.fft.rfft(clip)
    weights = torch.full((len(spectrum),), 2.0, dtype=clip.dtype, device=clip.device)
    weights[0] = 1.0
    if len(clip) % 2 == 0:
        weights[-1] = 1.0
    return spectrum, weights / len(clip)


def projected(clip: Tensor, projector: Tensor) -> Tensor:
    """Each window of the clip `(time,)` times a `(window, window)` matrix, averaged where windows overlap.

    Away from the ends this is a filter: its tap at distance d is the mean of the d-th diagonal, with missing
    places as zeros. At the ends, where fewer windows overlap, they are averaged one by one.
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
    """As `projected`, window by window."""
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
