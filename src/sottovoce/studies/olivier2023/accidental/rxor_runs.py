"""What O1 trains, and what it keeps of that: margins of the valid networks, and which sets they passed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce import __version__
from sottovoce.core.draws import Draws
from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.studies.olivier2023.accidental.exact_margin import exact_margins, grid_margins
from sottovoce.studies.olivier2023.accidental.kept_parts import Arrays, KeptParts
from sottovoce.studies.olivier2023.accidental.network_batch import BlockDraws, Design, Networks
from sottovoce.studies.olivier2023.accidental.rxor_sets import Training, all_right, draw_points, train
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale

MARGINS = (0.4, 0.3, 0.2, 0.1, 0.05)
COUNTS = {"mini": 4000, "full": 25_000}
GRID_COUNTS = {"mini": 1000, "full": 4000}
AT_ONCE = 1000
EXAMPLES = 6
FIGURES: dict[str, tuple[Design, ...]] = {
    "3.3a: width": (Design(widths=(3,)), Design(widths=(6,)), Design(widths=(9,))),
    "3.3b: depth": (Design(widths=(3, 3)), Design(widths=(3, 3, 3))),
    "3.3c: which layer is wide": (
        Design(widths=(6, 3, 3)), Design(widths=(3, 6, 3)), Design(widths=(3, 3, 6)),
    ),
    "A.1a: activation, with biases": (
        Design(widths=(9,), bias=True),
        Design(widths=(9,), bias=True, activation="tanh"),
        Design(widths=(9,), bias=True, activation="sigmoid"),
    ),
    "A.1b: batch normalisation": (Design(widths=(9,), batch_norm=True),),
    "A.1c: dropout": (Design(widths=(9,), dropout=0.3), Design(widths=(9,), dropout=0.6)),
    "A.1d: skip connection": (Design(widths=(9, 9)), Design(widths=(9, 9), skip=True)),
}  # fmt: skip
"""The designs by the thesis's figure that shows them; MLP-6 and MLP-9 are in several."""
DESIGNS = tuple(design for designs in FIGURES.values() for design in designs)
GRID_DESIGNS = (*FIGURES["3.3a: width"], Design(widths=(3, 3)), Design(widths=(3, 3, 3)))
RATES = (0.01, 0.1, 1.0, 10.0)
GRID = tuple(
    Training(rate=rate, loss=loss, batch=batch)  # type: ignore[arg-type]
    for loss, batch in (("bce", 50), ("bce", 10), ("bce", 1000), ("hinge", 50), ("squared", 50))
    for rate in RATES
)
"""What the thesis leaves out, varied: learning rate, loss and batch."""


class RxorJob(NamedTuple):
    """Networks of one design, trained in one way at one margin."""

    design: Design
    margin: float
    training: Training
    networks: int

    @property
    def name(self) -> str:
        how = f"{self.training.loss}-{self.training.batch}-{self.training.rate:g}-{self.networks}"
        slug = "".join(one if one.isalnum() or one in "-_." else "-" for one in str(self.design))
        return f"{slug}-{self.margin:g}-{how}"


@final
@dataclass(frozen=True)
class RxorFound:
    """The networks of one design, trained at one margin.

    margins: of the valid ones, exact or on a grid. passed: `(valid, 5)`, whether each classified 1,000 fresh
    points of each of `MARGINS`. examples: parameters of some valid ones, from the smallest margin to the
    largest.
    """

    trained: int
    margins: NDArray[np.float64]
    passed: NDArray[np.bool_]
    examples: NDArray[np.float32]

    @property
    def valid(self) -> Interval:
        return clopper_pearson(len(self.margins), self.trained)

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """`(valid, 5)`: whether each is right on all points of each of `MARGINS`."""
        return self.margins[:, None] < np.array(MARGINS)


@final
@dataclass(frozen=True)
class RxorBench:
    folder: Path
    scale: str
    count: int
    training: Training
    seed: int
    tell: Tell
    parts: KeptParts
    unused: dict[str, str]

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "scale": self.scale,
            "data": "RXOR in two dimensions, made in code",
            "model": f"{len(DESIGNS)} designs of MLPs, {self.count:,} networks of each at each margin",
            "networks": self.count,
            "training": self.training.to_json(),
            "seed": self.seed,
        }

    def scope(self, study: Study[Any]) -> list[str]:
        own = self.training
        return [
            f"{self.count:,} networks of each design at each training margin, seed {self.seed}; the thesis "
            f"trains {COUNTS['full']:,}.",
            f"Learning rate {own.rate:g}, loss {own.loss}, {own.batch} points a step: the thesis gives none "
            "of the three. The grid shows others; nothing was tuned until it agreed.",
            "Data, sizes of sets, 20 steps with Nesterov's momentum .9, and parameters uniform in a ball of "
            "radius 25 are the thesis's.",
        ]

    @property
    def draws(self) -> Draws:
        return Draws(self.seed).turn("study", "O1")

    def jobs(self) -> list[RxorJob]:
        main = [
            RxorJob(design, margin, self.training, self.count) for design in DESIGNS for margin in MARGINS
        ]
        return main + [
            RxorJob(design, MARGINS[0], one, self.grid_count) for design in GRID_DESIGNS for one in GRID
        ]

    @property
    def grid_count(self) -> int:
        return min(self.count, GRID_COUNTS[self.scale])

    def train(self) -> None:
        """All that is not there yet, one process a core."""
        jobs = {job.name: partial(_run, job, self.draws) for job in self.jobs()}

        def tell(done: int, name: str) -> None:
            self.tell(0.98 * done / len(jobs), name or "training")

        self.parts.make(jobs, os.cpu_count() or 1, tell)

    def found(self, job: RxorJob) -> RxorFound:
        kept = self.parts.read(job.name)
        return RxorFound(job.networks, kept["margins"], kept["passed"], kept["examples"])

    def main(self, design: Design, margin: float) -> RxorFound:
        """As the main tables have it."""
        return self.found(RxorJob(design, margin, self.training, self.count))

    def varied(self, design: Design, training: Training) -> RxorFound:
        """A cell of the grid, trained at the largest margin."""
        return self.found(RxorJob(design, MARGINS[0], training, self.grid_count))


def open_bench(choice: Choice, out: Path | None, device: str, tell: Tell) -> RxorBench:
    """--clips is the number of networks, --fit how they are trained, --batch the points a step."""
    choice.refuse("O1", "data", "model", "attack")
    scale = find_scale(choice.scale).name
    training = Training.read(choice.fit)
    training = training if choice.batch is None else Training.checked(replace(training, batch=choice.batch))
    count = choice.clips or COUNTS[scale]
    folder = out or default_folder("O1", scale, [count, str(training), choice.seed])
    setting = {
        "study": "O1", "scale": scale, "networks": count, "training": training.to_json(), "seed": choice.seed,
    }  # fmt: skip
    return RxorBench(folder, scale, count, training, choice.seed, tell, KeptParts(folder, setting), {})


def _run(job: RxorJob, draws: Draws) -> Arrays:
    chunks = list(_chunks(job, draws.turn(str(job.design), job.margin)))  # type: ignore[arg-type]  # a margin is a name here
    margins = np.concatenate([margins for margins, _, _ in chunks])
    parameters = np.concatenate([one for _, _, one in chunks])
    order = np.argsort(margins)
    places = np.linspace(0, max(len(order) - 1, 0), EXAMPLES).round().astype(int)
    return {
        "margins": margins,
        "passed": np.concatenate([passed for _, passed, _ in chunks]),
        "examples": parameters[order[np.unique(places)]] if len(order) else parameters,
    }


def _chunks(
    job: RxorJob, draws: Draws
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float32]]]:
    """Of the valid networks: margins, which sets they passed, and parameters."""
    for first in range(0, job.networks, AT_ONCE):
        some = min(AT_ONCE, job.networks - first)
        source = BlockDraws(draws.turn("train"), first, some)
        networks, valid = train(job.design, job.training, job.margin, source)
        kept = networks.select(valid)
        passed = _passed(kept, valid, BlockDraws(draws.turn("test"), first, some))
        margins = exact_margins(kept) if job.design.homogeneous else grid_margins(kept)
        yield margins.numpy(), passed.numpy(), kept.parameters.detach().numpy()


def _passed(kept: Networks, valid: torch.Tensor, draws: BlockDraws) -> torch.Tensor:
    if not len(kept):
        return torch.zeros(0, len(MARGINS), dtype=torch.bool)
    return torch.stack([all_right(kept, draw_points(draws, margin)[valid]) for margin in MARGINS], dim=1)
