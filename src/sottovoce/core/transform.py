"""Waveform to waveform, and the targets made by putting transforms in front of a target.

A defended target is a target: an attack that goes through it knows the defense without being told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Power, Scores, Target
from sottovoce.errors import InputError


class Transform(ABC):
    """A defense, a codec, a channel: same clips, same lengths, other samples. A subclass writes `apply`."""

    @abstractmethod
    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        """The new samples, `(batch, time)`; what falls into the padding is cut afterwards."""

    @final
    def __call__(self, batch: AudioBatch, *, draws: Draws) -> AudioBatch:
        return batch.with_waveforms(self.apply(batch, draws))


@final
@dataclass(frozen=True)
class StraightThrough(Transform):
    """The transform's output with an identity gradient: for rounding, codecs and other steps without one."""

    transform: Transform

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        with torch.no_grad():
            change = self.transform(batch, draws=draws).waveforms - batch.waveforms
        return batch.waveforms + change


class Wrapped(Target, Scores):
    """A target around a target. It has a power exactly where the inner target has it."""

    target: Target

    @property
    def sample_rate(self) -> int:  # type: ignore[override]
        return self.target.sample_rate

    @property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.target.power(Scores).classes

    @property
    def shortest(self) -> int:
        return self.target.shortest

    @property
    def longest(self) -> int | None:
        return self.target.longest

    def check_labels(self, labels: Sequence[str]) -> None:
        self.target.check_labels(labels)

    def power(self, kind: type[Power]) -> Power:
        self.target.power(kind)
        return super().power(kind)


@final
@dataclass(frozen=True)
class Defended(Wrapped):
    """A target that hears every clip through transforms, in order."""

    target: Target
    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        if not self.transforms:
            raise InputError("expected at least one transform, got none; attack the bare target instead.")

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.target.loss(self._heard(batch, draws), labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.target.decode(self._heard(batch, draws), draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.power(Scores).scores(self._heard(batch, draws), draws=draws)

    def _heard(self, batch: AudioBatch, draws: Draws) -> AudioBatch:
        for place, transform in enumerate(self.transforms):
            batch = transform(batch, draws=draws.turn("transform", place))
        return batch


@final
@dataclass(frozen=True)
class Averaged(Wrapped):
    """Expectation over transformation: loss and scores are means over `passes` draws of a random target.

    What a user reads is not averaged: `decode` is the inner target's own, one random pass.
    """

    target: Target
    passes: int = 16

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise InputError(f"expected at least 1 pass, got {self.passes}; 16 is usual.")

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        turns = [self.target.loss(batch, labels, draws=draws.turn("pass", k)) for k in range(self.passes)]
        return torch.stack(turns).mean(dim=0)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.target.decode(batch, draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        inner = self.target.power(Scores)
        return torch.stack(
            [inner.scores(batch, draws=draws.turn("pass", k)) for k in range(self.passes)]
        ).mean(dim=0)
