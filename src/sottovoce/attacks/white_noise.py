"""Baselines: white noise that fills the budget, and no attack at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, Searchable
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Sight, Target


@final
@dataclass(frozen=True, kw_only=True)
class WhiteNoise(Attack):
    """White noise that fills the budget: the baseline that a real attack must beat.

    Gaussian noise on the surface of an L2 ball, uniform noise inside an L-infinity ball, and Gaussian noise
    scaled to the edge of any other budget. A model that it fools is not robust to ordinary noise either.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> trial = sv.attack("keyword", clips, sv.attacks.WhiteNoise(), budget="snr(db=40)")
    >>> trial.achieved
    (False, False)
    """

    name: ClassVar[str] = "noise"

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)
    sees: ClassVar[Sight] = "nothing"

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Searchable)
        return budget.noise(clean, draws)


@final
@dataclass(frozen=True, kw_only=True)
class Nothing(Attack):
    """No attack: the clips stay as they are, to measure clean accuracy or word error rate alone.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> trial = sv.attack("keyword", clips, "none")
    >>> bool(trial.delta.any()), trial.clean_texts == trial.labels
    (False, True)
    """

    name: ClassVar[str] = "none"

    sees: ClassVar[Sight] = "nothing"

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return torch.zeros_like(clean.waveforms)
