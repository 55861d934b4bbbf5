"""Training detectors of pathological speech, as Amiri and Kodrasi have it in sections 4.3, 5.3 and 5.4.

The paper says nothing of momentum, of the size of a batch and of how clean and attacked segments are mixed:
here none (plain gradient descent), 32, and half of each batch, attacked each time by ten steps of PGD on the
current network.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.target import evaluating
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError
from sottovoce.targets.zoo.detector_networks import SegmentCnn
from sottovoce.targets.zoo.detector_targets import SegmentDetector
from sottovoce.training.detector.detector_material import Lessons, changed, cut_segments, hold_features
from sottovoce.training.hardening import AdversarialShare, Adversary
from sottovoce.training.sources import ClipsInMemory, check_clips

JUDGED_AT_ONCE = 64
STEPS = 10
STEP = 0.25
"""Of the radius: two and a half times round the ball in ten steps."""
Network = TypeVar("Network", bound=nn.Module)


@final
@dataclass(frozen=True, kw_only=True)
class DetectorRecipe:
    """How a detector is trained; the default is the paper's for the CNN.

    patience: epochs without a lower validation loss until the learning rate is halved.
    stop_share: of the first learning rate; below it training ends, as it does after `epochs`.
    """

    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 5e-4
    batch_size: int = 32
    patience: int = 5
    stop_share: float = 1e-4
    epochs: int = 100

    def __post_init__(self) -> None:
        if min(self.batch_size, self.patience, self.epochs) < 1 or self.learning_rate <= 0:
            raise InputError(
                f"expected a batch, patience, epochs and a learning rate above 0, got {self.batch_size}, "
                f"{self.patience}, {self.epochs} and {self.learning_rate:g}; raise them."
            )

    def build(self, module: nn.Module) -> torch.optim.Optimizer:
        if self.optimiser == "adam":
            return torch.optim.Adam(
                module.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
            )
        return torch.optim.SGD(
            module.parameters(),
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


FOR_SEGMENTS = DetectorRecipe()
FOR_EMBEDDINGS = DetectorRecipe(optimiser="adam", learning_rate=0.1)


@final
@dataclass(frozen=True)
class Epoch:
    """The result of one epoch; losses are means over items, in nats."""

    train_loss: float
    valid_loss: float
    valid_accuracy: float
    learning_rate: float
    seconds: float


@final
@dataclass(frozen=True, eq=False)
class TrainedDetector(Generic[Network]):
    """The network of the epoch with the lowest validation loss, frozen, and how it went."""

    module: Network
    history: tuple[Epoch, ...]

    @property
    def best(self) -> int:
        """The place of the epoch that was kept."""
        return min(range(len(self.history)), key=lambda place: self.history[place].valid_loss)


Tell = Callable[[Epoch], None]


@final
class Schedule:
    """The learning rate of the paper: halved after `patience` epochs without a lower validation loss."""

    def __init__(self, recipe: DetectorRecipe) -> None:
        self.rate = recipe.learning_rate
        self.best = math.inf
        self._recipe = recipe
        self._idle = 0

    @property
    def over(self) -> bool:
        return self.rate < self._recipe.stop_share * self._recipe.learning_rate

    def step(self, loss: float) -> bool:
        """Take in an epoch's validation loss; true where it is the lowest so far."""
        if loss < self.best:
            self.best, self._idle = loss, 0
            return True
        self._idle += 1
        if self._idle == self._recipe.patience:
            self.rate, self._idle = self.rate / 2, 0
        return False


def adversary(snr_db: float = 60.0, *, share: float = 0.5) -> Adversary:
    """PGD of ten steps from the clean segment, at one SNR. share: of each batch that is attacked."""
    return Adversary(Pgd(steps=STEPS, step=STEP), Snr(snr_db, shape="linf"), AdversarialShare((share,)))


def train_detector(
    train: ClipsInMemory,
    valid: ClipsInMemory,
    *,
    seed: int = 0,
    device: str = "cpu",
    recipe: DetectorRecipe = FOR_SEGMENTS,
    adversarial: Adversary | None = None,
    noise: Transform | None = None,
    smoothing: Transform | None = None,
    tell: Tell | None = None,
) -> TrainedDetector[SegmentCnn]:
    """A `SegmentCnn` from utterances at 16 kHz; those of `valid` must be of other speakers.

    adversarial: see `adversary`. Validation segments are attacked in the same share.
    noise: put behind every utterance once, before it is cut: `Background` of section 5.4, or a front end
        such as a low-pass, which the detector must then be used behind.
    smoothing: noise that is drawn for every segment each time, for a smoothed detector and its certificate.

    The seed rules all: on a CPU the same one gives the same weights.
    """
    draws = Draws(seed).turn("detector")
    with seeded(seed, device):
        module = SegmentCnn().to(device)
        for clips, what in ((train, "training"), (valid, "validation")):
            check_clips(clips, SegmentDetector(module), what)
        lessons = [
            cut_segments(clips if noise is None else changed(clips, noise, draws.turn("background")), device)
            for clips in (train, valid)
        ]
        if adversarial is None and smoothing is None:
            return fit(module, *map(hold_features, lessons), recipe=recipe, draws=draws, tell=tell)
        harder = [replace(one, adversary=adversarial, smoothing=smoothing) for one in lessons]
        return fit(module, *harder, recipe=recipe, draws=draws, tell=tell)


def fit(
    module: Network,
    train: Lessons,
    valid: Lessons,
    *,
    recipe: DetectorRecipe,
    draws: Draws,
    tell: Tell | None = None,
) -> TrainedDetector[Network]:
    """Train a network on the device that it and the lessons are on."""
    optimiser, schedule = recipe.build(module), Schedule(recipe)
    history: list[Epoch] = []
    kept: dict[str, Tensor] = {}
    for place in range(recipe.epochs):
        started, rate = time.perf_counter(), schedule.rate
        for group in optimiser.param_groups:
            group["lr"] = rate
        train_loss = _learn(module, train, optimiser, recipe.batch_size, draws.turn("epoch", place))
        # Always the same draws: a loss that is lower must not be luck with the noise.
        loss, accuracy = judge(module, valid, draws.turn("valid"))
        if schedule.step(loss):
            kept = {name: value.clone() for name, value in module.state_dict().items()}
        history.append(Epoch(train_loss, loss, accuracy, rate, time.perf_counter() - started))
        if tell is not None:
            tell(history[-1])
        if schedule.over:
            break
    if not kept:
        raise InputError(
            f"expected a finite validation loss, got {history[-1].valid_loss:g} in all of {len(history)} "
            "epochs; lower the learning rate."
        )
    module.load_state_dict(kept)
    return TrainedDetector(module.requires_grad_(False).eval(), tuple(history))


def judge(module: nn.Module, lessons: Lessons, draws: Draws) -> tuple[float, float]:
    """Mean cross-entropy in nats, and accuracy."""
    loss, right, count = 0.0, 0, len(lessons.wanted)
    with evaluating(module), torch.no_grad():
        for rows in torch.split(_all_rows(lessons), JUDGED_AT_ONCE):
            scores = lessons.scores(module, rows, draws)
            wanted = lessons.wanted[rows]
            loss += float(functional.cross_entropy(scores, wanted, reduction="sum"))
            right += int((scores.argmax(dim=1) == wanted).sum())
    return loss / count, right / count


def _learn(
    module: nn.Module, lessons: Lessons, optimiser: torch.optim.Optimizer, size: int, draws: Draws
) -> float:
    module.train()
    order = torch.from_numpy(draws.generator("order").permutation(len(lessons.wanted)))
    total = torch.zeros((), device=lessons.wanted.device)
    for place, rows in enumerate(torch.split(order.to(lessons.wanted.device), size)):
        scores = lessons.scores(module, rows, draws.turn("batch", place))
        loss = functional.cross_entropy(scores, lessons.wanted[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.detach() * len(rows)
    return float(total) / len(order)


def _all_rows(lessons: Lessons) -> Tensor:
    return torch.arange(len(lessons.wanted), device=lessons.wanted.device)


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """First weights and dropout draw from torch's own state, which is put back afterwards."""
    devices = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
