"""Imperceptible examples for recognisers (Qin et al. 2019): force a text, then hide it by masking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.attacks.carlini_wagner_asr import Adam, CarliniWagnerAsr, Field, Kept
from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Become, Goal
from sottovoce.core.target import Matches, Target
from sottovoce.errors import InputError
from sottovoce.perception.masking.threshold import Masker, MaskingThreshold

# In the second stage the clips that match are decoded in full every so many steps.
LOOK = 10


@final
@dataclass(frozen=True, kw_only=True)
class Imperceptible(Attack):
    """Imperceptible examples (Qin et al. 2019): force a text, then hide the perturbation below hearing.

    Needs a goal with a text. The first stage is `cw-asr`. From each success the second stage minimises
    loss(text) + alpha masking loss, where the masking loss is the energy of the perturbation above what the
    clip masks (psychoacoustic model 1). alpha rises while the text is said and falls while it is not, clip by
    clip. The success with the smallest masking loss is kept, that of the first stage included. The search
    stays inside the budget.

    steps, c, eps, shrink, times, first_token, bits: the first stage, see `CarliniWagnerAsr`.
    masking_steps: Adam steps of the second stage.
    masking_rate: its step of each sample, as a share of the RMS of the first stage's success.
    alpha: the first weight; 1 gives the gradients of both losses the same length at the start.
    raise_by, raise_every: while the clip succeeds, alpha is multiplied by this, every so many steps.
    lower_by, lower_every: while it fails, alpha is multiplied by this, every so many steps.

    >>> model = sv.testing.ToyCtc()  # a toy that writes the letters a to e
    >>> attack = sv.attacks.Imperceptible(steps=50, eps=1.0, masking_steps=20)
    >>> clips = sv.testing.clips_for(model).select([0])
    >>> trial = sv.attack(model, clips, attack, budget="snr(db=0)", goal="force(text=ab)")
    >>> trial.adversarial_texts
    ('ab',)
    """

    name: ClassVar[str] = "imperceptible"

    steps: int = field(default=1000, metadata=limits(at_least=1))
    c: float = field(default=0.25, metadata=limits(at_least=0))
    eps: float = field(default=0.1, metadata=limits(above=0))
    shrink: float = field(default=0.7, metadata=limits(above=0, below=1))
    times: int = field(default=8, metadata=limits(at_least=0))
    first_token: float = field(default=1.0, metadata=limits(at_least=0))
    bits: int | None = 16
    masking_steps: int = field(default=1000, metadata=limits(at_least=1))
    masking_rate: float = field(default=0.05, metadata=limits(above=0))
    alpha: float = field(default=1.0, metadata=limits(above=0))
    raise_by: float = field(default=1.2, metadata=limits(at_least=1))
    raise_every: int = 20
    lower_by: float = field(default=0.8, metadata=limits(above=0, at_most=1))
    lower_every: int = 50

    needs: ClassVar[tuple[type, ...]] = (Matches,)
    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    goals: ClassVar[tuple[type[Goal], ...]] = (Become,)

    def __post_init__(self) -> None:
        for name in ("raise_every", "lower_every"):
            every = getattr(self, name)
            if every < LOOK or every % LOOK:
                raise InputError(
                    f"Imperceptible({name}={every}): expected a multiple of {LOOK}, because clips are "
                    f"decoded every {LOOK} steps."
                )

    @property
    def first_stage(self) -> CarliniWagnerAsr:
        """The attack of the first stage."""
        return CarliniWagnerAsr(
            steps=self.steps,
            c=self.c,
            eps=self.eps,
            shrink=self.shrink,
            times=self.times,
            first_token=self.first_token,
            bits=self.bits,
        )

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball) and isinstance(goal, Become)
        found = self.first_stage.search(target, clean, goal, budget, draws.turn("first"))
        masker = Masker(clean.sample_rate)
        threshold = masker.threshold(clean)
        quietest = Kept(clean)
        everyone = torch.arange(len(clean), device=clean.device)
        quietest.update(everyone, found.delta, -masker.exceedance_loss(found.delta, threshold))
        audible = (found.won & (quietest.value < 0.0)).nonzero()[:, 0]
        if len(audible):
            field = Field(target, clean, goal, budget, bits=self.bits, first_token=self.first_token)
            field.keep(audible)
            self._hide(field, quietest, masker, threshold.select(audible), draws.turn("second"))
        return quietest.delta

    def _hide(
        self, field: Field, quietest: Kept, masker: Masker, threshold: MaskingThreshold, draws: Draws
    ) -> None:
        """The second stage on the clips of the field, from their perturbations in `quietest`."""
        delta = quietest.delta[field.rows, : field.clean.waveforms.shape[1]]
        stride = self.masking_rate * delta.norm(dim=1, keepdim=True) / field.clean.lengths.sqrt()[:, None]
        alpha, adam = None, Adam(delta)
        for step in range(self.masking_steps):
            tried, _, match, slope = field.pass_over(delta, draws.turn("step", step))
            rise = _masking_slope(masker, tried, threshold)
            if alpha is None:
                alpha = self.alpha * _length(slope) / _length(rise)
            if (step + 1) % LOOK == 0:
                won, tried = field.judge(tried, match, match, draws.turn("decode", step))
                heard = masker.exceedance_loss(tried, threshold)
                quietest.update(field.rows, tried, torch.where(won, -heard, -torch.inf))
                alpha = alpha * self._turn(won, step + 1)[:, None]
            delta = field.inside(delta - stride * adam.direction(slope + alpha * rise))

    def _turn(self, won: Tensor, steps: int) -> Tensor:
        """The factor on alpha after so many steps, of which the last was judged, `(clips,)`."""
        up = self.raise_by if steps % self.raise_every == 0 else 1.0
        down = self.lower_by if steps % self.lower_every == 0 else 1.0
        return torch.where(won, up, down)


def _masking_slope(masker: Masker, delta: Tensor, threshold: MaskingThreshold) -> Tensor:
    """The gradient of the masking loss, `(clips, time)`."""
    delta = delta.detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(masker.exceedance_loss(delta, threshold).sum(), delta)
    return slope


def _length(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return length
