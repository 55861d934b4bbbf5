"""Random numbers that depend on the clip, not on its position in a batch."""

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
"""From this many numbers on rows are drawn on several cores; the numbers are the same either way."""


@dataclass(frozen=True)
class Draws:
    """Random numbers from a seed. Row i depends on the seed, the turns taken and `ids[i]` alone.

    So a clip gets the same noise in any batch and on any number of workers. There is no hidden state: the
    same call gives the same numbers, and `turn` gives a new stream. On a CUDA device noise is drawn there
    with another generator, because the CPU is too slow for many passes: a seed gives other noise on a GPU.

    >>> draws = sv.Draws(0)
    >>> pair = sv.AudioBatch.of([[0.0] * 4, [0.0] * 4], sample_rate=16000, ids=["a", "b"])
    >>> torch.equal(draws.normal(pair)[1:], draws.normal(pair.select([1])))  # "b" alone
    True
    >>> torch.equal(draws.normal(pair), draws.turn("step", 1).normal(pair))
    False
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def turn(self, *names: str | int) -> Draws:
        """The stream of a named step: `draws.turn("step", 7)`."""
        return replace(self, path=self.path + names)

    def key(self, name: str, size: int = 16) -> int:
        """A number of `size` bytes for the stream of one clip, to seed a generator of another kind."""
        text = "\x1f".join(map(repr, (int(self.seed), *self.path, name)))
        return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "little")

    def generator(self, name: str) -> np.random.Generator:
        """The NumPy generator for one clip, or for anything else with a name."""
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
        """`count` uniform numbers in [0, 1) for each clip, `(batch, count)`."""
        rows = [self.generator(name).random(count, dtype=np.float32) for name in batch.ids]
        return torch.from_numpy(np.stack(rows)).to(batch.device)

    def _rows_on_device(
        self, batch: AudioBatch, draw: Callable[..., Tensor], *, padding: float = 0.0
    ) -> Tensor:
        """One draw for each row from a generator seeded for it; `padding` beyond the clip's end."""
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
