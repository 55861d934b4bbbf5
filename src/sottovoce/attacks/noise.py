"""White noise that fills the budget: the baseline that every attack must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from sottovoce.core.attack import Attack, Sight
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target


@final
@dataclass(frozen=True, kw_only=True)
class WhiteNoise(Attack):
    """Gaussian noise on the surface of an L2 ball, uniform noise inside an L-infinity one."""

    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    sees: ClassVar[Sight] = "nothing"

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        radius = budget.radius(clean).to(clean.waveforms.dtype)[:, None]
        if budget.norm == "linf":
            return draws.uniform(clean) * radius
        return budget.steepest(draws.normal(clean)) * radius
