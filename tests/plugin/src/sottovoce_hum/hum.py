"""The attack."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

import sottovoce as sv


@final
@dataclass(frozen=True, kw_only=True)
class Hum(sv.Attack):
    """A sine that fills the budget, at a phase of its own for each clip."""

    frequency_hz: float = 50.0

    budgets: ClassVar[tuple[type[sv.Budget], ...]] = (sv.Ball,)

    def perturb(
        self, target: sv.Target, clean: sv.AudioBatch, goal: sv.Goal, budget: sv.Budget, draws: sv.Draws
    ) -> Tensor:
        time = torch.arange(clean.waveforms.shape[1], device=clean.device) / clean.sample_rate
        phases = 2.0 * math.pi * draws.fractions(clean, 1)
        hum = torch.sin(2.0 * math.pi * self.frequency_hz * time + phases)
        # Loud enough for any budget, and cut to the clip, so that the projection fills the budget.
        return 1e3 * clean.with_waveforms(hum).waveforms
