"""Many networks of one design as one: their weights are stacked, and one batched product asks them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from sottovoce.core.draws import Draws

BLOCK = 250
"""Networks that share a random stream: so their numbers do not depend on how many are trained at once."""
MOMENTUM, EPSILON = 0.1, 1e-5
"""Of batch normalisation, as in PyTorch."""
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
TITLES = {"relu": "ReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}


@final
@dataclass(frozen=True, kw_only=True)
class Design:
    """The architecture of a network: fully connected layers, each with what comes before its activation.

    skip: the first hidden layer's output is added to the second's.
    """

    widths: tuple[int, ...]
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"
    bias: bool = False
    batch_norm: bool = False
    dropout: float = 0.0
    skip: bool = False
    inputs: int = 2
    outputs: int = 1

    def __str__(self) -> str:
        """As the thesis writes it; that there are biases, it says in the text."""
        extra = f"{'BN' if self.batch_norm else ''}{f'Dropout{self.dropout:g}' if self.dropout else ''}"
        name = f"MLP-{'_'.join(map(str, self.widths))}-{TITLES[self.activation]}{extra}"
        return f"{name}{'-wSkip_1>2' if self.skip else ''}{' with biases' if self.bias else ''}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the parameters: each layer's weights, biases, and the scale and shift of its normalisation."""
        sizes = [self.inputs, *self.widths, self.outputs]
        found: list[tuple[int, ...]] = []
        for place, (before, after) in enumerate(pairwise(sizes)):
            found.append((after, before))
            found += [(after,)] if self.bias else []
            found += [(after,), (after,)] if self.batch_norm and place < len(self.widths) else []
        return found

    @property
    def parameters(self) -> int:
        return sum(map(prod, self.shapes))

    @property
    def homogeneous(self) -> bool:
        """Whether c times the input gives c times the output (c > 0): then the angle alone decides."""
        return self.activation == "relu" and not self.bias and not self.batch_norm


@final
class BlockDraws:
    """Random numbers of the networks `first` to `first + count`: `(count, ...)`, other ones at every call."""

    def __init__(self, draws: Draws, first: int, count: int) -> None:
        self.blocks = range(first // BLOCK, (first + count - 1) // BLOCK + 1)
        self.sources = [draws.generator(f"block-{block}") for block in self.blocks]
        self.rows = slice(first - self.blocks[0] * BLOCK, first - self.blocks[0] * BLOCK + count)

    def random(self, *shape: int) -> Tensor:
        return self._joined([one.random((BLOCK, *shape), dtype=np.float32) for one in self.sources])

    def normal(self, *shape: int) -> Tensor:
        return self._joined([one.standard_normal((BLOCK, *shape), dtype=np.float32) for one in self.sources])

    def _joined(self, rows: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]) -> Tensor:
        return torch.from_numpy(np.concatenate(rows)[self.rows])


def draw_ball(design: Design, radius: float, draws: BlockDraws) -> Tensor:
    """Parameters `(networks, p)`, uniform in the ball of p dimensions: lengths are not uniform in it."""
    p = design.parameters
    length = radius * draws.random(1).double() ** (1.0 / p)
    return torch.nn.functional.normalize(draws.normal(p), dim=1) * length.float()


class Running(NamedTuple):
    """Mean and variance of a layer, `(networks, width)`, as batches of the training gave them."""

    mean: Tensor
    variance: Tensor


class BatchLayer(NamedTuple):
    weight: Tensor
    bias: Tensor | None
    scale: Tensor | None
    shift: Tensor | None


@final
class Networks:
    """Networks of one design, `parameters (networks, p)`; no network sees another."""

    def __init__(self, design: Design, parameters: Tensor, running: list[Running] | None = None) -> None:
        self.design = design
        self.parameters = parameters
        self.running = self._fresh() if running is None else running

    def __len__(self) -> int:
        return len(self.parameters)

    def _fresh(self) -> list[Running]:
        count, widths = len(self.parameters), self.design.widths if self.design.batch_norm else ()
        return [
            Running(self.parameters.new_zeros(count, width), self.parameters.new_ones(count, width))
            for width in widths
        ]

    def select(self, rows: Tensor) -> Networks:
        """Some of them: by number, or by a mask."""
        running = [Running(one.mean[rows], one.variance[rows]) for one in self.running]
        return Networks(self.design, self.parameters[rows], running)

    def chunks(self, size: int) -> Iterator[Networks]:
        """All of them, so many at once."""
        for first in range(0, len(self), size):
            yield self.select(torch.arange(first, min(first + size, len(self))))

    def layers(self) -> Iterator[BatchLayer]:
        sizes = [prod(shape) for shape in self.design.shapes]
        flat = torch.split_with_sizes(self.parameters, sizes, dim=1)
        rest = iter(
            one.reshape(len(one), *shape) for one, shape in zip(flat, self.design.shapes, strict=True)
        )
        hidden = len(self.design.widths)
        for place in range(hidden + 1):
            normed = self.design.batch_norm and place < hidden
            weight, bias = next(rest), next(rest) if self.design.bias else None
            yield BatchLayer(weight, bias, next(rest) if normed else None, next(rest) if normed else None)

    def scores(
        self, points: Tensor, *, training: bool = False, update: bool = True, draws: BlockDraws | None = None
    ) -> Tensor:
        """`(networks, points, outputs)` for `points (networks, points, inputs)`.

        training: whether units are dropped (with `draws`) and batches are normalised by their own mean and
            variance. update: whether the running ones then move; not in the passes of an attack.
        """
        hidden, first = points, None
        layers = list(self.layers())
        for place, layer in enumerate(layers[:-1]):
            before = _linear(layer, hidden)
            if layer.scale is not None and layer.shift is not None:
                before = self._normalised(before, place, training, update)
                before = before * layer.scale[:, None] + layer.shift[:, None]
            if training and self.design.dropout and draws is not None:
                kept = draws.random(*before.shape[1:]).to(before.device) >= self.design.dropout
                before = before * kept / (1.0 - self.design.dropout)
            hidden = ACTIVATIONS[self.design.activation](before)
            hidden = hidden + first if self.design.skip and place == 1 and first is not None else hidden
            first = hidden if place == 0 else first
        return _linear(layers[-1], hidden)

    def _normalised(self, before: Tensor, place: int, training: bool, update: bool) -> Tensor:
        if not training:
            mean, variance = self.running[place]
        else:
            mean, variance = before.mean(dim=1), before.var(dim=1, correction=0)
            if update:
                self._move(place, mean.detach(), variance.detach(), before.shape[1])
        return (before - mean[:, None]) * torch.rsqrt(variance[:, None] + EPSILON)

    def _move(self, place: int, mean: Tensor, variance: Tensor, count: int) -> None:
        old = self.running[place]
        unbiased = variance * (count / max(count - 1, 1))
        self.running[place] = Running(
            (1 - MOMENTUM) * old.mean + MOMENTUM * mean, (1 - MOMENTUM) * old.variance + MOMENTUM * unbiased
        )


def _linear(layer: BatchLayer, points: Tensor) -> Tensor:
    turned = layer.weight.transpose(1, 2)
    if layer.bias is None:
        return torch.bmm(points, turned)
    return torch.baddbmm(layer.bias[:, None], points, turned)


@final
class Nesterov:
    """Stochastic gradient descent with Nesterov's momentum, as PyTorch has it, for all networks at once."""

    def __init__(self, networks: Networks, rate: float, momentum: float = 0.9) -> None:
        self.networks, self.rate, self.momentum = networks, rate, momentum
        self.velocity = torch.zeros_like(networks.parameters)

    def step(self, losses: Tensor) -> None:
        """losses: of the networks, from parameters that ask for a gradient; `fresh` gives such."""
        (gradient,) = torch.autograd.grad(losses.sum(), self.networks.parameters)
        self.velocity = self.momentum * self.velocity + gradient
        moved = self.networks.parameters.detach() - self.rate * (gradient + self.momentum * self.velocity)
        self.networks.parameters = moved

    def fresh(self) -> Networks:
        """The networks, ready for a pass whose loss a step goes down."""
        self.networks.parameters = self.networks.parameters.detach().requires_grad_()
        return self.networks
