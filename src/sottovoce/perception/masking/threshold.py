"""What a clip hides: the global masking threshold of psychoacoustic model 1 (ISO/IEC 11172-3, Annex D.1).

Where the spectrum of a perturbation stays below the threshold of the clip, the clip masks it (Qin et al.
2019). The threshold depends on the clean clip alone and is a constant of an attack; the spectrum of the
perturbation has a gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import SILENCE
from sottovoce.errors import InputError
from sottovoce.perception.masking.hearing_curves import Spreading, decibels
from sottovoce.perception.masking.maskers import Maskers, Tables, find_maskers, make_tables, spread_maskers

PEAK_DB = 96.0
"""The level that the strongest cell of a clip is said to have."""
WINDOW_SECONDS = 0.128


@final
@dataclass(frozen=True)
class MaskingThreshold:
    """What each clip masks.

    power: `(batch, bins, frames)`, in the unit in which the strongest cell of a clip has 10^9.6 (96 dB).
    peak: `(batch,)`, the power of that strongest cell on the scale of the waveform.
    frames: `(batch,)` int64, how many of the frames belong to each clip.
    """

    power: Tensor
    peak: Tensor
    frames: Tensor

    @property
    def db(self) -> Tensor:
        """`(batch, bins, frames)`."""
        return decibels(self.power)

    @property
    def inside(self) -> Tensor:
        """`(batch, 1, frames)` bool: which frames belong to each clip."""
        places = torch.arange(self.power.shape[2], device=self.power.device)
        return (places < self.frames[:, None])[:, None]

    def select(self, rows: Tensor) -> MaskingThreshold:
        """The thresholds of some of the clips, given by place, cut to the longest of them."""
        frames = self.frames[rows]
        return MaskingThreshold(self.power[rows, :, : int(frames.max())], self.peak[rows], frames)


@final
@dataclass(frozen=True)
class Excess:
    """How far a perturbation rises above what the clip masks, each `(batch,)`, over a clip's own cells.

    share: of cells above the threshold. mean_db: over all cells, those below counting 0. max_db: the worst
    cell, below 0 where all is masked.
    """

    share: Tensor
    mean_db: Tensor
    max_db: Tensor


@final
@dataclass(frozen=True)
class Masker:
    """The masking threshold of clips by psychoacoustic model 1 (ISO/IEC 11172-3), and what exceeds it.

    Frames of 128 ms (2048 samples at 16 kHz) under a Hann window start every 32 ms. The first start before
    the clip and the last end after it, as if it lay in silence: every sample counts alike.

    sample_rate: of the clips, in Hz, 500 or more.
    spreading: how a masker falls off with the distance in Bark: "iso", the four pieces of the standard, or
        "two-slope", the simpler function of Lin & Abdulla (2015) that Qin et al. use.

    >>> masker, clips = sv.ears.Masker(16000), sv.testing.example_clips(16000)
    >>> threshold = masker.threshold(clips)
    >>> masker.excess(1e-6 * clips.waveforms, threshold).share.tolist()  # 120 dB below the clip
    [0.0, 0.0, 0.0, 0.0]
    """

    sample_rate: int
    spreading: Spreading = "iso"

    def __post_init__(self) -> None:
        if self.sample_rate < 500:
            raise InputError(
                f"masking needs clips at 500 Hz or more, got {self.sample_rate} Hz; a sample rate is in "
                "samples per second."
            )
        if self.spreading not in ("iso", "two-slope"):
            raise InputError(f"spreading: expected 'iso' or 'two-slope', got {self.spreading!r}.")

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return round(WINDOW_SECONDS * self.sample_rate / 4)

    @property
    def window(self) -> int:
        """Samples of a frame."""
        return 4 * self.hop

    def frames(self, lengths: Tensor) -> Tensor:
        """Frames that overlap each clip, `(batch,)`."""
        return (lengths + self.window - 1) // self.hop

    def power(self, waveforms: Tensor) -> Tensor:
        """`(batch, time)` to `(batch, bins, frames)`, differentiable, on the scale of the waveform.

        The square root of 8/3 on the amplitude makes up for the energy that a Hann window takes.
        """
        width = waveforms.shape[1]
        before = self.window - self.hop
        count = int(self.frames(torch.tensor(width)))
        after = (count - 1) * self.hop + self.window - before - width
        padded = torch.nn.functional.pad(waveforms, (before, after))
        gain = math.sqrt(8.0 / 3.0) / self.window
        hann = gain * _hann(self.window, waveforms.device, waveforms.dtype)
        spectrum = torch.stft(
            padded, self.window, self.hop, window=hann, center=False, onesided=True, return_complex=True
        )
        return spectrum.real.square() + spectrum.imag.square()

    def threshold(self, clean: AudioBatch) -> MaskingThreshold:
        """What each clip masks; the level is set by the strongest cell of the clip itself."""
        if clean.sample_rate != self.sample_rate:
            raise InputError(
                f"expected clips at {self.sample_rate} Hz, got {clean.sample_rate} Hz; make a masker for "
                "their rate."
            )
        frames = self.frames(clean.lengths)
        with torch.no_grad():
            power = self.power(clean.waveforms).transpose(1, 2)
            # A clip of zeros has no level; a tone of half a 16-bit step, of power amplitude^2 / 6, is put in.
            peak = power.amax(dim=(1, 2)).clamp_min(SILENCE**2 / 6.0)
            power = power * (10 ** (PEAK_DB / 10) / peak)[:, None, None]
            # Frames of the padding are silent, and hide what nobody hears.
            masked = self.spread(self.maskers(power.flatten(0, 1))).view_as(power)
        return MaskingThreshold(masked.transpose(1, 2), peak, frames)

    def maskers(self, power: Tensor) -> Maskers:
        """Tonal and noise maskers of frames `(frames, bins)`, on the scale of `MaskingThreshold.power`."""
        return find_maskers(power, self._tables(power))

    def spread(self, maskers: Maskers) -> Tensor:
        """The power below which nothing is heard, `(frames, bins)`: what each masker hides, and the quiet."""
        return spread_maskers(maskers, self._tables(maskers.noise_db))

    def perturbation(self, delta: Tensor, threshold: MaskingThreshold) -> Tensor:
        """Spectrum of a perturbation `(batch, time)`, beside the threshold's: `(batch, bins, frames)`."""
        return self.power(delta) * (10 ** (PEAK_DB / 10) / threshold.peak)[:, None, None]

    def exceedance_loss(self, delta: Tensor, threshold: MaskingThreshold) -> Tensor:
        """Mean power above the threshold over a clip's own cells, `(batch,)` (Qin et al. 2019, eq. 6)."""
        # Past a clip's end the perturbation has no power and adds nothing.
        above = (self.perturbation(delta, threshold) - threshold.power).relu()
        return above.sum(dim=(1, 2)) / (threshold.frames * above.shape[1])

    def excess(self, delta: Tensor, threshold: MaskingThreshold) -> Excess:
        """How far a perturbation `(batch, time)` rises above what is masked."""
        with torch.no_grad():
            over = decibels(self.perturbation(delta, threshold)) - threshold.db
            over = over.masked_fill(~threshold.inside, -torch.inf)
            cells = threshold.frames * over.shape[1]
            above = over.relu()
            return Excess(
                share=(over > 0).sum(dim=(1, 2)) / cells,
                mean_db=above.sum(dim=(1, 2)) / cells,
                max_db=over.amax(dim=(1, 2)),
            )

    def _tables(self, like: Tensor) -> Tables:
        return make_tables(self.sample_rate, self.window, self.spreading, like.device, like.dtype)


@lru_cache(maxsize=4)
def _hann(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.hann_window(size, dtype=torch.float64).to(device, dtype)
