"""A linear model of two classes, whose best attack is known by hand, and clips for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.training.learner import ClassLearner, apart
from sottovoce.training.sources import ClipsInMemory, hold_clips

RATE = 100
CLASSES = ("up", "down")


class Linear(nn.Module):
    """Scores w.x and -w.x of clips `(batch, 16)`, behind dropout."""

    def __init__(self, weight: list[float], dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.drop = nn.Dropout(dropout)

    def forward(self, waveforms: Tensor) -> Tensor:
        score = self.drop(waveforms) @ self.weight
        return torch.stack([score, -score], dim=1)


MakeLearner = Callable[..., ClassLearner]
MakeClips = Callable[..., ClipsInMemory]


@pytest.fixture
def make_learner() -> MakeLearner:
    """A learner of 16 weights, or of those given."""

    def make(weight: list[float] | None = None, dropout: float = 0.0) -> ClassLearner:
        module = Linear(weight or [0.0] * 16, dropout)
        return ClassLearner(
            module,
            name="linear",
            read=apart,
            as_target=lambda module: ModuleClassifier(module, CLASSES, RATE),
        )

    return make


@pytest.fixture
def make_clips() -> MakeClips:
    """The problem of Tsipras et al. (2019, "Robustness may be at odds with accuracy"), section 2.1.

    One sample is large and right nine times in ten; fifteen are small and noisy, and together always right.
    An attack of 0.1 turns the fifteen over and leaves the one.
    """

    def make(count: int, seed: int) -> ClipsInMemory:
        random = np.random.default_rng(seed)
        sign = random.choice([-1.0, 1.0], count)
        large = 0.5 * sign * np.where(random.random(count) < 0.9, 1.0, -1.0)
        small = 0.06 * sign[:, None] + random.normal(0.0, 0.06, (count, 15))
        rows = np.column_stack([large, small])
        return hold_clips(
            [(row * 32768).round().astype(np.int16) for row in rows],
            [CLASSES[int(one < 0)] for one in sign],
            [str(place) for place in range(count)],
            RATE,
        )

    return make
