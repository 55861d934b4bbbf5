"""Attacks: a subclass finds a perturbation, the base class makes an honest example of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget, NormName
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Become, Goal, detect_languages
from sottovoce.core.grid import on_grid, round_clean
from sottovoce.core.target import Languages, Says, Scores, Target, check_clips
from sottovoce.errors import GradientError, InputError

Sight = Literal["gradient", "scores", "decisions", "nothing"]
"""What an attack looks at in a target, from the most to the least."""
Chance = Callable[[AudioBatch, Sequence[str]], Tensor]


@dataclass(frozen=True)
class Trial:
    """A batch of finished examples, with everything a metric may ask.

    references: what the attack was judged against (the model's clean decision unless the goal was bound).
    labels: the truth where it is known.
    achieved: success of the example as saved; `achieved_unrounded`: before it was rounded to the grid.
    wanted: what each clip was to become, where the goal has such a text.
    says, canonical: what the target's texts are, and the form in which they are compared.
    languages: those heard in the clean clips and in the examples, where the target tells them.
    facts: what else is known of each clip, such as its speaker and its language.
    chance: the probability `(batch,)` that the target gives to a label of each clip of a batch, where it has
        scores.
    """

    clean: AudioBatch
    adversarial: AudioBatch
    references: tuple[str, ...]
    labels: tuple[str, ...] | None
    clean_texts: tuple[str, ...]
    adversarial_texts: tuple[str, ...]
    achieved: tuple[bool, ...]
    achieved_unrounded: tuple[bool, ...]
    wanted: tuple[str, ...] | None = None
    says: Says = "class"
    canonical: Callable[[str], str] = field(default=str, repr=False, compare=False)
    languages: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    facts: tuple[Mapping[str, str], ...] = ()
    chance: Chance | None = field(default=None, repr=False, compare=False)

    @property
    def delta(self) -> Tensor:
        """What was added, `(batch, time)`."""
        return self.adversarial.waveforms - self.clean.waveforms


class Attack(ABC):
    """An attack on each clip by itself. A subclass is a frozen dataclass of settings with a `perturb`."""

    needs: ClassVar[tuple[type, ...]] = ()
    """Powers that the target must have, such as `Scores`."""
    budgets: ClassVar[tuple[type[Budget], ...]] = (Budget,)
    """Kinds of budget that the attack can search."""
    norms: ClassVar[tuple[NormName, ...]] = ("l2", "linf")
    """Norms that such a budget may have."""
    goals: ClassVar[tuple[type[Goal], ...]] = (Goal,)
    """Kinds of goal that it can reach for."""
    sees: ClassVar[Sight] = "gradient"
    """What it looks at: a black box shows scores or decisions alone."""

    @abstractmethod
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        """The perturbation found, `(batch, time)`; it need not be projected, clamped or rounded yet."""

    @final
    def __call__(
        self,
        target: Target,
        clean: AudioBatch,
        goal: Goal,
        budget: Budget,
        *,
        draws: Draws,
        labels: tuple[str, ...] | None = None,
        facts: tuple[Mapping[str, str], ...] = (),
        bits: int | None = 16,
        through: Target | None = None,
    ) -> Trial:
        """Attack, then project, clamp to [-1, 1], round to `bits` (None: keep floats), decode and judge.

        A goal without references is bound to what the target says to the clean clips.

        through: another target, where the perturbation is looked for there and judged on `target`: the
            undefended model, say, for an attacker who does not know of the defense.
        """
        through = target if through is None else through
        self.check(through, goal, budget)
        check_clips(target, clean)
        clean = round_clean(clean, bits)
        clean_texts = decode(target, clean, draws)
        goal = goal.heard_by(target)
        if not goal.references:
            goal = goal.bind(goal.read(target, clean, clean_texts, draws=draws.turn("judge")))
        if len(goal.references) != len(clean):
            raise InputError(
                f"expected {len(clean)} references, got {len(goal.references)}; bind one a clip."
            )
        delta = self.perturb(through, clean, goal, budget, draws.turn("attack")).detach()
        unrounded = clean.with_waveforms(clean.waveforms + within(clean, budget.project(delta, clean)))
        adversarial = on_grid(clean, unrounded, budget, bits)
        texts = decode(target, adversarial, draws)
        before = texts if bits is None else decode(target, unrounded, draws)
        languages = None
        if target.offers(Languages):
            languages = _languages(target, clean, draws), _languages(target, adversarial, draws)
        return Trial(
            clean=clean,
            adversarial=adversarial,
            references=goal.references,
            labels=labels,
            clean_texts=tuple(clean_texts),
            adversarial_texts=tuple(texts),
            achieved=_judged(target, adversarial, goal, texts, draws),
            achieved_unrounded=_judged(target, unrounded, goal, before, draws),
            wanted=tuple(goal.texts) if isinstance(goal, Become) else None,
            says=target.says,
            canonical=target.canonical,
            languages=languages,
            facts=facts or ({},) * len(clean),
            chance=_chance(target, draws) if target.offers(Scores) else None,
        )

    @final
    def check(self, target: Target, goal: Goal, budget: Budget) -> None:
        """Raise before any work where this attack cannot run on this target for this goal and budget."""
        for kind in (*self.needs, *goal.needs):
            target.power(kind)
        if not isinstance(goal, self.goals):
            names = ", ".join(kind.__name__ for kind in self.goals)
            raise InputError(
                f"{type(self).__name__} expected a goal of kind {names}, got {type(goal).__name__}; name a "
                "text to say, such as force(text=yes)."
            )
        if not isinstance(budget, self.budgets):
            names = ", ".join(kind.__name__ for kind in self.budgets)
            raise InputError(
                f"{type(self).__name__} expected a budget of kind {names}, got {budget}; choose one of them."
            )
        if isinstance(budget, Ball) and budget.norm not in self.norms:
            raise InputError(
                f"{type(self).__name__} expected a budget in the norm {' or '.join(self.norms)}, got "
                f"{budget}; choose another."
            )


def _judged(
    target: Target, batch: AudioBatch, goal: Goal, texts: Sequence[str], draws: Draws
) -> tuple[bool, ...]:
    return tuple(goal.achieved(goal.read(target, batch, texts, draws=draws.turn("judge"))))


def _languages(target: Target, batch: AudioBatch, draws: Draws) -> tuple[str, ...]:
    return tuple(detect_languages(target, batch, draws=draws.turn("judge")))


def _chance(target: Target, draws: Draws) -> Chance:
    """Asked for by the metrics that need it alone: it costs a pass. It hears what the judgement heard."""
    scorer = target.power(Scores)

    @torch.no_grad()
    def chance(batch: AudioBatch, labels: Sequence[str]) -> Tensor:
        chances = scorer.scores(batch, draws=draws.turn("judge")).double().softmax(dim=1)
        # A label that is no class of the target has no chance.
        wanted = torch.tensor([[name == label for name in scorer.classes] for label in labels])
        return chances.masked_fill(~wanted.to(chances.device), 0.0).sum(dim=1)

    return chance


def listen(
    target: Target,
    clean: AudioBatch,
    *,
    draws: Draws,
    labels: tuple[str, ...] | None = None,
    facts: tuple[Mapping[str, str], ...] = (),
    bits: int | None = 16,
) -> Trial:
    """What the target says to clips that nobody attacks: a trial in one pass whose examples are the clips."""
    check_clips(target, clean)
    clean = round_clean(clean, bits)
    texts, no = tuple(decode(target, clean, draws)), (False,) * len(clean)
    heard = _languages(target, clean, draws) if target.offers(Languages) else None
    return Trial(
        clean=clean,
        adversarial=clean,
        references=texts,
        labels=labels,
        clean_texts=texts,
        adversarial_texts=texts,
        achieved=no,
        achieved_unrounded=no,
        says=target.says,
        canonical=target.canonical,
        languages=None if heard is None else (heard, heard),
        facts=facts or ({},) * len(clean),
        chance=_chance(target, draws) if target.offers(Scores) else None,
    )


def decode(target: Target, batch: AudioBatch, draws: Draws) -> list[str]:
    """What the target says, without a gradient; every judgement of a run hears the same random pass."""
    with torch.no_grad():
        return target.decode(batch, draws=draws.turn("judge"))


def climb(
    target: Target, clean: AudioBatch, delta: Tensor, goal: Goal, draws: Draws
) -> tuple[Tensor, Tensor]:
    """The goal's objective `(batch,)` at clean + delta and its gradient `(batch, time)` to delta."""
    delta = delta.detach().requires_grad_()
    with torch.enable_grad():
        value = goal.objective(target, clean.with_waveforms(clean.waveforms + delta), draws=draws)
        gradient = None
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value.sum(), delta, allow_unused=True)
    if gradient is None:
        # A defense that cuts the gradient off has one: zero. That it masks it, other attacks must show.
        gradient = torch.zeros_like(delta)
    check_finite(clean, gradient)
    return value.detach(), gradient


def check_finite(clean: AudioBatch, gradient: Tensor) -> None:
    """Refuse a gradient `(batch, time)` with NaN or infinity in it."""
    # The sum is finite exactly when every part is, and costs a tenth of looking at each.
    if not bool(torch.isfinite(gradient.sum())):
        row = int((~torch.isfinite(gradient)).any(dim=1).nonzero()[0])
        raise GradientError(
            f"clip {clean.ids[row]!r}: expected a finite gradient, got NaN or infinity; the model's loss "
            "overflows on this clip."
        )


class Best:
    """The best perturbation so far, clip by clip: more steps never make an attack worse at its own goal."""

    def __init__(self, delta: Tensor) -> None:
        self.delta = delta
        self.value = torch.full((len(delta),), -torch.inf, device=delta.device)

    def update(self, delta: Tensor, value: Tensor) -> Tensor:
        """Keep what is better, `(batch,)`; returns which clips got better, as bool."""
        better = value > self.value
        if bool(better.all()):
            self.delta, self.value = delta, value
        elif bool(better.any()):
            self.delta = torch.where(better[:, None], delta, self.delta)
            self.value = torch.where(better, value, self.value)
        return better


def within(clean: AudioBatch, delta: Tensor) -> Tensor:
    """The perturbation cut so that clean + delta stays in [-1, 1]."""
    return (clean.waveforms + delta).clamp(-1.0, 1.0) - clean.waveforms
