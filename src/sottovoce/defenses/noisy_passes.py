"""What a model says to thousands of noisy copies of a clip: drawn on its device, a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import final

import numpy as np
import torch
from torch import Tensor

from sottovoce.core.batch import PASS, AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import CtcFrames, Matches, Target, best_places, check_clips
from sottovoce.core.transform import Defended, Transform
from sottovoce.core.vote import Passes, Vote
from sottovoce.defenses.randomised_smoothing import Gaussian, MadNoise
from sottovoce.errors import InputError

BLOCK = 64
"""Passes that are drawn together. The noise depends on the number of its block, not on the batch size."""
AT_ONCE = 2**25
"""Samples that go through the model at once on an accelerator, where no batch is given."""


@final
@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """A model f behind Gaussian noise of standard deviation `sigma`, as certificates need it.

    target: a model that is not random.
    transforms: between the noise and the target; part of f.
    batch: copies that go through the model at once; default: one block on a CPU, more elsewhere. Answers do
        not depend on it, except through the model's own rounding.
    """

    target: Target
    sigma: float
    transforms: tuple[Transform, ...] = ()
    seed: int = 0
    batch: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise InputError(f"sigma: expected a number above 0, got {self.sigma}; 0.01 is usual.")
        if self.batch is not None and self.batch < 1:
            raise InputError(f"batch: expected 1 pass or more, got {self.batch}; 64 is usual.")
        noisy = [type(part).__name__ for part in self.transforms if part.random]
        noisy += [type(self.target).__name__] if self.target.random else []
        if noisy:
            raise InputError(
                f"certificates need a model that is not random behind the noise, but {', '.join(noisy)} "
                "draws random numbers of its own; use the Gaussian noise alone."
            )

    @classmethod
    def behind(
        cls, transforms: Sequence[Transform], target: Target, *, seed: int = 0, batch: int | None = None
    ) -> Smoothed:
        """From the transforms of a defense: the noise, which must come first, and what comes after it."""
        sigma = certified_sigma(transforms)
        return cls(target=target, sigma=sigma, transforms=tuple(transforms[1:]), seed=seed, batch=batch)

    @cached_property
    def base(self) -> Target:
        """f: the target behind all but the noise."""
        return Defended(self.target, self.transforms) if self.transforms else self.target

    def texts(self, clip: AudioBatch, stage: str, passes: int, *, start: int = 0) -> Iterator[list[str]]:
        """What f says to noisy copies of one clip, block by block, from pass `start` (a block's first) on.

        stage: names the purpose; passes of different stages are independent.
        """
        self._check(clip)
        still = cache(lambda rows: _copies(clip, rows))
        read = self._reader()
        for noisy in self._noisy(clip, stage, start, passes):
            # Not around the loop: between two blocks the caller's own gradients must be left on.
            with torch.no_grad():
                pieces = torch.split(noisy, self.rows(clip))
                said = [text for rows in pieces for text in read(still(len(rows)).with_waveforms(rows))]
            for first in range(0, len(said), BLOCK):
                yield said[first : first + BLOCK]

    def elect(self, clip: AudioBatch, vote: Vote) -> str:
        """What a vote elects from passes that no stage of `texts` hears."""
        self._check(clip)
        heard = Defended(self.target, (Gaussian(sigma=self.sigma), *self.transforms))
        vote.check(heard)
        rows, draws = min(self.rows(clip), vote.passes), Draws(self.seed).turn("elect")
        with torch.no_grad():
            return vote.elect(Passes(heard, clip.copy(), draws, vote.passes, rows))[0]

    def rows(self, clip: AudioBatch) -> int:
        """Copies of the clip that go through the model at once."""
        if self.batch is not None:
            return self.batch
        blocks = 1 if clip.device.type == "cpu" else AT_ONCE // clip.waveforms.shape[1] // BLOCK
        return BLOCK * max(1, blocks)

    def _check(self, clip: AudioBatch) -> None:
        check_clips(self.target, clip)
        if len(clip) != 1:
            raise InputError(
                f"expected one clip at a time, got a batch of {len(clip)}; pick one with batch.select([0])."
            )

    def _noisy(self, clip: AudioBatch, stage: str, start: int, stop: int) -> Iterator[Tensor]:
        """Noisy copies `(rows, time)`, whole blocks at a time but for the last, all in the same memory."""
        step = BLOCK * max(1, self.rows(clip) // BLOCK)
        room = clip.waveforms.new_empty(min(step, BLOCK * math.ceil(stop / BLOCK)), clip.waveforms.shape[1])
        source = torch.Generator(device=clip.device)
        # The blocks after the first count on from its seed, so that no two of a clip share one, even on a
        # device that takes 32 bits of it.
        key = Draws(self.seed).turn("certificate", stage).key(clip.ids[0], size=7)
        for first in range(start, stop, step):
            rows = min(step, stop - first)
            # A block is drawn in full even where its last passes are not wanted.
            for place, block in enumerate(torch.split(room[: BLOCK * math.ceil(rows / BLOCK)], BLOCK)):
                source.manual_seed(key + first // BLOCK + place)
                block.normal_(0.0, self.sigma, generator=source)
            yield room[:rows].add_(clip.waveforms.detach())

    def _reader(self) -> Callable[[AudioBatch], list[str]]:
        draws, target = Draws(self.seed), self.target
        if target.offers(CtcFrames) and target.offers(Matches) and target.capability(Matches).exact:
            return Greedy(self.base.capability(CtcFrames), draws)
        return lambda batch: self.base.decode(batch, draws=draws)


@final
class Greedy:
    """Reads CTC by the likeliest token of each frame.

    Noisy passes mostly say the same, so each different sequence of tokens is decoded once.
    """

    def __init__(self, target: CtcFrames, draws: Draws) -> None:
        self._target = target
        self._draws = draws
        self._known: dict[bytes, str] = {}

    def __call__(self, batch: AudioBatch) -> list[str]:
        scores, frames = self._target.log_probs(batch, draws=self._draws)
        # Copies of one clip all have as many frames.
        places = best_places(scores[:, : int(frames[0])], batch.ids)
        paths = places.to(torch.int32).cpu().numpy()
        new = np.ones(paths.shape, dtype=bool)
        new[:, 1:] = paths[:, 1:] != paths[:, :-1]
        keys = [path[kept].tobytes() for path, kept in zip(paths, new, strict=True)]
        unknown = {key: row for row, key in enumerate(keys) if key not in self._known}
        if unknown:
            rows = torch.tensor(list(unknown.values()), device=scores.device)
            self._known.update(zip(unknown, self._target.spell(scores[rows], frames[rows]), strict=True))
        return [self._known[key] for key in keys]


def certified_sigma(transforms: Sequence[Transform]) -> float:
    """The standard deviation of the noise that comes first; refused where it cannot give a certificate."""
    noise = transforms[0] if transforms else None
    if isinstance(noise, Gaussian) and noise.sigma is not None:
        return noise.sigma
    if isinstance(noise, Gaussian):
        reason = "its level follows the clip, so that the perturbed clip would hear another noise"
    elif isinstance(noise, MadNoise):
        reason = "it leaves low frequencies without noise, so that next to no L2 radius could be certified"
    else:
        reason = "the noise is what certifies"
    got = "none" if noise is None else type(noise).__name__
    raise InputError(
        f"a certificate needs a defense that begins with gaussian(sigma=...), got {got}: {reason}; write "
        "gaussian(sigma=0.01) first."
    )


def _copies(clip: AudioBatch, rows: int) -> AudioBatch:
    """One clip, repeated without copying it. Nothing after the noise is random, so any name will do."""
    names = tuple(f"{clip.ids[0]}{PASS}{row}" for row in range(rows))
    return AudioBatch(clip.waveforms.expand(rows, -1), clip.lengths.expand(rows), clip.sample_rate, names)
