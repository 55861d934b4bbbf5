"""A genetic search on class scores, without a gradient.

Alzantot, Balaji and Srivastava (2018), "Did you hear that? Adversarial examples against automatic speech
recognition". Two things differ. The original changes the eight lowest bits of a sample; here the budget says
how much may change. The original picks parents by the probability of success, which is flat where the model
is sure of itself; here they are picked by its logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Best, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Scores, Target
from sottovoce.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class Genetic(Attack):
    """Perturbations breed: the fitter one is, the more children it has, each a mix of two and a few kicks.

    A clip is done once it is fooled; the best perturbation of each clip is kept from first to last.

    steps: generations after the first.
    population: perturbations a clip; those of all clips are scored in one forward pass.
    elite: how many of the fittest live on unchanged.
    temperature: of the softmax that picks the parents; lower is greedier.
    mutation_rate: share of a child's samples that are kicked.
    mutation_size: how far a kicked sample moves, as a share of its level in noise that fills the budget.
    """

    steps: int = 500
    population: int = 20
    elite: int = 2
    temperature: float = 0.1
    mutation_rate: float = 5e-3
    mutation_size: float = 1.0

    needs: ClassVar[tuple[type, ...]] = (Scores,)
    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)

    def __post_init__(self) -> None:
        if self.steps < 1 or not 1 <= self.elite < self.population:
            raise InputError(
                f"expected at least 1 step and an elite from 1 to below the population, got {self.steps} "
                f"steps and an elite of {self.elite} in {self.population}; 500, 2 and 20 are usual."
            )
        if self.temperature <= 0 or self.mutation_size <= 0 or not 0 < self.mutation_rate <= 1:
            raise InputError(
                "expected temperature and mutation size above 0 and a mutation rate above 0 up to 1, got "
                f"{self.temperature}, {self.mutation_size} and {self.mutation_rate}; 0.1, 1 and 0.005 "
                "are usual."
            )

    @torch.no_grad()
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        best = Best(torch.zeros_like(clean.waveforms))
        alive = list(range(len(clean)))
        crowd = self._crowd(clean)
        herd = self._found(crowd, budget, draws.turn("first"))
        for step in range(self.steps + 1):
            turn = draws.turn("generation", step)
            margin, chance = self._judge(target, crowd, herd, goal.select(alive), turn)
            _note(best, alive, herd, margin)
            left = [place for place, row in enumerate(alive) if float(best.value[row]) <= 0.0]
            if not left or step == self.steps:
                break
            if len(left) < len(alive):
                alive = [alive[place] for place in left]
                crowd = self._crowd(clean.select(alive))
                herd = herd[left, :, : crowd.waveforms.shape[1]]
            herd = self._breed(herd, margin[left], chance[left], crowd, budget, turn)
        return best.delta

    def _crowd(self, clean: AudioBatch) -> AudioBatch:
        """Every clip once for each of its perturbations, `(batch * population, time)`."""
        return AudioBatch(
            clean.waveforms.repeat_interleave(self.population, dim=0),
            clean.lengths.repeat_interleave(self.population),
            clean.sample_rate,
            tuple(f"{name}/{member}" for name in clean.ids for member in range(self.population)),
        )

    def _found(self, crowd: AudioBatch, budget: Ball, draws: Draws) -> Tensor:
        """The first generation, `(batch, population, time)`: no change at all, and random ones."""
        herd = within(crowd, budget.sample(crowd, draws)).view(-1, self.population, crowd.waveforms.shape[1])
        herd[:, 0] = 0.0
        return herd

    def _judge(
        self, target: Target, crowd: AudioBatch, herd: Tensor, goal: Goal, draws: Draws
    ) -> tuple[Tensor, Tensor]:
        """The goal's margin, and its log probability of success, both `(batch, population)`."""
        power = target.power(Scores)
        scores = power.scores(crowd.with_waveforms(crowd.waveforms + herd.flatten(0, 1)), draws=draws)
        each = goal.bind([text for text in goal.references for _ in range(self.population)])
        wins = each.wins(power.classes).to(scores.device)
        chance = scores.double().log_softmax(dim=1).masked_fill(~wins, -torch.inf).logsumexp(dim=1)
        margin = each.margin(scores, power.classes)
        return margin.view(-1, self.population), chance.view(-1, self.population)

    def _breed(
        self, herd: Tensor, margin: Tensor, chance: Tensor, crowd: AudioBatch, budget: Ball, draws: Draws
    ) -> Tensor:
        """The next generation, `(batch, population, time)`: the elite, then children."""
        wheel = (chance / self.temperature).softmax(dim=1).cumsum(dim=1)
        spins = draws.turn("parents").fractions(crowd, 2).to(wheel).view(len(herd), -1)
        picks = torch.searchsorted(wheel, spins, right=True).clamp(max=self.population - 1)
        parents = herd[torch.arange(len(herd))[:, None], picks].view(-1, 2, herd.shape[2])
        heads = draws.turn("mix").uniform(crowd) < 0
        child = torch.where(heads, parents[:, 0], parents[:, 1])
        # One draw says both where a kick falls and, by its sign and size, which way it goes.
        lot = draws.turn("kick").uniform(crowd)
        kick = budget.steepest(lot.masked_fill(lot.abs() > self.mutation_rate, 0.0))
        # A share p of the samples of L2 noise has sqrt(p) of its norm; in L-infinity all reach the radius.
        reach = self.mutation_size * (1.0 if budget.norm == "linf" else self.mutation_rate**0.5)
        moved = child + reach * budget.radius(crowd).to(herd.dtype)[:, None] * kick
        bred = within(crowd, budget.project(moved, crowd)).view_as(herd)
        fittest = margin.argsort(dim=1, descending=True, stable=True)[:, : self.elite]
        bred[:, : self.elite] = herd.gather(1, fittest[:, :, None].expand(-1, -1, herd.shape[2]))
        return bred


def _note(best: Best, alive: list[int], herd: Tensor, margin: Tensor) -> None:
    """Keep each living clip's best perturbation; those of clips that are done stay as they are."""
    value, member = margin.max(dim=1)
    delta, level = best.delta.clone(), best.value.clone()
    delta[alive, : herd.shape[2]] = herd[torch.arange(len(herd)), member]
    level[alive] = value.to(level.dtype)
    best.update(delta, level)
