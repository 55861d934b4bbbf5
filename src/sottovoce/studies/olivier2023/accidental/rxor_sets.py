"""RXOR in two dimensions: points of a margin, and networks trained on them (sections 3.3 and 3.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from sottovoce.errors import InputError, UnknownName
from sottovoce.registry.part_text import Part
from sottovoce.studies.olivier2023.accidental.network_batch import (
    BlockDraws,
    Design,
    Nesterov,
    Networks,
    draw_ball,
)

POINTS = 1000
"""Of every training and every test."""
Loss = Literal["bce", "hinge", "squared"]
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bce": lambda scores, signs: softplus(-signs * scores),
    "hinge": lambda scores, signs: torch.relu(1.0 - signs * scores),
    "squared": lambda scores, signs: (scores - signs) ** 2,
}


@final
@dataclass(frozen=True, kw_only=True)
class Training:
    """How networks are trained. Steps and radius are the thesis's; it does not give rate, loss and batch.

    batch: points a step. With 50, twenty steps are one pass through the 1,000 points.
    """

    rate: float = 1.0
    loss: Loss = "bce"
    batch: int = 50
    steps: int = 20
    radius: float = 25.0

    @classmethod
    def read(cls, text: str | None) -> Training:
        """`sgd(rate=0.1, loss=hinge, batch=1000)`."""
        if text is None:
            return cls()
        part = Part.parse(text)
        known = {name: type(value) for name, value in vars(cls()).items()}
        if part.name != "sgd":
            raise UnknownName("training", part.name, ["sgd"])
        for name, value in part.settings.items():
            if name not in known:
                raise UnknownName("setting of sgd", name, known)
            if name != "loss" and (
                isinstance(value, bool) or not isinstance(value, int | float) or value <= 0
            ):
                raise InputError(f"sgd({name}={value}): expected a number above 0.")
            if name in ("batch", "steps") and not isinstance(value, int):
                raise InputError(f"sgd({name}={value}): expected an integer.")
        return cls.checked(cls(**part.settings))

    @staticmethod
    def checked(made: Training) -> Training:
        if made.loss not in LOSSES:
            raise UnknownName("loss", str(made.loss), LOSSES)
        if made.batch > POINTS:
            raise InputError(
                f"sgd(batch={made.batch}): expected at most {POINTS:,}, the points of a training."
            )
        return made

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def draw_points(draws: BlockDraws, margin: float, count: int = POINTS) -> Tensor:
    """`(networks, count, 2)`: each coordinate's size uniform between the margin and 1, each sign a coin."""
    drawn = 2.0 * draws.random(count, 2) - 1.0
    # A number of [-1, 1) gives a sign and, on its own, a size.
    return torch.where(drawn < 0, -1.0, 1.0) * (margin + (1.0 - margin) * drawn.abs())


def signs_of(points: Tensor) -> Tensor:
    """+1 where the signs of the coordinates differ, -1 where they do not."""
    return torch.where((points[..., 0] > 0) != (points[..., 1] > 0), 1.0, -1.0)


def train(design: Design, training: Training, margin: float, draws: BlockDraws) -> tuple[Networks, Tensor]:
    """Networks from the ball, each trained on points of its own; and which classify all of those.

    Where the batches come to more points than there are, they begin again at the first.
    """
    networks = Networks(design, draw_ball(design, training.radius, draws))
    points = draw_points(draws, margin)
    signs = signs_of(points)
    descent = Nesterov(networks, training.rate)
    for step in range(training.steps):
        batch = torch.arange(step * training.batch, (step + 1) * training.batch) % POINTS
        chosen, wanted = (points, signs) if training.batch == POINTS else (points[:, batch], signs[:, batch])
        scores = descent.fresh().scores(chosen, training=True, draws=draws)[..., 0]
        descent.step(LOSSES[training.loss](scores, wanted).mean(dim=1))
    return networks, all_right(networks, points)


def all_right(networks: Networks, points: Tensor) -> Tensor:
    """Whether each network classifies every point; an output of 0 says that the signs are the same."""
    with torch.no_grad():
        right = (networks.scores(points)[..., 0] > 0) == (signs_of(points) > 0)
    return right.all(dim=1)
