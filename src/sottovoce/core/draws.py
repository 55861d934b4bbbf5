"""Random numbers that belong to a clip, not to its place in a batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.batch import AudioBatch

Sampler = Callable[[np.random.Generator, int], NDArray[np.float32]]
MANY = 1_000_000
"""Numbers from which on it pays to draw rows on several cores; which core draws a row changes nothing."""


@dataclass(frozen=True)
class Draws:
    """A tree of random streams. Row i depends on the seed, the turns taken and `ids[i]`, and nothing else.

    There is no hidden state: asking twice gives the same numbers, and `turn` leads to fresh ones.
    Noise for clips on a CUDA device is drawn there, with another generator than NumPy's: sixteen passes a
    step would otherwise wait for the CPU. So a seed gives one noise on GPUs and another everywhere else.
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def turn(self, *names: str | int) -> Draws:
        """The stream of a named step: `draws.turn("step", 7)`."""
        return replace(self, path=self.path + names)

    def key(self, name: str, size: int = 16) -> int:
        """So many bytes that stand for the stream of one clip, to seed a generator of another kind."""
        text = "\x1f".join(map(repr, (int(self.seed), *self.path, name)))
        return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "little")

    def generator(self, name: str) -> np.random.Generator:
        """The NumPy generator of one clip (or of anything else that has a name)."""
        return np.random.Generator(np.random.Philox(key=self.key(name)))

    def normal(self, batch: AudioBatch) -> Tensor:
        """Standard normal noise, `(batch, time)`, zero in the padding."""
        if batch.device.type == "cuda":
            return self._rows_on_device(batch, torch.randn)
        return self._rows(batch, lambda source, size: source.standard_normal(size, dtype=np.float32))

    def uniform(self, batch: AudioBatch) -> Tensor:
        """Uniform noise in [-1, 1), `(batch, time)`, zero in the padding."""
        if batch.device.type == "cuda":
            return 2.0 * self._rows_on_device(batch, torch.rand, padding=0.5) - 1.0
        return self._rows(batch, lambda source, size: 2.0 * source.random(size, dtype=np.float32) - 1.0)

    def fractions(self, batch: AudioBatch, count: int) -> Tensor:
        """`count` uniform numbers in [0, 1) a clip, `(batch, count)`."""
        rows = [self.generator(name).random(count, dtype=np.float32) for name in batch.ids]
        return torch.from_numpy(np.stack(rows)).to(batch.device)

    def _rows_on_device(
        self, batch: AudioBatch, draw: Callable[..., Tensor], *, padding: float = 0.0
    ) -> Tensor:
        """One draw a row from a generator that is seeded for it; `padding` where the clip is over."""
        noise = torch.full_like(batch.waveforms, padding, requires_grad=False)
        source = torch.Generator(batch.device)
        for row, (name, length) in enumerate(zip(batch.ids, batch.lengths.tolist(), strict=True)):
            source.manual_seed(self.key(name) % 2**63)
            noise[row, :length] = draw(length, generator=source, device=batch.device, dtype=noise.dtype)
        return noise

    def _rows(self, batch: AudioBatch, draw: Sampler) -> Tensor:
        noise = np.zeros(tuple(batch.waveforms.shape), dtype=np.float32)

        def fill(row: int, name: str, length: int) -> None:
            noise[row, :length] = draw(self.generator(name), length)

        rows = range(len(batch)), batch.ids, batch.lengths.tolist()
        if noise.size < MANY:
            list(map(fill, *rows))
        else:
            list(_workers().map(fill, *rows))
        return torch.from_numpy(noise).to(batch.device, batch.waveforms.dtype)


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="draws")
