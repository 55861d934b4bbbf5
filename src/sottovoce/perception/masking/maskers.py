"""What masks, and what it hides: tonal and noise maskers of psychoacoustic model 1 (ISO/IEC 11172-3, D.1).

The standard counts in spectral lines; those of its Layer II (and of ISO/IEC 13818-3, which carries it down
to 16 kHz) are a 1024th of the sample rate apart. The frames here are longer, 128 ms at any rate, so that a
line of the standard's is several bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import torch
from torch import Tensor

from sottovoce.perception.masking.hearing_curves import (
    CRITICAL_BANDS_HZ,
    DECIBEL,
    Spreading,
    bark,
    decibels,
    level_term,
    masking_offset_db,
    quiet_db,
    spread_db,
)

TONAL_DB = 7.0
DECIMATION_BARK = 0.5
LINES = 1024
# Below this line of the standard's, a tone stands out from the lines around it as far as this many.
TONAL_REACH = ((63, 2), (127, 3), (255, 6), (math.inf, 12))
# What noise of a level hides is looked up: between levels half a decibel apart it is right to 0.01 dB.
LEVELS_DB, LEVEL_STEP_DB = (-10.0, 125.0), 0.5
# In place of minus infinity: adds nothing to any threshold, and is no denormal number, which would be slow.
NOTHING_DB = -300.0


@final
@dataclass(frozen=True)
class Maskers:
    """The sounds in some frames that mask others.

    frame, bin, db: one entry a tone: its frame, its place in it and its level.
    noise_db: `(frames, bands)`, the level of the noise in each critical band; -inf where none is audible.
    """

    frame: Tensor
    bin: Tensor
    db: Tensor
    noise_db: Tensor


def find_maskers(power: Tensor, tables: Tables) -> Maskers:
    """Tonal and noise maskers of frames `(frames, bins)`, in the unit in which 10^9.6 is 96 dB."""
    frame, place = _find_tonal(power, tables)
    # The lines around a tone count as part of it; the rest of each critical band is one noise masker.
    rest = power.clone()
    rest[frame[:, None], _around(place, tables.reach)] = 0.0
    noise = decibels(rest @ tables.bands)
    inaudible = noise < tables.quiet_db[tables.noise_bins]
    level = decibels(power[frame, place - 1] + power[frame, place] + power[frame, place + 1])
    audible = level >= tables.quiet_db[place]
    frame, place, level = frame[audible], place[audible], level[audible]
    stays = _decimate(frame, tables.bark[place], level, tables.crowd)
    noise = noise.masked_fill(inaudible, -torch.inf)
    return Maskers(frame[stays], place[stays], level[stays], noise)


def spread_maskers(maskers: Maskers, tables: Tables) -> Tensor:
    """The power below which nothing is heard, `(frames, bins)`: what each masker hides, and the quiet."""
    total = _look_up(maskers.noise_db, tables.noise).add_(tables.quiet)
    return total.index_add_(0, maskers.frame, tables.fall.hidden(maskers.bin, maskers.db, tonal=True))


@final
@dataclass(frozen=True)
class Fall:
    """How the threshold falls from a masker at one bin to every other bin.

    Natural logarithms of power, `(bins, bins)`: one fixed part, and one for each decibel of `level_term`.
    """

    bark: Tensor
    fixed: Tensor
    by_level: Tensor
    spreading: Spreading

    @classmethod
    def over(cls, bark: Tensor, spreading: Spreading, like: Tensor) -> Fall:
        """bark: `(bins,)` in double precision; the tables are of the kind of `like`."""
        distance = bark - bark[:, None]
        fixed, one, two = (spread_db(distance, bark.new_tensor(db), spreading) for db in (0.0, 40.0, 41.0))
        by_level = (two - one).where(fixed.isfinite(), 0.0)
        fixed = fixed.where(fixed.isfinite(), NOTHING_DB)
        return cls(bark.to(like), (fixed * DECIBEL).to(like), (by_level * DECIBEL).to(like), spreading)

    def hidden(self, place: Tensor, db: Tensor, *, tonal: bool) -> Tensor:
        """The power that maskers at some bins, of some levels, hide at every bin: `(maskers, bins)`."""
        peak = (db + masking_offset_db(self.bark[place], tonal=tonal)) * DECIBEL
        logs = self.fixed[place].addcmul_(self.by_level[place], level_term(db, self.spreading)[:, None])
        return logs.add_(peak[:, None]).exp_()


@final
@dataclass(frozen=True)
class Tables:
    """Constants of a masker on a device; `(bins,)` unless said otherwise.

    reach: bins over which a tone must stand out. reaches: the same, as the range of bins of each reach.
    crowd: the most tones that half a Bark can hold.
    bands: `(bins, bands)`, 1 where a bin is of a band.
    noise_bins: `(bands,)`, where noise maskers are. noise: `(bands, levels, bins)`, what they hide.
    fall: what a masker at any bin hides.
    """

    bark: Tensor
    quiet_db: Tensor
    quiet: Tensor
    reach: Tensor
    reaches: dict[int, tuple[int, int]]
    crowd: int
    bands: Tensor
    noise_bins: Tensor
    noise: Tensor
    fall: Fall


@lru_cache(maxsize=4)
def make_tables(
    sample_rate: int, window: int, spreading: Spreading, device: torch.device, dtype: torch.dtype
) -> Tables:
    """The tables of a masker for a sample rate and a window, in samples."""
    frequencies = torch.arange(window // 2 + 1, dtype=torch.float64) * sample_rate / window
    barks, quiet = bark(frequencies), quiet_db(frequencies)
    # The constant component is no sound and belongs to no band.
    edges = torch.tensor(CRITICAL_BANDS_HZ, dtype=torch.float64)
    bands = torch.nn.functional.one_hot(torch.bucketize(frequencies, edges, right=True)).double()
    bands[0] = 0.0
    logs = torch.arange(len(frequencies)).clamp_min(1).double().log()
    noise_bins = ((logs @ bands) / bands.sum(dim=0)).exp().round().long()
    levels = torch.arange(LEVELS_DB[0], LEVELS_DB[1] + LEVEL_STEP_DB, LEVEL_STEP_DB, dtype=torch.float64)
    fall = Fall.over(barks, spreading, torch.empty(0, device=device, dtype=dtype))
    noise = fall.hidden(
        noise_bins.repeat_interleave(len(levels)).to(device),
        levels.repeat(len(noise_bins)).to(device, dtype),
        tonal=False,
    )
    reach = _reach(window)
    ends = {value: int((reach == value).nonzero()[-1]) + 1 for value in sorted(set(reach.tolist()))}
    starts = [0, *ends.values()]
    return Tables(
        bark=barks.to(device, dtype),
        quiet_db=quiet.to(device, dtype),
        quiet=(10 ** (quiet / 10)).to(device, dtype),
        reach=reach.to(device),
        reaches={value: (start, end) for start, (value, end) in zip(starts, ends.items(), strict=False)},
        crowd=_crowd(barks, reach),
        bands=bands.to(device, dtype),
        noise_bins=noise_bins.to(device),
        noise=noise.view(len(noise_bins), len(levels), -1),
        fall=fall,
    )


def _reach(window: int) -> Tensor:
    """Over how many bins to each side a tone must stand out, `(bins,)`."""
    bins_a_line = window / LINES
    limits, lines = torch.tensor(TONAL_REACH, dtype=torch.float64).T.contiguous()
    here = torch.bucketize(torch.arange(window // 2 + 1) / bins_a_line, limits, right=True)
    reach: Tensor = (lines[here] * bins_a_line).round().long().clamp_min(2)
    return reach


def _crowd(barks: Tensor, reach: Tensor) -> int:
    """The most tones in half a Bark: no two of them are as near as the lower one's reach."""
    width = torch.searchsorted(barks, barks + DECIMATION_BARK) - torch.arange(len(barks))
    return int((width / (reach + 1)).ceil().max())


def _look_up(noise_db: Tensor, table: Tensor) -> Tensor:
    """What noise of levels `(frames, bands)` hides, `(frames, bins)`: linear between the table's levels."""
    bands, levels, bins = table.shape
    place = ((noise_db - LEVELS_DB[0]) / LEVEL_STEP_DB).clamp(0.0, levels - 1.001)
    low = place.floor()
    first = low.long() + levels * torch.arange(bands, device=table.device)
    share = (place - low).where(noise_db.isfinite(), 0.0)
    rest = (1.0 - share).where(noise_db.isfinite(), 0.0)
    return torch.nn.functional.embedding_bag(
        torch.cat([first, first + 1], dim=1),
        table.view(-1, bins),
        mode="sum",
        per_sample_weights=torch.cat([rest, share], dim=1),
    )


def _find_tonal(power: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
    """Frame and bin of the tonal maxima of `(frames, bins)`.

    They stand out by 7 dB from all bins within their reach, except those directly beside them.
    """
    bins, most = power.shape[1], max(tables.reaches)
    padded = torch.nn.functional.pad(power, (most, most))
    tonal = (power > padded[:, most - 1 : most - 1 + bins]) & (power >= padded[:, most + 1 : most + 1 + bins])
    # The first lines are the rest of the constant component; the last has no line beside it.
    tonal[:, :3], tonal[:, -1] = False, False
    needed = power * 10 ** (-TONAL_DB / 10)
    for reach, (start, end) in tables.reaches.items():
        highest = _window_max(padded[:, most + start - reach : most + end + reach], reach - 1)
        tonal[:, start:end] &= needed[:, start:end] >= highest[:, : end - start]
        tonal[:, start:end] &= needed[:, start:end] >= highest[:, reach + 2 :]
    frame, place = tonal.nonzero(as_tuple=True)
    return frame, place


def _window_max(rows: Tensor, size: int) -> Tensor:
    """The maximum of every `size` neighbours of `(rows, width)`: `(rows, width - size + 1)`."""
    span = 1
    while 2 * span <= size:
        rows = torch.maximum(rows[:, :-span], rows[:, span:])
        span *= 2
    rest = size - span
    return torch.maximum(rows[:, :-rest], rows[:, rest:]) if rest else rows


def _around(place: Tensor, reach: Tensor) -> Tensor:
    """The bins within the reach of each tone, `(tones, 2 most + 1)`; some are named more than once."""
    most = int(reach.max())
    offsets = torch.arange(-most, most + 1, device=place.device)
    own = reach[place][:, None]
    return (place[:, None] + offsets.clamp(-own, own)).clamp(0, len(reach) - 1)


def _decimate(frame: Tensor, bark: Tensor, db: Tensor, crowd: int) -> Tensor:
    """Which tones remain, `(tones,)` bool, in the order of frames and bins.

    From the strongest of a frame on, each removes the weaker ones less than half a Bark away.

    crowd: the most tones that half a Bark can hold.
    """
    places = torch.arange(len(frame), device=frame.device)[:, None]
    offsets = torch.arange(-crowd, crowd + 1, device=frame.device)
    beside = places + offsets
    inside = (offsets != 0) & (beside >= 0) & (beside < len(frame))
    beside = beside.clamp(0, max(len(frame) - 1, 0))
    near = inside & (frame[beside] == frame[:, None])
    near &= (bark[beside] - bark[:, None]).abs() < DECIMATION_BARK
    level = db[beside]
    stronger = near & ((level > db[:, None]) | ((level == db[:, None]) & (offsets < 0)))
    left = torch.ones_like(frame, dtype=torch.bool)
    kept = torch.zeros_like(left)
    while bool(left.any()):
        won = left & ~(stronger & left[beside]).any(dim=1)
        kept |= won
        left &= ~won & ~(near & won[beside]).any(dim=1)
    return kept
