"""A listening test's clips beside their references, in time with each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from sottovoce.core.batch import AudioBatch
from sottovoce.data.mushra_ratings import MushraRatings, RatedItem
from sottovoce.errors import InputError

Floats = NDArray[np.float64]
LONGEST_SECONDS = 0.05
"""The longest delay that is looked for."""
FAITHFUL = 0.7
"""Correlation of waveforms from which on they tell the delay; what a vocoder makes up correlates less."""
MARGIN = 0.005
"""By how much the course of the spectrum must match better than without a shift."""
_FRAME_SECONDS, _HOP_SECONDS, _BANDS = 0.02, 0.001, 20
_FLOOR = 1e-8


class FoundDelay(NamedTuple):
    """The delay of a clip in samples, how it was found, and how well the two match then."""

    samples: int
    by: str
    match: float


@final
@dataclass(frozen=True)
class RatedPair:
    """A rated clip and its reference `(time,)`, both cut to what they share once the delay is undone."""

    rated: RatedItem
    clean: Floats
    changed: Floats
    shift: FoundDelay


def read_pairs(test: MushraRatings) -> list[RatedPair]:
    """All rated clips that have audio, the hidden references among them."""
    found = []
    for rated in test.heard:
        clean, changed = test.read(test.reference(rated.item)), test.read(rated)
        shift = find_shift(clean, changed, test.sample_rate)
        found.append(RatedPair(rated, *undo(clean, changed, shift.samples), shift))
    return found


def find_shift(clean: Floats, changed: Floats, sample_rate: int) -> FoundDelay:
    """How late the changed clip is.

    By the waveforms where they correlate. A vocoder keeps the spectrum and makes up the phases, so that the
    best correlation of waveforms is a matter of chance: there the course of the spectrum tells, in steps of
    a millisecond.
    """
    longest = round(LONGEST_SECONDS * sample_rate)
    if min(len(clean), len(changed)) <= 2 * longest:
        raise InputError(
            f"expected clips of more than {2 * LONGEST_SECONDS:g} s, got {len(changed)} samples at "
            f"{sample_rate} Hz; drop the item."
        )
    lag, match = _best_lag(clean[None], changed[None], longest)
    if match >= FAITHFUL:
        return FoundDelay(lag, "waveform", match)
    hop = round(_HOP_SECONDS * sample_rate)
    course, other = (_course(one, sample_rate, hop) for one in (clean, changed))
    lag, match = _best_lag(course, other, longest // hop, margin=MARGIN)
    return FoundDelay(lag * hop, "spectrum", match)


def undo(clean: Floats, changed: Floats, late: int) -> tuple[Floats, Floats]:
    """Both clips `(time,)` without the delay, cut to what they share."""
    clean, changed = clean[max(0, -late) :], changed[max(0, late) :]
    size = min(len(clean), len(changed))
    return clean[:size], changed[:size]


def as_batch(clips: list[Floats], sample_rate: int, ids: list[str]) -> AudioBatch:
    return AudioBatch.of([torch.from_numpy(one.clip(-1.0, 1.0)) for one in clips], sample_rate, ids)


def _best_lag(clean: Floats, changed: Floats, longest: int, *, margin: float = 0.0) -> tuple[int, float]:
    """The lag at which rows `(rows, time)` match best, and how well; 0 where that is no worse by `margin`."""
    size = min(clean.shape[1], changed.shape[1])
    inner = clean[:, longest : size - longest]
    products = sum(
        scipy.signal.correlate(row, part, "valid") for row, part in zip(changed[:, :size], inner, strict=True)
    )
    squares = np.concatenate([[0.0], np.cumsum((changed[:, :size] ** 2).sum(axis=0))])
    energy = squares[inner.shape[1] :] - squares[: len(squares) - inner.shape[1]]
    scale = np.sqrt(np.maximum(energy, 1e-20) * max(float((inner**2).sum()), 1e-20))
    matches = np.asarray(products) / scale
    best = int(matches.argmax())
    if matches[best] - matches[longest] <= margin:
        best = longest
    return best - longest, float(matches[best])


def _course(clip: Floats, sample_rate: int, hop: int) -> Floats:
    """Levels in bands, `(bands, frames)`, each about its own mean."""
    size = round(_FRAME_SECONDS * sample_rate)
    window = torch.hann_window(size, dtype=torch.float64)
    spectrum = torch.stft(torch.from_numpy(clip), size, hop, window=window, center=False, return_complex=True)
    # Up to a third of the bins, 8 kHz at 24: what lies above, some codecs cut off.
    levels = (spectrum.abs().square() + _FLOOR).log()[: size // 3]
    rows = torch.stack([band.mean(dim=0) for band in levels.chunk(_BANDS)])
    found: Floats = (rows - rows.mean(dim=1, keepdim=True)).numpy()
    return found
