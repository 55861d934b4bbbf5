"""Carlini & Wagner (2017), L2, for classifiers: the smallest perturbation that succeeds, found with Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.attack import Attack, Best, climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Goal
from sottovoce.core.quantisation import nearest_step, on_grid
from sottovoce.core.target import Scores, Target

HELD = Pgd(steps=20)
"""The attack on clips without a success inside an L2 budget."""
FLOAT_BITS = 24
"""The grid assumed for samples that are not rounded: the precision of a float near full scale."""


@final
@dataclass(frozen=True, kw_only=True)
class CarliniWagner(Attack):
    """Carlini & Wagner (2017), L2: the smallest perturbation that fools a classifier.

    Slow. It minimises (|delta| / d)^2 + c max(confidence - margin, 0) / g for each clip. The gap g is what
    the margin lacks at the clean clip, and d = g / |gradient of the margin| the distance to the boundary if
    the model were linear. So the defaults work for loud clips and quiet ones, and 2 is the smallest c that
    succeeds on a linear model. d is at least as long as a perturbation whose RMS is half a step of `bits`;
    rounding would undo a shorter one.

    The smallest success of all rounds is kept, preferably one inside the budget; without a success, the
    attempt with the best margin. A clip without a success inside an L2 budget is attacked with 20 steps of
    `pgd` as well, so that it counts as robust only if these fail too. Samples are clamped to [-1, 1] without
    the paper's change of variables, because speech seldom reaches full scale.

    steps: Adam steps in each round.
    binary_search: rounds, each with its own c: ten times larger while there are only failures (d is then
        lengthened by the root of ten instead, so that steps grow too), afterwards halfway between the largest
        failure and the smallest success.
    learning_rate: step of each sample, where 1 is the RMS of a perturbation of length d.
    confidence: margin of the scores that counts as success.
    initial_c: the first c.
    bits: the grid on which a success must hold; the smallest success is right at the boundary, where rounding
        afterwards would undo it.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> quick = sv.attacks.CarliniWagner(steps=10, binary_search=1)
    >>> sv.attack("keyword", clips, quick, budget="snr(db=20)").achieved
    (True, True)
    """

    name: ClassVar[str] = "cw"

    steps: int = field(default=100, metadata=limits(at_least=1))
    binary_search: int = field(default=5, metadata=limits(at_least=1))
    learning_rate: float = field(default=0.1, metadata=limits(above=0))
    confidence: float = field(default=0.0, metadata=limits(at_least=0))
    initial_c: float = field(default=4.0, metadata=limits(above=0))
    bits: int | None = 16

    needs: ClassVar[tuple[type, ...]] = (Scores,)

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        found = QuietestFound(clean, budget, self.confidence)
        climbed = Margin(goal, references=goal.references)
        nothing = torch.zeros_like(clean.waveforms)
        margin, slope = climb(target, clean, nothing, climbed, draws.turn("units"))
        gap = (self.confidence - margin).clamp_min(torch.finfo(margin.dtype).eps)
        unit = _unit(clean, gap, slope, self.bits)
        c = torch.full((len(clean),), float(self.initial_c), device=clean.device)
        low, high = torch.zeros_like(c), torch.full_like(c, torch.inf)
        for turn in range(self.binary_search):
            pull = c / gap * clean.lengths
            won = self._descend(found, pull, unit, target, clean, climbed, draws.turn("round", turn))
            low, high = torch.where(won, low, c), torch.where(won, c, high)
            longer = torch.where(high.isinf()[:, None], (10.0**0.5 * unit).clamp(max=1.0), unit)
            # The same weight in longer units; only clips that never won have them.
            low, unit = low * (unit / longer)[:, 0].square(), longer
            c = torch.where(high.isinf(), 10.0 * low, (low + high) / 2)
        if isinstance(budget, Ball) and budget.norm == "l2":
            self._hold(found, target, clean, goal, budget, draws)
        return found.delta

    def _descend(
        self,
        found: QuietestFound,
        pull: Tensor,
        unit: Tensor,
        target: Target,
        clean: AudioBatch,
        goal: Goal,
        draws: Draws,
    ) -> Tensor:
        """One round of Adam from the clean clip; returns which clips succeeded, `(batch,)` bool.

        delta = unit * shift, and |shift|^2 + pull * lack of margin is minimised. pull: `(batch,)`. unit:
        `(batch, 1)`.
        """
        shift = torch.zeros_like(clean.waveforms)
        # Adam works element by element, so that no clip sees another.
        adam = torch.optim.Adam([shift], lr=self.learning_rate)
        won = torch.zeros_like(pull, dtype=torch.bool)
        for step in range(self.steps + 1):
            delta = within(clean, shift * unit)
            shift.copy_(delta / unit)
            # The model hears the rounded clip; its gradient is applied to the unrounded one (straight
            # through).
            tried = nearest_step(clean.waveforms + delta, self.bits) - clean.waveforms
            margin, slope = climb(target, clean, tried, goal, draws.turn("step", step))
            wins = found.update(tried, margin)
            won |= wins
            shift.grad = 2.0 * shift - torch.where(wins, 0.0, pull)[:, None] * unit * slope
            adam.step()
        return won

    def _hold(
        self, found: QuietestFound, target: Target, clean: AudioBatch, goal: Goal, budget: Ball, draws: Draws
    ) -> None:
        """Attack the clips without a success inside the budget again, by steps that stay inside."""
        rows = (~found.inside.value.isfinite()).nonzero()[:, 0]
        if len(rows) == 0:
            return
        rest, goal = clean.select(rows.tolist()), goal.select(rows.tolist())
        delta = budget.project(HELD.perturb(target, rest, goal, budget, draws), rest)
        held = on_grid(rest, rest.with_waveforms(rest.waveforms + within(rest, delta)), budget, self.bits)
        climbed = Margin(goal, references=goal.references)
        with torch.no_grad():
            reached = climbed.objective(target, held, draws=draws.turn("held"))
        tried, margin = torch.zeros_like(clean.waveforms), torch.full((len(clean),), -torch.inf).to(reached)
        tried[rows, : rest.waveforms.shape[1]] = held.waveforms - rest.waveforms
        margin[rows] = reached
        found.update(tried, margin)


@final
class QuietestFound:
    """The best so far of each clip.

    That is the smallest success inside the budget, the smallest of all, and the attempt with the best margin.
    """

    def __init__(self, clean: AudioBatch, budget: Budget, confidence: float) -> None:
        self.clean, self.budget, self.confidence = clean, budget, confidence
        nothing = torch.zeros_like(clean.waveforms)
        self.inside, self.smallest, self.nearest = Best(nothing), Best(nothing), Best(nothing)

    def update(self, tried: Tensor, margin: Tensor) -> Tensor:
        """Keep what is better; returns which attempts succeed, `(batch,)` bool."""
        wins = margin > self.confidence
        value = torch.where(wins, -tried.square().sum(dim=1), -torch.inf)
        fits = self.budget.excess(tried, self.clean) <= 1.0
        self.inside.update(tried, torch.where(fits, value, -torch.inf))
        self.smallest.update(tried, value)
        self.nearest.update(tried, margin)
        return wins

    @property
    def delta(self) -> Tensor:
        """The best perturbation of each clip, `(batch, time)`."""
        best = self.nearest.delta
        for kept in (self.smallest, self.inside):
            best = torch.where(kept.value.isfinite()[:, None], kept.delta, best)
        return best


@final
@dataclass(frozen=True)
class Margin(Goal):
    """A goal whose objective is its margin: best winning score less best other score (the paper's f_6)."""

    inner: Goal

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        scorer = target.capability(Scores)
        return self.margin(scorer.scores(batch, draws=draws), scorer.classes)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return self.inner.bind(self.references).achieved(texts)

    def applies(self, reference: str) -> bool:
        return self.inner.applies(reference)

    def wins(self, classes: Sequence[str]) -> Tensor:
        return self.inner.bind(self.references).wins(classes)


def _unit(clean: AudioBatch, gap: Tensor, slope: Tensor, bits: int | None) -> Tensor:
    """RMS of the perturbation that closes the gap of a linear model, `(batch, 1)`.

    It is between full scale and half a step of the grid; a flat model (slope 0) starts at full scale.
    """
    distance: Tensor = gap.double() / slope.double().norm(dim=1)
    level: Tensor = distance / clean.lengths.sqrt()
    return level.clamp(0.5 ** (bits or FLOAT_BITS), 1.0).to(slope.dtype)[:, None]
