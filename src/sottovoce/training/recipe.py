"""The settings of a run, its progress and its result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, final

from sottovoce.core.statistics import Interval
from sottovoce.errors import InputError

Data = Mapping[str, Mapping[str, Any]]
"""Of the clips for "training" and "validation": their name, number and hash."""


@final
@dataclass(frozen=True, kw_only=True)
class TrainingRecipe:
    """Everything that shapes a run besides model, data, hardening and device.

    epochs, minutes: how long; with both, whichever is over first. The learning rate has come down to zero
        by then.
    warm_up_steps: over which the learning rate rises.
    average_decay: of the moving average of the weights, which is validated and kept; 0: no average.
    check_epochs: epochs between two validations with a checkpoint.
    patience: validations without improvement until training stops; 0: never.
    attacked_clips: how many validation clips are attacked at each validation.
    half: write the weights in 16 bits.
    """

    epochs: int | None = 10
    minutes: float | None = None
    batch_size: int = 64
    learning_rate: float = 1e-3
    warm_up_steps: int = 50
    weight_decay: float = 0.01
    gradient_norm: float = 1.0
    average_decay: float = 0.0
    check_epochs: int = 1
    patience: int = 0
    attacked_clips: int = 256
    half: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        given = [long for long in (self.epochs, self.minutes) if long is not None]
        if not given or not all(0 < long < math.inf for long in given):
            raise InputError(f"expected --epochs or --minutes above 0, got {self.epochs} and {self.minutes}.")
        if min(self.batch_size, self.check_epochs) < 1 or not 0 < self.learning_rate < math.inf:
            raise InputError(
                f"expected a batch, a check and a learning rate above 0, got {self.batch_size}, "
                f"{self.check_epochs} and {self.learning_rate:g}; 64, 1 and 0.001 are usual."
            )
        if self.patience < 0:
            raise InputError(f"expected --patience of 0 or more, got {self.patience}; 0 never stops early.")
        if not 0 <= self.average_decay < 1:
            raise InputError(
                f"expected average_decay from 0 to 1, got {self.average_decay:g}; 0.999 is usual, 0 is none."
            )


@dataclass(kw_only=True)
class TrainingProgress:
    """The progress of a run."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_epoch: int = 0
    best_gain: float = -math.inf
    stale: int = 0
    stopped: bool = False
    history: list[dict[str, float]] = field(default_factory=list)


@final
@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """The result of a run on validation clips: before training, and with the weights that were written."""

    about: dict[str, str]
    hardening: dict[str, str]
    recipe: dict[str, Any]
    data: Data
    measure: str
    watched: str
    device: str
    epochs: int
    steps: int
    seconds: float
    best_epoch: int
    stopped_early: bool
    before: dict[str, Interval]
    valid: dict[str, Interval]
    history: list[dict[str, float]]

    def to_json(self) -> str:
        content = asdict(self)
        for name in ("before", "valid"):
            content[name] = {key: figure._asdict() for key, figure in getattr(self, name).items()}
        return json.dumps(content, indent=2) + "\n"


def learning_rate(recipe: TrainingRecipe, step: int, spent: float) -> float:
    """Linear warm-up over the first steps, then cosine decay as `spent` of training goes to 1."""
    risen = min(1.0, step / max(recipe.warm_up_steps, 1))
    return recipe.learning_rate * risen * 0.5 * (1.0 + math.cos(math.pi * min(spent, 1.0)))
