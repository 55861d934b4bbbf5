"""Linear redundancy pruning, after the published description: which neurons to drop, and into what they fold.

Olivier's thesis (2023, section 3.6) describes the idea of Shah et al. (2021) in words; their text was not at
hand, so that what follows is this package's own. Each neuron of a layer is regressed on the others of its
layer, `z_k = sum_j a_j z_j + c + r_k`, by least squares over clips (for feature maps, over all places of a
map). What the others say already, the sum, is redundant; the rest `r_k` is novel. Novelty counts by its use
for the output, `E |dL/dz_k . r_k|`: by how much the loss would change, to first order, if it were missing.
The least useful neurons are dropped one by one; the next layer reads what the others say of them instead.

`z` is what the next layer really reads: after batch norm, activation, pooling and flattening. There the fold
is exact: a neuron whose readings are a linear combination of others' can go and no output changes. A neuron
whose combination holds only before a ReLU or a max pool has a novel part after it: for it the fold is the
best approximation on these clips. A constant folds into the bias of the next layer, but not into a
convolution that pads with zeros, where it is no constant at the edge: there no constant is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from sottovoce.errors import InputError
from sottovoce.training.pruning.prunable_chain import (
    PrunableLayer,
    folds_constants,
    layer_of,
    width_of,
    without_neurons,
)

RIDGE = 1e-9
"""Of a normalised Gram matrix, so that exact redundancy can be told: without it, there is no inverse."""
CUT = 1e-12
"""Directions of a normalised Gram matrix below this share of the largest are rounding."""

Pass = Callable[[], Tensor]
"""Lets the module, in evaluation mode, hear some clips; their losses, `(batch,)`."""


@final
@dataclass(frozen=True)
class Readings:
    """What a layer's neurons say to the layer behind, over all clips and places; the last row is a constant.

    gram: `(neurons + 1, neurons + 1)`, float64: sums of products over all clips and places.
    uses: `(clips, neurons, neurons + 1)`: `sum dL/dz_k z_j` over the places of a clip.
    constant: whether the constant may be used.
    """

    gram: Tensor
    uses: Tensor
    constant: bool

    @property
    def neurons(self) -> int:
        return self.uses.shape[1]


@final
@dataclass(frozen=True)
class KeptNeurons:
    """Which neurons stay, and how all are made of these.

    fold: `(neurons, kept + 1)`, see `without_neurons`. scores: of the neurons that were dropped, in order.
    """

    kept: tuple[int, ...]
    fold: Tensor
    scores: tuple[float, ...] = ()


def prune_link(module: nn.Module, link: PrunableLayer, passes: Sequence[Pass], count: int) -> nn.Module:
    """A copy of the module without the `count` least useful neurons of a layer. The passes hear `module`."""
    choice = choose(listen(module, link, passes), count)
    return without_neurons(module, link, choice.kept, choice.fold)


def listen(module: nn.Module, link: PrunableLayer, passes: Sequence[Pass]) -> Readings:
    """What the neurons of a layer say, and what use the loss makes of it."""
    neurons, reader = width_of(module, link.layer), layer_of(module, link.reader)
    heard: list[Tensor] = []

    def catch(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        heard.append(inputs[0].detach().requires_grad_())
        return (heard[-1], *inputs[1:])

    gram, uses = torch.zeros(neurons + 1, neurons + 1, dtype=torch.float64), []
    hook = reader.register_forward_pre_hook(catch)
    modes = {each: each.training for each in module.modules()}
    module.eval()
    try:
        for run in passes:
            heard.clear()
            with torch.enable_grad():
                loss = run().sum()
            if len(heard) != 1:
                raise InputError(
                    f"expected {link.reader!r} to be run once for some clips, got {len(heard)} times; give "
                    "clips of one length at a time."
                )
            (slope,) = torch.autograd.grad(loss, heard)
            values = _with_constant(heard[0].detach().reshape(len(slope), neurons, -1))
            uses.append(torch.einsum("bkp,bjp->bkj", slope.reshape(len(slope), neurons, -1), values).cpu())
            rows = values.cpu().double().transpose(0, 1).flatten(1)
            gram += rows @ rows.T
    finally:
        hook.remove()
        for each, mode in modes.items():
            each.training = mode
    return Readings(gram, torch.cat(uses), folds_constants(reader))


def choose(readings: Readings, count: int) -> KeptNeurons:
    """Drop neurons one by one: what the others say of one is judged anew each time."""
    kept = list(range(readings.neurons))
    scores = []
    for _ in range(count):
        useful = novel_use(readings, kept)
        least = int(useful.argmin())
        scores.append(float(useful[least]))
        del kept[least]
    return KeptNeurons(tuple(kept), fold_onto(readings, kept), tuple(scores))


def novel_use(readings: Readings, kept: Sequence[int]) -> Tensor:
    """`E |dL/dz_k . r_k|` of each neuron that is left, regressed on the others that are, `(kept,)`."""
    known = _regressors(readings, kept)
    scale = _scale(readings.gram, known)
    normal = readings.gram[known][:, known] / (scale[:, None] * scale)
    precise = torch.linalg.inv(normal + RIDGE * torch.eye(len(known), dtype=torch.float64))
    # Column k: 1 at k, and minus the share of each other neuron in it.
    novel = precise / precise.diagonal() * scale / scale[:, None]
    uses = readings.uses[:, list(kept)][:, :, known].double()
    change = torch.einsum("bkj,jk->bk", uses, novel[:, : len(kept)])
    return change.abs().mean(dim=0)


def fold_onto(readings: Readings, kept: Sequence[int]) -> Tensor:
    """All neurons as the best linear combination of some, `(neurons, kept + 1)`, float64."""
    known = _regressors(readings, kept)
    scale = _scale(readings.gram, known)
    normal = readings.gram[known][:, known] / (scale[:, None] * scale)
    values, vectors = torch.linalg.eigh(normal)
    inverse = torch.where(values > CUT * values[-1], 1.0 / values, 0.0)
    wanted = readings.gram[known][:, : readings.neurons] / scale[:, None]
    shares = ((vectors * inverse) @ vectors.T @ wanted / scale[:, None]).T
    fold = torch.zeros(readings.neurons, len(kept) + 1, dtype=torch.float64)
    fold[:, : len(known)] = shares
    # Those that stay are themselves, to the last digit.
    fold[list(kept)] = torch.eye(len(kept), len(kept) + 1, dtype=torch.float64)
    return fold


def _regressors(readings: Readings, kept: Sequence[int]) -> list[int]:
    return [*kept, readings.neurons] if readings.constant else list(kept)


def _scale(gram: Tensor, known: Sequence[int]) -> Tensor:
    """The root of each regressor's power; 1 for one that never says anything."""
    power = gram.diagonal()[list(known)].sqrt()
    return torch.where(power > 0, power, 1.0)


def _with_constant(values: Tensor) -> Tensor:
    """`(batch, neurons, places)` with a row of ones."""
    ones = torch.ones_like(values[:, :1])
    return torch.cat([values, ones], dim=1)
