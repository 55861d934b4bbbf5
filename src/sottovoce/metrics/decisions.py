"""What an attack did to the decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.metric import Metric


@final
class Accuracy(Metric):
    """Share of clips that are still heard right."""

    name, title, unit = "accuracy", "accuracy under attack", "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"
    says: ClassVar[Literal["class", "words"] | None] = "class"

    def measure(self, trial: Trial) -> Tensor:
        return _rate(_right(trial, trial.adversarial_texts))


@final
class CleanAccuracy(Metric):
    """Share of clips that are heard right before the attack."""

    name, title, unit = "clean-accuracy", "clean accuracy", "%"
    before: ClassVar[bool] = True
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"
    says: ClassVar[Literal["class", "words"] | None] = "class"

    def measure(self, trial: Trial) -> Tensor:
        return _rate(_right(trial, trial.clean_texts))


@final
class FoolingRatio(Metric):
    """Share of clips whose decision changes (Moosavi-Dezfooli et al. 2017), right or wrong before."""

    name, title, unit = "fooling-ratio", "fooling ratio", "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"

    def measure(self, trial: Trial) -> Tensor:
        return _rate(
            [
                trial.canonical(after) != trial.canonical(before)
                for after, before in zip(trial.adversarial_texts, trial.clean_texts, strict=True)
            ]
        )


@final
class Success(Metric):
    """Share of attacks that reach their goal: for a classifier among the clips that it heard right before,
    for a recogniser, which seldom hears a whole sentence right, among all."""

    name, title, unit = "success", "attack success", "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"

    def measure(self, trial: Trial) -> Tensor:
        right = _right(trial, trial.clean_texts)
        if trial.labels is None or trial.says == "words":
            right = [True] * len(trial.clean)
        return _rate([reached if fair else None for reached, fair in zip(trial.achieved, right, strict=True)])


@final
class ChanceOfRight(Metric):
    """Mean probability that the target gives to the right label under attack: what soft votes add up."""

    name, title, unit = "chance", "probability of the right label under attack", "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    says: ClassVar[Literal["class", "words"] | None] = "class"
    measured: ClassVar[Literal["always", "pairs", "named"]] = "named"

    def measure(self, trial: Trial) -> Tensor:
        return _chances(trial, trial.adversarial)


@final
class CleanChanceOfRight(Metric):
    """Mean probability that the target gives to the right label before the attack."""

    name, title, unit = "clean-chance", "probability of the right label", "%"
    before: ClassVar[bool] = True
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    says: ClassVar[Literal["class", "words"] | None] = "class"
    measured: ClassVar[Literal["always", "pairs", "named"]] = "named"

    def measure(self, trial: Trial) -> Tensor:
        return _chances(trial, trial.clean)


def _chances(trial: Trial, batch: AudioBatch) -> Tensor:
    """Parts (probability, 1); NaN where the truth or the target's scores are not known."""
    if trial.labels is None or trial.chance is None:
        return _rate([None] * len(batch))
    chances = trial.chance(batch, trial.labels).double().cpu()
    return torch.stack([chances, torch.ones_like(chances)], dim=1)


def _right(trial: Trial, texts: Sequence[str]) -> list[bool] | list[None]:
    if trial.labels is None:
        return [None] * len(texts)
    return [
        trial.canonical(text) == trial.canonical(label)
        for text, label in zip(texts, trial.labels, strict=True)
    ]


def _rate(outcomes: Sequence[bool | None]) -> Tensor:
    """Parts (outcome, 1); NaN where there is no outcome."""
    values = [float("nan") if outcome is None else float(outcome) for outcome in outcomes]
    return torch.tensor([[value, 1.0] for value in values], dtype=torch.float64)
