"""A target that counts its passes, which is what an attack costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import CtcFrames, Languages, Matches, Scores, Target, TimedWord, Timings
from sottovoce.core.transform import Wrapped


@final
@dataclass
class Counts:
    """Clips that went through a model, and those whose gradient came back. A batch of 8 counts 8."""

    forward: int = 0
    backward: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.forward - other.forward, self.backward - other.backward)

    def copy(self) -> Counts:
        return Counts(self.forward, self.backward)


@final
@dataclass(frozen=True)
class Counted(Wrapped):
    """The same target; `counts` grows with every pass.

    labels: by the ids of clips, the texts that stand in for those of a target that costs money per answer. So
        every clip is heard right, no attack ends early, and the passes are the most that there can be.
    """

    target: Target
    counts: Counts = field(default_factory=Counts)
    labels: Mapping[str, str] | None = None

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.target.capability(Matches).exact

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self._watched(batch, self.target.loss(batch, labels, draws=draws))

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        self.counts.forward += len(batch)
        if self.labels is None:
            return self.target.decode(batch, draws=draws)
        # One of a population has the id of its clip, and a number after a slash.
        return [self.labels.get(name) or self.labels.get(name.rpartition("/")[0], "") for name in batch.ids]

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self._watched(batch, self.target.capability(Scores).scores(batch, draws=draws))

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        inner = self.target.capability(Matches)
        loss, match = inner.loss_and_match(batch, labels, draws=draws, first_token=first_token)
        return self._watched(batch, loss), match

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        found, frames = self.target.capability(CtcFrames).log_probs(batch, draws=draws)
        return self._watched(batch, found), frames

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self._watched(batch, self.target.capability(Languages).language_scores(batch, draws=draws))

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        self.counts.forward += len(batch)
        return self.target.capability(Timings).timings(batch, draws=draws)

    def _watched(self, batch: AudioBatch, answer: Tensor) -> Tensor:
        """Count a pass, and where a gradient comes back through the answer, that too."""
        self.counts.forward += len(batch)
        if answer.requires_grad:
            counts, rows = self.counts, len(batch)

            def back(gradient: Tensor) -> None:
                counts.backward += rows

            answer.register_hook(back)
        return answer
