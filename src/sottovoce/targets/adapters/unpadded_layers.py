"""Clips of different lengths in one pass of a model that would hear their padding.

Two kinds of layers let padding through an attention mask: a norm over time, whose mean and variance count it,
and a convolution that pads with zeros, behind a layer that made something else of the zeros. With these two
kept from the padding, a clip gives the same in a batch as alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def without_padding(layers: Sequence[tuple[nn.Module, Tensor]]) -> Iterator[None]:
    """Keep the padding out of some layers, each with an output `(batch, channels, frames)`.

    layers: each with the frames that each clip has after it, `(batch,)`. A group norm takes its statistics
        from these frames alone, and the output of any other layer is zero past them.
    """
    with ExitStack() as stack:
        for layer, frames in layers:
            fix = _normed if isinstance(layer, nn.GroupNorm) else _silenced
            handle = layer.register_forward_hook(_hook(fix, frames))
            stack.callback(handle.remove)
        yield


def lengths_apart(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """The clips of each length: their places in the batch, `(clips,)`, and the length."""
    for length in sorted(set(lengths.tolist())):
        yield (lengths == length).nonzero()[:, 0], length


def inside(counts: Tensor, width: int) -> Tensor:
    """`(batch, width)` bool, true before each count `(batch,)`."""
    return torch.arange(width, device=counts.device) < counts[:, None]


def windows(samples: Tensor, kernel: int, stride: int) -> Tensor:
    """How many windows lie wholly inside each count: the frames of a convolution that does not pad."""
    return (samples - kernel).div(stride, rounding_mode="floor") + 1


def receptive_field(kernels: Sequence[int], strides: Sequence[int], steps: int = 1) -> int:
    """The fewest samples that give so many steps behind convolutions that do not pad."""
    for kernel, stride in reversed(list(zip(kernels, strides, strict=True))):
        steps = (steps - 1) * stride + kernel
    return steps


def _hook(fix: Any, frames: Tensor) -> Any:
    return lambda layer, inputs, output: fix(layer, inputs[0], output, frames)


def _normed(layer: nn.GroupNorm, heard: Tensor, output: Tensor, frames: Tensor) -> Tensor:
    width = heard.shape[-1]
    rows = [
        nn.functional.group_norm(row[None, :, :count], layer.num_groups, layer.weight, layer.bias, layer.eps)
        for row, count in zip(heard, frames.tolist(), strict=True)
    ]
    return torch.cat([nn.functional.pad(row, (0, width - row.shape[-1])) for row in rows])


def _silenced(layer: nn.Module, heard: Tensor, output: Tensor, frames: Tensor) -> Tensor:
    return output.masked_fill(~inside(frames, output.shape[-1])[:, None], 0.0)
