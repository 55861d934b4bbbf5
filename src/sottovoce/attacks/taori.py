"""A genetic search with adaptive mutations that estimates gradients when it is close.

Taori, Kamsetty, Chu and Vemuri (2019), "Targeted adversarial examples for black box audio systems". The
original forces a phrase on a CTC model without a budget; here any goal and target will do, and the budget
limits the perturbation. The losses of recognisers are per token, and so is `momentum_gain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
import scipy
import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from sottovoce.attacks.genetic import Contest, check_elite, offspring
from sottovoce.core.attack import Attack, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Become, Goal
from sottovoce.core.target import Sight, Target

_FILTER_ORDER = 10
# A smaller change of a per-token loss may be rounding.
_LEAST_CHANGE = 1e-5


@final
class SearchPace:
    """The state of each clip's search, by its row; updated after every generation.

    level: of a sample in noise that fills the budget, `(batch,)`.
    rate: share of samples that are changed at random, `(batch,)`.
    stride: largest change of a sample in a gradient step, `(batch,)`.
    spots: the samples that the members of a clip shift to estimate the gradient.
    """

    def __init__(self, clean: AudioBatch, budget: Ball, rate: float, stride: float) -> None:
        samples = clean.lengths.double().sqrt() if budget.norm == "l2" else 1.0
        self.level = budget.radius(clean).double() / samples
        self.rate = torch.full_like(self.level, rate)
        self._exact = self.rate.clone()
        self.stride = stride * self.level
        self.spots: dict[int, Tensor] = {}
        self._last = torch.full_like(self.level, torch.nan)

    def adapt(self, rows: Sequence[int], fitness: Tensor, momentum: float, gain: float) -> None:
        """Mutate more if the fittest gained little. fitness: `(rows,)`, of the fittest of each clip."""
        picked = torch.as_tensor(list(rows), device=fitness.device)
        change = (fitness.double() - self._last[picked]).abs()
        exact = (momentum * self._exact[picked] + gain / change).clamp(max=1.0)
        # Without a change the rate stays, and in the first generation there is nothing to compare with.
        changed = change > _LEAST_CHANGE
        self._exact[picked] = torch.where(changed, exact, self._exact[picked])
        # In steps of a quarter of an octave: the last digits of a loss must not decide which samples change.
        self.rate[picked] = torch.where(
            changed, 2.0 ** ((4.0 * exact.log2()).round() / 4.0), self.rate[picked]
        )
        self._last[picked] = fitness.double()


@final
@dataclass(frozen=True, kw_only=True)
class Taori(Attack):
    """Genetic search with gradient estimation (Taori et al. 2019): needs scores, but no gradient.

    Like `genetic`, with mutations by high-pass noise that grow while there is little progress. Once a
    recogniser's text is within `near` edits of the wanted one, the population estimates the gradient instead:
    each member shifts one random sample, and the best takes a step along the estimate.

    steps: generations after the first. Every generation scores the whole population.
    population: perturbations for each clip, and samples of which the gradient is estimated at once.
    elite: how many of the fittest are parents.
    temperature: of the softmax that picks among them; lower is greedier.
    mutation_rate: share of a child's samples that are changed at random, at first.
    mutation_size: size of such a change, as a share of the sample's level in noise that fills the budget.
    momentum, momentum_gain: the rate becomes momentum x rate + momentum_gain / gain in fitness.
    cutoff: of the high-pass filter, as a share of the Nyquist frequency (7 of 8 kHz).
    near: edits from the wanted text at which gradients are estimated; 0 for never.
    probe_size: the shift of a sample to estimate its gradient, as a share of its level in full noise.
    stride: the largest change of a sample in a step along the estimate, in the same unit.
    stride_decay: factor on the stride after each such step.
    batch_clips: perturbed clips in one forward pass; limits the memory.

    >>> model = sv.testing.ToyClassifier()  # a real model takes hundreds of generations
    >>> attack = sv.attacks.Taori(steps=20, population=20, mutation_rate=0.1)
    >>> sv.attack(model, sv.testing.clips_for(model), attack, budget="snr(db=0)").achieved
    (True, True, True, True)
    """

    name: ClassVar[str] = "taori"

    steps: int = field(default=500, metadata=limits(at_least=1))
    population: int = 100
    elite: int = field(default=10, metadata=limits(at_least=1))
    temperature: float = field(default=0.1, metadata=limits(above=0))
    mutation_rate: float = field(default=5e-3, metadata=limits(above=0, at_most=1))
    mutation_size: float = field(default=1.0, metadata=limits(above=0))
    momentum: float = field(default=0.9, metadata=limits(above=0, at_most=1))
    momentum_gain: float = field(default=1e-4, metadata=limits(at_least=0))
    cutoff: float = field(default=7 / 8, metadata=limits(above=0, below=1))
    near: int = field(default=2, metadata=limits(at_least=0))
    probe_size: float = field(default=0.25, metadata=limits(above=0))
    stride: float = field(default=2.0, metadata=limits(above=0))
    stride_decay: float = field(default=0.995, metadata=limits(above=0, at_most=1))
    batch_clips: int = field(default=512, metadata=limits(at_least=1))

    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    sees: ClassVar[Sight] = "scores"

    def __post_init__(self) -> None:
        check_elite(self.elite, self.population)

    @torch.no_grad()
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        contest = Contest(target, clean, goal, self.population, self.batch_clips)
        pace = SearchPace(clean, budget, self.mutation_rate, self.stride)
        silence = torch.zeros_like(contest.crowd.waveforms)
        herd = self._allowed(self._kicked(silence, contest, pace, draws.turn("first")), contest.crowd, budget)
        for step in range(self.steps + 1):
            turn = draws.turn("generation", step)
            fitness, weight = contest.judge(herd, turn)
            if step == self.steps:
                break
            pace.adapt(contest.alive, fitness.amax(dim=1), self.momentum, self.momentum_gain)
            left = contest.leave(turn)
            if not left:
                break
            herd, fitness = herd[left, :, : contest.crowd.waveforms.shape[1]], fitness[left]
            moved = self._bred(herd, weight[left], contest, pace, turn)
            close = self._close(contest, goal)
            pace.spots = {row: spots for row, spots in pace.spots.items() if row in close}
            for place, row in enumerate(contest.alive):
                if row in close:
                    moved[place] = self._probes(herd[place], fitness[place], contest, pace, place, turn)
            herd = self._allowed(moved, contest.crowd, budget)
        return contest.best.delta

    def _allowed(self, moved: Tensor, crowd: AudioBatch, budget: Ball) -> Tensor:
        """`(alive, population, time)` inside the budget and [-1, 1]."""
        flat = moved.flatten(0, 1)
        return within(crowd, budget.project(flat, crowd)).view_as(moved)

    def _bred(self, herd: Tensor, weight: Tensor, contest: Contest, pace: SearchPace, draws: Draws) -> Tensor:
        """The best so far, then kicked children of the elite, `(alive, population, time)`."""
        least = weight.topk(self.elite, dim=1).values[:, -1:]
        elite = weight.masked_fill(weight < least, -torch.inf)
        child = offspring(herd, elite, self.temperature, contest.crowd, draws)
        moved = self._kicked(child, contest, pace, draws)
        moved[:, 0] = contest.leaders()
        return moved

    def _kicked(self, child: Tensor, contest: Contest, pace: SearchPace, draws: Draws) -> Tensor:
        """Children with high-pass noise on some of their samples, `(alive, population, time)`.

        child: `(alive * population, time)`; the first of each clip stays as it is.
        """
        crowd, picked = contest.crowd, torch.as_tensor(contest.alive, device=child.device)
        size, rate = (
            part[picked].repeat_interleave(self.population).to(child.dtype)[:, None]
            for part in (self.mutation_size * pace.level, pace.rate)
        )
        noise = high_passed(draws.turn("noise").normal(crowd), self.cutoff)
        struck = draws.turn("struck").uniform(crowd).abs() < rate
        moved = torch.where(struck & crowd.mask, child + size * noise, child)
        moved = moved.view(-1, self.population, child.shape[1])
        moved[:, 0] = child.view_as(moved)[:, 0]
        return moved

    def _close(self, contest: Contest, goal: Goal) -> frozenset[int]:
        """Rows whose text is so near to the wanted one that gradients are estimated."""
        if not isinstance(goal, Become) or contest.by_scores or self.near == 0:
            return frozenset()
        heard = {row: contest.texts[row] for row in contest.alive}
        return frozenset(
            row
            for row, text in heard.items()
            if text is not None
            and Levenshtein.distance(goal.canonical(text), goal.canonical(goal.texts[row])) <= self.near
        )

    def _probes(
        self, members: Tensor, fitness: Tensor, contest: Contest, pace: SearchPace, place: int, draws: Draws
    ) -> Tensor:
        """A step along the last estimate, and copies with one sample shifted each, `(population, time)`."""
        row, first = contest.alive[place], place * self.population
        base, spots = contest.leaders()[place].clone(), pace.spots.get(row)
        if spots is not None:
            slopes = fitness[1:] - fitness[0]
            steepest = slopes.abs().amax().clamp_min(torch.finfo(slopes.dtype).tiny)
            base = members[0].clone()
            base[spots] += (pace.stride[row] * slopes / steepest).to(base.dtype)
            pace.stride[row] *= self.stride_decay
        source = draws.turn("spots").generator(contest.crowd.ids[first])
        length = int(contest.crowd.lengths[first])
        spots = torch.as_tensor(source.integers(length, size=self.population - 1), device=base.device)
        pace.spots[row] = spots
        probes = base.repeat(self.population, 1)
        probes[torch.arange(1, self.population), spots] += (self.probe_size * pace.level[row]).to(base.dtype)
        return probes


def high_passed(noise: Tensor, cutoff: float) -> Tensor:
    """White noise `(batch, time)` through a Butterworth filter, at its former level.

    cutoff: as a share of the Nyquist frequency.
    """
    sections = scipy.signal.butter(_FILTER_ORDER, cutoff, btype="high", output="sos")
    impulse = np.zeros(4096)
    impulse[0] = 1.0
    gain = np.linalg.norm(scipy.signal.sosfilt(sections, impulse))
    return torch.as_tensor(scipy.signal.sosfilt(sections, noise.cpu().double().numpy(), axis=1) / gain).to(
        noise
    )
