"""Quality by short frames: frequency-weighted segmental SNR, cepstral distance and log-likelihood ratio.

The definitions and conventions of Hu and Loizou, "Evaluation of objective quality measures for speech
enhancement" (2008): Hann frames of 30 ms that step by a quarter. All three come from one spectrum a frame:
its magnitude in critical bands gives the SNR, its power the autocorrelation, and that the linear prediction.
Segmental SNR, which needs no spectrum, is in `sottovoce.metrics.signal_distortion`.

None of the three sees a change of gain. Frames are independent, float64, on the CPU; padding does not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import torch
from torch import Tensor

from sottovoce.errors import InputError
from sottovoce.metrics.signal_distortion import (
    FRAME_HIGH_DB,
    FRAME_LOW_DB,
    FRAME_SECONDS,
    FRAME_STEPS,
    as_samples,
    check_shapes,
)

LOWEST_RATE_HZ = 8000
"""The highest critical band ends below 4 kHz: a lower rate does not hold all of them."""
CD_HIGH, LLR_HIGH = 10.0, 2.0
KEPT_SHARE = 0.95
"""CD and LLR are means over this share of a clip's frames, the best ones."""
BAND_POWER = 0.2
"""Exponent on a band's magnitude that makes its weight (gamma)."""

# Critical bands of Hu and Loizou: centre and width in Hz, 25 of them from 50 Hz to 3.6 kHz.
_CENTRES_HZ = (
    *(50.0, 120.0, 190.0, 260.0, 330.0, 400.0, 470.0, 540.0, 617.372, 703.378, 798.717, 904.128, 1020.38),
    *(1148.30, 1288.72, 1442.54, 1610.70, 1794.16, 1993.93, 2211.08, 2446.71, 2701.97, 2978.04, 3276.17),
    3597.63,
)
_WIDTHS_HZ = (
    *(70.0, 70.0, 70.0, 70.0, 70.0, 70.0, 70.0, 77.3724, 86.0056, 95.3398, 105.411, 116.256, 127.914),
    *(140.423, 153.823, 168.154, 183.457, 199.776, 217.153, 235.631, 255.255, 276.072, 298.126, 321.465),
    346.136,
)
_FILTER_FLOOR = math.exp(-30.0 / (2.0 * 2.303))
_FRAMES_AT_ONCE = 256  # so that what a step touches stays in the cache


@final
class Segmental(NamedTuple):
    """Each `(batch,)` float64; NaN for a clip without a frame to measure.

    fwssnr_db: -10 to 35, which equal clips have. cd: 0 to 10. llr: 0 to 2.
    """

    fwssnr_db: Tensor
    cd: Tensor
    llr: Tensor


def frame_samples(sample_rate: int) -> int:
    """Samples of a frame."""
    return max(2, round(FRAME_SECONDS * sample_rate))


def segmental(clean: Tensor, changed: Tensor, lengths: Tensor, *, sample_rate: int) -> Segmental:
    """The three measures of clips `(batch, time)` with `lengths (batch,)` in samples.

    Only whole frames count, as in the reference: a clip shorter than 30 ms has none. A frame in which both
    clips are silent has no value. One that only the clean clip leaves silent has the worst value of each
    measure; one that only the changed clip does has an SNR of 0 dB in every band, and the worst CD and LLR.
    Below 8 kHz there is no frequency-weighted SNR.
    """
    check_shapes(clean, changed)
    if sample_rate <= 0:
        raise InputError(f"expected a sample rate above 0 Hz, got {sample_rate}; give samples per second.")
    plan = _plan(sample_rate)
    rows, starts = _places(lengths.detach().cpu(), plan)
    pair = [as_samples(each, lengths).flatten() for each in (clean, changed)]
    places = rows * clean.shape[1] + starts
    pieces = [_measure(pair, some, plan) for some in torch.split(places, _FRAMES_AT_ONCE) if len(some)]
    found = torch.cat(pieces, dim=1) if pieces else torch.empty(3, 0, dtype=torch.float64)
    counts = torch.bincount(rows, minlength=len(clean))
    table = torch.full((3, len(clean), max(1, int(counts.max()))), torch.nan, dtype=torch.float64)
    table[:, rows, starts // plan.step] = found
    return Segmental(table[0].nanmean(dim=1), best_mean(table[1]), best_mean(table[2]))


def band_snr_db(clean: Tensor, changed: Tensor) -> Tensor:
    """SNR of frames from the magnitudes of their bands, `(frames, bands)` each, to `(frames,)` in dB.

    Magnitudes are shares of a frame's whole, so that a gain does not count. What differs is noise, and a band
    weighs by the clean magnitude to the power of 0.2. Held to [-10, 35] dB.
    """
    noise = (clean - changed).square().clamp_min(torch.finfo(torch.float64).eps)
    weight = clean.pow(BAND_POWER)
    snr = 10.0 * (clean.square() / noise).clamp_min(torch.finfo(torch.float64).tiny).log10()
    return ((weight * snr).sum(dim=1) / weight.sum(dim=1)).clamp(FRAME_LOW_DB, FRAME_HIGH_DB)


def predict(autocorrelation: Tensor) -> Tensor:
    """Linear prediction by Levinson and Durbin: lags `(order + 1, frames)` to filters of that shape.

    A filter is 1, a_1 ... a_order and whitens its frame. Where nothing is left to predict (a silent frame, or
    a prediction that is exact to rounding), the further coefficients are 0.
    """
    lags = autocorrelation.double()
    least = torch.finfo(torch.float64).eps * lags[0].clamp_min(torch.finfo(torch.float64).tiny)
    filters = torch.zeros_like(lags)
    filters[0] = 1.0
    error = lags[0].clone()
    for order in range(1, len(lags)):
        known = filters[:order]
        ahead = (known * lags[1 : order + 1].flip(0)).sum(dim=0)
        reflection = torch.where(error > least, -ahead / error.clamp_min(least), 0.0).clamp(-1.0, 1.0)
        filters[1 : order + 1] = filters[1 : order + 1] + reflection * known.flip(0)
        error = error * (1.0 - reflection.square())
    return filters


def cepstrum(filters: Tensor) -> Tensor:
    """Cepstrum of all-pole models 1/A(z), without gain: `(order + 1, frames)` to `(order, frames)`.

    From the power series of -ln A: c_k = -a_k - sum over i < k of (i/k) c_i a_(k-i).
    """
    order = len(filters) - 1
    scaled = torch.empty_like(filters[1:])  # k c_k, which needs no division inside the sum
    for place in range(1, order + 1):
        known = (scaled[: place - 1] * filters[1:place].flip(0)).sum(dim=0)
        scaled[place - 1] = -(place * filters[place] + known)
    return scaled / torch.arange(1, order + 1, dtype=filters.dtype)[:, None]


def cepstral_distance(clean: Tensor, changed: Tensor) -> Tensor:
    """Distance in dB of cepstra `(order, frames)`, `(frames,)`, held to [0, 10].

    10/ln 10 sqrt(2 sum (c - c')^2): the root mean square difference of two log spectra.
    """
    apart = (clean - changed).square().sum(dim=0).sqrt()
    return (10.0 * math.sqrt(2.0) / math.log(10.0) * apart).clamp(max=CD_HIGH)


def log_likelihood_ratio(lags: Tensor, clean: Tensor, changed: Tensor) -> Tensor:
    """How much worse the changed clip's filter whitens the clean frame than its own: `(frames,)`, 0 to 2.

    lags: the clean frame's autocorrelation `(order + 1, frames)`, beside the filters.
    """
    own, other = _residue(lags, clean), _residue(lags, changed)
    return (other / own).log().clamp(0.0, LLR_HIGH)


def best_mean(frames: Tensor) -> Tensor:
    """Mean over the lowest 95 % of each row of `(batch, frames)`, NaN left out: `(batch,)`."""
    counts = frames.isfinite().sum(dim=1, keepdim=True)
    kept = (KEPT_SHARE * counts + 0.5).floor()
    ranked = frames.nan_to_num(nan=torch.inf).sort(dim=1).values
    inside = torch.arange(frames.shape[1]) < kept
    return torch.where(inside, ranked, 0.0).sum(dim=1) / kept[:, 0]


@final
@dataclass(frozen=True)
class _Plan:
    """What a sample rate asks for: sizes in samples, and tables `(bins, ...)` in float64."""

    size: int
    step: int
    spectrum: int
    order: int
    window: Tensor
    bands: Tensor | None
    cosines: Tensor


@lru_cache(maxsize=4)
def _plan(sample_rate: int) -> _Plan:
    size = frame_samples(sample_rate)
    spectrum = 2 ** math.ceil(math.log2(2 * size))
    # At most half a frame: at very low rates a frame has few samples.
    order = min(10 if sample_rate < 10_000 else 16, size // 2)
    return _Plan(
        size=size,
        step=max(1, size // FRAME_STEPS),
        spectrum=spectrum,
        order=order,
        window=torch.hann_window(size + 2, periodic=False, dtype=torch.float64)[1:-1],
        bands=_bands(sample_rate, spectrum) if sample_rate >= LOWEST_RATE_HZ else None,
        cosines=_cosines(spectrum, order),
    )


def _bands(sample_rate: int, spectrum: int) -> Tensor:
    """Filters of the critical bands, `(bins, 25)`: Gaussians on the bins, cut off 30 dB below their peak.

    Bins above the last band, which none of them lets through, have no row.
    """
    bins = torch.arange(spectrum // 2, dtype=torch.float64)[:, None]
    per_hz = spectrum / sample_rate
    centres = (torch.tensor(_CENTRES_HZ, dtype=torch.float64) * per_hz).floor()
    widths = torch.tensor(_WIDTHS_HZ, dtype=torch.float64)
    filters = torch.exp(-11.0 * ((bins - centres) / (widths * per_hz)).square()) * (widths[0] / widths)
    filters = torch.where(filters > _FILTER_FLOOR, filters, 0.0)
    return filters[: int(filters.any(dim=1).nonzero().max()) + 1].contiguous()


def _cosines(spectrum: int, order: int) -> Tensor:
    """From the power in each bin to the autocorrelation at lags 0 to `order`: `(bins, order + 1)`."""
    bins = torch.arange(spectrum // 2 + 1, dtype=torch.float64)[:, None]
    # Reduced modulo the period before the cosine, which is exact for whole numbers.
    turns = (bins * torch.arange(order + 1, dtype=torch.float64)).remainder(spectrum) / spectrum
    both_sides = torch.full_like(bins, 2.0)
    both_sides[0] = both_sides[-1] = 1.0
    return both_sides / spectrum * torch.cos(2.0 * math.pi * turns)


def _places(lengths: Tensor, plan: _Plan) -> tuple[Tensor, Tensor]:
    """Row and first sample of every whole frame of every clip."""
    counts = torch.where(lengths >= plan.size, (lengths - plan.size) // plan.step + 1, 0)
    inside = torch.arange(int(counts.max())) < counts[:, None]
    rows, frames = inside.nonzero(as_tuple=True)
    return rows, frames * plan.step


def _measure(pair: list[Tensor], places: Tensor, plan: _Plan) -> Tensor:
    """SNR, CD and LLR of the frames that begin at `places` of two rows of samples: `(3, frames)`."""
    count = len(places)
    frames = torch.cat([each.unfold(0, plan.size, 1)[places] for each in pair])
    spectra = torch.fft.rfft(frames * plan.window, n=plan.spectrum)
    power = spectra.real.square() + spectra.imag.square()
    lags = (power @ plan.cosines).T.contiguous()
    filters = predict(lags)
    cepstra = cepstrum(filters)
    silent = (power.sum(dim=1) == 0.0).view(2, count)
    cd = cepstral_distance(cepstra[:, :count], cepstra[:, count:])
    llr = log_likelihood_ratio(lags[:, :count], filters[:, :count], filters[:, count:])
    one = silent.any(dim=0)
    found = torch.stack([_fwssnr(power, silent, plan), cd.where(~one, CD_HIGH), llr.where(~one, LLR_HIGH)])
    return found.masked_fill(silent.all(dim=0), torch.nan)


def _fwssnr(power: Tensor, silent: Tensor, plan: _Plan) -> Tensor:
    count = silent.shape[1]
    if plan.bands is None:
        return torch.full((count,), torch.nan, dtype=torch.float64)
    magnitude = power.sqrt()
    whole = magnitude[:, :-1].sum(dim=1, keepdim=True)
    shares = magnitude[:, : len(plan.bands)] @ plan.bands / whole.clamp_min(torch.finfo(torch.float64).tiny)
    return band_snr_db(shares[:count], shares[count:]).where(~silent[0], FRAME_LOW_DB)


def _residue(lags: Tensor, filters: Tensor) -> Tensor:
    """Energy that filters `(order + 1, frames)` leave of frames with these autocorrelations: a' R a."""
    order = len(filters) - 1
    own = torch.stack([(filters[lag:] * filters[: order + 1 - lag]).sum(dim=0) for lag in range(order + 1)])
    own[1:] *= 2.0
    residue = (own * lags).sum(dim=0)
    return residue.clamp_min(torch.finfo(torch.float64).tiny)
