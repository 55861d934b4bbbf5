"""Rounding to 16 bits: an example that is saved and loaded must be the one that was judged."""

from __future__ import annotations

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget
from sottovoce.errors import InputError

# Bisection steps for the factor: 16 on a grid, and 24, the precision of a float, without one.
_HALVINGS, _FLOAT_HALVINGS = 16, 24


def round_clean(clean: AudioBatch, bits: int | None) -> AudioBatch:
    """Clean clips rounded like their examples; clips from 16-bit files stay as they are."""
    return clean if bits is None else clean.with_waveforms(nearest_step(clean.waveforms, bits))


def on_grid(clean: AudioBatch, adversarial: AudioBatch, budget: Budget, bits: int | None) -> AudioBatch:
    """The adversarial clips rounded to `bits` and still inside the budget; None leaves them as they are.

    Rounding to the nearest step can push a perturbation out of its budget. It is then scaled down until the
    rounded one is inside; bisection finds the largest factor, clip by clip. Rounding every sample toward the
    clean clip would be simpler, and would lose half of a quiet attack.
    """
    return adversarial if bits is None else settle(clean, adversarial, budget, bits, clean)


def settle(
    clean: AudioBatch, adversarial: AudioBatch, budget: Budget, bits: int | None, weighed: AudioBatch
) -> AudioBatch:
    """As `on_grid`; if `bits` is None, an example that float rounding pushed out is scaled down likewise.

    weighed: a copy of the clean clips for the budget alone.
    """
    delta = adversarial.waveforms - clean.waveforms

    def rounded(factor: Tensor) -> Tensor:
        return nearest_step(clean.waveforms + delta * factor[:, None], bits)

    def inside(waveforms: Tensor) -> Tensor:
        return budget.excess(waveforms - clean.waveforms, weighed) <= 1.0

    high = torch.ones(len(clean), dtype=delta.dtype, device=delta.device)
    best = adversarial.waveforms if bits is None else rounded(high)
    fits = inside(best)
    if not bool(fits.all()):
        low = torch.where(fits, high, torch.zeros_like(high))
        for _ in range(_FLOAT_HALVINGS if bits is None else _HALVINGS):
            middle = (low + high) / 2
            ok = inside(rounded(middle))
            low, high = torch.where(ok, middle, low), torch.where(ok, high, middle)
        best = torch.where(fits[:, None], best, rounded(low))
    return clean.with_waveforms(best)


def nearest_step(waveforms: Tensor, bits: int | None) -> Tensor:
    """Samples rounded to multiples of 2^(1-bits) in [-1, 1); None leaves them as they are."""
    if bits is None:
        return waveforms
    if not 2 <= bits <= 24:
        raise InputError(f"bits must be from 2 to 24, got {bits}; 16 is usual, and none keeps floats.")
    steps = float(2 ** (bits - 1))
    return (waveforms * steps).round().clamp(-steps, steps - 1) / steps
