"""Several models as one target: one that judges what was found on another, and proxies attacked together.

Olivier (2023), Table 7.4 and chapter 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import SIGHTS, Capability, Matches, Says, Sight, Target
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import InputError
from sottovoce.targets.open_target import open_target


@final
@dataclass(frozen=True)
class Transfer(Target):
    """Examples made on `source` and tried on `judge`; an attacker has the first in hand, and all it can do.

    As a target it has the loss of the first and the decisions of the second, and no other capability.
    """

    source: Target
    judge: Target

    def __post_init__(self) -> None:
        check_alike("transfer: source and judge", self.source, self.judge)

    @property
    def known(self) -> Target:
        return self.source.known

    @property
    def sample_rate(self) -> int:  # type: ignore[override]
        return self.judge.sample_rate

    @property
    def says(self) -> Says:  # type: ignore[override]
        return self.judge.says

    @property
    def shows(self) -> Sight:
        return self.source.shows

    @property
    def clips(self) -> str:  # type: ignore[override]
        return self.judge.clips

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.source.random

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        return self.source.repeats and self.judge.repeats

    @property
    def paid(self) -> bool:  # type: ignore[override]
        return self.source.paid or self.judge.paid

    @property
    def shortest(self) -> int:
        return max(self.source.shortest, self.judge.shortest)

    @property
    def longest(self) -> int | None:
        return longest_of(self.source, self.judge)

    def check_labels(self, labels: Sequence[str]) -> None:
        self.source.check_labels(labels)
        self.judge.check_labels(labels)

    def canonical(self, text: str) -> str:
        return self.judge.canonical(text)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.source.loss(batch, labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.judge.decode(batch, draws=draws)


@final
class Several(Target, Matches):
    """Proxies that are attacked together: their losses are added, and a clip matches where it does on all.

    A transcript is what all proxies write, and empty where they differ, so that none is taken for what was
    wanted. A class is that of the first.
    """

    def __init__(self, models: Sequence[Target]) -> None:
        if not models:
            raise InputError("several: expected one model or more, got none; write models=[recogniser, ...].")
        first = models[0]
        for other in models[1:]:
            check_alike("several: models", first, other)
        self.models = tuple(models)
        self.sample_rate, self.says, self.clips = first.sample_rate, first.says, first.clips
        self.random = any(model.random for model in models)
        self.repeats = all(model.repeats for model in models)
        self.paid = any(model.paid for model in models)

    @property
    def shows(self) -> Sight:
        return max((model.shows for model in self.models), key=SIGHTS.index)

    @property
    def shortest(self) -> int:
        return max(model.shortest for model in self.models)

    @property
    def longest(self) -> int | None:
        return longest_of(*self.models)

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return all(model.capability(Matches).exact for model in self.models)

    def capability(self, kind: type[Capability]) -> Capability:
        """Matches where all have them; raises `MissingCapability` with the message of one that has not."""
        if kind is Matches:
            for model in self.models:
                model.capability(kind)
        return super().capability(kind)

    def check_labels(self, labels: Sequence[str]) -> None:
        for model in self.models:
            model.check_labels(labels)

    def canonical(self, text: str) -> str:
        return self.models[0].canonical(text)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return torch.stack([model.loss(batch, labels, draws=draws) for model in self.models]).sum(dim=0)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        found = [
            model.capability(Matches).loss_and_match(batch, labels, draws=draws, first_token=first_token)
            for model in self.models
        ]
        losses, matches = zip(*found, strict=True)
        return torch.stack(losses).sum(dim=0), torch.stack(matches).all(dim=0)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        answers = zip(*(model.decode(batch, draws=draws) for model in self.models), strict=True)
        return [self._agreed(texts) for texts in answers]

    def _agreed(self, texts: Sequence[str]) -> str:
        alike = self.says == "class" or len({self.canonical(text) for text in texts}) == 1
        return texts[0] if alike else ""


def several(models: tuple[str, ...], device: str = "cpu") -> Several:
    """Proxies that are attacked together, for examples that carry over: their losses are added.

    models: as in plans, such as `[recogniser, "recogniser(variant=pgd)"]`; all take the same rate.
    device: where they run.
    """
    return Several([open_target(model, device) for model in models])


def check_alike(where: str, first: Target, second: Target) -> None:
    """Refuse models of different rates or of different kinds of answers."""
    for name in ("sample_rate", "says"):
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours != theirs:
            raise InputError(
                f"{where} need the same {name}, got {ours} and {theirs}; choose models that agree."
            )


def longest_of(*models: Target) -> int | None:
    """The most samples that all of them take; None: any number."""
    return min((model.longest for model in models if model.longest is not None), default=None)


def transfer(
    source: str,
    judge: str,
    device: str = "cpu",
    source_defense: str = NO_DEFENSE,
    judge_defense: str = NO_DEFENSE,
) -> Transfer:
    """Examples made on one model and judged by another, each with a defense of its own.

    source, judge: models as in plans, such as `speaker(variant=lowpass)`.
    device: where both run.
    source_defense, judge_defense: their defenses, such as `gaussian(sigma=0.01)+majority`.
    """
    return Transfer(
        Defense.parse(source_defense).around(open_target(source, device)),
        Defense.parse(judge_defense).around(open_target(judge, device)),
    )
