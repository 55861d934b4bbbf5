"""A model, seen as two functions: a loss with a gradient to the waveform, and what a user would read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from sottovoce.core.batch import PASS, AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, MissingCapability, ScoreError

Power = TypeVar("Power")
Says = Literal["class", "words"]


class Target(ABC):
    """A speech model under audit. Labels are strings in every family: a transcript or a class name."""

    sample_rate: int
    says: Says = "class"
    """What `decode` gives: the name of a class, or a transcript."""
    clips: str = "embedded"
    """The corpus that it is audited on where no other is named."""
    random: bool = False
    """Whether what it says hangs on its draws: then an attack must average over them."""
    repeats: bool = True
    """Whether the same clips with the same draws get the same answer every time. An audit finds out by
    itself about a model that does not and does not say so."""
    paid: bool = False
    """Whether asking it costs money: then nobody asks it only to see whether it repeats itself."""

    @abstractmethod
    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        """How badly each clip fits its label, `(batch,)`, differentiable to `batch.waveforms`."""

    @abstractmethod
    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        """What a user of the model would see, one string a clip."""

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raise `InputError` for a label that the model cannot produce. Default: every string can be."""
        return None

    def canonical(self, text: str) -> str:
        """The form in which two texts are compared. A recogniser drops what does not change the words."""
        return text

    @property
    def shortest(self) -> int:
        """The fewest samples a clip may have: 20 ms unless the model says otherwise."""
        return self.sample_rate // 50

    @property
    def longest(self) -> int | None:
        """The most samples a clip may have; None: any length."""
        return None

    def power(self, kind: type[Power]) -> Power:
        """This target as a `kind` (`Scores`, say), or `MissingCapability` naming what is missing."""
        if isinstance(self, kind):
            return self
        raise MissingCapability(
            f"{type(self).__name__} offers no {kind.__name__}; choose a target that does, or an attack "
            "that needs only a loss (pgd, apgd, fgsm)."
        )

    def offers(self, kind: type) -> bool:
        """Whether the target has a power."""
        try:
            self.power(kind)
        except MissingCapability:
            return False
        return True


class Scores(ABC):
    """The power of a classifier: one score a class, before the softmax."""

    classes: tuple[str, ...]

    @abstractmethod
    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """`(batch, classes)`, differentiable to `batch.waveforms`."""


class Matches(ABC):
    """The power of a recogniser to see, while it takes the loss, whether it is about to say the label.

    A targeted attack of thousands of steps decodes in full only where this says yes.
    """

    exact: bool = False
    """Whether a match is as good as decoding: `decode` would say the label to the same clip."""

    @abstractmethod
    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The loss `(batch,)`, and as `(batch,)` bool whether the likeliest tokens spell the label: frame by
        frame for CTC, each after the label's own start for attention.

        first_token: extra weight of the first token in the loss of attention models (Olivier 2023, eq. 5.2);
            CTC knows no first token and takes no notice.
        """


class CtcFrames(ABC):
    """The power of a CTC model: log probabilities of tokens frame by frame, and how they are read."""

    @abstractmethod
    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        """`(batch, frames, tokens)`, differentiable, and how many frames each clip has, `(batch,)` int64."""

    @abstractmethod
    def spell(self, log_probs: Tensor, frames: Tensor) -> list[str]:
        """What `decode` makes of such scores, one text a clip. They need not add up to 1."""


class Languages(ABC):
    """The power to tell which language is spoken."""

    languages: tuple[str, ...]
    """Codes such as "en", in the order of the scores."""

    @abstractmethod
    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """`(batch, languages)` before the softmax, differentiable to `batch.waveforms`."""


@dataclass(frozen=True)
class TimedWord:
    """A word of a transcript, when it was said, and how sure of it the model is, from 0 to 1."""

    text: str
    start_seconds: float
    end_seconds: float
    confidence: float = 1.0


class Timings(ABC):
    """The power to tell when each word was said."""

    @abstractmethod
    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        """The words of each transcript in order; joined by spaces they are what `decode` gives, in its
        canonical form."""


def check_clips(target: Target, batch: AudioBatch) -> None:
    """Refuse clips that the target cannot hear right."""
    if batch.sample_rate != target.sample_rate:
        raise InputError(
            f"expected audio at {target.sample_rate} Hz, got {batch.sample_rate} Hz; resample it first "
            "(sottovoce.data.load.load_clip does)."
        )
    short = int(batch.lengths.argmin())
    if int(batch.lengths[short]) < target.shortest:
        raise InputError(
            f"clip {batch.ids[short]!r}: expected at least {target.shortest} samples "
            f"({1000 * target.shortest / target.sample_rate:.0f} ms), got {int(batch.lengths[short])}; "
            "drop it or record it again."
        )
    long = int(batch.lengths.argmax())
    if target.longest is not None and int(batch.lengths[long]) > target.longest:
        raise InputError(
            f"clip {batch.ids[long]!r}: expected at most {target.longest} samples "
            f"({target.longest / target.sample_rate:g} s), got {int(batch.lengths[long])}; "
            "cut it to that length."
        )


def best_places(scores: Tensor, ids: Sequence[str]) -> Tensor:
    """Where the best score of each clip stands, `(batch, ...)`, of scores `(batch, ..., choices)` that
    `check_scores` lets pass: how scores become an answer."""
    return check_scores(scores, ids).argmax(dim=-1)


def check_scores(scores: Tensor, ids: Sequence[str], counts: Tensor | None = None) -> Tensor:
    """Scores `(batch, ..., choices)` as they are, or `ScoreError` where a clip has no best one.

    The best score must be finite. Minus infinity is a fair score of classes and tokens that a model rules
    out, as long as one is left to choose. NaN and plus infinity are none, nor is minus infinity for all:
    which of them comes first says nothing of the clip.

    ids: one name a clip; of the passes of one clip, the clip's own is told.
    counts: `(batch,)`, how many places of the second dimension each clip has; what lies behind them is
        padding, and is not looked at.
    """
    best = scores.detach().amax(dim=-1)  # NaN where there is one
    fine = best.isfinite()
    if counts is not None:
        fine |= torch.arange(best.shape[1], device=best.device) >= counts.to(best.device)[:, None]
    if not bool(fine.all()):
        row = int((~fine).nonzero()[0, 0])
        found = float(best[row][~fine[row]][0])
        got = "NaN" if math.isnan(found) else "infinity" if found > 0 else "minus infinity for every choice"
        raise ScoreError(
            f"clip {ids[row].partition(PASS)[0]!r}: expected scores with a finite best one, got {got}, from "
            "which no answer can be read; run the model in float32, look for a division by zero in it, or "
            "drop the clip."
        )
    return scores


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Run a module in evaluation mode and hand it back as it was, whatever happens inside."""
    in_training = [part for part in module.modules() if part.training]
    for part in in_training:
        part.training = False
    try:
        yield
    finally:
        for part in in_training:
            part.training = True
