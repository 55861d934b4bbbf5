"""Checks that an attack for the smallest perturbation does not fail where a model is weakest."""

from __future__ import annotations

import torch
from torch import Tensor

from sottovoce.attacks.carlini_wagner import Margin
from sottovoce.attacks.pgd import Pgd
from sottovoce.core.attack import Attack, climb, decode
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.target import Target
from sottovoce.data.embedded import embedded
from sottovoce.data.load import collate
from sottovoce.targets.zoo.keyword_cnn import keyword
from sottovoce.testing.laws import Law, require

DRAWS = Draws(7, ("contract",))
YARDSTICK = Pgd(steps=20)
DOZEN = 12


def check_weakest(
    attack: Attack,
    target: Target | None = None,
    budget: Ball | None = None,
    *,
    goal: Goal | None = None,
    clips: AudioBatch | None = None,
    count: int = DOZEN,
) -> None:
    """Raise `ContractError` if an attack misses a clip that 20 steps of PGD fool with the same budget.

    It is tested on the clips nearest to their decision boundary: there the steps of a search that are
    proportional to that distance are lost by rounding to 16 bits.

    target: needs class scores. Default: the embedded keyword model.
    budget: default: an SNR of 20 dB.
    goal: default: evade.
    clips: to choose from. Default: the embedded ones.
    count: how many of them are attacked.

    >>> clips = sv.open_data("embedded", model="keyword", limit=4).batch()
    >>> sv.testing.check_weakest(sv.attacks.Pgd(steps=20), clips=clips, count=2)
    """
    target = keyword() if target is None else target
    budget = Snr(20.0) if budget is None else budget
    goal = Evade() if goal is None else goal
    weak = weakest(target, _embedded() if clips is None else clips, goal, count)
    missed = missed_clips(attack, target, weak, goal, budget)
    require(not missed, Law.WEAKEST, f"In {budget} it misses {', '.join(missed)}.")


def missed_clips(
    attack: Attack, target: Target, clips: AudioBatch, goal: Goal, budget: Ball
) -> tuple[str, ...]:
    """The ids of the clips that 20 steps of PGD fool on the 16-bit grid, and the attack does not."""
    fooled = YARDSTICK(target, clips, goal, budget, draws=DRAWS).achieved
    rows = [row for row, success in enumerate(fooled) if success]
    if not rows:
        return ()
    trial = attack(target, clips.select(rows), goal, budget, draws=DRAWS)
    return tuple(name for name, success in zip(trial.clean.ids, trial.achieved, strict=True) if not success)


def weakest(target: Target, clips: AudioBatch, goal: Goal, count: int = DOZEN) -> AudioBatch:
    """The clips nearest to their boundary, by the RMS of the step that would cross it in a linear model.

    Clips that reach the goal already are left out.
    """
    bound = goal.bind(decode(target, clips, DRAWS)).heard_by(target)
    margin, slope = climb(
        target, clips, torch.zeros_like(clips.waveforms), Margin(bound, references=bound.references), DRAWS
    )
    level: Tensor = -margin.double() / slope.double().norm(dim=1) / clips.lengths.sqrt()
    order = level.masked_fill(margin > 0, torch.inf).argsort(stable=True)
    return clips.select([row for row in order.tolist() if margin[row] <= 0][:count])


def _embedded() -> AudioBatch:
    corpus = embedded()
    return collate([corpus.load(entry, 16_000) for entry in corpus])
