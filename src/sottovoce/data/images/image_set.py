"""Labelled images, and how they are opened: `strokes`, `mnist:DIR` or `cifar10:DIR`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from sottovoce.errors import InputError, UnknownName

Split = Literal["train", "test"]
STROKES = "strokes"


@final
@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images `(n, channels, height, width)` of 8 bits, and the class of each `(n,)`."""

    name: str
    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def limit(self, count: int | None, seed: int = 0) -> ImageSet:
        """So many of the images, drawn at random, or all of them where there are no more."""
        if count is None or count >= len(self):
            return self
        picks = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:count]
        return replace(self, images=self.images[picks], labels=self.labels[picks])

    def pixels(self, pool: int = 1) -> Tensor:
        """`(n, channels, height, width)` in [0, 1]; pool: so many pixels each way become their mean."""
        if pool < 1 or any(side % pool for side in self.images.shape[2:]):
            height, width = self.images.shape[2:]
            raise InputError(f"expected a divisor of {height} and {width} as pool, got {pool}.")
        pixels = self.images.float() / 255
        return pixels if pool == 1 else avg_pool2d(pixels, pool)


def open_images(spec: str, split: Split = "train", *, seed: int = 0) -> ImageSet:
    """`strokes` is made in code, `mnist:DIR` and `cifar10:DIR` are read from a folder. seed: of strokes."""
    from sottovoce.data.images.image_files import read_cifar10, read_mnist
    from sottovoce.data.images.stroke_images import stroke_images

    name, colon, folder = spec.partition(":")
    if spec == STROKES:
        return stroke_images(split, seed=seed)
    readers: dict[str, Callable[[Path, Split], ImageSet]] = {"mnist": read_mnist, "cifar10": read_cifar10}
    if name not in readers:
        raise UnknownName("image set", name, [STROKES, *readers])
    if not colon or not folder:
        raise InputError(f"expected the folder of {name}, got {spec!r}; write {name}:DIR.")
    return readers[name](Path(folder).expanduser(), split)
