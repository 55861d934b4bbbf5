"""Checks a universal attack against its laws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.quantisation import round_clean
from sottovoce.core.target import Target
from sottovoce.core.universal_attack import Perturbation, UniversalAttack
from sottovoce.testing.checks.check_attack import check_examples, check_inside
from sottovoce.testing.clips import clips_for, example_clips
from sottovoce.testing.guards import check_random_state, handed_back, unchanged
from sottovoce.testing.laws import Law, gap, require
from sottovoce.testing.toys import ToyClassifier

DRAWS = Draws(7, ("contract",))
BUDGETS: tuple[Budget, ...] = (LInf(0.01), Snr(20.0))


def check_universal(
    attack: UniversalAttack,
    target: Target | None = None,
    budgets: Sequence[Budget] = BUDGETS,
    *,
    goal: Goal | None = None,
    clips: AudioBatch | None = None,
) -> None:
    """Raise `ContractError` if a universal attack breaks a law.

    The perturbation must keep its budget on clips of any length, be the same for the same clips in other
    batches, and be the same after saving and loading.

    target: default: a toy classifier.
    goal: default: evade.
    clips: to fit on. Default: made up, of different lengths.

    >>> attack = sv.attacks.UniversalGradient(epochs=2)
    >>> sv.testing.check_universal(attack, budgets=[sv.budgets.Snr(20)])
    """
    target = ToyClassifier() if target is None else target
    clean = clips_for(target) if clips is None else clips
    goal = Evade() if goal is None else goal
    with unchanged(target):
        for place, budget in enumerate(budgets):
            found = _fit(attack, target, [clean], goal, budget)
            _check_perturbation(found, target, clean, goal, budget)
            if place == 0:
                check_random_state(lambda: _fit(attack, target, [clean], goal, budgets[0]), _difference)
                _check_order(attack, target, clean, goal, budget, found)
                _check_saving(found)


def _fit(
    attack: UniversalAttack, target: Target, clips: Sequence[AudioBatch], goal: Goal, budget: Budget
) -> Perturbation:
    with handed_back(*clips):
        return attack.fit(target, clips, goal, budget, draws=DRAWS)


def _difference(one: Perturbation, two: Perturbation) -> str | None:
    # A single sign that flips at the end of a long fit is rounding; a different course is not.
    return "perturbation" if gap(one.waveform, two.waveform) > 1e-4 else None


def _check_perturbation(
    found: Perturbation, target: Target, clean: AudioBatch, goal: Goal, budget: Budget
) -> None:
    """Added to the clips of the fit, to longer ones, and to the shortest that the target accepts."""
    rate = target.sample_rate
    same = found.sample_rate == rate
    require(same, Law.SHAPE, f"Expected a perturbation at {rate} Hz, got {found.sample_rate} Hz.")
    longest = len(found.waveform) * 2.5 if target.longest is None else target.longest
    others = example_clips(rate, seconds=[longest / rate, target.shortest / rate])
    for batch in (clean, others):
        trial = found(target, batch, goal, budget, draws=DRAWS)
        check_inside(trial, round_clean(batch, 16), budget)
        check_examples(trial, goal, target)


def _check_order(
    attack: UniversalAttack,
    target: Target,
    clean: AudioBatch,
    goal: Goal,
    budget: Budget,
    found: Perturbation,
) -> None:
    """The same clips in other batches lead to the same perturbation."""
    rows = list(range(len(clean)))
    batches = [clean.select([rows[-1]]), clean.select(rows[:-1][::-1])]
    again = _fit(attack, target, batches, goal, budget)
    require(_difference(found, again) is None, Law.ALONE, "The same clips in other batches gave another one.")


def _check_saving(found: Perturbation) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "perturbation.safetensors"
        found.save(path)
        loaded = Perturbation.load(path)
    same = torch.equal(loaded.waveform, found.waveform.cpu()) and loaded.sample_rate == found.sample_rate
    require(same and loaded.made_by == found.made_by, Law.SAVED, "A saved perturbation loads as another one.")
