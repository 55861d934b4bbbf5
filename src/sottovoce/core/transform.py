"""Waveform to waveform, and the targets made by putting transforms in front of a target.

A defended target is a target: an attack that goes through it knows the defense without being told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Frames, Languages, Matches, Power, Says, Scores, Target, Timings, Word
from sottovoce.errors import InputError


class Transform(ABC):
    """A defense, a codec, a channel: same clips, same lengths, other samples. A subclass writes `apply`."""

    random: bool = False
    """Whether the samples hang on the draws."""

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

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.transform.random

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        with torch.no_grad():
            change = self.transform(batch, draws=draws).waveforms - batch.waveforms
        return batch.waveforms + change


class Wrapped(Target, Scores, Matches, Frames, Languages, Timings):
    """A target around a target. It has a power exactly where the inner target has it."""

    target: Target

    @property
    def sample_rate(self) -> int:  # type: ignore[override]
        return self.target.sample_rate

    @property
    def says(self) -> Says:  # type: ignore[override]
        return self.target.says

    @property
    def clips(self) -> str:  # type: ignore[override]
        return self.target.clips

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.target.random

    @property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.target.power(Scores).classes

    @property
    def languages(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.target.power(Languages).languages

    @property
    def shortest(self) -> int:
        return self.target.shortest

    @property
    def longest(self) -> int | None:
        return self.target.longest

    def check_labels(self, labels: Sequence[str]) -> None:
        self.target.check_labels(labels)

    def canonical(self, text: str) -> str:
        return self.target.canonical(text)

    def spell(self, log_probs: Tensor, frames: Tensor) -> list[str]:
        return self.target.power(Frames).spell(log_probs, frames)

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

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.target.random or any(transform.random for transform in self.transforms)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.target.loss(self._heard(batch, draws), labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.target.decode(self._heard(batch, draws), draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.power(Scores).scores(self._heard(batch, draws), draws=draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        inner, heard = self.target.power(Matches), self._heard(batch, draws)
        return inner.loss_and_match(heard, labels, draws=draws, first_token=first_token)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        return self.target.power(Frames).log_probs(self._heard(batch, draws), draws=draws)

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.power(Languages).language_scores(self._heard(batch, draws), draws=draws)

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[Word]]:
        return self.target.power(Timings).timings(self._heard(batch, draws), draws=draws)

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
        return self._mean(lambda turn: self.target.loss(batch, labels, draws=turn), draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.target.decode(batch, draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        inner = self.target.power(Scores)
        return self._mean(lambda turn: inner.scores(batch, draws=turn), draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The mean loss, and whether most passes match."""
        inner = self.target.power(Matches)
        found = [
            inner.loss_and_match(batch, labels, draws=turn, first_token=first_token)
            for turn in self._turns(draws)
        ]
        votes = torch.stack([match for _, match in found]).double().mean(dim=0)
        return torch.stack([loss for loss, _ in found]).mean(dim=0), votes > 0.5

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        """The mean of the log probabilities: all passes have the same frames."""
        found = [self.target.power(Frames).log_probs(batch, draws=turn) for turn in self._turns(draws)]
        return torch.stack([scores for scores, _ in found]).mean(dim=0), found[0][1]

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        inner = self.target.power(Languages)
        return self._mean(lambda turn: inner.language_scores(batch, draws=turn), draws)

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[Word]]:
        return self.target.power(Timings).timings(batch, draws=draws)

    def _turns(self, draws: Draws) -> list[Draws]:
        return [draws.turn("pass", k) for k in range(self.passes)]

    def _mean(self, ask: Callable[[Draws], Tensor], draws: Draws) -> Tensor:
        return torch.stack([ask(turn) for turn in self._turns(draws)]).mean(dim=0)
