"""A universal perturbation by gradient ascent, for any goal on any target with a loss.

Neekhara et al. (2019), "Universal adversarial perturbations for speech recognition systems", and for
languages Olivier (2023), eq. 5.3: one waveform v raises the mean objective over all clips. It is repeated for
longer clips and cut for shorter ones, in the fit and in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.attacks.universal_deepfool import Crowd, Progress
from sottovoce.core.attack import climb, decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target, require_capabilities, require_sight
from sottovoce.core.universal_attack import Perturbation, UniversalAttack, check_norm


@final
@dataclass(frozen=True, kw_only=True)
class UniversalGradient(UniversalAttack):
    """One perturbation for all clips by gradient (Neekhara et al. 2019), for any goal and model.

    Each step follows the mean of the gradients of a small batch of clips, normalised clip by clip: a model
    that is confident about a clip has almost no gradient there, and a plain mean would leave the hard clips
    out. The v that reaches the goal on most clips is kept; of several, the one with the highest mean
    objective.

    epochs: passes through the clips, each in another order.
    step: length of a step, as a share of the budget's radius; it falls linearly to a tenth over the epochs.
    momentum: share of the last direction that is kept.
    ceiling: objective from which a clip is left out of the mean, such as a loss of 3 nats a token; None:
        never. A low one helps the clips of the fit at the cost of all others.
    seconds: length of v; None: as long as the longest clip.
    judge_every: epochs from one count of successes to the next.
    batch_clips: clips in each step.

    >>> model = sv.testing.ToyClassifier()
    >>> clips = sv.testing.clips_for(model)
    >>> found = sv.attacks.UniversalGradient(epochs=5).fit(
    ...     model, [clips], sv.goals.Evade(), sv.budgets.Snr(0), draws=sv.Draws(0))
    >>> any(sv.attack(model, clips, found, budget="snr(db=0)").achieved)
    True
    """

    name: ClassVar[str] = "universal-gradient"

    epochs: int = field(default=30, metadata=limits(at_least=1))
    step: float = field(default=0.5, metadata=limits(above=0))
    momentum: float = field(default=0.9, metadata=limits(at_least=0, below=1))
    ceiling: float | None = None
    seconds: float | None = field(default=None, metadata=limits(above=0))
    judge_every: int = field(default=1, metadata=limits(at_least=1))
    batch_clips: int = field(default=16, metadata=limits(at_least=1))

    def fit(
        self,
        target: Target,
        clips: Sequence[AudioBatch] | Iterable[AudioBatch],
        goal: Goal,
        budget: Budget,
        *,
        draws: Draws,
        progress: Progress | None = None,
    ) -> Perturbation:
        """One perturbation for all clips.

        A goal without references is bound to what the target says to the clean clips; one with references has
        one for each clip, in the order of `clips`.
        """
        require_sight(self, self.sees, target)
        require_capabilities(goal, goal.needs, target, "Use evade or force.")
        check_norm(self, budget)
        assert isinstance(budget, Ball)
        batches = list(clips)
        crowd = Crowd(target, batches, _bound(target, batches, goal, draws), budget, draws, self.batch_clips)
        size = crowd.clips.waveforms.shape[1]
        if self.seconds is not None:
            size = max(1, round(self.seconds * target.sample_rate))
        ascent = Ascent(crowd, size)
        total = self.epochs * -(-len(crowd) // self.batch_clips)
        taken = 0
        for epoch in range(self.epochs):
            pushing = False
            order = crowd.order(epoch)
            for first in range(0, len(order), self.batch_clips):
                rows = order[first : first + self.batch_clips]
                stride = self.step * (1.0 - 0.9 * taken / total)
                turn = draws.turn("epoch", epoch, "step", first)
                pushing |= ascent.push(rows, stride, self.momentum, self.ceiling, turn)
                taken += 1
                if progress is not None:
                    progress(epoch, min(first + len(rows), len(order)), ascent.share)
            last = epoch == self.epochs - 1 or not pushing
            if last or (epoch + 1) % self.judge_every == 0:
                ascent.judge()
            if last:
                break
        return Perturbation(ascent.best, crowd.clips.sample_rate, crowd.story(self, ascent.fooled))


@final
class Ascent:
    """The search for a waveform v, and the best one that was judged."""

    def __init__(self, crowd: Crowd, size: int) -> None:
        self._crowd = crowd
        self._radius = float(crowd.bound.radius(crowd.clips.select([0])))
        self.v = crowd.clips.waveforms.new_zeros(size)
        self._carried = torch.zeros_like(self.v)
        self.best, self.fooled, self._value = torch.zeros_like(self.v), -1, -torch.inf

    @property
    def share(self) -> float:
        """The share of clips that the best v fools."""
        return max(self.fooled, 0) / len(self._crowd)

    def push(
        self, rows: Sequence[int], stride: float, momentum: float, ceiling: float | None, draws: Draws
    ) -> bool:
        """One step for these clips; returns whether any of them still has a gradient."""
        crowd = self._crowd
        clean, delta = self._played(rows)
        value, gradient = climb(crowd.target, clean, delta, crowd.goal.select(rows), draws)
        done = value >= (torch.inf if ceiling is None else ceiling)
        gradient = crowd.budget.steepest(gradient, clean).masked_fill(done[:, None], 0.0)
        if not bool(gradient.any()):
            return False
        push = folded(gradient, len(self.v)).mean(dim=0)
        self._carried = momentum * self._carried + (1.0 - momentum) * push
        ahead = crowd.bound.steepest(self._carried[None], crowd.clips.select([0]))[0]
        step = stride * self._radius * ahead
        self.v = self._kept(self.v + step)
        return True

    def judge(self) -> None:
        """Count the clips that v fools, and keep v if it is the best so far."""
        fooled, total = 0, 0.0
        crowd = self._crowd
        for first in range(0, len(crowd), crowd.batch_clips):
            rows = range(first, min(first + crowd.batch_clips, len(crowd)))
            clean, delta = self._played(rows)
            batch, goal = clean.with_waveforms(clean.waveforms + delta), crowd.goal.select(rows)
            fooled += sum(goal.achieved(_read(crowd.target, batch, goal, crowd.draws)))
            with torch.no_grad():
                total += float(goal.objective(crowd.target, batch, draws=crowd.draws.turn("judge")).sum())
        if (fooled, total) > (self.fooled, self._value):
            self.best, self.fooled, self._value = self.v, fooled, total

    def _played(self, rows: Sequence[int]) -> tuple[AudioBatch, Tensor]:
        clean = self._crowd.clips.select(rows)
        if not bool(self.v.any()):
            return clean, torch.zeros_like(clean.waveforms)
        played = Perturbation(self.v, clean.sample_rate).played(clean, self._crowd.budget)
        return clean, within(clean, played)

    def _kept(self, v: Tensor) -> Tensor:
        """V inside the bound.

        At its edge if the budget is relative to the clip: v is then scaled anyway, and steps keep their
        length relative to v.
        """
        bound, clip = self._crowd.bound, self._crowd.clips.select([0])
        return (bound.fill if self._crowd.budget.relative else bound.project)(v[None], clip)[0]


def folded(gradient: Tensor, size: int) -> Tensor:
    """Gradients of the clips, `(batch, time)`, as gradients of a v of `size` samples that repeats."""
    turns = -(-gradient.shape[1] // size)
    padded = torch.nn.functional.pad(gradient, (0, turns * size - gradient.shape[1]))
    return padded.view(len(gradient), turns, size).sum(dim=1)


def _read(target: Target, batch: AudioBatch, goal: Goal, draws: Draws) -> list[str]:
    """What success is judged by; a goal that is not about the text is not decoded."""
    texts = decode(target, batch, draws) if goal.about == "text" else [""] * len(batch)
    return goal.read(target, batch, texts, draws=draws.turn("judge"))


def _bound(target: Target, batches: Sequence[AudioBatch], goal: Goal, draws: Draws) -> Goal:
    if goal.references:
        return goal
    return goal.bind([text for batch in batches for text in _read(target, batch, goal, draws)])
