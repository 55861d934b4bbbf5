"""Attacks: a subclass finds a perturbation, the base class makes an honest example of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch, Lent
from sottovoce.core.budget import Ball, Budget, NormName
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Become, Goal, JudgedBy, Truth, detect_languages
from sottovoce.core.quantisation import round_clean, settle
from sottovoce.core.target import Languages, Says, Scores, Target, check_clips, check_scores
from sottovoce.errors import BudgetError, GradientError, InputError

Sight = Literal["gradient", "scores", "decisions", "nothing"]
"""What an attack looks at in a target, from the most to the least."""
Chance = Callable[[AudioBatch, Sequence[str]], Tensor]
SLACK = 1e-6
"""How much more of a budget the same example may seem to take when it is measured again: on a GPU the last
digits of a sum are not always the same."""


@dataclass(frozen=True)
class Trial:
    """A batch of finished examples, with everything a metric may ask.

    references: what the attack was judged against (the model's clean decision unless the goal was bound).
    labels: the truth where it is known.
    achieved: success of the example as saved; `achieved_unrounded`: before it was rounded to the grid.
    judged_by: what success means for each clip.
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
    judged_by: tuple[JudgedBy, ...] = ()
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

        A goal without references is bound to what the target says to the clean clips. To evade a recogniser
        is to add word errors, in clips whose true text is among the `labels`. Every part works on copies:
        whatever one writes into them, the examples are made of the caller's clips and judged there.

        through: another target, where the perturbation is looked for there and judged on `target`: the
            undefended model, say, for an attacker who does not know of the defense.
        """
        through = target if through is None else through
        self.check(through, goal, budget)
        check_clips(target, clean)
        clean = round_clean(clean, bits)
        # The budget has a copy of its own: it may keep what it measured of clips that an attack wrote into.
        shown, weighed = Lent(clean), Lent(clean)
        clean_texts = decode(target, shown(), draws)
        goal = goal.heard_by(target)
        if not goal.references:
            goal = goal.bind(goal.read(target, shown(), clean_texts, draws=draws.turn("judge")))
        if len(goal.references) != len(clean):
            raise InputError(
                f"expected {len(clean)} references, got {len(goal.references)}; bind one a clip."
            )
        if target.says == "words" and labels is not None:
            goal = goal.knowing(_truths(labels, facts, clean_texts))
        delta = self.perturb(through, shown(), goal, budget, draws.turn("attack")).detach()
        unrounded = clean.with_waveforms(clean.waveforms + within(clean, budget.project(delta, weighed())))
        adversarial = settle(clean, unrounded, budget, bits, weighed())
        check_inside(budget, adversarial.waveforms - clean.waveforms, weighed())
        heard = Lent(adversarial)
        heard_unrounded = heard if bits is None else Lent(unrounded)
        texts = decode(target, heard(), draws)
        before = texts if bits is None else decode(target, heard_unrounded(), draws)
        languages = None
        if target.offers(Languages):
            languages = _languages(target, shown(), draws), _languages(target, heard(), draws)
        return Trial(
            clean=clean,
            adversarial=adversarial,
            references=goal.references,
            labels=labels,
            clean_texts=tuple(clean_texts),
            adversarial_texts=tuple(texts),
            achieved=_judged(target, heard(), goal, texts, draws),
            achieved_unrounded=_judged(target, heard_unrounded(), goal, before, draws),
            judged_by=goal.judged_by,
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


def _truths(
    labels: Sequence[str], facts: Sequence[Mapping[str, str]], clean_texts: Sequence[str]
) -> list[Truth | None]:
    """What is really said, of the clips that have a label."""
    languages = [known.get("language", "") for known in facts] or [""] * len(labels)
    return [
        Truth.of(label, language, text) if label.strip() else None
        for label, language, text in zip(labels, languages, clean_texts, strict=True)
    ]


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
        scores = check_scores(scorer.scores(batch, draws=draws.turn("judge")), batch.ids)
        chances = scores.double().softmax(dim=1)
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
    shown = Lent(clean)
    texts, no = tuple(decode(target, shown(), draws)), (False,) * len(clean)
    heard = _languages(target, shown(), draws) if target.offers(Languages) else None
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
    """The goal's objective `(batch,)` at clean + delta and its gradient `(batch, time)` to delta.

    >>> import sottovoce as sv
    >>> import torch
    >>> model = sv.open_model("keyword", device="cpu")
    >>> clean = sv.open_data("embedded", model=model, limit=2).batch()
    >>> goal = sv.goals.Evade().heard_by(model).bind(["yes", "no"])
    >>> value, gradient = sv.climb(model, clean, torch.zeros_like(clean.waveforms), goal, sv.Draws(0))
    >>> value.shape == (2,) and gradient.shape == clean.waveforms.shape
    True
    """
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


def check_inside(budget: Budget, delta: Tensor, clean: AudioBatch) -> None:
    """Refuse a finished perturbation `(batch, time)` that is not inside its budget."""
    excess = budget.excess(delta, clean)
    inside = excess <= 1.0 + SLACK  # False for NaN
    if not bool(inside.all()):
        row = int((~inside).nonzero()[0])
        raise BudgetError(
            f"clip {clean.ids[row]!r}: expected an example inside {budget}, got {float(excess[row]):.6g} "
            "times what it allows; check the attack and the budget with sottovoce.testing."
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
    """The perturbation cut so that clean + delta stays in [-1, 1].

    >>> import sottovoce as sv
    >>> import torch
    >>> clean = sv.AudioBatch.of([torch.tensor([0.5, -0.5]).numpy()], 16000, ["a"])
    >>> sv.within(clean, torch.tensor([[1.0, 0.25]])).tolist()
    [[0.5, 0.25]]
    """
    return (clean.waveforms + delta).clamp(-1.0, 1.0) - clean.waveforms
