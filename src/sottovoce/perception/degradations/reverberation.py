"""Reverberation by its direct-to-reverberant ratio (DRR) and its decay time (RT60)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.perception.degradations.degradation import Degradation, Range, at_level_of
from sottovoce.perception.degradations.recorded_files import list_files, pick_file, read_recording

DIRECT_SECONDS = 0.0025
"""What comes so soon after the first sound counts as direct."""
USUAL_RT60_SECONDS = (0.2, 1.0)
"""Decay times of rooms that are drawn where only the ratio is asked for."""
NEAR_DRR_DB, NEAR_RT60_SECONDS = 20.0, 0.05
"""Where only the decay time is asked for: the ratio at this time. Longer tails start as loud as this one, so
that the ratio falls by 3 dB with every doubling: what stretching a response in time does to it."""


class Reverb(Degradation):
    """A clip in a room. A subclass gives the responses, which begin with the direct path at sample 0.

    The wet clip has the level (RMS) of the dry one, and ends where that ended.
    """

    random = True

    @abstractmethod
    def responses(self, batch: AudioBatch, draws: Draws) -> Tensor:
        """One response a clip, as much of it as the clips last, `(batch, time)`."""

    @final
    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        width = batch.waveforms.shape[1]
        size = next_fast_len(2 * width - 1, real=True)
        spectrum = torch.fft.rfft(self.responses(batch, draws), n=size)
        wet = torch.fft.irfft(torch.fft.rfft(batch.waveforms.double(), n=size) * spectrum, n=size)
        return at_level_of(batch, wet[:, :width])


@final
@dataclass(frozen=True, kw_only=True)
class ReverbRatio(Reverb):
    """Reverberation with an exact direct-to-reverberant ratio (DRR), at the level (RMS) of the clip.

    strength: 0 to 100, linear in dB: a DRR of 65 to -27 dB; 50 where neither this nor drr_db is given.
    drr_db: energy of the direct path (the first 2.5 ms) over that of the tail, in dB.
    rt60_seconds: decay time of the synthetic tail in s; where it is not given, each clip draws 0.2 to 1 s.
    file: path of a recorded impulse response, or of a folder of which each clip gets one. What lies before
        its peak is cut off and its tail is scaled to the ratio; its decay stays.

    >>> clips = sv.testing.example_clips(16000)
    >>> wet = sv.defenses.ReverbRatio(drr_db=0, rt60_seconds=0.5)(clips, draws=sv.Draws(0))
    >>> bool(torch.allclose(wet.length_l2, clips.length_l2))  # the level stays
    True
    """

    drr_db: float | None = None
    rt60_seconds: float | None = None
    file: str | None = None

    range: ClassVar[Range] = Range(figure="drr_db", unit="dB", least=65.0, most=-27.0, legal=(-120.0, 120.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rt60_seconds is not None:
            _check_rt60(self.rt60_seconds)
        if self.file is not None and self.rt60_seconds is not None:
            raise InputError(
                f"file and rt60_seconds exclude each other, got {self.file!r} and {self.rt60_seconds}; drop "
                "one: a recorded response keeps its own decay."
            )
        if self.file is not None:
            list_files(self.file)

    def responses(self, batch: AudioBatch, draws: Draws) -> Tensor:
        if self.file is not None:
            return _recorded(batch, draws, self.file, self.asked)
        if self.rt60_seconds is not None:
            seconds = torch.full((len(batch), 1), self.rt60_seconds, device=batch.device)
        else:
            low, high = USUAL_RT60_SECONDS
            seconds = low * (high / low) ** draws.turn("rt60").fractions(batch, 1)
        return synthetic(batch, draws, seconds, self.asked)


@final
@dataclass(frozen=True, kw_only=True)
class ReverbTime(Reverb):
    """Reverberation with an exact decay time (RT60), at the level (RMS) of the clip.

    strength: 0 to 100, logarithmic: 0.05 to 8 s; 50 where neither this nor rt60_seconds is given.
    rt60_seconds: the time in s in which the synthetic tail decays by 60 dB.
    drr_db: energy of the direct path over that of the tail in dB; where it is not given, 20 dB at 0.05 s and
        3 dB less with every doubling of the time, so that the tail starts equally loud.

    >>> clips = sv.testing.example_clips(16000)
    >>> wet = sv.defenses.ReverbTime(rt60_seconds=0.5)(clips, draws=sv.Draws(0))
    >>> bool(torch.allclose(wet.length_l2, clips.length_l2))  # the level stays
    True
    """

    rt60_seconds: float | None = None
    drr_db: float | None = None

    range: ClassVar[Range] = Range(
        figure="rt60_seconds", unit="s", least=0.05, most=8.0, legal=(0.005, 60.0), log=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drr_db is not None and not math.isfinite(self.drr_db):
            raise InputError(f"drr_db: expected a finite number of decibels, got {self.drr_db}; 10 is usual.")

    def responses(self, batch: AudioBatch, draws: Draws) -> Tensor:
        drr_db = self.drr_db
        if drr_db is None:
            drr_db = NEAR_DRR_DB - 10.0 * math.log10(self.asked / NEAR_RT60_SECONDS)
        seconds = torch.full((len(batch), 1), self.asked, device=batch.device)
        return synthetic(batch, draws, seconds, drr_db)


def synthetic(batch: AudioBatch, draws: Draws, rt60_seconds: Tensor, drr_db: float) -> Tensor:
    """Responses `(batch, time)` of decay times `(batch, 1)`: a direct path of 1, then an exponential tail.

    The tail is white: +1 or -1 at random under its envelope, so that its energy decays exactly and both
    figures hold for each response and not only on average.
    """
    width, late = batch.waveforms.shape[1], _late(batch.sample_rate)
    response = torch.zeros(len(batch), width, dtype=torch.float64, device=batch.device)
    response[:, 0] = 1.0
    if width <= late:
        return response
    # The amplitude falls by 60 dB, a factor of 1000, in the decay time.
    fall = math.log(1000.0) / (rt60_seconds.double() * batch.sample_rate)
    time = torch.arange(width - late, device=batch.device)
    # Energy of the tail without its end, as a geometric series.
    energy = 1.0 / -torch.expm1(-2.0 * fall)
    level = (10.0 ** (-drr_db / 10.0) / energy).sqrt()
    signs = _signs(batch, draws, width - late)
    response[:, late:] = level * torch.exp(-fall * time) * signs
    return response


def _signs(batch: AudioBatch, draws: Draws, count: int) -> Tensor:
    """+1 or -1, `(batch, count)` float64; a longer row begins with the shorter one."""
    rows = [np.frombuffer(draws.generator(name).bytes(-(-count // 8)), np.uint8) for name in batch.ids]
    bits = np.unpackbits(np.stack(rows), axis=1)[:, :count]
    return torch.from_numpy(bits * 2.0 - 1.0).to(batch.device)


def _recorded(batch: AudioBatch, draws: Draws, file: str, drr_db: float) -> Tensor:
    width, late = batch.waveforms.shape[1], _late(batch.sample_rate)
    rows = torch.zeros(len(batch), width, dtype=torch.float64)
    for row, name in enumerate(batch.ids):
        path = pick_file(file, draws.generator(name).random())
        sound = read_recording(path, batch.sample_rate)
        peak = int(np.abs(sound).argmax())
        response = sound[peak:] / sound[peak]
        direct, tail = float((response[:late] ** 2).sum()), float((response[late:] ** 2).sum())
        if not tail > 0:
            raise InputError(
                f"{path}: expected an impulse response with a tail after its first 2.5 ms, got none; name "
                "another file."
            )
        response[late:] *= math.sqrt(direct / tail * 10.0 ** (-drr_db / 10.0))
        rows[row, : len(response)] = torch.from_numpy(response[:width])
    return rows.to(batch.device)


def _late(sample_rate: int) -> int:
    """The first sample of the tail."""
    return max(1, round(DIRECT_SECONDS * sample_rate))


def _check_rt60(seconds: float) -> None:
    low, high = ReverbTime.range.legal
    if not low <= seconds <= high:
        raise InputError(f"rt60_seconds: expected {low:g} to {high:g} s, got {seconds}; 0.5 is usual.")
