"""Carlini & Wagner (2017), L2, for classifiers: the quietest perturbation that wins, by Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.attack import Attack, Best, climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.quantisation import nearest_step, on_grid
from sottovoce.core.target import Scores, Target
from sottovoce.errors import InputError

HELD = Pgd(steps=20)
"""What a clip gets that no round fooled inside an L2 budget."""
FLOAT_BITS = 24
"""The grid of samples that are not rounded: what single precision tells apart near full swing."""


@final
@dataclass(frozen=True, kw_only=True)
class CarliniWagner(Attack):
    """Minimises (|delta| / d)^2 + c max(confidence - margin, 0) / g for each clip.

    The gap g is what the margin lacks at the clean clip, and d = g / |gradient of the margin| the distance it
    would take to close it if the model were linear. So the defaults serve loud clips and quiet ones, and a c
    of 2 is the least that wins on a linear model. The RMS of a perturbation of length d is at least half a
    step of `bits`: a clip nearer to its boundary than that would otherwise be rounded back to where it was.

    The smallest success of all rounds is kept, one inside the budget before any outside; without a success,
    the attempt with the best margin. A clip without a success inside an L2 budget gets 20 steps of projected
    gradient on top, so that it is called robust only where these fail too. Samples are clamped to [-1, 1]:
    speech seldom touches full swing, so that no change of variables is needed.

    steps: Adam steps a round.
    binary_search: rounds, each with a c of its own: ten times as much after nothing but failures (d is
        lengthened instead, by the root of ten, so that steps grow along), halfway between the largest failure
        and the smallest success from then on.
    learning_rate: length of a step of each sample, where 1 is the RMS of a perturbation of length d.
    confidence: margin of the scores that counts as success.
    initial_c: the first c.
    bits: the grid on which a success must hold. The smallest success lies right at the boundary, where
        rounding afterwards would undo it.
    """

    steps: int = 100
    binary_search: int = 5
    learning_rate: float = 0.1
    confidence: float = 0.0
    initial_c: float = 4.0
    bits: int | None = 16

    needs: ClassVar[tuple[type, ...]] = (Scores,)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.binary_search < 1:
            raise InputError(
                f"expected at least 1 step and 1 round, got {self.steps} and {self.binary_search}; "
                "raise them."
            )
        if self.learning_rate <= 0 or self.initial_c <= 0 or self.confidence < 0:
            raise InputError(
                "expected learning_rate and initial_c above 0 and confidence from 0, got "
                f"{self.learning_rate}, {self.initial_c} and {self.confidence}; mend them."
            )

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
        """One round of Adam from the clean clip with delta = unit * shift, on |shift|^2 + pull * lack of
        margin, with `pull (batch,)` and `unit (batch, 1)`; which clips won, `(batch,)` bool."""
        shift = torch.zeros_like(clean.waveforms)
        # Adam works element by element, so that no clip sees another.
        adam = torch.optim.Adam([shift], lr=self.learning_rate)
        won = torch.zeros_like(pull, dtype=torch.bool)
        for step in range(self.steps + 1):
            delta = within(clean, shift * unit)
            shift.copy_(delta / unit)
            # The model hears the rounded clip; its slope there moves the unrounded one (straight through).
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
        """Try the clips without a success inside the budget once more, by steps that never leave it."""
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
    """What was found so far, clip by clip: the smallest success inside the budget, the smallest of all, and
    the attempt with the best margin."""

    def __init__(self, clean: AudioBatch, budget: Budget, confidence: float) -> None:
        self.clean, self.budget, self.confidence = clean, budget, confidence
        nothing = torch.zeros_like(clean.waveforms)
        self.inside, self.smallest, self.nearest = Best(nothing), Best(nothing), Best(nothing)

    def update(self, tried: Tensor, margin: Tensor) -> Tensor:
        """Keep what is better; which of the attempts win, `(batch,)` bool."""
        wins = margin > self.confidence
        value = torch.where(wins, -tried.square().sum(dim=1), -torch.inf)
        fits = self.budget.excess(tried, self.clean) <= 1.0
        self.inside.update(tried, torch.where(fits, value, -torch.inf))
        self.smallest.update(tried, value)
        self.nearest.update(tried, margin)
        return wins

    @property
    def delta(self) -> Tensor:
        """The best of it, `(batch, time)`."""
        best = self.nearest.delta
        for kept in (self.smallest, self.inside):
            best = torch.where(kept.value.isfinite()[:, None], kept.delta, best)
        return best


@final
@dataclass(frozen=True)
class Margin(Goal):
    """A goal climbed by its margin: best winning score less best other score (the paper's f_6)."""

    inner: Goal

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        scorer = target.power(Scores)
        return self.margin(scorer.scores(batch, draws=draws), scorer.classes)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return self.inner.bind(self.references).achieved(texts)

    def applies(self, reference: str) -> bool:
        return self.inner.applies(reference)

    def wins(self, classes: Sequence[str]) -> Tensor:
        return self.inner.bind(self.references).wins(classes)


def _unit(clean: AudioBatch, gap: Tensor, slope: Tensor, bits: int | None) -> Tensor:
    """RMS of the perturbation that closes the gap of a linear model, `(batch, 1)`.

    It lies between full swing and half a step of the grid; a flat model (slope 0) starts at full swing.
    """
    distance: Tensor = gap.double() / slope.double().norm(dim=1)
    level: Tensor = distance / clean.lengths.sqrt()
    return level.clamp(0.5 ** (bits or FLOAT_BITS), 1.0).to(slope.dtype)[:, None]
