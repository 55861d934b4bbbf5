"""Attacks that look for the smallest perturbation beside those that use up the budget, on the 16-bit grid.

    python benchmarks/smallest.py                           # prints the tables of benchmarks/smallest.md
    python benchmarks/smallest.py --data DIR --limit 240    # on recorded words

The keyword model, clips that it hears right. A clip counts as missed where 20 steps of PGD fool it in the
same budget and the attack does not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import final

import torch
from sottovoce.targets.zoo.keyword_target import keyword
from torch import Tensor

from sottovoce.attacks.apgd import Apgd
from sottovoce.attacks.carlini_wagner import CarliniWagner
from sottovoce.attacks.deepfool import DeepFool
from sottovoce.attacks.pgd import Pgd
from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import collate
from sottovoce.metrics.signal_distortion import snr_db
from sottovoce.targets.families.classifier import Classifier

DRAWS = Draws(0)
CLIPS_AT_ONCE = 40
BUDGETS: tuple[Ball, ...] = (Snr(20), Snr(30), Snr(40), Snr(50), Snr(60), L2(0.05))
ATTACKS: dict[str, Attack] = {
    "pgd(steps=20)": Pgd(steps=20),
    "apgd": Apgd(),
    "deepfool": DeepFool(),
    "cw": CarliniWagner(),
}


@final
class Counted(Classifier):
    """A classifier that counts the clips that went through it."""

    def __init__(self, inner: Classifier) -> None:
        self.inner, self.passes = inner, 0
        self.classes, self.sample_rate = inner.classes, inner.sample_rate

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        self.passes += len(batch)
        return self.inner.scores(batch, draws=draws)


@dataclass(frozen=True)
class Outcome:
    """What an attack did in a budget: which clips it fooled, at which SNR, in how many passes a clip."""

    fooled: list[bool]
    ratios: list[float]
    passes: float

    def missed(self, yardstick: Outcome) -> int:
        return sum(theirs and not ours for ours, theirs in zip(self.fooled, yardstick.fooled, strict=True))

    @property
    def ratio(self) -> float:
        """The median SNR of a success, in dB."""
        return median([db for db, won in zip(self.ratios, self.fooled, strict=True) if won] or [torch.nan])


def heard_right(model: Classifier, spec: str, limit: int) -> AudioBatch:
    """Clips that the model hears right; a word that it does not know counts as "unknown"."""
    corpus = open_corpus(spec).limit(limit)
    batch = collate([corpus.load(entry, model.sample_rate) for entry in corpus])
    with torch.no_grad():
        said = model.decode(batch, draws=DRAWS)
    labels = [entry.label if entry.label in model.classes else "unknown" for entry in corpus]
    return batch.select([row for row, label in enumerate(labels) if said[row] == label])


def outcome(attack: Attack, model: Classifier, clips: AudioBatch, goal: Goal, budget: Ball) -> Outcome:
    target = Counted(model)
    fooled: list[bool] = []
    ratios: list[float] = []
    for first in range(0, len(clips), CLIPS_AT_ONCE):
        part = clips.select(range(first, min(first + CLIPS_AT_ONCE, len(clips))))
        trial = attack(target, part, goal, budget, draws=DRAWS)
        fooled += trial.achieved
        ratios += snr_db(trial.clean.waveforms, trial.delta, trial.clean.lengths).tolist()
    return Outcome(fooled, ratios, target.passes / len(clips))


def table(model: Classifier, clips: AudioBatch, goal: Goal, budgets: Sequence[Ball]) -> None:
    print("| budget | attack | fooled | missed of what PGD fools | median SNR | passes a clip |")
    print("|---|---|---:|---:|---:|---:|")
    for budget in budgets:
        results = {name: outcome(attack, model, clips, goal, budget) for name, attack in ATTACKS.items()}
        for name, result in results.items():
            missed = result.missed(results["pgd(steps=20)"])
            print(
                f"| {budget} | {name} | {sum(result.fooled)} of {len(clips)} | {missed} | "
                f"{result.ratio:.1f} dB | {result.passes:.0f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", default="embedded", help="a folder of class folders, or a corpus by name")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--force", metavar="WORD", help="make the model say this word, instead of any other")
    parser.add_argument("--snr", type=float, nargs="*", help="budgets in dB, instead of the usual six")
    asked = parser.parse_args()
    model = keyword()
    budgets = BUDGETS if asked.snr is None else tuple(Snr(db) for db in asked.snr)
    goal = Evade() if asked.force is None else Force(asked.force)
    table(model, heard_right(model, asked.data, asked.limit), goal, budgets)


if __name__ == "__main__":
    main()
