"""What an attack is after: which way to step, and what counts as success."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.errors import InputError


@dataclass(frozen=True)
class Goal(ABC):
    """A goal is bound to one reference text a clip: what the model says, or should say, to the clean clip."""

    references: tuple[str, ...] = field(default=(), kw_only=True)

    @abstractmethod
    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """`(batch,)`, differentiable: the higher, the nearer to success. Every attack steps up."""

    @abstractmethod
    def achieved(self, texts: Sequence[str]) -> list[bool]:
        """Whether each decoded text is a success."""

    @abstractmethod
    def applies(self, reference: str) -> bool:
        """Whether a clip with this reference can be attacked at all (forcing what is already said is not)."""

    @abstractmethod
    def wins(self, classes: Sequence[str]) -> Tensor:
        """`(batch, classes)` bool: the classes that a classifier may name for the attack to succeed."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """Texts that the model must be able to say for this goal to make sense."""
        return ()

    @final
    def bind(self, references: Sequence[str]) -> Self:
        """The same goal for clips with these references."""
        return replace(self, references=tuple(references))

    @final
    def select(self, rows: Sequence[int]) -> Self:
        return self.bind([self.references[row] for row in rows])

    @final
    def margin(self, scores: Tensor, classes: Sequence[str]) -> Tensor:
        """Best winning score minus best other score, `(batch,)`: positive when a classifier is fooled."""
        wins = self.wins(classes).to(scores.device)
        lowest = torch.finfo(scores.dtype).min
        best_win = scores.masked_fill(~wins, lowest).amax(dim=1)
        return best_win - scores.masked_fill(wins, lowest).amax(dim=1)


@final
@dataclass(frozen=True)
class Evade(Goal):
    """Make the model say anything but the reference."""

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return target.loss(batch, self.references, draws=draws)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [text != reference for text, reference in zip(texts, self.references, strict=True)]

    def applies(self, reference: str) -> bool:
        return True

    def wins(self, classes: Sequence[str]) -> Tensor:
        return ~_one_hot(self.references, classes)


@final
@dataclass(frozen=True)
class Force(Goal):
    """Make the model say `text`."""

    text: str

    @property
    def wanted(self) -> tuple[str, ...]:
        return (self.text,)

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return -target.loss(batch, [self.text] * len(batch), draws=draws)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [text == self.text for text in texts]

    def applies(self, reference: str) -> bool:
        return reference != self.text

    def wins(self, classes: Sequence[str]) -> Tensor:
        return _one_hot([self.text] * len(self.references), classes)


def _one_hot(labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """`(batch, classes)` bool, true at each label's class."""
    places = {name: place for place, name in enumerate(classes)}
    try:
        rows = torch.tensor([places[label] for label in labels], dtype=torch.int64)
    except KeyError as error:
        raise InputError(
            f"expected a class of the model ({', '.join(classes)}), got {error}; mend the label."
        ) from None
    return torch.nn.functional.one_hot(rows, len(classes)).bool()
