"""Several passes of a random target, and one answer elected from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.core.target import (
    CtcFrames,
    Languages,
    Matches,
    Power,
    Scores,
    Target,
    TimedWord,
    Timings,
    check_scores,
)
from sottovoce.core.transform import Wrapped
from sottovoce.errors import InputError, MissingCapability

MOST_PASSES = 100_000


@final
@dataclass(frozen=True)
class Passes:
    """The passes of a target over a batch, run when they are asked for and `at_once` rows at a time.

    Pass k of a clip draws under a name of its own, so that it hears the same noise in any batch.
    """

    target: Target
    batch: AudioBatch
    draws: Draws
    count: int
    at_once: int = 64

    def texts(self) -> list[list[str]]:
        """What each pass says, pass by pass: `[clip][pass]`."""
        found: list[list[str]] = [[] for _ in self.batch.ids]
        for rows, piece in self.batch.passes(self.count, self.at_once):
            for row, text in zip(rows, self.target.decode(piece, draws=self.draws), strict=True):
                found[row].append(text)
        return found

    def words(self) -> list[list[list[TimedWord]]]:
        """The same with the time of every word, `[clip][pass][word]`; the target must offer `Timings`."""
        power = self.target.power(Timings)
        found: list[list[list[TimedWord]]] = [[] for _ in self.batch.ids]
        for rows, piece in self.batch.passes(self.count, self.at_once):
            for row, words in zip(rows, power.timings(piece, draws=self.draws), strict=True):
                found[row].append(words)
        return found

    def mean_scores(self) -> Tensor:
        """Class scores `(batch, classes)`, averaged over the passes; the target must offer `Scores`."""
        power = self.target.power(Scores)
        total = torch.zeros(len(self.batch), len(power.classes), device=self.batch.device)
        for rows, piece in self.batch.passes(self.count, self.at_once):
            scores = power.scores(piece, draws=self.draws)
            total.index_add_(0, torch.tensor(rows, device=total.device), scores.to(total))
        return check_scores(total / self.count, self.batch.ids)

    def mean_log_probs(self) -> tuple[Tensor, Tensor]:
        """Scores of tokens `(batch, frames, tokens)`, averaged over the passes, and each clip's frames."""
        power = self.target.power(CtcFrames)
        total, frames = torch.zeros(0), torch.zeros_like(self.batch.lengths)
        for rows, piece in self.batch.passes(self.count, self.at_once):
            scores, counts = power.log_probs(piece, draws=self.draws)
            places = torch.tensor(rows, device=scores.device)
            frames[places] = counts.to(frames)
            if not total.numel():
                total = torch.zeros(len(self.batch), *scores.shape[1:], device=scores.device)
            # A piece of short clips alone has fewer frames than the batch.
            missing = scores.shape[1] - total.shape[1]
            total = torch.nn.functional.pad(total, (0, 0, 0, max(missing, 0)))
            total[:, : scores.shape[1]].index_add_(0, places, scores.to(total))
        return check_scores(total / self.count, self.batch.ids, frames), frames


class Vote(ABC):
    """How passes elect one answer. A subclass is a frozen dataclass with `passes` and an `elect`."""

    passes: int
    needs: ClassVar[tuple[type, ...]] = ()
    """Powers that the target must have."""

    @abstractmethod
    def elect(self, passes: Passes) -> list[str]:
        """One text a clip."""

    def check(self, target: Target) -> None:
        """Raise where this vote cannot be held over this target."""
        for kind in self.needs:
            target.power(kind)
        self.check_passes()

    def check_passes(self) -> None:
        """Raise where there are none, or far too many."""
        if not 1 <= self.passes <= MOST_PASSES:
            raise InputError(f"expected 1 to {MOST_PASSES:,} passes, got {self.passes}; 16 is usual.")


@final
@dataclass(frozen=True)
class Voted(Wrapped):
    """A random target that answers with a vote over several passes.

    What an attack climbs is one pass: the vote counts, and counting has no gradient. `Averaged` around it
    gives the gradient of the expectation that the vote estimates. What a user reads is the vote.
    """

    target: Target
    vote: Vote
    at_once: int = 64

    def __post_init__(self) -> None:
        self.vote.check(self.target)
        if self.at_once < 1:
            raise InputError(f"expected at least 1 row at once, got {self.at_once}; 64 is usual.")

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return False

    def power(self, kind: type[Power]) -> Power:
        if kind in (Timings, CtcFrames):
            raise MissingCapability(
                f"a vote offers no {kind.__name__}: an elected text has no pass of its own; ask the target "
                "inside."
            )
        return super().power(kind)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.target.loss(batch, labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        passes = Passes(self.target, batch, draws.turn("vote"), self.vote.passes, self.at_once)
        try:
            with torch.no_grad():
                return self.vote.elect(passes)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            rows = min(self.at_once, len(batch) * self.vote.passes)
            raise InputError(
                f"expected memory for {rows} clips of {batch.waveforms.shape[1]} samples at once, got too "
                f"little; take a batch and passes that make fewer than {rows} together, or a lower `at_once`."
            ) from None

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.power(Scores).scores(batch, draws=draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        inner = self.target.power(Matches)
        return inner.loss_and_match(batch, labels, draws=draws, first_token=first_token)

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.power(Languages).language_scores(batch, draws=draws)

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        return self.power(Timings).timings(batch, draws=draws)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        return self.power(CtcFrames).log_probs(batch, draws=draws)
