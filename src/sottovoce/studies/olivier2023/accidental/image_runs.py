"""What O2 trains on images, and how it judges: validity, and robustness by a plain and by strong attacks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from sottovoce import __version__
from sottovoce.core.draws import Draws
from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.data.images.image_set import STROKES, open_images
from sottovoce.errors import InputError, UnknownName
from sottovoce.registry.part_text import Part
from sottovoce.studies.olivier2023.accidental import image_attacks as attack
from sottovoce.studies.olivier2023.accidental.chapter_three_tables import MNIST_MARGINS, TAU
from sottovoce.studies.olivier2023.accidental.kept_parts import Arrays, KeptParts
from sottovoce.studies.olivier2023.accidental.network_batch import (
    BlockDraws,
    Design,
    Nesterov,
    Networks,
    draw_ball,
)
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale

TESTS = (0.01, 0.02, 0.03, 0.05, 0.10)
"""Margins of the tests: where robustness is asked for."""
JUDGES = ("plain", "strong", "score")
"""PGD of 20 steps; PGD of 100 steps and AutoPGD as well; a search by scores as well."""
AT_ONCE = 50
FIGURES: dict[str, tuple[dict[str, Any], ...]] = {
    "3.4a: width": ({"widths": (16,)}, {"widths": (32,)}, {"widths": (64,)}),
    "3.4b: depth": ({"widths": (28, 28)}, {"widths": (26, 26, 26)}),
    "3.4c: which layer is wide": (
        {"widths": (32, 16, 16)}, {"widths": (16, 32, 16)}, {"widths": (16, 16, 32)},
    ),
    "A.2a: activation, with biases": (
        {"widths": (32,), "bias": True},
        {"widths": (32,), "bias": True, "activation": "tanh"},
        {"widths": (32,), "bias": True, "activation": "sigmoid"},
    ),
    "A.2b: batch normalisation": ({"widths": (32,), "batch_norm": True},),
    "A.2c: dropout": ({"widths": (32,), "dropout": 0.3}, {"widths": (32,), "dropout": 0.6}),
    "A.2d: skip connection": ({"widths": (32, 32)}, {"widths": (32, 32), "skip": True}),
}  # fmt: skip
"""The designs by the thesis's figure; their widths are ours: MLP-32 has 6,592 weights at 14 x 14, those of
figure 3.4b about as many."""


@final
@dataclass(frozen=True, kw_only=True)
class ImageScale:
    """pool: of the pixels of MNIST. attack_steps: of PGD in training. train, test: images."""

    networks: int
    pool: int
    train: int
    test: int
    steps: int
    attack_steps: int
    margins: tuple[float, ...]
    judge_steps: int
    queries: int


SCALES = {
    "mini": ImageScale(
        networks=32, pool=2, train=10_000, test=100, steps=200, attack_steps=5, margins=(0.0, 0.01),
        judge_steps=100, queries=200,
    ),
    "full": ImageScale(
        networks=1000, pool=1, train=60_000, test=1000, steps=500, attack_steps=10, margins=MNIST_MARGINS,
        judge_steps=100, queries=1000,
    ),
}  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class ImageTraining:
    """How networks are trained; the thesis gives none of these for MNIST."""

    rate: float = 0.2
    batch: int = 64
    radius: float = 25.0

    @classmethod
    def read(cls, text: str | None) -> ImageTraining:
        """`sgd(rate=0.2, batch=64, radius=25)`."""
        part = Part("sgd") if text is None else Part.parse(text)
        if part.name != "sgd":
            raise UnknownName("training", part.name, ["sgd"])
        for name, value in part.settings.items():
            if name not in vars(cls()):
                raise UnknownName("setting of sgd", name, vars(cls()))
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InputError(f"sgd({name}={value}): expected a number above 0.")
            if name == "batch" and not isinstance(value, int):
                raise InputError(f"sgd({name}={value}): expected an integer.")
        return cls(**part.settings)


GRID = tuple(ImageTraining(rate=rate, radius=radius) for rate in (0.05, 0.2) for radius in (5.0, 25.0))
GRID_NETWORKS = 8


class ImageJob(NamedTuple):
    """So many networks, from number `first` on, of one design, trained at one margin."""

    design: Design
    margin: float
    training: ImageTraining
    first: int
    networks: int

    @property
    def name(self) -> str:
        slug = "".join(one if one.isalnum() or one in "-_." else "-" for one in str(self.design))
        how = f"{self.training.rate:g}-{self.training.radius:g}-{self.training.batch}"
        return f"{slug}-{self.margin:g}-{how}-{self.first}-{self.networks}"


@final
@dataclass(frozen=True)
class ImageFound:
    """The networks of one design, trained at one margin.

    learnt: share of the training images that each is right on, under attack where it was trained so.
    clean: share of the test images. robust: `(valid, judges, tests)`. quiet: of the valid ones, the share of
    images whose gradient is near zero.
    """

    learnt: NDArray[np.float64]
    clean: NDArray[np.float64]
    valid: NDArray[np.bool_]
    robust: NDArray[np.bool_]
    quiet: NDArray[np.float64]

    @property
    def valid_share(self) -> Interval:
        return clopper_pearson(int(self.valid.sum()), len(self.valid))

    def flags(self, judge: str) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self.robust[:, JUDGES.index(judge)]
        return found


class Pictures(NamedTuple):
    """Flat images and their classes."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


@final
@dataclass(frozen=True)
class ImageBench:
    folder: Path
    scale: str
    size: ImageScale
    training: ImageTraining
    data: str
    seed: int
    device: str
    pictures: Pictures
    tell: Tell
    parts: KeptParts
    unused: dict[str, str]

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "scale": self.scale,
            "data": self.data,
            "model": f"{sum(map(len, FIGURES.values()))} designs of MLPs, {self.size.networks:,} networks of "
            "each at each training margin",
            "size": dict(vars(self.size)),
            "training": dict(vars(self.training)),
            "seed": self.seed,
        }

    def scope(self, study: Study[Any]) -> list[str]:
        pixels, size = self.pictures.train.shape[1], self.size
        side = round(pixels**0.5)
        lines = [
            f"{self.data}: {len(self.pictures.train):,} images of {side} x {side} pixels for training, "
            f"{len(self.pictures.test):,} for the tests; {size.networks:,} networks of each design, "
            f"{size.steps} steps of {self.training.batch} images, seed {self.seed}.",
            f"Learning rate {self.training.rate:g}, radius {self.training.radius:g}, widths, numbers of "
            "networks, of steps and of steps of the attacks are ours: the thesis gives none for MNIST.",
            "MLPs alone: the convolutional networks of figure A.3 are not built.",
        ]
        if self.data == STROKES:
            lines.insert(
                0, "NOT MNIST: signs of a few strokes, made in code. Give --data mnist:DIR for MNIST."
            )
        return lines

    def designs(self) -> dict[str, tuple[Design, ...]]:
        pixels, classes = self.pictures.train.shape[1], int(self.pictures.train_labels.max()) + 1
        return {
            figure: tuple(Design(inputs=pixels, outputs=classes, **one) for one in each)
            for figure, each in FIGURES.items()
        }

    def jobs(self) -> list[ImageJob]:
        main = [
            job
            for margin in self.size.margins
            for designs in self.designs().values()
            for design in designs
            for job in self.groups(design, margin)
        ]
        return [self.cell(design, one) for design in self.grid_designs() for one in GRID] + main

    def groups(self, design: Design, margin: float) -> list[ImageJob]:
        total = self.size.networks
        return [
            ImageJob(design, margin, self.training, first, min(AT_ONCE, total - first))
            for first in range(0, total, AT_ONCE)
        ]

    def grid_designs(self) -> tuple[Design, ...]:
        """Of width, depth and activation, one each."""
        designs = self.designs()
        return (
            designs["3.4a: width"][1], designs["3.4b: depth"][1], designs["A.2a: activation, with biases"][2],
        )  # fmt: skip

    def cell(self, design: Design, training: ImageTraining) -> ImageJob:
        """Of the grid: trained on images as they are."""
        return ImageJob(design, 0.0, training, 0, min(GRID_NETWORKS, self.size.networks))

    def train(self) -> None:
        draws = Draws(self.seed).turn("study", "O2")
        make = partial(_run, pictures=self.pictures, size=self.size, draws=draws)
        jobs = {job.name: partial(make, job, device=self.device) for job in self.jobs()}

        def tell(done: int, name: str) -> None:
            self.tell(0.98 * done / len(jobs), name or "training")

        self.parts.make(jobs, (os.cpu_count() or 1) if self.device == "cpu" else 1, tell)

    def main(self, design: Design, margin: float) -> ImageFound:
        return self.found(self.groups(design, margin))

    def found(self, jobs: Sequence[ImageJob]) -> ImageFound:
        kept = [self.parts.read(job.name) for job in jobs]
        joined = {name: np.concatenate([one[name] for one in kept]) for name in kept[0]}
        return ImageFound(**joined)


def open_bench(choice: Choice, out: Path | None, device: str, tell: Tell) -> ImageBench:
    """--clips is the number of networks, --fit how they are trained, --batch the images a step."""
    from sottovoce.targets.open_target import find_device

    choice.refuse("O2", "model", "attack")
    scale = find_scale(choice.scale).name
    size = SCALES[scale] if choice.clips is None else replace(SCALES[scale], networks=choice.clips)
    training = ImageTraining.read(choice.fit)
    training = training if choice.batch is None else replace(training, batch=choice.batch)
    data = choice.data or STROKES
    pictures, named = _pictures(data, size, choice.seed)
    folder = out or default_folder("O2", scale, [data, size.networks, str(training), choice.seed])
    setting = {
        "study": "O2", "scale": scale, "data": named, "size": vars(size), "training": vars(training),
        "seed": choice.seed,
    }  # fmt: skip
    parts = KeptParts(folder, setting)
    return ImageBench(
        folder, scale, size, training, data, choice.seed, find_device(device), pictures, tell, parts, {}
    )


def _pictures(data: str, size: ImageScale, seed: int) -> tuple[Pictures, str]:
    """Flat images of both splits, and what tells them from others."""
    train = open_images(data, "train", seed=seed).limit(size.train, seed)
    test = open_images(data, "test", seed=seed).limit(size.test, seed)
    if train.images.shape[1] != 1:
        raise InputError(f"study O2 expected grey images, got {data}; give --data mnist:DIR.")
    pool = size.pool if train.images.shape[2] % size.pool == 0 and data != STROKES else 1
    flat = [one.pixels(pool).flatten(1) for one in (train, test)]
    total = int(sum(one.images.long().sum() for one in (train, test)))
    return Pictures(flat[0], train.labels, flat[1], test.labels), f"{train.name}, {len(train)}, {total}"


def _run(
    job: ImageJob,
    *,
    pictures: Pictures,
    size: ImageScale,
    draws: Draws,
    device: str,
) -> Arrays:
    pictures = Pictures(*(one.to(device) for one in pictures))
    draws = draws.turn(str(job.design), job.margin)  # type: ignore[arg-type]  # a margin is a name here
    source = torch.Generator().manual_seed(draws.key(f"attacks-{job.first}", 7))
    networks = train_networks(job, pictures, size, draws, source)
    learnt = _learnt(networks, job.margin, pictures, size, source)
    valid = attack.reaches(learnt, TAU)
    images, labels = spread(pictures.test, len(networks)), spread(pictures.test_labels, len(networks))
    clean = attack.right(networks, images, labels)
    kept = networks.select(valid)
    robust = judge(kept, pictures.test, pictures.test_labels, TESTS, size, source)
    quiet = attack.quiet_share(kept, images[valid], labels[valid]) if len(kept) else torch.zeros(0)
    return {
        "learnt": learnt.double().mean(dim=1).cpu().numpy(),
        "clean": clean.double().mean(dim=1).cpu().numpy(),
        "valid": valid.cpu().numpy(),
        "robust": robust.cpu().numpy(),
        "quiet": quiet.double().cpu().numpy(),
    }


def spread(one: Tensor, count: int) -> Tensor:
    """The same images for each of so many networks."""
    return one.expand(count, *one.shape)


def train_networks(
    job: ImageJob,
    pictures: Pictures,
    size: ImageScale,
    draws: Draws,
    source: torch.Generator,
) -> Networks:
    """Networks from the ball, each on images in its own order; with a margin, attacked at every step."""
    blocks = BlockDraws(draws.turn("train"), job.first, job.networks)
    training = job.training
    start = draw_ball(job.design, training.radius, blocks).to(pictures.train.device)
    networks = Networks(job.design, start)
    descent = Nesterov(networks, training.rate)
    for _ in range(size.steps):
        picks = (blocks.random(training.batch) * len(pictures.train)).long().to(start.device)
        images, labels = pictures.train[picks], pictures.train_labels[picks]
        if job.margin:
            networks.parameters = networks.parameters.detach()
            images = attack.pgd(
                networks, images, labels, job.margin, size.attack_steps, source=source, training=True
            )
        scores = descent.fresh().scores(images, training=True, draws=blocks)
        losses = cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
        descent.step(losses.view(labels.shape).mean(dim=1))
    networks.parameters = networks.parameters.detach()
    return networks


def _learnt(
    networks: Networks, margin: float, pictures: Pictures, size: ImageScale, source: torch.Generator
) -> Tensor:
    """`(networks, images)`: right on the training's images, as they are or under the training's attack."""
    count = min(len(pictures.train), 5 * size.test)
    images = spread(pictures.train[:count], len(networks))
    labels = spread(pictures.train_labels[:count], len(networks))
    if not margin:
        return attack.right(networks, images, labels)
    points = attack.pgd(networks, images, labels, margin, 2 * size.attack_steps, source=source)
    return attack.right(networks, points, labels)


def judge(
    networks: Networks,
    images: Tensor,
    labels: Tensor,
    tests: Sequence[float],
    size: ImageScale,
    source: torch.Generator,
    tau: float = TAU,
) -> Tensor:
    """`(networks, judges, tests)`: robust in the view of each judge, each of which has the attacks of those
    before it. Who is not robust at one margin is not at a larger one, and is not asked."""
    found = torch.zeros(len(networks), len(JUDGES), len(tests), dtype=torch.bool)
    for place, stage in enumerate(JUDGES):
        left = torch.arange(len(networks))
        for number, eps in enumerate(tests):
            # The stages before have answered for this margin.
            left = left[found[left, place - 1, number]] if place else left
            if not len(left):
                break
            some = networks.select(left.to(networks.parameters.device))
            robust = attack.robust_under(some, images, labels, _attacks(stage, eps, size, source), tau)
            left = left[robust.cpu()]
            found[left, place, number] = True
    return found


def _attacks(stage: str, eps: float, size: ImageScale, source: torch.Generator) -> list[attack.Attack]:
    if stage == "plain":
        return [lambda n, x, y: attack.pgd(n, x, y, eps, 20, source=source)]
    if stage == "strong":
        return [
            lambda n, x, y: attack.pgd(n, x, y, eps, size.judge_steps, source=source),
            lambda n, x, y: attack.auto_pgd(n, x, y, eps, size.judge_steps, "margin"),
        ]
    return [lambda n, x, y: attack.square_search(n, x, y, eps, size.queries, source)]
