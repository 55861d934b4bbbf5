"""Validation: accuracy or error rate on clean, noisy and attacked clips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from rapidfuzz.distance import Levenshtein

from sottovoce.core.draws import Draws
from sottovoce.core.statistics import Interval, clopper_pearson, ratio_bootstrap
from sottovoce.core.target import Says, Target
from sottovoce.training.hardening import Adversary, Hardening
from sottovoce.training.sources import ClipsInMemory, Labelled

Figures = dict[str, Interval]
"""`clean`, and `noisy` and `attacked` where a model is hardened so: accuracy or word error rate of each."""


@final
@dataclass(frozen=True, kw_only=True)
class Validator:
    """The same clips, noise and random starts at every call.

    attacked: largest number of clips to attack.
    """

    clips: ClipsInMemory
    hardening: Hardening
    size: int
    attacked: int = 256
    seed: int = 0

    def __call__(self, target: Target) -> Figures:
        """The figures of a target, which has not yet got its noise and front."""
        draws = Draws(self.seed).turn("judge")
        plain, noisy = (self.hardening.around(target, noisy=noise) for noise in (False, True))
        figures = {"clean": _figure(plain, self.clips.in_order(self.size), draws)}
        if self.hardening.noise:
            figures["noisy"] = _figure(noisy, self.clips.in_order(self.size), draws)
        if adversary := self.hardening.adversary:
            attacked = self._attacked(noisy, adversary.as_judge(), draws)
            figures["attacked"] = _figure(noisy, attacked, draws)
        return figures

    def _attacked(self, target: Target, adversary: Adversary, draws: Draws) -> Iterable[Labelled]:
        places = self.clips.some(self.attacked, draws)
        for first in range(0, len(places), self.size):
            clean = self.clips.batch(places[first : first + self.size])
            rows = range(len(clean))
            attacked = adversary.disturb(target, clean.batch, clean.labels, rows, draws.turn("attack"))
            yield Labelled(attacked, clean.labels)


def watched(figures: Figures) -> str:
    """The figure that tells which epoch is best: the hardest there is."""
    return list(figures)[-1]


def gain(figure: Interval, says: Says) -> float:
    """A figure as the higher, the better."""
    return figure.value if says == "class" else -figure.value


def measure_of(says: Says) -> str:
    return "accuracy" if says == "class" else "WER"


def score(said: Sequence[str], meant: Sequence[str], says: Says) -> Interval:
    """Accuracy with its exact interval, or word errors over words with a bootstrap's."""
    pairs = list(zip(said, meant, strict=True))
    if says == "class":
        return clopper_pearson(sum(one == two for one, two in pairs), len(pairs))
    words = [(one.lower().split(), two.lower().split()) for one, two in pairs]
    return ratio_bootstrap([(Levenshtein.distance(one, two), len(two)) for one, two in words])


def _figure(target: Target, batches: Iterable[Labelled], draws: Draws) -> Interval:
    said: list[str] = []
    meant: list[str] = []
    for heard in batches:
        with torch.no_grad():
            said += target.decode(heard.batch, draws=draws.turn("decode"))
        meant += heard.labels
    return score(said, meant, target.says)
