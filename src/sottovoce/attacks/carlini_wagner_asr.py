"""Carlini & Wagner (2018), for recognisers: force a text within a shrinking L-infinity radius, with Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, check_finite, decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Become, Goal
from sottovoce.core.quantisation import nearest_step, on_grid
from sottovoce.core.target import Matches, Target
from sottovoce.errors import InputError
from sottovoce.targets.open_target import open_target

# A full decoding costs about a forward pass. A clip that matches is decoded at once; if it then says
# something else, again only WAIT steps later. Any clip is decoded every LOOK steps, as its goal may need less
# than the whole text.
WAIT, LOOK = 10, 50


@final
@dataclass(frozen=True, kw_only=True)
class CarliniWagnerAsr(Attack):
    """Carlini & Wagner (2018): force a recogniser to write a given text with a small perturbation.

    Needs a goal with a text, such as force(text=...), and thousands of steps. It minimises loss(text) + c
    |delta|^2 within an L-infinity radius that shrinks with each success. Every clip has its own radius, and
    leaves the batch when it has succeeded at the smallest one. A step costs a forward and backward pass; the
    text is decoded in full only if that pass already spells it. The success with the smallest norm is kept;
    without a success, the attempt with the smallest loss. The search stays inside the budget.

    steps: the most Adam steps.
    learning_rate: step of each sample, as a share of the clip's radius, or of the RMS that an L2 budget
        allows if that is smaller.
    c: weight of |delta|^2, the sum over samples.
    eps: the first radius, or the budget's if that is smaller.
    shrink, times: after a success the radius becomes `shrink` times the largest sample of the perturbation,
        at most `times` times.
    first_token: extra weight of the text's first token, for attention models (Olivier 2023, eq. 5.2).
    keep_by: for examples that carry over (Olivier 2023, section 6.2): a model, as in plans, that hears what
        was found and is not attacked. What it hears nearest to the wanted text is kept; the radius does not
        shrink, and no clip leaves before the last step.
    keep_every: steps from one hearing to the next.
    bits: the grid on which a success must hold.

    >>> model = sv.testing.ToyCtc()  # a toy that writes the letters a to e; a real model takes 2,000 steps
    >>> attack = sv.attacks.CarliniWagnerAsr(steps=100, eps=1.0, learning_rate=0.2)
    >>> clips = sv.testing.clips_for(model)
    >>> trial = sv.attack(model, clips, attack, budget="snr(db=0)", goal="force(text=ab)")
    >>> trial.adversarial_texts
    ('ab', 'ab', 'ab', 'ab')
    """

    name: ClassVar[str] = "cw-asr"

    steps: int = field(default=2000, metadata=limits(at_least=1))
    learning_rate: float = field(default=0.1, metadata=limits(above=0))
    c: float = field(default=0.25, metadata=limits(at_least=0))
    eps: float = field(default=0.1, metadata=limits(above=0))
    shrink: float = field(default=0.7, metadata=limits(above=0, below=1))
    times: int = field(default=8, metadata=limits(at_least=0))
    first_token: float = field(default=1.0, metadata=limits(at_least=0))
    keep_by: str | None = None
    keep_every: int = field(default=20, metadata=limits(at_least=1))
    bits: int | None = 16

    needs: ClassVar[tuple[type, ...]] = (Matches,)
    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    goals: ClassVar[tuple[type[Goal], ...]] = (Become,)

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return self.search(target, clean, goal, budget, draws).delta

    def search(
        self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws
    ) -> ForcedFound:
        """Run the search; returns the best perturbations and which of them are successes."""
        assert isinstance(budget, Ball) and isinstance(goal, Become)
        field = Field(target, clean, goal, budget, bits=self.bits, first_token=self.first_token)
        radius = torch.full((len(clean),), self.eps, device=clean.device, dtype=clean.waveforms.dtype)
        if budget.norm == "linf":
            radius = radius.minimum(field.loudest)
        if self.keep_by is not None:
            return self._carried(field, radius, _third(self.keep_by, str(clean.device)), draws)
        smallest, nearest = Kept(clean), Kept(clean)
        left = torch.full((len(clean),), self.times, device=clean.device)
        delta, adam = torch.zeros_like(clean.waveforms), Adam(clean.waveforms)
        for step in range(self.steps):
            tried, loss, match, slope = field.pass_over(delta, draws.turn("step", step))
            nearest.update(field.rows, tried, -loss)
            due = field.due(match, step)
            won, tried = field.judge(tried, due, match, draws.turn("decode", step))
            field.failed_at[due & match & ~won] = step
            smallest.update(field.rows, tried, torch.where(won, -budget.size(tried), -torch.inf))
            smaller = self.shrink * radius.minimum(tried.abs().amax(dim=1))
            radius, left = torch.where(won, smaller, radius), left - won.long()
            stride = self.learning_rate * radius.minimum(field.loudest)[:, None]
            delta = delta - stride * adam.direction(slope + 2.0 * self.c * delta)
            going = (left >= 0) & (radius > field.least_radius)
            if not bool(going.any()):
                break
            if not bool(going.all()):
                stay = going.nonzero()[:, 0]
                field.keep(stay)
                width = field.clean.waveforms.shape[1]
                delta, radius, left = delta[stay, :width], radius[stay], left[stay]
                adam.keep(stay, width)
            delta = field.inside(delta.clamp(-radius[:, None], radius[:, None]))
        won = smallest.value.isfinite()
        return ForcedFound(torch.where(won[:, None], smallest.delta, nearest.delta), won)

    def _carried(self, field: Field, radius: Tensor, third: Target, draws: Draws) -> ForcedFound:
        """The search of all steps within one radius, kept by what a third model hears."""
        if third.sample_rate != field.clean.sample_rate or third.says != field.target.says:
            raise InputError(
                f"cw-asr(keep_by={self.keep_by}): expected a model that writes words at "
                f"{field.clean.sample_rate} Hz, as the one that is attacked does; choose another."
            )
        clean, best = field.clean, Kept(field.clean)
        delta, adam = torch.zeros_like(clean.waveforms), Adam(clean.waveforms)
        stride = self.learning_rate * radius.minimum(field.loudest)[:, None]
        for step in range(self.steps):
            tried, _, _, slope = field.pass_over(delta, draws.turn("step", step))
            if (step + 1) % self.keep_every == 0 or step + 1 == self.steps:
                near = clean.with_waveforms(clean.waveforms + tried)
                settled = on_grid(clean, near, field.budget, self.bits)
                worth = field.goal.nearness(decode(third, settled, draws.turn("third", step)))
                best.update(
                    field.rows, settled.waveforms - clean.waveforms, torch.tensor(worth, device=clean.device)
                )
            delta = delta - stride * adam.direction(slope + 2.0 * self.c * delta)
            delta = field.inside(delta.clamp(-radius[:, None], radius[:, None]))
        return ForcedFound(best.delta, best.value == 0.0)


@lru_cache(maxsize=1)
def _third(model: str, device: str) -> Target:
    """A model that stays open from one batch to the next."""
    return open_target(model, device)


@final
@dataclass(frozen=True)
class ForcedFound:
    """Perturbations `(batch, time)`, and which of them are successes, `(batch,)` bool."""

    delta: Tensor
    won: Tensor


@final
class Field:
    """The clips that are still searched, and the passes of the target over them.

    rows: `(clips,)` int64, their rows in the whole batch.
    failed_at: `(clips,)` int64, the last step at which a clip matched but was decoded as something else.
    """

    def __init__(
        self,
        target: Target,
        clean: AudioBatch,
        goal: Become,
        budget: Ball,
        *,
        bits: int | None,
        first_token: float,
    ) -> None:
        self.target, self.clean, self.goal, self.budget = target, clean, goal, budget
        self.bits, self.first_token = bits, first_token
        self.rows = torch.arange(len(clean), device=clean.device)
        self.failed_at = torch.full((len(clean),), -WAIT, device=clean.device)

    @property
    def loudest(self) -> Tensor:
        """What the budget allows each sample if all are equal, `(clips,)`: its radius, or its RMS in L2."""
        radius = self.budget.radius(self.clean)
        if self.budget.norm == "l2":
            radius = radius / self.clean.lengths.sqrt()
        return radius.to(self.clean.waveforms)

    @property
    def least_radius(self) -> float:
        """The radius at which the search ends: one step of the grid."""
        return 0.0 if self.bits is None else 2.0 ** (1 - self.bits)

    def keep(self, stay: Tensor) -> None:
        """Continue with these clips only."""
        places = stay.tolist()
        self.clean, self.goal = self.clean.select(places), self.goal.select(places)
        self.rows, self.failed_at = self.rows[stay], self.failed_at[stay]

    def inside(self, delta: Tensor) -> Tensor:
        """The perturbation projected onto the budget and clamped to full scale."""
        return within(self.clean, self.budget.project(delta, self.clean))

    def pass_over(self, delta: Tensor, draws: Draws) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One forward and backward pass: the perturbation on the grid, the loss, the match and the gradient.

        The model hears the rounded clip; its gradient is applied to the unrounded one (straight through).
        """
        clean, matches = self.clean, self.target.capability(Matches)
        tried = nearest_step(clean.waveforms + delta, self.bits) - clean.waveforms
        heard = tried.detach().requires_grad_()
        with torch.enable_grad():
            loss, match = matches.loss_and_match(
                clean.with_waveforms(clean.waveforms + heard),
                self.goal.texts,
                draws=draws,
                first_token=self.first_token,
            )
            (slope,) = torch.autograd.grad(loss.sum(), heard)
        check_finite(clean, slope)
        return tried, loss.detach(), match, slope

    def due(self, match: Tensor, step: int) -> Tensor:
        """Which clips to decode in full at this step, `(clips,)` bool."""
        return (match | (step % LOOK == 0)) & (step - self.failed_at >= WAIT)

    def judge(self, tried: Tensor, due: Tensor, match: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """Which of the due clips succeed, `(clips,)` bool, and the perturbations as they were judged.

        Perturbations that rounding pushed out of the budget are moved inside first. One that did not move is
        decoded only if its match is not exact.
        """
        if not bool(due.any()):
            return due, tried
        places = due.nonzero()[:, 0]
        clean = self.clean.select(places.tolist())
        width = clean.waveforms.shape[1]
        near = clean.with_waveforms(clean.waveforms + tried[places, :width])
        settled = on_grid(clean, near, self.budget, self.bits)
        known = match[places] & (settled.waveforms == near.waveforms).all(dim=1)
        texts = self._texts(settled, places, known & self.target.capability(Matches).exact, draws)
        won = self._achieved(places.tolist(), texts)
        tried = tried.clone()
        tried[places, :width] = settled.waveforms - clean.waveforms
        return torch.zeros_like(due).index_put_((places,), won), tried

    def _texts(self, settled: AudioBatch, places: Tensor, known: Tensor, draws: Draws) -> list[str]:
        """The text of each clip: the wanted text if it is known to match, else by decoding."""
        texts = self.goal.select(places.tolist()).texts
        open_places = (~known).nonzero()[:, 0].tolist()
        if open_places:
            said = decode(self.target, settled.select(open_places), draws)
            for place, text in zip(open_places, said, strict=True):
                texts[place] = text
        return texts

    def _achieved(self, places: Sequence[int], texts: Sequence[str]) -> Tensor:
        return torch.tensor(self.goal.select(places).achieved(texts), device=self.rows.device)


@final
class Kept:
    """The best perturbation of each clip of a batch; the higher its value, the better."""

    def __init__(self, clean: AudioBatch) -> None:
        self.delta = torch.zeros_like(clean.waveforms)
        self.value = torch.full((len(clean),), -torch.inf, dtype=torch.float64, device=clean.device)

    def update(self, rows: Tensor, delta: Tensor, value: Tensor) -> None:
        """Keep what is better, for some rows of the batch."""
        better = value > self.value[rows]
        if bool(better.any()):
            places = rows[better]
            self.delta[places, : delta.shape[1]] = delta[better]
            self.value[places] = value[better].double()


@final
class Adam:
    """Kingma & Ba (2015), sample by sample, for clips that may leave the batch."""

    def __init__(self, like: Tensor) -> None:
        self.mean, self.square, self.count = torch.zeros_like(like), torch.zeros_like(like), 0

    def direction(self, gradient: Tensor) -> Tensor:
        """The direction of ascent, about 1 for each sample."""
        self.count += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        mean = self.mean / (1.0 - 0.9**self.count)
        square = self.square / (1.0 - 0.999**self.count)
        return mean / (square.sqrt() + 1e-10)

    def keep(self, stay: Tensor, width: int) -> None:
        """Continue with these clips only, `width` samples long."""
        self.mean, self.square = self.mean[stay, :width], self.square[stay, :width]
