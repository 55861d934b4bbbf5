"""Projected gradient descent (Madry et al. 2018) and the fast gradient sign method, for any target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Best, climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, Searchable
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target


@final
@dataclass(frozen=True, kw_only=True)
class Fgsm(Attack):
    """Fast gradient sign method (Goodfellow et al. 2015): one gradient step to the edge of the budget.

    The step follows the sign of the gradient in L-infinity and the gradient itself in L2. It is the cheapest
    attack; a model that resists it may still fall to `pgd`.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> sv.attack("keyword", clips, sv.attacks.Fgsm(), budget="snr(db=10)").achieved
    (True, True)
    """

    name: ClassVar[str] = "fgsm"

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Searchable)
        _, gradient = climb(target, clean, torch.zeros_like(clean.waveforms), goal, draws)
        return budget.fill(budget.steepest(gradient, clean), clean)


@final
@dataclass(frozen=True, kw_only=True)
class Pgd(Attack):
    """Projected gradient descent (Madry et al. 2018): many small gradient steps inside the budget.

    The first attack to try, on any model with a gradient. The best perturbation on the way is kept, so that
    more steps never make it worse.

    steps: gradient steps in each run.
    step: length of a step, as a share of the budget's radius.
    momentum: share of the last direction that is kept; 0 for none (Dong et al. 2018 use up to 1).
    random_start: start the first run at a random point of the budget instead of the clean clip.
    restarts: number of runs; from the second on they start at random points.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> sv.attack("keyword", clips, sv.attacks.Pgd(steps=20), budget="snr(db=30)").achieved
    (True, True)
    """

    name: ClassVar[str] = "pgd"

    steps: int = field(default=40, metadata=limits(at_least=1))
    step: float = field(default=0.1, metadata=limits(above=0))
    momentum: float = field(default=0.0, metadata=limits(at_least=0))
    random_start: bool = False
    restarts: int = field(default=1, metadata=limits(at_least=1))

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)

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
