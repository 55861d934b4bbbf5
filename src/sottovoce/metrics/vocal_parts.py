"""Loudness of a perturbation in decibels, on the whole clip and on its vocal and background parts.

After Vadillo and Santana, "On the human evaluation of audio adversarial examples", sections 2.2, 4.1, 4.2
and 5.1. Amplitudes are on the [-1, 1] scale unless a name says otherwise; results are float64 on the CPU.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.errors import InputError
from sottovoce.metrics.signal_distortion import as_samples, check_shapes, valid_mask

IntensityLevel = Literal["low", "medium", "high"]

INT16_SCALE = 32768.0
# Half a 16-bit step, -96.33 dB: what a 16-bit file cannot hold counts as this loud and no quieter, so silence
# is a finite number and still the lowest of all.
FLOOR = 0.5 / INT16_SCALE
LOW_BELOW_DB, HIGH_ABOVE_DB = 50.0, 70.0  # section 5.1, on the int16 scale


class Parts(NamedTuple):
    """Which samples belong to each part: bool masks `(batch, time)`, False on the padding."""

    whole: Tensor
    vocal: Tensor
    background: Tensor


def db_max(waveforms: Tensor, mask: Tensor, *, floor: float = FLOOR) -> Tensor:
    """20 log10 of the largest |x_i| under the mask (eq. 2), `(batch,)`; NaN where the mask is empty."""
    peaks = _magnitudes(waveforms, mask).amax(dim=1)
    return _to_db(peaks.masked_fill(~mask.cpu().any(dim=1), torch.nan), floor)


def db_mean(waveforms: Tensor, mask: Tensor, *, floor: float = FLOOR) -> Tensor:
    """20 log10 of the mean |x_i| under the mask (eq. 5), `(batch,)`; NaN where the mask is empty."""
    return _to_db(_magnitudes(waveforms, mask).sum(dim=1) / mask.cpu().sum(dim=1), floor)


def relative_db_max(clean: Tensor, delta: Tensor, mask: Tensor, *, floor: float = FLOOR) -> Tensor:
    """dB_max of the perturbation less that of the clip (eq. 1), `(batch,)`: the lower, the quieter."""
    check_shapes(clean, delta)
    return db_max(delta, mask, floor=floor) - db_max(clean, mask, floor=floor)


def relative_db_mean(clean: Tensor, delta: Tensor, mask: Tensor, *, floor: float = FLOOR) -> Tensor:
    """dB_mean of the perturbation less that of the clip (eq. 4), `(batch,)`: the lower, the quieter."""
    check_shapes(clean, delta)
    return db_mean(delta, mask, floor=floor) - db_mean(clean, mask, floor=floor)


def part_distortion_db(
    clean: Tensor, delta: Tensor, lengths: Tensor, *, share: float = 0.95, floor: float = FLOOR
) -> dict[str, Tensor]:
    """The evaluation of section 4.2: `whole_max`, `whole_mean`, `vocal_max` and so on, each `(batch,)`."""
    masks = find_parts(clean, lengths, share=share)._asdict()
    measures = {"max": relative_db_max, "mean": relative_db_mean}
    return {
        f"{part}_{name}": measure(clean, delta, mask, floor=floor)
        for part, mask in masks.items()
        for name, measure in measures.items()
    }


def find_parts(clean: Tensor, lengths: Tensor, *, share: float = 0.95) -> Parts:
    """Split each clip `(batch, time)` into its vocal part and the rest, which may be empty."""
    starts, ends = vocal_part(clean, lengths, share=share)
    places = torch.arange(clean.shape[1])
    whole = valid_mask(lengths, clean.shape[1])
    vocal = (places >= starts[:, None]) & (places < ends[:, None])
    return Parts(whole, vocal, whole & ~vocal)


def vocal_part(waveforms: Tensor, lengths: Tensor, *, share: float = 0.95) -> tuple[Tensor, Tensor]:
    """Starts and ends, half-open, int64 `(batch,)`, of the shortest range with `share` of the energy (eq. 6).

    The paper asks for about 95 %; here the range holds at least the share, is the shortest that does, and
    the earliest among equals. A silent clip is vocal as a whole.
    """
    if not 0.0 < share <= 1.0:
        raise InputError(f"share: expected a number above 0 and at most 1, got {share}; the paper uses 0.95.")
    samples = as_samples(waveforms, lengths).numpy()
    ranges = [_shortest_range(row[:n], share) for row, n in zip(samples, lengths.tolist(), strict=True)]
    starts, ends = torch.tensor(ranges, dtype=torch.int64).reshape(-1, 2).unbind(dim=1)
    return starts, ends


def intensity_level(clean: Tensor, lengths: Tensor) -> list[IntensityLevel]:
    """Class of each clip by its dB_mean on the int16 scale: below 50, 50 to 70, above 70 (section 5.1)."""
    levels_db = db_mean(clean, valid_mask(lengths, clean.shape[1])) + 20.0 * math.log10(INT16_SCALE)
    return [
        "low" if level < LOW_BELOW_DB else "high" if level > HIGH_ABOVE_DB else "medium"
        for level in levels_db.tolist()
    ]


def share_below(values_db: Tensor, *, threshold_db: float = -32.0) -> float:
    """Share of the values under the threshold (Table 2), NaN left out; NaN where there is no value."""
    known = values_db[~values_db.isnan()]
    return float((known < threshold_db).double().mean())


def _magnitudes(waveforms: Tensor, mask: Tensor) -> Tensor:
    return waveforms.detach().cpu().double().abs().masked_fill(~mask.cpu(), 0.0)


def _to_db(amplitudes: Tensor, floor: float) -> Tensor:
    return 20.0 * amplitudes.clamp(min=floor).log10()


def _shortest_range(samples: NDArray[np.float64], share: float) -> tuple[int, int]:
    """The shortest half-open range of one clip that holds the share of its energy, in linear time."""
    energies = _integer_energies(samples)
    heights = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(energies)])
    total = int(heights[-1])
    if total == 0:
        return 0, len(samples)
    # The share as it is written: 0.55 means 55/100, not the double that lies just above it.
    needed = math.ceil(Fraction(str(float(share))) * total)
    # The range that starts at a ends at the first b with heights[b] >= heights[a] + needed. Both sides
    # ascend, so finding every b is the merge of two sorted runs, which NumPy's stable sort (Timsort) does in
    # linear time. With the wanted heights first, a tie puts a wanted one before the height that meets it.
    wanted = heights[:-1] + needed
    order = np.argsort(np.concatenate([wanted, heights]), kind="stable")
    starts = np.arange(len(wanted))
    ends = np.flatnonzero(order < len(wanted)) - starts
    reachable = ends < len(heights)
    start = int(np.argmin(ends[reachable] - starts[reachable]))
    return start, int(ends[start])


def _integer_energies(samples: NDArray[np.float64]) -> NDArray[np.int64]:
    """Energies as integers that sum to about 2**61, so that sums and ties are exact.

    Scales by powers of two alone: for 16-bit audio this is exact, for other audio the error is below
    2**-60 of the clip's energy a sample.
    """
    peak = np.abs(samples).max(initial=0.0)
    squares = np.square(np.ldexp(samples, -np.frexp(peak)[1]))
    room = 61 - np.frexp(squares.sum())[1]
    energies: NDArray[np.int64] = np.rint(np.ldexp(squares, room)).astype(np.int64)
    return energies
