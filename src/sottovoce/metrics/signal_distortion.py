"""Distortion of a whole clip: signal-to-noise ratios and norms.

Every function takes `clean (batch, time)`, `delta (batch, time)` and `lengths (batch,)` in samples and
returns one float64 number a clip, `(batch,)`, on the CPU: a figure in a report should not depend on the
device that made it. What lies past a clip's length is ignored. Nothing here carries gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sottovoce.errors import InputError

# The convention of Hu and Loizou (2008): 30 ms Hann frames that step by a quarter, each held to [-10, 35] dB
# so that neither pauses nor untouched frames decide the mean.
FRAME_SECONDS = 0.030
FRAME_STEPS = 4
FRAME_LOW_DB, FRAME_HIGH_DB = -10.0, 35.0


def valid_mask(lengths: Tensor, time: int) -> Tensor:
    """True on the samples of each clip, False on its padding: `(batch, time)` bool, on the CPU."""
    return torch.arange(time) < lengths.detach().cpu()[:, None]


def as_samples(waveforms: Tensor, lengths: Tensor) -> Tensor:
    """The same `(batch, time)` in float64 on the CPU, with exact zeros past each length."""
    # Two calls: some devices have no float64, so the copy comes before the cast.
    samples = waveforms.detach().cpu().double()
    return samples.masked_fill(~valid_mask(lengths, samples.shape[1]), 0.0)


def check_shapes(clean: Tensor, delta: Tensor) -> None:
    """Refuse a `delta` that would only fit `clean` by broadcasting."""
    if clean.ndim != 2 or clean.shape != delta.shape:
        raise InputError(
            f"expected clean and delta of one shape (batch, time), got {tuple(clean.shape)} and "
            f"{tuple(delta.shape)}; pad or crop one of them."
        )


def snr_db(clean: Tensor, delta: Tensor, lengths: Tensor) -> Tensor:
    """10 log10 of clean energy over perturbation energy, `(batch,)` in dB.

    +inf where nothing was perturbed, -inf where a silent clip was, NaN where clip and perturbation are both
    zero and there is no ratio.
    """
    check_shapes(clean, delta)
    signal = as_samples(clean, lengths).square().sum(dim=1)
    noise = as_samples(delta, lengths).square().sum(dim=1)
    return 10.0 * (signal.log10() - noise.log10())


def segmental_snr_db(clean: Tensor, delta: Tensor, lengths: Tensor, *, sample_rate: int) -> Tensor:
    """The mean over short frames of their SNR, each held to [-10, 35] dB: `(batch,)` in dB.

    The last frame is filled up with zeros, so that no sample goes unmeasured and a clip shorter than a
    frame has one. A frame in which clip and perturbation are both zero has no SNR and is left out; a clip
    with no other frame is NaN.
    """
    check_shapes(clean, delta)
    size = max(1, round(FRAME_SECONDS * sample_rate))
    step = max(1, size // FRAME_STEPS)
    signal = _frame_energies(as_samples(clean, lengths), size, step)
    noise = _frame_energies(as_samples(delta, lengths), size, step)
    frames = 10.0 * (signal.log10() - noise.log10()).clamp(FRAME_LOW_DB / 10.0, FRAME_HIGH_DB / 10.0)
    counts = _frame_counts(lengths.detach().cpu(), size, step)
    return frames.masked_fill(~valid_mask(counts, frames.shape[1]), torch.nan).nanmean(dim=1)


def linf(clean: Tensor, delta: Tensor, lengths: Tensor) -> Tensor:
    """Largest |delta|, `(batch,)` on the [-1, 1] scale; `clean` is here for the common shape alone."""
    check_shapes(clean, delta)
    return as_samples(delta, lengths).abs().amax(dim=1)


def l2(clean: Tensor, delta: Tensor, lengths: Tensor) -> Tensor:
    """Root of delta's energy, `(batch,)` on the [-1, 1] scale; `clean` is here for the common shape alone."""
    check_shapes(clean, delta)
    return as_samples(delta, lengths).square().sum(dim=1).sqrt()


def _frame_counts(lengths: Tensor, size: int, step: int) -> Tensor:
    """How many frames it takes to cover each length."""
    return 1 + (lengths - size).clamp(min=0).add(step - 1).div(step, rounding_mode="floor")


def _frame_energies(samples: Tensor, size: int, step: int) -> Tensor:
    """Energy of every frame under a Hann window: `(batch, frames)`."""
    time = samples.shape[1]
    frames = int(_frame_counts(torch.tensor(time), size, step))
    squares = torch.nn.functional.pad(samples.square(), (0, size + (frames - 1) * step - time))
    # Neither end of this Hann window is zero, so every sample has a say. As a convolution of the squares it
    # costs no copy of the overlapping frames.
    window = torch.hann_window(size + 2, periodic=False, dtype=torch.float64)[1:-1]
    return torch.nn.functional.conv1d(squares[:, None], window.square()[None, None], stride=step)[:, 0]
