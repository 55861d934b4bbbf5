"""An ear that asks what the clip masks: heard is what rises above the masking threshold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from sottovoce.core.batch import AudioBatch
from sottovoce.perception.ears.auditory import pool_over_time
from sottovoce.perception.ears.ear import Ear, check_pair
from sottovoce.perception.masking.hearing_curves import CRITICAL_BANDS_HZ, Spreading
from sottovoce.perception.masking.threshold import Masker

EXPONENT = 4.0
"""Steepness of detection over amplitude: from P = 0.1 to 0.9 within 7 dB (Green & Swets 1966: 6 to 8 dB)."""
LOOKS = 3
"""Frames of 128 ms every 32 ms that are averaged: about the 0.2 s over which hearing adds up power."""


@final
@dataclass(frozen=True, kw_only=True)
class MaskingEar(Ear):
    """What rises above the masking threshold of the clean clip is heard (ISO 11172-3, model 1).

    The distance is on a scale of amplitude: 1 at the threshold, where half of all listeners hear it, and 10
    for the same sound 20 dB above. In each critical band the power of the difference over the threshold adds
    up. Over bands the squares add up, so that n bands are heard at a power lower by the square root of n
    (Green 1958). Over time it is pooled as in the auditory model.

    The threshold counts as a constant: the gradient to either clip is that of their difference. The level is
    set by the clean clip, whose strongest cell is taken to have 96 dB: other than the auditory model, this
    ear turns up a soft clip. A mere shift or a change of phase counts as added sound.

    spreading: how masking falls off over frequency: "iso" or "two-slope", see `Masker`.

    >>> clean = sv.testing.example_clips(16000)
    >>> louder = clean.with_waveforms(1.5 * clean.waveforms)
    >>> quieter = clean.with_waveforms(1.05 * clean.waveforms)  # a tenth of that change
    >>> ear = sv.ears.MaskingEar()
    >>> (ear.distance(clean, louder) / ear.distance(clean, quieter)).round().tolist()
    [10.0, 10.0, 10.0, 10.0]
    """

    name: ClassVar[str] = "masking"
    title: ClassVar[str] = "masking threshold"

    spreading: Spreading = "iso"

    def __post_init__(self) -> None:
        Masker(16000, self.spreading)

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        """`(batch,)`, gradient to both clips by way of their difference."""
        check_pair(clean, changed)
        masker = Masker(clean.sample_rate, self.spreading)
        threshold = masker.threshold(clean)
        delta = clean.with_waveforms(changed.waveforms - clean.waveforms).waveforms
        over = masker.perturbation(delta, threshold) / threshold.power
        # Squares of what rises 180 dB above silence leave float32.
        power = (_bands(masker, over.device, over.dtype) @ over).masked_fill(~threshold.inside, 0.0).double()
        smooth = avg_pool1d(pad(power, (LOOKS // 2, LOOKS // 2)), LOOKS, 1)
        evidence = (smooth ** (EXPONENT / 2)).sum(dim=1)
        return pool_over_time(evidence, threshold.inside[:, 0], EXPONENT).to(over.dtype)

    def probability(self, distance: Tensor) -> Tensor:
        return 1.0 - torch.exp2(-(distance**EXPONENT))


@lru_cache(maxsize=8)
def _bands(masker: Masker, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`(bands, bins)`: 1 where a bin lies in a critical band."""
    bins_hz = torch.arange(masker.window // 2 + 1) * (masker.sample_rate / masker.window)
    band = torch.bucketize(bins_hz, torch.tensor(CRITICAL_BANDS_HZ, dtype=bins_hz.dtype), right=True)
    return torch.nn.functional.one_hot(band, len(CRITICAL_BANDS_HZ) + 1).T.to(device, dtype)
