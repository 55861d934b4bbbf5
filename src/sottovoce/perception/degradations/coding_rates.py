"""Codecs by their rate: MP3 by its bits, mu-law by its levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import SILENCE
from sottovoce.core.draws import Draws
from sottovoce.defenses.codecs import Mp3, MuLaw
from sottovoce.errors import InputError
from sottovoce.perception.degradations.degradation import Degradation, Range, straight_through

# Rates of layer III at full, half and quarter sample rates, in kbit/s (ISO 11172-3, 13818-3).
_FULL = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_HALF = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_ENCODER_GAIN = 0.95


@final
@dataclass(frozen=True, kw_only=True)
class Mp3Coding(Degradation):
    """MP3 at a constant bit rate, encoded and decoded, aligned; of logarithmic strength, most at the lowest.

    MP3 knows a few rates at each sample rate, 8 to 160 kbit/s at 16 kHz and 32 to 320 at 44.1 kHz: the
    nearest of them, by ratio, is taken. The encoder (LAME) turns everything down to 95 %; that is undone, so
    that the level says nothing of the rate. The gradient is the identity's. Works on the CPU.

    kbps: kbit/s asked for.
    """

    kbps: float | None = None

    range: ClassVar[Range] = Range(
        figure="kbps", unit="kbit/s", least=320.0, most=8.0, legal=(8.0, 320.0), log=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # Raises now where there is no encoder.
        Mp3()

    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        codec = Mp3(kbps=nearest_kbps(self.asked, batch.sample_rate))
        with torch.no_grad():
            heard = codec(batch, draws=draws).waveforms / _ENCODER_GAIN
        return straight_through(batch, heard)


@final
@dataclass(frozen=True, kw_only=True)
class MuLawCoding(Degradation):
    """Mu-law companding to a few levels, encoded and decoded; of logarithmic strength, least at most levels.

    The paper's "1 to 60 bits" are read as levels; 3 is the fewest that hold a sound and silence. There are as
    many above zero as below, an odd number in all: the nearest is taken, 59 for 60. They span the clip's own
    peak, so that a strength means the same for quiet and loud clips. The gradient is the identity's.

    levels: asked for.
    """

    levels: int | None = None

    range: ClassVar[Range] = Range(
        figure="levels", unit="levels", least=60.0, most=3.0, legal=(3, 65536), log=True
    )

    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        with torch.no_grad():
            samples = batch.waveforms.double()
            peak = samples.abs().amax(dim=1, keepdim=True).clamp_min(SILENCE)
            full = batch.with_waveforms(samples / peak)
            heard = MuLaw(levels=odd_levels(self.asked))(full, draws=draws).waveforms * peak
        return straight_through(batch, heard.to(batch.waveforms))


def odd_levels(levels: float) -> int:
    """The nearest odd number; the lower one of two."""
    return 2 * math.ceil((levels - 1) / 2 - 0.5) + 1


def nearest_kbps(kbps: float, sample_rate: int) -> int:
    """The bit rate of MP3 at a sample rate whose ratio to the one asked for is nearest to 1."""
    known: Sequence[int]
    if sample_rate in (32000, 44100, 48000):
        known = _FULL
    elif sample_rate in (16000, 22050, 24000):
        known = _HALF
    elif sample_rate in (8000, 11025, 12000):
        known = _HALF[:8]
    else:
        raise InputError(
            f"mp3 works at 8, 11.025, 12, 16, 22.05, 24, 32, 44.1 or 48 kHz, got clips at {sample_rate} Hz; "
            "resample them."
        )
    return min(known, key=lambda one: abs(math.log(one / kbps)))
