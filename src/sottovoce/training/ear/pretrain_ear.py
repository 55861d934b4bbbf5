"""Features for the learned ear from classifying sounds: the paper's "pre" (section 2.2).

Several tasks share the features, each with a linear classifier of its own, which is dropped afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.core.draws import Draws
from sottovoce.data.pack import Pack
from sottovoce.errors import InputError
from sottovoce.perception.ears.learned_network import LearnedNetwork
from sottovoce.training.ear.answer_pairs import Store

Column = Literal["labels", "speakers"]
GAIN_DB = 10.0
LONGEST_SECONDS = 2.0


@final
@dataclass(frozen=True)
class Task:
    """Clips and the class of each, `(clips,)`; `train` and `valid` are places of clips."""

    name: str
    store: Store
    classes: Tensor
    train: Tensor
    valid: Tensor

    @property
    def count(self) -> int:
        return int(self.classes.max()) + 1

    @classmethod
    def of(cls, name: str, pack: Pack, column: Column, device: torch.device) -> Task:
        """The words, sounds or speakers of a pack; without splits of its own, a tenth is held out."""
        names, classes = np.unique(getattr(pack, column), return_inverse=True)
        if len(names) < 2:
            raise InputError(
                f"{name}: expected two classes or more in its {column}, got {len(names)}; choose another."
            )
        place = np.arange(len(pack))
        own = bool((pack.split == "train").any() and (pack.split == "valid").any())
        train, valid = pack.split == "train", pack.split == "valid"
        if not own:
            train, valid = place % 10 != 9, place % 10 == 9
        found = (torch.from_numpy(array).to(device) for array in (classes, place[train], place[valid]))
        return cls(name, Store.of(pack, device), *found)


@final
@dataclass(frozen=True, kw_only=True)
class PretrainRecipe:
    """steps, seconds: whichever is over first."""

    steps: int | None = 3000
    seconds: float | None = None
    batch: int = 128
    learning_rate: float = 2e-3
    seed: int = 0


@final
class Classifiers(nn.Module):
    """A linear classifier a task, on the mean of the last layer over time."""

    def __init__(self, network: LearnedNetwork, tasks: Sequence[Task]) -> None:
        super().__init__()
        self.network = network
        channels, bands = network.shape.layers[-1]
        self.heads = nn.ModuleList(nn.Linear(channels * bands, task.count) for task in tasks)

    def forward(self, waveforms: Tensor, lengths: Tensor, task: int) -> Tensor:
        found = self.network.features(waveforms, lengths)
        frames = (found.frames / self.network.shape.coarse).ceil()
        scores: Tensor = self.heads[task](found.layers[-1].sum(dim=3).flatten(1) / frames[:, None])
        return scores


def train_classes(
    network: LearnedNetwork, tasks: Sequence[Task], recipe: PretrainRecipe, log: Callable[[str], None] = print
) -> dict[str, float]:
    """Train a network's features on tasks in turn, in place; the accuracy on held-out clips of each."""
    place = tasks[0].classes.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = Classifiers(network, tasks).to(place)
    network.blocks.requires_grad_(True)
    learned = [*network.blocks.parameters(), *model.heads.parameters()]
    optimiser = torch.optim.AdamW(learned, lr=recipe.learning_rate, weight_decay=1e-2)
    began, step, spent = time.monotonic(), 0, 0.0
    while spent < 1.0:
        for group in optimiser.param_groups:
            cosine = 0.5 * (1 + math.cos(math.pi * spent))
            group["lr"] = recipe.learning_rate * min(1.0, (step + 1) / 100) * cosine
        loss = _loss(model, tasks, step, recipe)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
        step += 1
        clock = (time.monotonic() - began) / recipe.seconds if recipe.seconds else 0.0
        spent = max(clock, step / recipe.steps if recipe.steps else 0.0)
        if step % 200 == 0:
            log(f"classes: step {step}, loss {float(loss):.3f}")
    model.eval()
    found = {task.name: _accuracy(model, tasks, place) for place, task in enumerate(tasks)}
    network.requires_grad_(False)
    log("classes: held-out accuracy " + ", ".join(f"{name} {100 * one:.1f} %" for name, one in found.items()))
    return found


def _loss(model: Classifiers, tasks: Sequence[Task], step: int, recipe: PretrainRecipe) -> Tensor:
    """Cross entropy on a batch of one task: clips at another level, at another place."""
    number = step % len(tasks)
    task = tasks[number]
    source = Draws(recipe.seed).turn("classes", step).generator(task.name)
    device = task.classes.device
    rows = task.train[torch.from_numpy(source.integers(0, len(task.train), recipe.batch)).to(device)]
    before = torch.from_numpy(source.integers(0, task.store.sample_rate // 5, recipe.batch)).to(device)
    waveforms, lengths = _cut(*task.store.take(rows, before), source)
    gain = 10 ** (source.uniform(-GAIN_DB, GAIN_DB, recipe.batch) / 20)
    waveforms = waveforms * torch.from_numpy(gain.astype(np.float32)).to(device)[:, None]
    model.train()
    scores = model(waveforms, lengths, number)
    return functional.cross_entropy(scores, task.classes[rows], label_smoothing=0.1)


def _cut(waveforms: Tensor, lengths: Tensor, source: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Two seconds of clips that are longer, from a place that all of a batch share."""
    most = int(LONGEST_SECONDS * 16_000)
    spare = int(lengths.min()) - most
    start = int(source.integers(0, spare + 1)) if spare > 0 else 0
    return waveforms[:, start : start + most], (lengths - start).clamp(1, most)


def _accuracy(model: Classifiers, tasks: Sequence[Task], number: int) -> float:
    task = tasks[number]
    right = 0
    with torch.no_grad():
        for rows in task.valid.split(64):
            scores = model(*task.store.take(rows), number)
            right += int((scores.argmax(dim=1) == task.classes[rows]).sum())
    return right / max(len(task.valid), 1)
