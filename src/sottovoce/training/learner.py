"""What is trained: a module with the names of its answers, a loss for training and a target for attacks."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.core.batch import AudioBatch
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.targets.families.classifier import Classifier, by_length
from sottovoce.targets.families.ctc import Ctc, Vocabulary

Reading = Callable[[nn.Module, AudioBatch], Tensor]
"""Scores `(batch, classes)` that a module gives to a batch."""


class Learner(ABC):
    """A module under training. Its loss takes the module in the mode it is in; its target never trains."""

    name: str
    """Of the model, as in `sottovoce train harden --model`."""
    module: nn.Module

    @abstractmethod
    def loss(self, batch: AudioBatch, labels: Sequence[str], *, through: nn.Module | None = None) -> Tensor:
        """How badly each clip fits its label, `(batch,)`, with a gradient to the weights.

        through: the module in a wrapper that shares its gradient with other processes.
        """

    @abstractmethod
    def target(self, module: nn.Module | None = None) -> Target:
        """The module, or another of its kind such as an average, in evaluation mode."""

    @abstractmethod
    def answers(self) -> str:
        """What it can say, as text."""

    def can_attack(self, batch: AudioBatch, labels: Sequence[str]) -> list[bool]:
        """Which clips have a loss to climb. Default: all."""
        return [True] * len(labels)

    @final
    def describe(self) -> dict[str, str]:
        """What makes weights fit: written into checkpoints and weights, compared when they are read."""
        shapes = {name: list(value.shape) for name, value in self.module.state_dict().items()}
        return {
            "model": self.name,
            "architecture": type(self.module).__name__,
            "parameters": str(sum(value.numel() for value in self.module.parameters())),
            "answers": self.answers(),
            "shapes": blake2b(json.dumps(shapes, sort_keys=True).encode(), digest_size=8).hexdigest(),
        }


@final
class ClassLearner(Learner):
    """A module from waveforms `(batch, time)` to scores `(batch, classes)`, taught by cross-entropy.

    read: how the module hears a batch: `apart`, `with_lengths` or `padded_to(samples)`.
    as_target: how it is a target.
    label_smoothing: the share of the wanted probability that is spread over all classes.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        name: str,
        read: Reading,
        as_target: Callable[[nn.Module], Classifier],
        label_smoothing: float = 0.0,
    ) -> None:
        self.name = name
        self.module = module
        self.label_smoothing = label_smoothing
        self.classes = as_target(module).classes
        self._read = read
        self._as_target = as_target
        self._places = {name: place for place, name in enumerate(self.classes)}

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, through: nn.Module | None = None) -> Tensor:
        wanted = torch.tensor([self._places[label] for label in labels])
        scores = self._read(through or self.module, batch)
        return functional.cross_entropy(
            scores, wanted.to(scores.device), reduction="none", label_smoothing=self.label_smoothing
        )

    def target(self, module: nn.Module | None = None) -> Classifier:
        return self._as_target(module or self.module)

    def answers(self) -> str:
        return json.dumps(self.classes)


def apart(module: nn.Module, batch: AudioBatch) -> Tensor:
    """The clips of each length by themselves: right for any module, slow where every length is another."""
    return by_length(batch, batch.waveforms, module)


def with_lengths(module: nn.Module, batch: AudioBatch) -> Tensor:
    """For a module that gets the lengths and ignores padding."""
    scores: Tensor = module(batch.waveforms, batch.lengths)
    return scores


def padded_to(samples: int) -> Reading:
    """For a module made for clips of one length: zeros come behind shorter ones."""

    def read(module: nn.Module, batch: AudioBatch) -> Tensor:
        scores: Tensor = module(functional.pad(batch.waveforms, (0, samples - batch.waveforms.shape[1])))
        return scores

    return read


@final
class LettersLearner(Learner):
    """A module from waveforms `(batch, time)` and lengths to log probabilities of letters and frames,
    taught by connectionist temporal classification (Graves et al. 2006).

    as_target: how the module is a target.
    """

    def __init__(
        self, module: nn.Module, vocabulary: Vocabulary, *, name: str, as_target: Callable[[nn.Module], Ctc]
    ) -> None:
        self.name = name
        self.module = module
        self.vocabulary = vocabulary
        self._as_target = as_target

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, through: nn.Module | None = None) -> Tensor:
        rows = [self.vocabulary.encode(label) for label in labels]
        if not all(rows):
            raise InputError("expected a text for every clip, got an empty one; drop clips without words.")
        log_probs, frames = (through or self.module)(batch.waveforms, batch.lengths)
        letters = torch.tensor([len(row) for row in rows])
        total = functional.ctc_loss(
            log_probs.transpose(0, 1).float(),
            torch.tensor([token for row in rows for token in row]).to(log_probs.device),
            frames.cpu(),
            letters,
            blank=self.vocabulary.blank,
            reduction="none",
            # A fast voice may leave fewer frames than letters: such a clip teaches nothing and harms nothing.
            zero_infinity=True,
        )
        return total / letters.to(total)

    def can_attack(self, batch: AudioBatch, labels: Sequence[str]) -> list[bool]:
        """Those whose text surely fits their frames, with a blank between any two letters."""
        frames = batch.lengths.double() / batch.sample_rate / self.target().frame_seconds
        needed = [2 * len(self.vocabulary.encode(label)) for label in labels]
        return [wanted <= room for wanted, room in zip(needed, frames.tolist(), strict=True)]

    def target(self, module: nn.Module | None = None) -> Ctc:
        return self._as_target(module or self.module)

    def answers(self) -> str:
        return json.dumps(self.vocabulary.letters)
