"""Attacks: a subclass finds a perturbation; the base class projects, rounds and judges the example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch, Lent
from sottovoce.core.budget import Ball, Budget, NormName
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import CheckedSettings
from sottovoce.core.goal import Become, Goal, JudgedBy, Truth, detect_languages
from sottovoce.core.quantisation import round_clean, settle
from sottovoce.core.target import (
    Languages,
    Says,
    Scores,
    Sight,
    Target,
    check_clips,
    check_scores,
    require_capabilities,
    require_sight,
    shown_name,
)
from sottovoce.errors import BudgetError, GradientError, InputError

Chance = Callable[[AudioBatch, Sequence[str]], Tensor]
WITH_A_NORM = "a budget with a norm, such as snr(db=30), dbmax(db=-20), l2(eps=0.1) or linf(eps=0.01)"
A_BUDGET = "a budget, such as snr(db=30), linf(eps=0.01) or audible(p=0.25)"
SLACK = 1e-6
"""Tolerance, as a share of the budget, when a finished example is measured again: on a GPU the last digits of
a sum vary."""


@dataclass(frozen=True)
class Trial:
    """The results of an attack on a batch of clips: the examples, what the model said, and who was fooled.

    clean, adversarial: the clips before and after, as `AudioBatch`; `delta` is the difference.
    clean_texts, adversarial_texts: what the model said to each.
    achieved: whether each example reached the goal, as it would be saved in a 16-bit file;
        `achieved_unrounded`: before it was rounded.
    references: what success was judged against: what the model said to the clean clip, unless the goal was
        bound to something else.
    labels: the true labels, if known.
    judged_by: what success means for each clip: "errors", "change" or "goal".
    wanted: the text that each clip was meant to become, if the goal has one.
    says, canonical: whether the texts are classes or words, and the form in which they are compared.
    languages: the languages detected in the clean clips and in the examples, if the model detects any.
    facts: further facts about each clip, such as its speaker.
    chance: gives the probability `(batch,)` of a label for each clip of a batch, if the model has class
        scores.

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> trial = sv.attack("keyword", clips, "pgd(steps=10)", budget="snr(db=20)")
    >>> trial.achieved
    (True, True)
    >>> [before != after for before, after in zip(trial.clean_texts, trial.adversarial_texts)]
    [True, True]
    >>> bool(trial.delta.abs().max() > 0)
    True
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
        """The perturbation, `(batch, time)`: adversarial less clean samples."""
        return self.adversarial.waveforms - self.clean.waveforms


class Attack(CheckedSettings, ABC):
    """An attack that perturbs each clip by itself. A subclass is a frozen dataclass that writes `perturb`.

    `perturb` returns a perturbation `(batch, time)`. Calling the attack does the rest: it projects onto the
    budget, clamps to [-1, 1], rounds to 16 bits, decodes, and judges the result, so that every attack is
    measured alike. `climb` gives the objective and its gradient. `sv.testing.check_attack` tests the
    subclass.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class OneStep(sv.Attack):
    ...     def perturb(self, target, clean, goal, budget, draws):
    ...         _, gradient = sv.climb(target, clean, torch.zeros_like(clean.waveforms), goal, draws)
    ...         return budget.fill(gradient, clean)
    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> sv.attack("keyword", clips, OneStep(), budget="snr(db=10)").achieved
    (True, True)
    """

    name: ClassVar[str] = ""
    """The name it is registered under, for messages."""
    needs: ClassVar[tuple[type, ...]] = ()
    """Capabilities that the target must have, such as `Scores`."""
    budgets: ClassVar[tuple[type[Budget], ...]] = (Budget,)
    """Kinds of budget that the attack works with."""
    norms: ClassVar[tuple[NormName, ...]] = ("l2", "linf")
    """Norms that such a budget may have."""
    goals: ClassVar[tuple[type[Goal], ...]] = (Goal,)
    """Kinds of goal that the attack works for."""
    sees: ClassVar[Sight] = "gradient"
    """What the attack observes: "gradient" for a white box, "scores" or "decisions" for a black box. It is
    refused on targets that show less."""
    least: ClassVar[Sight | None] = None
    """What it can make do with, where that is less than what it `sees`."""

    @abstractmethod
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        """The perturbation found, `(batch, time)`; it need not be projected, clamped or rounded."""

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

        A goal without references is bound to what the target says to the clean clips. For a recogniser, to
        evade means to add word errors if the true text is in `labels`. The attack works on copies of the
        clips, so nothing that it writes into them changes the result.

        through: search the perturbation on this target and judge it on `target`; the undefended model, for
            an attacker who does not know about the defense. Default: what the target says is known of it.
        """
        through = target.known if through is None else through
        self.check(through, goal, budget)
        check_clips(target, clean)
        clean = round_clean(clean, bits)
        # The budget gets a copy of its own: it may cache measurements of clips that an attack then writes
        # into.
        shown, weighed = Lent(clean), Lent(clean)
        clean_texts = decode(target, shown(), draws)
        goal = goal.heard_by(target)
        if not goal.references:
            goal = goal.bind(goal.read(target, shown(), clean_texts, draws=draws.turn("judge")))
        if len(goal.references) != len(clean):
            raise InputError(
                f"the goal needs {len(clean)} references, one for each clip, got {len(goal.references)}."
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
        """Raise before any work if this attack cannot run on this target with this goal and budget."""
        require_sight(self, self.least or self.sees, target)
        require_capabilities(self, self.needs, target, "Use pgd, apgd or fgsm.")
        require_capabilities(goal, goal.needs, target, "Use evade or force.")
        if not isinstance(goal, self.goals):
            raise InputError(
                f"{shown_name(self)} forces a text, got the goal {shown_name(goal)}. Name a text, such as "
                "force(text=yes)."
            )
        if not isinstance(budget, self.budgets):
            kinds = " or ".join(kind.__name__ for kind in self.budgets)
            needed = WITH_A_NORM if self.budgets == (Ball,) else f"a budget of kind {kinds}"
            needed = needed if isinstance(budget, Budget) or self.budgets == (Ball,) else A_BUDGET
            raise InputError(f"{shown_name(self)} needs {needed}, got {budget}.")
        if isinstance(budget, Ball) and budget.norm not in self.norms:
            raise InputError(
                f"{shown_name(self)} needs a budget in the norm {' or '.join(self.norms)}, got {budget}. Use "
                f"{' or '.join(_IN_NORM[norm] for norm in self.norms)}."
            )


_IN_NORM: dict[NormName, str] = {"l2": "snr(db=30) or l2(eps=0.1)", "linf": "linf(eps=0.01) or dbmax(db=-20)"}


def _truths(
    labels: Sequence[str], facts: Sequence[Mapping[str, str]], clean_texts: Sequence[str]
) -> list[Truth | None]:
    """The true texts of the clips that have a label."""
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
    """Computed only if a metric needs it, because it costs a pass. Its draws are those of the judgement."""
    scorer = target.capability(Scores)

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
    """A trial without an attack, in one pass: the examples are the clean clips."""
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
    """The target's texts, without a gradient; every judgement of a run uses the same random pass."""
    with torch.no_grad():
        return target.decode(batch, draws=draws.turn("judge"))


def climb(
    target: Target, clean: AudioBatch, delta: Tensor, goal: Goal, draws: Draws
) -> tuple[Tensor, Tensor]:
    """The goal's objective `(batch,)` at clean + delta and its gradient `(batch, time)`.

    The gradient is with respect to `delta`. Every attack steps up: the higher the objective, the nearer the
    goal.

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
        # A defense that detaches the gradient has a gradient of zero. Attacks without one show the masking.
        gradient = torch.zeros_like(delta)
    check_finite(clean, gradient)
    return value.detach(), gradient


def check_finite(clean: AudioBatch, gradient: Tensor) -> None:
    """Raise `GradientError` for a gradient `(batch, time)` with NaN or infinity in it."""
    # The sum is finite exactly when every part is, and costs a tenth of testing each.
    if not bool(torch.isfinite(gradient.sum())):
        row = int((~torch.isfinite(gradient)).any(dim=1).nonzero()[0])
        raise GradientError(
            f"clip {clean.ids[row]!r}: expected a finite gradient, got NaN or infinity; the model's loss "
            "overflows on this clip. Leave it out, or run the model in float32."
        )


def check_inside(budget: Budget, delta: Tensor, clean: AudioBatch) -> None:
    """Raise `BudgetError` for a finished perturbation `(batch, time)` that is not inside its budget."""
    excess = budget.excess(delta, clean)
    inside = excess <= 1.0 + SLACK  # False for NaN
    if not bool(inside.all()):
        row = int((~inside).nonzero()[0])
        raise BudgetError(
            f"clip {clean.ids[row]!r}: expected an example inside {budget}, got {float(excess[row]):.6g} "
            "times what it allows; test the attack and the budget with sottovoce.testing."
        )


class Best:
    """Keeps the best perturbation so far, clip by clip, so that more steps never make an attack worse.

    >>> best = sv.Best(torch.zeros(2, 3))
    >>> best.update(torch.full((2, 3), 0.1), torch.tensor([1.0, 1.0])).tolist()
    [True, True]
    >>> best.update(torch.full((2, 3), 0.2), torch.tensor([2.0, 0.5])).tolist()
    [True, False]
    >>> [round(sample, 1) for sample in best.delta[:, 0].tolist()]
    [0.2, 0.1]
    """

    def __init__(self, delta: Tensor) -> None:
        self.delta = delta
        self.value = torch.full((len(delta),), -torch.inf, device=delta.device)

    def update(self, delta: Tensor, value: Tensor) -> Tensor:
        """Keep each clip's perturbation if its value `(batch,)` is higher; returns which were, as bool."""
        better = value > self.value
        if bool(better.all()):
            self.delta, self.value = delta, value
        elif bool(better.any()):
            self.delta = torch.where(better[:, None], delta, self.delta)
            self.value = torch.where(better, value, self.value)
        return better


def within(clean: AudioBatch, delta: Tensor) -> Tensor:
    """The perturbation, clamped so that clean + delta stays in [-1, 1].

    >>> clean = sv.AudioBatch.of([torch.tensor([0.5, -0.5])], sample_rate=16000)
    >>> sv.within(clean, torch.tensor([[1.0, 0.25]])).tolist()
    [[0.5, 0.25]]
    """
    return (clean.waveforms + delta).clamp(-1.0, 1.0) - clean.waveforms
