"""Auto-PGD (Croce & Hein 2020): projected gradient descent that adapts its step length to each clip."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Best, climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, Searchable
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Goal
from sottovoce.core.target import Scores, Target
from sottovoce.errors import InputError


@dataclass(frozen=True, kw_only=True)
class AutoPgd(Attack):
    """What both objectives share: the search of algorithm 1.

    The first step is as long as twice the radius, and lands where FGSM does. At checkpoints a clip that made
    too little progress returns to its best point with half the step.
    """

    steps: int = field(default=100, metadata=limits(at_least=1))
    momentum: float = field(default=0.75, metadata=limits(above=0, at_most=1))
    rho: float = field(default=0.75, metadata=limits(at_least=0, at_most=1))
    restarts: int = field(default=1, metadata=limits(at_least=1))

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)

    @abstractmethod
    def climbed(self, target: Target, goal: Goal) -> Goal:
        """The goal whose objective is maximised in order to reach `goal`."""

    @final
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Searchable)
        goal = self.climbed(target, goal)
        best = Best(torch.zeros_like(clean.waveforms))
        for run in range(self.restarts):
            turn = draws.turn("run", run)
            start = torch.zeros_like(clean.waveforms)
            if run > 0:
                start = within(clean, budget.sample(clean, turn.turn("start")))
            found = self._ascend(start, target, clean, goal, budget, turn)
            best.update(found.delta, found.value)
        return best.delta

    def _ascend(
        self, delta: Tensor, target: Target, clean: AudioBatch, goal: Goal, budget: Searchable, draws: Draws
    ) -> Best:
        """One run of algorithm 1 from `delta`, `(batch, time)`; its best point and value."""
        marks = checkpoints(self.steps)
        value, slope = climb(target, clean, delta, goal, draws.turn("step", 0))
        pace = StepLengths(2.0 * budget.radius(clean).to(delta.dtype), value, self.rho)
        best, best_slope, before = Best(delta), slope, delta
        best.update(delta, value)
        for step in range(1, self.steps + 1):
            ahead = budget.project(delta + pace.stride[:, None] * budget.steepest(slope, clean), clean)
            share = self.momentum if step > 1 else 1.0
            moved = delta + share * (ahead - delta) + (1.0 - share) * (delta - before)
            before, delta = delta, within(clean, budget.project(moved, clean))
            value, slope = climb(target, clean, delta, goal, draws.turn("step", step))
            better = best.update(delta, value)
            best_slope = torch.where(better[:, None], slope, best_slope)
            pace.note(value)
            if step in marks:
                back = pace.review(best.value)[:, None]
                delta, slope = torch.where(back, best.delta, delta), torch.where(back, best_slope, slope)
        return best


@final
@dataclass(frozen=True, kw_only=True)
class Apgd(AutoPgd):
    """Auto-PGD (Croce & Hein 2020) with the model's own loss: gradient descent with adaptive step length.

    Works on every model with a gradient, and there is no step length to choose.

    steps: gradient steps in each run.
    momentum: the paper's alpha, the share of the new step; the rest continues the last move.
    rho: the share of steps since the last checkpoint that must raise the objective; with fewer the step
        length is halved.
    restarts: number of runs; the first starts at the clean clip, the others at random points.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> sv.attack("keyword", clips, sv.attacks.Apgd(steps=20), budget="snr(db=30)").achieved
    (True, True)
    """

    name: ClassVar[str] = "apgd"

    def climbed(self, target: Target, goal: Goal) -> Goal:
        return goal


@final
@dataclass(frozen=True, kw_only=True)
class ApgdDlr(AutoPgd):
    """Auto-PGD (Croce & Hein 2020) with the difference of logits ratio, for classifiers of 3 classes or more.

    Its loss does not change if a model scales its scores, which makes the gradient of the cross-entropy
    vanish. Run it beside `apgd`. Settings are those of `apgd`.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> sv.attack("keyword", clips, sv.attacks.ApgdDlr(steps=20), budget="snr(db=30)").achieved
    (True, True)
    """

    name: ClassVar[str] = "apgd-dlr"
    needs: ClassVar[tuple[type, ...]] = (Scores,)

    def climbed(self, target: Target, goal: Goal) -> Goal:
        classes = target.capability(Scores).classes
        if len(classes) < 3:
            raise InputError(
                f"apgd-dlr needs a classifier with 3 or more classes, got {len(classes)}. Use apgd."
            )
        return LogitRatio(goal, references=goal.references)


@final
@dataclass(frozen=True)
class LogitRatio(Goal):
    """A goal whose objective is its margin over z_1 - z_3, the best less the third best score (eq. 6).

    This is the paper's loss if one class loses and all others win. If several lose (`Force`) the mean of the
    scores takes the place of z_3: while the wanted class is behind the third, raising z_1 would raise the
    ratio to z_1 - z_3 and lead away from the goal. Once the goal is reached the objective is the margin
    itself: the ratio would rise by letting all other scores meet, at the cost of the margin.
    """

    inner: Goal

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        scorer = target.capability(Scores)
        scores = scorer.scores(batch, draws=draws)
        one_loses = (~self.wins(scorer.classes)).sum(dim=1).to(scores.device) == 1
        top = scores.topk(3, dim=1).values
        base = torch.where(one_loses, top[:, 2], scores.mean(dim=1))
        margin = self.margin(scores, scorer.classes)
        spread = (top[:, 0] - base).clamp_min(torch.finfo(scores.dtype).eps)
        return torch.where(margin > 0, margin, margin / spread)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return self.inner.bind(self.references).achieved(texts)

    def applies(self, reference: str) -> bool:
        return self.inner.applies(reference)

    def wins(self, classes: Sequence[str]) -> Tensor:
        return self.inner.bind(self.references).wins(classes)


def checkpoints(steps: int) -> list[int]:
    """The steps at which each clip's progress is reviewed: ceil(p_j * steps) for the p_j of section 3.2."""
    # In hundredths, because 0.57 * 100 is above 57 in floating point and would be rounded up to 58.
    shares = [0, 22]
    while shares[-1] < 100:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 3, 6))
    return [-(-share * steps // 100) for share in shares[1:-1]]


@final
class StepLengths:
    """The step length of each clip, `stride (batch,)`, and the counts that decide when it is halved."""

    def __init__(self, stride: Tensor, value: Tensor, rho: float) -> None:
        self.stride = stride
        self._rho = rho
        self._last = self._record = value
        self._steps = 0
        self._rises = torch.zeros_like(stride)
        self._halved = torch.zeros_like(stride, dtype=torch.bool)

    def note(self, value: Tensor) -> None:
        """Count whether the newest objective, `(batch,)`, is above the previous one."""
        self._rises += value > self._last
        self._steps += 1
        self._last = value

    def review(self, record: Tensor) -> Tensor:
        """Halve strides by conditions 1 and 2, given the best values so far; returns which were halved."""
        wavers = self._rises < self._rho * self._steps
        stuck = ~self._halved & (record <= self._record)
        self._halved = wavers | stuck
        self.stride = torch.where(self._halved, self.stride / 2, self.stride)
        self._last = torch.where(self._halved, record, self._last)
        self._record, self._steps, self._rises = record, 0, torch.zeros_like(self._rises)
        return self._halved
