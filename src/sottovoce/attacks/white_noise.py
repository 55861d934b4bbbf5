"""White noise that fills the budget: the baseline that every attack must beat; and no attack at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Sight
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, Searchable
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target


@final
@dataclass(frozen=True, kw_only=True)
class WhiteNoise(Attack):
    """Gaussian noise on the surface of an L2 ball, uniform noise inside an L-infinity one, and otherwise
    Gaussian noise turned up until the budget is full."""

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)
    sees: ClassVar[Sight] = "nothing"

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Searchable)
        return budget.noise(clean, draws)


@final
@dataclass(frozen=True, kw_only=True)
class Nothing(Attack):
    """Clips as they are: a plan of it alone measures clean accuracy or WER, and no robustness."""

    sees: ClassVar[Sight] = "nothing"

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return torch.zeros_like(clean.waveforms)
