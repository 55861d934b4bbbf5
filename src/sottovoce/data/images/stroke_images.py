"""Ten signs drawn with a few strokes, made in code: they stand in where no folder of images is named."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.data.images.image_set import ImageSet, Split
from sottovoce.errors import InputError

Floats = NDArray[np.float64]
EACH = {"train": 600, "test": 100}
"""Images of a class."""
SIGNS: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "bar": ((0, -1, 0, 1),),
    "dash": ((-1, 0, 1, 0),),
    "slash": ((-1, 1, 1, -1),),
    "backslash": ((-1, -1, 1, 1),),
    "plus": ((0, -1, 0, 1), (-1, 0, 1, 0)),
    "cross": ((-1, 1, 1, -1), (-1, -1, 1, 1)),
    "corner": ((-1, -1, -1, 1), (-1, 1, 1, 1)),
    "tee": ((-1, -1, 1, -1), (0, -1, 0, 1)),
    "wedge": ((-1, -1, 0, 1), (0, 1, 1, -1)),
    "box": ((-1, -1, 1, -1), (1, -1, 1, 1), (1, 1, -1, 1), (-1, 1, -1, -1)),
}
"""Strokes from (x, y) to (x, y) on a square from -1 to 1, y downwards."""


def stroke_images(
    split: Split = "train", *, side: int = 14, each: int | None = None, seed: int = 0
) -> ImageSet:
    """Signs that are moved, turned, stretched, thick or thin, and noisy; 14 x 14 or another size.

    each: images of a class; a larger number adds images and changes none. No image is in both splits.
    """
    if side < 8:
        raise InputError(f"expected at least 8 pixels a side, got {side}: smaller signs look alike.")
    each = EACH[split] if each is None else each
    source = np.random.default_rng([seed, 0 if split == "train" else 1])
    # All that one image needs comes in one row, so that the number of images changes none of them.
    rows = source.random((each * len(SIGNS), 7 + side * side))
    images = np.stack([_image(row, side, number % len(SIGNS)) for number, row in enumerate(rows)])
    return ImageSet(
        name=f"strokes-{split}",
        images=torch.from_numpy(np.round(255 * images).astype(np.uint8))[:, None],
        labels=torch.arange(len(rows)) % len(SIGNS),
        classes=tuple(SIGNS),
    )


def _image(row: Floats, side: int, sign: int) -> Floats:
    """From numbers in [0, 1): turn, two stretches, two moves, thickness, ink, and a pixel's noise each."""
    turn, wide, high, right, down, thick, ink = row[:7]
    angle = (2 * turn - 1) * 0.25
    stretch = np.array([0.5 + 0.22 * wide, 0.5 + 0.22 * high])
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    ends = np.array(list(SIGNS.values())[sign]).reshape(-1, 2, 2) * stretch @ turned.T
    ends += 0.36 * np.array([right - 0.5, down - 0.5])
    distance = _distance(_grid(side), ends)
    drawn = np.clip(1.5 - distance / (0.1 + 0.08 * thick), 0.0, 1.0) * (0.7 + 0.3 * ink)
    noise = 0.12 * (row[7:].reshape(side, side) - 0.5)
    image: Floats = np.clip(drawn + noise, 0.0, 1.0)
    return image


def _grid(side: int) -> Floats:
    """Where the pixels lie: `(side, side, 2)`, x and y."""
    places = (np.arange(side) + 0.5) / side * 2 - 1
    return np.stack(np.meshgrid(places, places), axis=-1)


def _distance(points: Floats, ends: Floats) -> Floats:
    """From each point to the nearest of the strokes `(strokes, 2, 2)`."""
    starts, along = ends[:, 0], ends[:, 1] - ends[:, 0]
    away = points[..., None, :] - starts
    share = np.clip((away * along).sum(-1) / (along * along).sum(-1), 0.0, 1.0)
    gaps = np.linalg.norm(away - share[..., None] * along, axis=-1)
    nearest: Floats = gaps.min(axis=-1)
    return nearest
