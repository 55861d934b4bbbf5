"""How people hear, as far as masking goes: published curves over frequency, Bark and level.

The constants are those of psychoacoustic model 1 (ISO/IEC 11172-3, Annex D.1).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Spreading = Literal["iso", "two-slope"]

LOWEST_HZ = 20.0
# Upper edges of the critical bands (Zwicker 1961).
CRITICAL_BANDS_HZ = (
    *(100, 200, 300, 400, 510, 630, 770, 920, 1080, 1270, 1480, 1720, 2000),
    *(2320, 2700, 3150, 3700, 4400, 5300, 6400, 7700, 9500, 12000, 15500),
)
DECIBEL = math.log(10.0) / 10.0
"""A decibel of power, as a natural logarithm."""


def bark(frequency_hz: Tensor) -> Tensor:
    """Critical-band rate of a frequency (Zwicker & Terhardt 1980)."""
    return 13.0 * (0.00076 * frequency_hz).atan() + 3.5 * (frequency_hz / 7500.0).square().atan()


def quiet_db(frequency_hz: Tensor) -> Tensor:
    """Threshold in quiet (Terhardt 1979). Below 20 Hz, where the formula has no end, that of 20 Hz."""
    khz = frequency_hz.clamp_min(LOWEST_HZ) / 1000.0
    return 3.64 * khz**-0.8 - 6.5 * (-0.6 * (khz - 3.3).square()).exp() + 0.001 * khz**4


def masking_offset_db(bark: Tensor, *, tonal: bool) -> Tensor:
    """How far below a masker its threshold starts: a tone masks less than noise of the same level."""
    return -6.025 - 0.275 * bark if tonal else -2.025 - 0.175 * bark


def spread_db(distance: Tensor, masker_db: Tensor, spreading: Spreading = "iso") -> Tensor:
    """How far the threshold falls at a `distance` in Bark, that of the masked less that of the masker.

    In the standard the lower side falls faster the louder the masker is, the upper side slower from 1 Bark
    on, and nothing is masked 3 Bark below or 8 Bark above.
    """
    above, below = distance.relu(), (-distance).relu()
    level = level_term(masker_db, spreading)
    if spreading == "two-slope":
        return 0.37 * level * above - 27.0 * (above + below)
    upper = 0.15 * level * (above - 1.0).relu() - 17.0 * above
    lower = -(0.4 * level + 6.0) * below.clamp_max(1.0) - 17.0 * (below - 1.0).relu()
    return (upper + lower).masked_fill((below > 3.0) | (above >= 8.0), -torch.inf)


def level_term(masker_db: Tensor, spreading: Spreading = "iso") -> Tensor:
    """The function of a masker's level in which `spread_db` is linear."""
    return masker_db if spreading == "iso" else (masker_db - 40.0).relu()


def decibels(power: Tensor) -> Tensor:
    """Power in dB; zero gives a large negative number."""
    return 10.0 * power.clamp_min(torch.finfo(power.dtype).tiny).log10()
