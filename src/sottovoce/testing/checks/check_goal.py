"""Checks a goal against its laws."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sottovoce.core.attack import climb, decode
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Become, Goal
from sottovoce.core.target import Scores, Target
from sottovoce.testing.checks.check_target import scorer_of
from sottovoce.testing.clips import clips_for
from sottovoce.testing.guards import handed_back
from sottovoce.testing.laws import Law, gap, require
from sottovoce.testing.sequence_toys import ToyAttention
from sottovoce.testing.toys import ToyClassifier

DRAWS = Draws(7, ("contract",))
STEPS = 20


def check_goal(
    goal: Goal,
    target: Target | None = None,
    clips: AudioBatch | None = None,
    *,
    tolerance: float = 1e-4,
) -> None:
    """Raise `ContractError` if a goal breaks a law.

    Steps up the objective must lead toward success, and success must agree with the margin of the scores.

    target: must not be random, and must decide by its best score if it has scores. Default: a toy with the
        capabilities that the goal needs.
    clips: default: made up, of different lengths.
    tolerance: by how much an objective may differ alone and in a batch.

    >>> sv.testing.check_goal(sv.goals.Force("north"))
    """
    if target is None:
        target = ToyAttention() if goal.needs or goal.says == "words" else ToyClassifier()
    clean = clips_for(target) if clips is None else clips
    goal = goal.heard_by(target)
    with handed_back(clean):
        goal = goal.bind(goal.read(target, clean, decode(target, clean, DRAWS), draws=DRAWS))
    open_rows = [row for row, text in enumerate(goal.references) if goal.applies(text)]
    require(bool(open_rows), Law.SUCCESS, "The goal applies to none of the clips; give it others.")
    clean, goal = clean.select(open_rows), goal.select(open_rows)
    _check_references(goal, target, clean, tolerance)
    _check_nearness(goal)
    before, after, delta = _ascend(goal, target, clean)
    for name, old, new in zip(clean.ids, before.tolist(), after.tolist(), strict=True):
        require(
            new > old, Law.SIGN, f"Clip {name!r}: {STEPS} steps up took the objective from {old} to {new}."
        )
    scorer = scorer_of(target)
    if scorer is not None:
        _check_margin(goal, target, scorer, clean, delta)


def _check_references(goal: Goal, target: Target, clean: AudioBatch, tolerance: float) -> None:
    achieved = goal.achieved(goal.references)
    bad = [text for text, reached in zip(goal.references, achieved, strict=True) if reached]
    require(not bad, Law.SUCCESS, f"The goal applies to {bad}, but saying exactly that counts as success.")
    with handed_back(clean):
        whole = goal.objective(target, clean, draws=DRAWS).detach()
    got, expected = tuple(whole.shape), (len(clean),)
    require(got == expected, Law.SHAPE, f"Expected an objective of shape {expected}, got {got}.")
    for row, name in enumerate(clean.ids):
        one = goal.select([row])
        alone = one.objective(target, clean.select([row]), draws=DRAWS).detach()
        same = one.references == (goal.references[row],) and gap(alone, whole[[row]]) <= tolerance
        require(same, Law.ALONE, f"Clip {name!r} alone has another reference or objective.")


def _check_nearness(goal: Goal) -> None:
    """Of the texts that clips have, or are meant to have, a success is nearer than what is none."""
    known = sorted({*goal.references, *goal.wanted, *(goal.texts if isinstance(goal, Become) else ())})
    for row in range(len(goal.references)):
        one = goal.select([row])
        found = [(one.nearness([text])[0], one.achieved([text])[0], text) for text in known]
        for near, _, text in (each for each in found if each[1]):
            for far, _, other in (each for each in found if not each[1]):
                detail = (
                    f"{text!r} is a success and {other!r} is not, but their nearness is {near} and {far}."
                )
                require(near > far, Law.SIGN, detail)


def _ascend(goal: Goal, target: Target, clean: AudioBatch) -> tuple[Tensor, Tensor, Tensor]:
    """The objective at the clean clips and after some steps up, and where the steps led."""
    budget = Snr(10.0)
    stride = 0.1 * budget.radius(clean).to(clean.waveforms.dtype)[:, None]
    delta = torch.zeros_like(clean.waveforms)
    first, gradient = climb(target, clean, delta, goal, DRAWS)
    value = first
    for _ in range(STEPS):
        delta = budget.project(delta + stride * budget.steepest(gradient, clean), clean)
        value, gradient = climb(target, clean, delta, goal, DRAWS)
    return first, value, delta


def _check_margin(goal: Goal, target: Target, scorer: Scores, clean: AudioBatch, delta: Tensor) -> None:
    adversarial = clean.with_waveforms(clean.waveforms + delta)
    margins = []
    for batch in (clean, adversarial):
        with torch.no_grad():
            margin = goal.margin(scorer.scores(batch, draws=DRAWS), scorer.classes)
            achieved = goal.achieved(target.decode(batch, draws=DRAWS))
        for name, lead, reached in zip(batch.ids, margin.tolist(), achieved, strict=True):
            detail = f"Clip {name!r} has a margin of {lead:.4g}, but achieved is {reached}."
            require(abs(lead) < 1e-4 or (lead > 0) == reached, Law.SUCCESS, detail)
        margins.append(float(margin.mean()))
    detail = f"{STEPS} steps up took the mean margin from {margins[0]:.4g} to {margins[1]:.4g}."
    require(margins[1] > margins[0], Law.SIGN, detail)
    _check_wins(goal, scorer.classes)


def _check_wins(goal: Goal, classes: Sequence[str]) -> None:
    wins = goal.wins(classes)
    for place, name in enumerate(classes):
        same = goal.achieved([name] * len(goal.references)) == wins[:, place].tolist()
        require(same, Law.SUCCESS, f"The classes that win and the texts that achieve disagree on {name!r}.")
