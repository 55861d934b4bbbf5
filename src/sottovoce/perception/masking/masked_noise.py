"""Sound given the spectrum of what a clip masks, cell by cell in time and frequency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.perception.masking.threshold import Masker

NORM = 8.0
"""How cells add up to a size: from 2, where each counts by its power, to infinity, where the highest alone
does. Ears come near 4; a higher one found more (see docs/decisions/0017-audible.md), and the highest would
spend the budget on cells where the gradient is mere rounding."""


@final
@dataclass(frozen=True)
class MaskedSpectrum:
    """What clips mask.

    power: `(batch, frames, bins)`, the masking threshold of each clip over its own largest cell.
    """

    masker: Masker
    power: Tensor

    @classmethod
    def of(cls, clean: AudioBatch) -> MaskedSpectrum:
        masker = Masker(clean.sample_rate)
        power = masker.threshold(clean).power.transpose(1, 2)
        return cls(masker, power / power.amax(dim=(1, 2), keepdim=True))

    def climb(self, gradient: Tensor, clean: AudioBatch) -> Tensor:
        """The direction that climbs `(batch, time)` fastest for what rises over the threshold.

        The size of D(f, t) is taken as the q-norm of its cells, each over the root of its threshold T. The
        steepest direction has the phases of the gradient G and the magnitudes T^(1/2) |T^(1/2) G|^(1/(q-1)):
        nearly as much over the threshold in one cell as in the next.
        """
        root = self.power.sqrt()
        slopes = self._spectrum(gradient) * root
        size = slopes.abs()
        # A share of the largest, because a power of a gradient of 1e-30 would vanish in single precision.
        share = size / size.amax(dim=(1, 2), keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)
        return self._sound(slopes.sgn() * share ** (1.0 / (NORM - 1.0)) * root, clean)

    def noise(self, clean: AudioBatch, draws: Draws) -> Tensor:
        """Noise with the spectrum of the threshold, `(batch, time)`."""
        return self._sound(self._spectrum(draws.normal(clean)) * self.power.sqrt(), clean)

    def _spectrum(self, rows: Tensor) -> Tensor:
        """`(batch, frames, bins)`, in the frames of the threshold."""
        window, hop = self.masker.window, self.masker.hop
        after = self._width - (window - hop) - rows.shape[1]
        padded = torch.nn.functional.pad(rows, (window - hop, after))
        spectrum: Tensor = torch.fft.rfft(padded.unfold(1, window, hop) * self._hann(rows))
        return spectrum

    def _sound(self, spectrum: Tensor, clean: AudioBatch) -> Tensor:
        """Frames put together again under the same window, `(batch, time)`."""
        window, hop = self.masker.window, self.masker.hop
        frames = torch.fft.irfft(spectrum, window) * self._hann(clean.waveforms)
        summed = torch.nn.functional.fold(
            frames.transpose(1, 2), (1, self._width), kernel_size=(1, window), stride=(1, hop)
        )
        first = window - hop
        # Squared Hann windows a quarter apart add up to 3/2.
        return clean.with_waveforms(summed[:, 0, 0, first : first + clean.waveforms.shape[1]] / 1.5).waveforms

    @property
    def _width(self) -> int:
        """Samples from the start of the first frame to the end of the last."""
        return (self.power.shape[1] - 1) * self.masker.hop + self.masker.window

    def _hann(self, like: Tensor) -> Tensor:
        return torch.hann_window(self.masker.window, device=like.device, dtype=like.dtype)
