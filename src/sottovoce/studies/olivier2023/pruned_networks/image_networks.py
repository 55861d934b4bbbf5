"""Networks of images, as learners of clips: an image is a clip of as many samples as it has values.

Pixels from 0 to 1 become samples from -1 to 1, so that radii double. All of the package then works on images:
training, hardening, smoothing, pruning, attacks. The rate of such clips means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.data.images.image_set import ImageSet
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.training.learner import ClassLearner, padded_to
from sottovoce.training.sources import ClipsInMemory, hold_clips

RATE = 1
SWING = 2.0
LARGEST = 32767
Shape = tuple[int, int, int]
POOL = "pool"
SMALL = (24, POOL, 48, POOL, 64, POOL)
VGG16 = (
    64, 64, POOL, 128, 128, POOL, 256, 256, 256, POOL, 512, 512, 512, POOL, 512, 512, 512, POOL,
)  # fmt: skip
ALEXNET = (64, POOL, 192, POOL, 384, 256, 256, POOL)
"""Convolutions of 3x3 by their maps, and halvings. AlexNet's first steps are cut to fit images of 32x32."""
NETWORKS: dict[str, tuple[tuple[int | str, ...], tuple[int, ...]]] = {
    "small": (SMALL, ()),
    "vgg16": (VGG16, (512,)),
    "alexnet": (ALEXNET, (1024, 512)),
}
"""Convolutions, and the linear layers between them and the scores."""


@final
class FlatImages(nn.Module):
    """Scores `(batch, classes)` of images as clips, `(batch, channels * height * width)` in [-1, 1]."""

    def __init__(self, layers: nn.Sequential, shape: Shape) -> None:
        super().__init__()
        self.layers = layers
        self.shape = shape

    def forward(self, waveforms: Tensor) -> Tensor:
        scores: Tensor = self.layers(waveforms.view(-1, *self.shape))
        return scores


def image_network(name: str, shape: Shape, classes: int) -> FlatImages:
    """A network by name: convolutions with batch norm and ReLU, then linear layers."""
    maps, linear = NETWORKS[name]
    channels, side = shape[0], min(shape[1:])
    parts: list[nn.Module] = []
    for part in maps:
        if part == POOL:
            # Small images run out of halvings before deep networks do.
            parts += [nn.MaxPool2d(2)] if side > 1 else []
            side = max(1, side // 2)
        else:
            parts += [nn.Conv2d(channels, int(part), 3, padding=1), nn.BatchNorm2d(int(part)), nn.ReLU()]
            channels = int(part)
    parts.append(nn.Flatten())
    with torch.no_grad():
        width = nn.Sequential(*parts).eval()(torch.zeros(1, *shape)).shape[1]
    for each in linear:
        parts += [nn.Linear(width, each), nn.ReLU(), nn.Dropout(0.5)]
        width = each
    return FlatImages(nn.Sequential(*parts, nn.Linear(width, classes)), shape)


def image_learner(name: str, shape: Shape, classes: Sequence[str], *, seed: int) -> ClassLearner:
    """A network to be trained, with weights drawn from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = image_network(name, shape, len(classes))
    samples = shape[0] * shape[1] * shape[2]
    return ClassLearner(
        module,
        name=f"images-{name}",
        read=padded_to(samples),
        as_target=lambda net: ModuleClassifier(net, classes, RATE, clip_samples=samples),
    )


def image_clips(images: ImageSet, pool: int, name: str) -> ClipsInMemory:
    """Images as clips. name: what the set is used for, which their ids begin with."""
    rows = (images.pixels(pool) * SWING - 1.0).flatten(1)
    samples = (rows * LARGEST).round().to(torch.int16).numpy()
    labels = [images.classes[place] for place in images.labels.tolist()]
    ids = [f"{name}-{place}" for place in range(len(rows))]
    return hold_clips([np.ascontiguousarray(row) for row in samples], labels, ids, RATE, images.name)


@final
class FlipAndShift(Transform):
    """An image, mirrored in one of two cases, some pixels further up, down, left or right."""

    random = True

    def __init__(self, shape: Shape, most: int) -> None:
        self.shape, self.most = shape, most

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        images = batch.waveforms.view(-1, *self.shape)
        lots = draws.fractions(batch, 3)
        flipped = torch.where((lots[:, 0] < 0.5)[:, None, None, None], images.flip(-1), images)
        steps = ((2 * self.most + 1) * lots[:, 1:]).long().clamp(max=2 * self.most)
        padded = nn.functional.pad(flipped, (self.most,) * 4, value=-1.0)
        rows, columns = (
            steps[:, place, None] + torch.arange(side, device=images.device)
            for place, side in enumerate(self.shape[1:])
        )
        moved = padded[
            torch.arange(len(images), device=images.device)[:, None, None, None],
            torch.arange(self.shape[0], device=images.device)[:, None, None],
            rows[:, None, :, None],
            columns[:, None, None, :],
        ]
        return moved.flatten(1)
