"""Projected gradient ascent (Madry et al. 2018) and its one-step ancestor, on any target with a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Best, climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, Searchable
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target
from sottovoce.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class Fgsm(Attack):
    """One step up the gradient to the edge of the budget: along its sign for L-infinity, along the gradient
    itself for L2."""

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Searchable)
        _, gradient = climb(target, clean, torch.zeros_like(clean.waveforms), goal, draws)
        return budget.fill(budget.steepest(gradient, clean), clean)


@final
@dataclass(frozen=True, kw_only=True)
class Pgd(Attack):
    """Many small steps up the goal's objective, each projected back into the budget; the best one is kept.

    steps: gradient steps a run.
    step: length of a step, as a share of the budget's radius.
    momentum: share of the last direction that is carried on (0: none; Dong et al. 2018 use up to 1).
    random_start: start the first run at a random point of the budget instead of the clean clip.
    restarts: runs in all; from the second on they start at random points.
    """

    steps: int = 40
    step: float = 0.1
    momentum: float = 0.0
    random_start: bool = False
    restarts: int = 1

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"expected at least 1 step and 1 run, got {self.steps} and {self.restarts}; raise them."
            )
        if self.step <= 0 or self.momentum < 0:
            raise InputError(
                f"expected step above 0 and momentum from 0, got {self.step} and {self.momentum}; "
                "0.1 and 0 are usual."
            )

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Searchable)
        best = Best(torch.zeros_like(clean.waveforms))
        for run in range(self.restarts):
            turn = draws.turn("run", run)
            start = torch.zeros_like(clean.waveforms)
            if run > 0 or self.random_start:
                start = budget.sample(clean, turn.turn("start"))
            self._ascend(best, start, target, clean, goal, budget, turn)
        return best.delta

    def _ascend(
        self,
        best: Best,
        delta: Tensor,
        target: Target,
        clean: AudioBatch,
        goal: Goal,
        budget: Searchable,
        draws: Draws,
    ) -> None:
        stride = self.step * budget.radius(clean).to(delta.dtype)[:, None]
        carried = torch.zeros_like(delta)
        for step in range(self.steps):
            value, gradient = climb(target, clean, delta, goal, draws.turn("step", step))
            best.update(delta, value)
            if self.momentum:
                level = gradient.abs().sum(dim=1, keepdim=True).clamp_min(torch.finfo(gradient.dtype).tiny)
                gradient = carried = self.momentum * carried + gradient / level
            delta = within(clean, budget.project(delta + stride * budget.steepest(gradient, clean), clean))
        with torch.no_grad():
            batch = clean.with_waveforms(clean.waveforms + delta)
            best.update(delta, goal.objective(target, batch, draws=draws.turn("step", self.steps)))
