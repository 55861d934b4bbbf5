"""A genetic search that adapts its mutations, then estimates gradients when it is close.

Taori, Kamsetty, Chu and Vemuri (2019), "Targeted adversarial examples for black box audio systems". The
original forces a phrase on a CTC model and has no bound but its noise; here any goal and target will do, and
the budget bounds the perturbation. The losses of recognisers are per token, and so is `momentum_gain`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import scipy
import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from sottovoce.attacks.genetic import Contest, offspring
from sottovoce.core.attack import Attack, Sight, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Become, Goal
from sottovoce.core.target import Target
from sottovoce.errors import InputError

_FILTER_ORDER = 10
# Below this a change of a per-token loss is as much rounding as gain.
_LEAST_CHANGE = 1e-5


@final
class SearchPace:
    """How each clip of a run is searched, by its row; it changes from generation to generation.

    level: of a sample in noise that fills the budget, `(batch,)`.
    rate: share of samples that are kicked, `(batch,)`.
    stride: longest change of a sample along the slopes, `(batch,)`.
    spots: the samples that the members of a clip shift, where slopes are being taken.
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
        """Mutate more where the fittest gained little; fitness: `(rows,)`, of the fittest of each clip."""
        picked = torch.as_tensor(list(rows), device=fitness.device)
        change = (fitness.double() - self._last[picked]).abs()
        exact = (momentum * self._exact[picked] + gain / change).clamp(max=1.0)
        # No change tells nothing, and in the first generation there is nothing to compare with.
        told = change > _LEAST_CHANGE
        self._exact[picked] = torch.where(told, exact, self._exact[picked])
        # In steps of a quarter of an octave: the last digits of a loss must not decide whom a kick hits.
        self.rate[picked] = torch.where(told, 2.0 ** ((4.0 * exact.log2()).round() / 4.0), self.rate[picked])
        self._last[picked] = fitness.double()


@final
@dataclass(frozen=True, kw_only=True)
class Taori(Attack):
    """Children of the fittest get high-pass noise, more of it the less the last generation gained.

    Once a recogniser's text is within `near` edits of the wanted one, the clip's population changes its work:
    each member shifts one random sample of the best perturbation, which gives that sample's slope, and the
    best takes a step along the slopes.

    steps: generations after the first.
    population: perturbations a clip, and samples whose slope is taken at once.
    elite: how many of the fittest are parents.
    temperature: of the softmax that picks among them; lower is greedier.
    mutation_rate: share of a child's samples that are kicked, at first.
    mutation_size: of a kick, as a share of a sample's level in noise that fills the budget.
    momentum, momentum_gain: the rate becomes momentum x rate + momentum_gain / gain in fitness.
    cutoff: of the high-pass filter, as a share of the Nyquist frequency (7 of 8 kHz).
    near: edits from the wanted text at which slopes take over; 0 for never.
    probe_size: by how much a sample is shifted to find its slope, as a share of its level in full noise.
    stride: the longest change of a sample in a step along the slopes, in the same unit.
    stride_decay: factor on the stride after each such step.
    batch_clips: perturbed clips that the target hears at once; bounds the memory.
    """

    steps: int = 500
    population: int = 100
    elite: int = 10
    temperature: float = 0.1
    mutation_rate: float = 5e-3
    mutation_size: float = 1.0
    momentum: float = 0.9
    momentum_gain: float = 1e-4
    cutoff: float = 7 / 8
    near: int = 2
    probe_size: float = 0.25
    stride: float = 2.0
    stride_decay: float = 0.995
    batch_clips: int = 512

    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    sees: ClassVar[Sight] = "scores"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_clips < 1 or not 1 <= self.elite < self.population:
            raise InputError(
                "expected at least 1 step, 1 clip a batch and an elite from 1 to below the population, got "
                f"{self.steps} steps, {self.batch_clips} clips and an elite of {self.elite} in "
                f"{self.population}; 500, 512, 10 and 100 are usual."
            )
        shares = (self.mutation_rate, self.momentum, self.stride_decay)
        if not all(0 < share <= 1 for share in shares) or not 0 < self.cutoff < 1:
            raise InputError(
                "expected mutation rate, momentum and stride decay above 0 up to 1 and a cutoff between 0 "
                f"and 1, got {self.mutation_rate}, {self.momentum}, {self.stride_decay} and {self.cutoff}; "
                "0.005, 0.9, 0.995 and 0.875 are usual."
            )
        sizes = (self.temperature, self.mutation_size, self.probe_size, self.stride)
        if min(sizes) <= 0 or self.momentum_gain < 0 or self.near < 0:
            raise InputError(
                "expected temperature, mutation size, probe size and stride above 0, momentum gain and near "
                f"from 0, got {self}; leave them out for the usual ones."
            )

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
        """Children `(alive * population, time)` with high-pass noise on some of their samples; the first of
        each clip is spared. Returns `(alive, population, time)`."""
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
        """Rows whose text is so near to the wanted one that slopes take over."""
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
        """A step along the last slopes, and the same with one sample shifted, `(population, time)`."""
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
    """White noise `(batch, time)` through a Butterworth filter, at the level that it had before.

    cutoff: as a share of the Nyquist frequency.
    """
    sections = scipy.signal.butter(_FILTER_ORDER, cutoff, btype="high", output="sos")
    impulse = np.zeros(4096)
    impulse[0] = 1.0
    gain = np.linalg.norm(scipy.signal.sosfilt(sections, impulse))
    return torch.as_tensor(scipy.signal.sosfilt(sections, noise.cpu().double().numpy(), axis=1) / gain).to(
        noise
    )
