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
    """Share of clips that a classifier still names correctly under attack, in %.

    Its interval is exact (Clopper-Pearson). Clips without a label have no value.

    >>> clips = sv.AudioBatch.of([[0.5], [0.5]], sample_rate=16000)
    >>> trial = sv.Trial(
    ...     clips, clips, labels=("yes", "no"), references=("yes", "no"), clean_texts=("yes", "no"),
    ...     adversarial_texts=("yes", "go"), achieved=(False, True), achieved_unrounded=(False, True),
    ... )
    >>> sv.metrics.Accuracy().measure(trial)[:, 0].tolist()  # a clip each: right, wrong
    [1.0, 0.0]
    """

    name, title, unit = "accuracy", "accuracy under attack", "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"
    says: ClassVar[Literal["class", "words"] | None] = "class"

    def measure(self, trial: Trial) -> Tensor:
        return _rate(_right(trial, trial.adversarial_texts))


@final
class CleanAccuracy(Metric):
    """Share of clips that a classifier names correctly before the attack, in %.

    Its interval is exact (Clopper-Pearson). Clips without a label have no value.

    >>> clips = sv.AudioBatch.of([[0.5], [0.5]], sample_rate=16000)
    >>> trial = sv.Trial(
    ...     clips, clips, labels=("yes", "no"), references=("yes", "up"), clean_texts=("yes", "up"),
    ...     adversarial_texts=("no", "go"), achieved=(True, True), achieved_unrounded=(True, True),
    ... )
    >>> sv.metrics.CleanAccuracy().measure(trial)[:, 0].tolist()  # a clip each: right, wrong
    [1.0, 0.0]
    """

    name, title, unit = "clean-accuracy", "clean accuracy", "%"
    before: ClassVar[bool] = True
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"
    says: ClassVar[Literal["class", "words"] | None] = "class"

    def measure(self, trial: Trial) -> Tensor:
        return _rate(_right(trial, trial.clean_texts))


@final
class FoolingRatio(Metric):
    """Share of clips whose decision changes, right or wrong before, in %.

    Needs no labels (Moosavi-Dezfooli et al. 2017, "Universal adversarial perturbations"). Transcripts are
    compared in the recogniser's canonical form. Its interval is exact (Clopper-Pearson).

    >>> clips = sv.AudioBatch.of([[0.5], [0.5]], sample_rate=16000)
    >>> trial = sv.Trial(
    ...     clips, clips, labels=None, references=("yes", "up"), clean_texts=("yes", "up"),
    ...     adversarial_texts=("yes", "go"), achieved=(False, True), achieved_unrounded=(False, True),
    ... )
    >>> sv.metrics.FoolingRatio().measure(trial)[:, 0].tolist()  # a clip each: the same, another decision
    [0.0, 1.0]
    """

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
    """Share of attacks that reach their goal, in %.

    For a classifier it counts only clips that were named correctly before the attack. A recogniser seldom
    writes a whole sentence without an error, so there every clip counts. The interval is exact
    (Clopper-Pearson).

    >>> clips = sv.AudioBatch.of([[0.5], [0.5], [0.5]], sample_rate=16000)
    >>> trial = sv.Trial(
    ...     clips, clips, labels=("yes", "no", "up"), references=("yes", "no", "go"),
    ...     clean_texts=("yes", "no", "go"), adversarial_texts=("yes", "go", "up"),
    ...     achieved=(False, True, True), achieved_unrounded=(False, True, True),
    ... )
    >>> sv.metrics.Success().measure(trial)[:, 0].tolist()  # the last clip was wrong before: no value
    [0.0, 1.0, nan]
    """

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
    """Mean probability that the target gives to the right label under attack, in %.

    A soft vote over several clips of a speaker adds these up. Needs labels and a target with class scores.

    >>> clips = sv.AudioBatch.of([[0.5], [0.5]], sample_rate=16000)
    >>> trial = sv.Trial(
    ...     clips, clips, labels=("yes", "no"), references=("yes", "no"), clean_texts=("yes", "no"),
    ...     adversarial_texts=("yes", "go"), achieved=(False, True), achieved_unrounded=(False, True),
    ...     chance=lambda batch, labels: torch.tensor([0.75, 0.25]),
    ... )
    >>> sv.metrics.ChanceOfRight().measure(trial)[:, 0].tolist()
    [0.75, 0.25]
    """

    name, title, unit = "chance", "probability of the right label under attack", "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    says: ClassVar[Literal["class", "words"] | None] = "class"
    measured: ClassVar[Literal["always", "pairs", "named"]] = "named"

    def measure(self, trial: Trial) -> Tensor:
        return _chances(trial, trial.adversarial)


@final
class CleanChanceOfRight(Metric):
    """Mean probability that the target gives to the right label before the attack, in %.

    Needs labels and a target with class scores.

    >>> clips = sv.AudioBatch.of([[0.5], [0.5]], sample_rate=16000)
    >>> trial = sv.Trial(
    ...     clips, clips, labels=("yes", "no"), references=("yes", "no"), clean_texts=("yes", "no"),
    ...     adversarial_texts=("yes", "go"), achieved=(False, True), achieved_unrounded=(False, True),
    ...     chance=lambda batch, labels: torch.tensor([0.75, 0.5]),
    ... )
    >>> sv.metrics.CleanChanceOfRight().measure(trial)[:, 0].tolist()
    [0.75, 0.5]
    """

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
