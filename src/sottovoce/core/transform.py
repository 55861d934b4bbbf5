"""Transforms from waveform to waveform, and targets with transforms in front of them.

A defended target is a target, so every attack on it is adaptive: its gradients go through the defense.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import CheckedSettings
from sottovoce.core.target import (
    Capability,
    CtcFrames,
    Languages,
    Matches,
    Says,
    Scores,
    Sight,
    Target,
    TimedWord,
    Timings,
)
from sottovoce.errors import InputError


class Transform(CheckedSettings, ABC):
    """A defense, a codec or a channel: the same clips with other samples. A subclass writes `apply`.

    Lengths stay as they are. Wrap a step without a useful gradient, such as rounding, so that attacks can go
    through it (`sottovoce.core.transform.straight_through`). Random transforms set `random = True` and take
    their numbers from `draws`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Gain(sv.Transform):
    ...     factor: float = 0.5
    ...     def apply(self, batch, draws):
    ...         return self.factor * batch.waveforms
    >>> batch = sv.AudioBatch.of([torch.tensor([0.5, -0.25])], sample_rate=16000)
    >>> Gain()(batch, draws=sv.Draws(0)).waveforms.tolist()
    [[0.25, -0.125]]
    """

    random: bool = False
    """True if the output depends on the draws."""

    @abstractmethod
    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        """The new samples, `(batch, time)`; what is written into the padding is removed afterwards."""

    @final
    def __call__(self, batch: AudioBatch, *, draws: Draws) -> AudioBatch:
        return batch.with_waveforms(self.apply(batch, draws))


@final
@dataclass(frozen=True)
class StraightThrough(Transform):
    """The transform's output with the gradient of the identity: for rounding, codecs and the like.

    >>> coarse = sv.defenses.StraightThrough(sv.defenses.Quantise(bits=4))
    >>> batch = sv.AudioBatch.of([torch.tensor([0.1, -0.3])], sample_rate=16000)
    >>> sound = batch.waveforms.clone().requires_grad_()
    >>> coarse(batch.with_waveforms(sound), draws=sv.Draws(0)).waveforms.sum().backward()
    >>> sound.grad.tolist()
    [[1.0, 1.0]]
    """

    transform: Transform

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.transform.random

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        with torch.no_grad():
            heard = self.transform(batch, draws=draws).waveforms
        return straight_through(batch.waveforms, heard)


def straight_through(waveforms: Tensor, heard: Tensor) -> Tensor:
    """The value of `heard`, exactly, with the gradient of the `waveforms` that went in."""
    return heard.detach() + (waveforms - waveforms.detach())


class Wrapped(Target, Scores, Matches, CtcFrames, Languages, Timings):
    """A target around a target. It has the capabilities of the inner target."""

    target: Target

    @property
    def sample_rate(self) -> int:  # type: ignore[override]
        return self.target.sample_rate

    @property
    def says(self) -> Says:  # type: ignore[override]
        return self.target.says

    @property
    def shows(self) -> Sight:
        return self.target.shows

    @property
    def clips(self) -> str:  # type: ignore[override]
        return self.target.clips

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.target.random

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        return self.target.repeats

    @property
    def paid(self) -> bool:  # type: ignore[override]
        return self.target.paid

    @property
    def known(self) -> Target:
        inside = self.target.known
        return self if inside is self.target else replace(self, target=inside)  # type: ignore[type-var]

    @property
    def classes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.target.capability(Scores).classes

    @property
    def languages(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.target.capability(Languages).languages

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
        return self.target.capability(CtcFrames).spell(log_probs, frames)

    def capability(self, kind: type[Capability]) -> Capability:
        """As the inner target has it; raises `MissingCapability` with its message."""
        self.target.capability(kind)
        return super().capability(kind)


@final
@dataclass(frozen=True)
class Defended(Wrapped):
    """A target behind transforms: every clip passes through them, in order, before the model hears it.

    >>> model = sv.open_model("keyword", device="cpu")
    >>> noisy = sv.defenses.Defended(model, (sv.defenses.Gaussian(sigma=0.01),))
    >>> noisy.random, noisy.classes == model.classes
    (True, True)
    """

    target: Target
    transforms: tuple[Transform, ...]

    def __post_init__(self) -> None:
        if not self.transforms:
            raise InputError("transforms must have at least one transform, got none; attack the bare target.")

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.target.random or any(transform.random for transform in self.transforms)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.target.loss(self._heard(batch, draws), labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.target.decode(self._heard(batch, draws), draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.capability(Scores).scores(self._heard(batch, draws), draws=draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        inner, heard = self.target.capability(Matches), self._heard(batch, draws)
        return inner.loss_and_match(heard, labels, draws=draws, first_token=first_token)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        return self.target.capability(CtcFrames).log_probs(self._heard(batch, draws), draws=draws)

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.capability(Languages).language_scores(self._heard(batch, draws), draws=draws)

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        return self.target.capability(Timings).timings(self._heard(batch, draws), draws=draws)

    def _heard(self, batch: AudioBatch, draws: Draws) -> AudioBatch:
        for place, transform in enumerate(self.transforms):
            batch = transform(batch, draws=draws.turn("transform", place))
        return batch


@final
@dataclass(frozen=True)
class Unsteady(Wrapped):
    """A target that gave two answers to the same clips and draws: random, and not reproducible by a seed."""

    target: Target

    @property
    def random(self) -> bool:  # type: ignore[override]
        return True

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        return False

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.target.loss(batch, labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.target.decode(batch, draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.capability(Scores).scores(batch, draws=draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        inner = self.target.capability(Matches)
        return inner.loss_and_match(batch, labels, draws=draws, first_token=first_token)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        return self.target.capability(CtcFrames).log_probs(batch, draws=draws)

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.capability(Languages).language_scores(batch, draws=draws)

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        return self.target.capability(Timings).timings(batch, draws=draws)


Ask = Callable[[AudioBatch, list[int]], tuple[Tensor, Tensor]]
"""Computes loss and match `(rows,)` of some rows of a batch."""


@final
@dataclass(frozen=True)
class Averaged(Wrapped):
    """Expectation over transformation: loss and scores are means over `passes` draws of a random target.

    `decode` is not averaged: it is one random pass of the inner target.

    at_once: clips in one forward pass; gradients are added up piece by piece, so that memory does not grow
        with the number of passes.

    >>> model = sv.testing.ToyClassifier()
    >>> noisy = sv.defenses.Defended(model, (sv.defenses.Gaussian(sigma=0.1),))
    >>> averaged = sv.defenses.Averaged(noisy, passes=8)
    >>> averaged.loss(sv.testing.clips_for(model), [model.classes[0]] * 4, draws=sv.Draws(0)).shape
    torch.Size([4])
    """

    target: Target
    passes: int = 16
    at_once: int = 128

    def __post_init__(self) -> None:
        if self.passes < 1 or self.at_once < 1:
            raise InputError(
                f"passes and at_once must be at least 1, got {self.passes} and {self.at_once}; 16 and 128 "
                "are usual."
            )

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        def ask(piece: AudioBatch, rows: list[int]) -> tuple[Tensor, Tensor]:
            loss = self.target.loss(piece, [labels[row] for row in rows], draws=draws.turn("pass"))
            return loss, torch.zeros_like(loss)

        return self._mean_loss(batch, ask)[0]

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.target.decode(batch, draws=draws)

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        inner = self.target.capability(Scores)
        return self._mean(batch, lambda piece: inner.scores(piece, draws=draws.turn("pass")))

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The mean loss, and whether more than half of the passes match."""
        inner = self.target.capability(Matches)

        def ask(piece: AudioBatch, rows: list[int]) -> tuple[Tensor, Tensor]:
            wanted = [labels[row] for row in rows]
            return inner.loss_and_match(piece, wanted, draws=draws.turn("pass"), first_token=first_token)

        loss, votes = self._mean_loss(batch, ask)
        return loss, votes > 0.5

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        """The mean of the log probabilities: all passes have the same frames."""
        inner, frames = self.target.capability(CtcFrames), torch.zeros_like(batch.lengths)
        found: list[Tensor] = []
        # A pass at a time: clips of other lengths would have other frames.
        for rows, piece in batch.passes(self.passes, len(batch)):
            scores, counts = inner.log_probs(piece, draws=draws.turn("pass"))
            frames[rows] = counts.to(frames)
            found.append(scores)
        return torch.stack(found).mean(dim=0), frames

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        inner = self.target.capability(Languages)
        return self._mean(batch, lambda piece: inner.language_scores(piece, draws=draws.turn("pass")))

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        return self.target.capability(Timings).timings(batch, draws=draws)

    def _mean(self, batch: AudioBatch, ask: Callable[[AudioBatch], Tensor]) -> Tensor:
        """The mean of scores `(batch, n)` over the passes."""
        pieces = list(batch.passes(self.passes, self.at_once))
        rows = torch.tensor([row for some, _ in pieces for row in some], device=batch.device)
        scores = torch.cat([ask(piece) for _, piece in pieces])
        return scores.new_zeros(len(batch), scores.shape[1]).index_add(0, rows, scores) / self.passes

    def _mean_loss(self, batch: AudioBatch, ask: Ask) -> tuple[Tensor, Tensor]:
        """The mean loss and the share of matches `(batch,)`."""
        if not (torch.is_grad_enabled() and batch.waveforms.requires_grad):
            value, share, _ = self._add_up(batch, ask, sloped=False)
            return value, share
        value, share, slope = self._add_up(batch.with_waveforms(batch.waveforms.detach()), ask, sloped=True)
        found: Tensor = _Known.apply(batch.waveforms, value, slope)  # type: ignore[no-untyped-call]
        return found, share

    def _add_up(self, batch: AudioBatch, ask: Ask, *, sloped: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Means of the loss, the match and, if `sloped`, the gradient `(batch, time)`."""
        total = torch.zeros(len(batch), device=batch.device)
        votes, slope = torch.zeros_like(total), torch.zeros_like(batch.waveforms)
        for rows, piece in batch.passes(self.passes, self.at_once):
            places = torch.tensor(rows, device=batch.device)
            leaf = piece.waveforms.requires_grad_(sloped)
            loss, match = ask(piece, rows)
            if sloped:
                (gradient,) = torch.autograd.grad(loss.sum(), leaf)
                slope[:, : leaf.shape[1]].index_add_(0, places, gradient)
            total.index_add_(0, places, loss.detach().to(total))
            votes.index_add_(0, places, match.to(votes))
        return total / self.passes, votes / self.passes, slope / self.passes


@final
class _Known(torch.autograd.Function):
    """A loss `(batch,)` whose gradient `(batch, time)` is known already.

    No clip's loss depends on another clip.
    """

    @staticmethod
    def forward(ctx: Any, waveforms: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return weight[:, None] * slope, None, None
