"""A target around some clips as a landscape: looked at is what a listener would get, on the 16-bit grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from sottovoce.auditing.sparsity.search import Landscape, OnePass
from sottovoce.core.attack import climb, decode
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.quantisation import nearest_step
from sottovoce.core.target import Target

BITS = 16
CONFIRMED, SETTLED = 7, 21
"""Fresh passes of which most must be fooled for a success over a random target to count: on the way, and when
the search is over."""
Judge = Callable[[Sequence[str], Sequence[int]], list[bool]]
"""Whether what was decoded is a success, given the rows that it was decoded from."""


@final
@dataclass(eq=False)
class HeardClips(Landscape):
    """Clips and what a model says to them with something added.

    A perturbation is added, cut to [-1, 1] and rounded to 16 bits; to the search that belongs to the model,
    so that the sphere stays a sphere.

    goal: bound to the clips; what is climbed. through: what is climbed on, with averaged gradients where the
        target is random; passes: how many passes that takes. heard: what is decoded.
    by_scores: whether a positive objective is success: of the margin, where the answer is the best score.
    random: whether a success must be confirmed with fresh draws.
    """

    clean: AudioBatch
    goal: Goal
    through: Target
    heard: Target
    judge: Judge
    draws: Draws
    passes: int = 1
    by_scores: bool = False
    random: bool = False
    gradients: int = field(default=0, init=False)
    hearings: int = field(default=0, init=False)
    """Passes so far, of every clip: with a gradient, and without."""

    def sound(self, delta: Tensor) -> AudioBatch:
        """What a listener gets."""
        cut = (self.clean.waveforms + delta).clamp(-1.0, 1.0)
        return self.clean.with_waveforms(nearest_step(cut, BITS))

    def look(self, delta: Tensor, turn: str) -> OnePass:
        sound, draws = self.sound(delta), self.draws.turn(turn)
        value, gradient = climb(
            self.through, self.clean, sound.waveforms - self.clean.waveforms, self.goal, draws
        )
        self.gradients += self.passes
        if self.by_scores:
            return OnePass(value, gradient, value > 0)
        self.hearings += 1
        return OnePass(value, gradient, self._judged(sound, draws, range(len(sound))))

    def confirm(self, delta: Tensor, fools: Tensor, turn: str, *, last: bool = False) -> Tensor:
        if not self.random or not bool(fools.any()):
            return fools
        rows = fools.nonzero()[:, 0].tolist()
        passes = SETTLED if last else CONFIRMED
        self.hearings += passes
        again = self.fooled_share(delta, rows, passes, turn) > 0.5
        sure = fools.clone()
        sure[rows] = again.to(fools.device)
        return sure

    def fooled_share(self, delta: Tensor, rows: Sequence[int], passes: int, turn: str) -> Tensor:
        """The share of fresh passes over some rows that are fooled, `(len(rows),)`."""
        sound = self.sound(delta).select(rows)
        total = torch.zeros(len(rows))
        for number in range(passes):
            draws = self.draws.turn(turn, "fresh", number)
            total += self._judged(sound, draws, rows).cpu()
        return total / passes

    def _judged(self, sound: AudioBatch, draws: Draws, rows: Sequence[int]) -> Tensor:
        said = decode(self.heard, sound, draws)
        return torch.tensor(self.judge(said, rows), device=sound.device)
