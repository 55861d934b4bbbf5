"""Auto-PGD (Croce & Hein 2020): gradient ascent that finds its own step length, clip by clip."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Best, climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, Searchable
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Scores, Target
from sottovoce.errors import InputError


@dataclass(frozen=True, kw_only=True)
class AutoPgd(Attack):
    """Steps of twice the radius at first; at checkpoints a clip that no longer climbs well goes back to its
    best point with half the step. The first step from the clean clip lands on FGSM's point.

    steps: gradient steps a run.
    momentum: the paper's alpha, the share of the new step; the rest goes on along the last move.
    rho: share of steps since the last checkpoint that must climb for the step length to stay.
    restarts: runs in all; the first starts at the clean clip, the others at random points.
    """

    steps: int = 100
    momentum: float = 0.75
    rho: float = 0.75
    restarts: int = 1

    budgets: ClassVar[tuple[type[Budget], ...]] = (Searchable,)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"expected at least 1 step and 1 run, got {self.steps} and {self.restarts}; raise them."
            )
        if not (0 < self.momentum <= 1 and 0 <= self.rho <= 1):
            raise InputError(
                "expected momentum above 0 and rho from 0, both up to 1, got "
                f"{self.momentum} and {self.rho}; 0.75 is usual for both."
            )

    @abstractmethod
    def climbed(self, target: Target, goal: Goal) -> Goal:
        """The goal whose objective is climbed on the way to `goal`."""

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
    """Auto-PGD up the goal's own objective (the cross-entropy of a classifier): for every target."""

    def climbed(self, target: Target, goal: Goal) -> Goal:
        return goal


@final
@dataclass(frozen=True, kw_only=True)
class ApgdDlr(AutoPgd):
    """Auto-PGD up the difference of logits ratio, which a model cannot flatten by scaling its scores."""

    needs: ClassVar[tuple[type, ...]] = (Scores,)

    def climbed(self, target: Target, goal: Goal) -> Goal:
        classes = target.power(Scores).classes
        if len(classes) < 3:
            raise InputError(
                f"expected a classifier with 3 or more classes for the logit ratio, got {len(classes)}; "
                "use apgd instead of apgd-dlr."
            )
        return LogitRatio(goal, references=goal.references)


@final
@dataclass(frozen=True)
class LogitRatio(Goal):
    """A goal climbed by its margin over z_1 - z_3, the gap from the best to the third best score (eq. 6).

    That is the paper's loss where one class loses and all others win. Where several lose (`Force`) the mean
    of the scores stands in for z_3: while the wanted class lies behind the third, raising z_1 would raise the
    ratio to z_1 - z_3 and lead away from the goal. Once the goal is reached the margin itself is climbed: the
    ratio would rise by letting all other scores meet, at the cost of the margin.
    """

    inner: Goal

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        scorer = target.power(Scores)
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
    """Steps at which each clip's progress is looked at: ceil(p_j * steps) for the p_j of section 3.2."""
    # In hundredths, because 0.57 * 100 is above 57 in floating point and would be rounded up to 58.
    shares = [0, 22]
    while shares[-1] < 100:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 3, 6))
    return [-(-share * steps // 100) for share in shares[1:-1]]


@final
class StepLengths:
    """The step length of each clip, `stride (batch,)`, and what its halving hangs on."""

    def __init__(self, stride: Tensor, value: Tensor, rho: float) -> None:
        self.stride = stride
        self._rho = rho
        self._last = self._record = value
        self._steps = 0
        self._rises = torch.zeros_like(stride)
        self._halved = torch.zeros_like(stride, dtype=torch.bool)

    def note(self, value: Tensor) -> None:
        """Count whether the newest objective, `(batch,)`, is above the one before."""
        self._rises += value > self._last
        self._steps += 1
        self._last = value

    def review(self, record: Tensor) -> Tensor:
        """Halve strides by conditions 1 and 2, given the best values so far; which clips must go back."""
        wavers = self._rises < self._rho * self._steps
        stuck = ~self._halved & (record <= self._record)
        self._halved = wavers | stuck
        self.stride = torch.where(self._halved, self.stride / 2, self.stride)
        self._last = torch.where(self._halved, record, self._last)
        self._record, self._steps, self._rises = record, 0, torch.zeros_like(self._rises)
        return self._halved
