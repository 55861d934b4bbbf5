"""DeepFool (Moosavi-Dezfooli et al. 2016): step to the nearest boundary as if the scores were linear."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget, NormName
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Goal
from sottovoce.core.quantisation import nearest_step
from sottovoce.core.target import Scores, Target
from sottovoce.errors import GradientError

# On a boundary the distance is 0 and the step would be 0 too; this share of the scores leads across.
_CROSSING = 1e-5


@final
@dataclass(frozen=True, kw_only=True)
class DeepFool(Attack):
    """DeepFool (Moosavi-Dezfooli et al. 2016): a small perturbation to the nearest decision boundary.

    For classifiers. It treats the scores as linear and steps to the nearest boundary until the decision
    changes. If the perturbation is larger than the budget, it is projected, and mostly fails.

    steps: the most linear steps; a clip stops at its first success.
    overshoot: how far to go beyond the boundary, as a share of the distance to it.
    bits: the grid on which a success must hold; a very small perturbation often does not survive rounding.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> trial = sv.attack("keyword", clips, sv.attacks.DeepFool(steps=20), budget="snr(db=20)")
    >>> trial.achieved
    (True, True)
    """

    name: ClassVar[str] = "deepfool"

    steps: int = field(default=100, metadata=limits(at_least=1))
    overshoot: float = field(default=0.1, metadata=limits(at_least=0))
    bits: int | None = 16

    needs: ClassVar[tuple[type, ...]] = (Scores,)
    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        start = torch.zeros_like(clean.waveforms)
        return nearest_boundary(
            target,
            clean,
            start,
            goal,
            draws,
            steps=self.steps,
            overshoot=self.overshoot,
            norm=budget.norm,
            bits=self.bits,
        )


def nearest_boundary(
    target: Target,
    clean: AudioBatch,
    start: Tensor,
    goal: Goal,
    draws: Draws,
    *,
    steps: int = 100,
    overshoot: float = 0.1,
    norm: NormName = "l2",
    bits: int | None = None,
) -> Tensor:
    """A small perturbation on top of `start` that reaches the goal, `(batch, time)`, overshoot included.

    Zero if `start` is a success already, and the attempt with the best margin if there is no success. With
    `bits` every attempt is judged, and every gradient taken, on that grid.
    """
    scorer = target.capability(Scores)
    found = torch.zeros_like(clean.waveforms)
    record = torch.full((len(clean),), -torch.inf, device=clean.device)
    rows = torch.arange(len(clean), device=clean.device)
    walk = torch.zeros_like(found)
    for step in range(steps + 1):
        extra = (1.0 + overshoot) * walk
        heard = nearest_step(clean.waveforms + within(clean, start + extra), bits)
        heard = heard.detach().requires_grad_()
        with torch.enable_grad():
            scores = scorer.scores(clean.with_waveforms(heard), draws=draws.turn("step", step))
        margin = goal.margin(scores.detach(), scorer.classes).to(record.dtype)
        better = margin > record[rows]
        record[rows[better]] = margin[better]
        found[rows[better], : extra.shape[1]] = extra[better]
        going = (margin <= 0).nonzero()[:, 0]
        if step == steps or len(going) == 0:
            break
        walk = walk + _shortest_step(scores, heard, goal.wins(scorer.classes).to(scores.device), norm, clean)
        if len(going) < len(rows):
            # Clips that are done leave the batch, which makes later steps cheaper.
            picked = going.tolist()
            clean, goal, rows = clean.select(picked), goal.select(picked), rows[going]
            width = clean.waveforms.shape[1]
            start, walk = start[going, :width], walk[going, :width]
    return found


def _shortest_step(scores: Tensor, heard: Tensor, wins: Tensor, norm: NormName, clean: AudioBatch) -> Tensor:
    """The step `(batch, time)` to the nearest boundary between a winning class and the best other one.

    Algorithm 2; for L-infinity the dual norm is L1. scores: `(batch, classes)`, computed from `heard`.
    """
    rival = scores.masked_fill(wins, torch.finfo(scores.dtype).min).amax(dim=1)
    slack = _CROSSING * scores.detach().abs().amax(dim=1)
    shortest = torch.full_like(slack, torch.inf)
    step = torch.zeros_like(heard)
    # One backward pass for each class, and only one gradient is kept: all at once would fill the memory.
    for place in wins.any(dim=0).nonzero()[:, 0].tolist():
        lead = scores[:, place] - rival
        (slope,) = torch.autograd.grad(lead.sum(), heard, retain_graph=True)
        _check(slope, clean)
        dual = slope.norm(dim=1) if norm == "l2" else slope.abs().sum(dim=1)
        distance = torch.where(wins[:, place] & (dual > 0), (slack - lead.detach()) / dual, torch.inf)
        direction = slope / dual[:, None] if norm == "l2" else slope.sign()
        nearer = distance < shortest
        shortest = torch.where(nearer, distance, shortest)
        step = torch.where(nearer[:, None], distance[:, None] * direction, step)
    return step


def _check(slope: Tensor, clean: AudioBatch) -> None:
    finite = torch.isfinite(slope).all(dim=1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise GradientError(
            f"clip {clean.ids[row]!r}: expected a finite gradient of the scores, got NaN or infinity; the "
            "model overflows on this clip."
        )
