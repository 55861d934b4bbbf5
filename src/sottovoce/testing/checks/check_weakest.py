"""The law of attacks that look for the smallest perturbation: they must not fail where a model is weakest."""

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
from sottovoce.targets.zoo.keyword_target import keyword
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
    """Raise `ContractError` where an attack misses a clip that 20 steps of PGD fool in the same budget.

    Looked at are the clips that lie nearest to their boundary, where a search that takes its steps from that
    distance is rounded away by the 16-bit grid.

    target: the embedded keyword model where not given; it needs scores.
    budget: an SNR of 20 dB where not given.
    goal: to evade, where not given.
    clips: to choose from; the embedded ones where not given.
    count: how many of them.
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
    """The clips nearest to their boundary if the target were linear, by the RMS of what it takes; those that
    the goal has nothing to do for are left out."""
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
