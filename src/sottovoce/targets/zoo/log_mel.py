"""Log-mel energies for recognisers, each clip by itself and differentiable down to the waveform."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from sottovoce.targets.adapters.unpadded_layers import inside, windows
from sottovoce.targets.zoo.mfcc import EPSILON, mel_filters

WINDOW = 400
HOP = 160
_FFT = 512
# About one deviation of the log energies of speech, in nats.
_SPREAD = 4.0


def count_frames(samples: Tensor) -> Tensor:
    """Windows of 25 ms every 10 ms that lie wholly inside clips of so many samples at 16 kHz, any shape."""
    return windows(samples, WINDOW, HOP)


@final
class LogMel(nn.Module):
    """Waveforms `(batch, time)` at 16 kHz to energies `(batch, frames, bands)`, zero past a clip's last.

    Each band loses its mean over the clip's own frames, and so the level and the colour of the channel.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, *, bands: int = 80) -> None:
        super().__init__()
        filters = mel_filters(
            bands=bands, bins=_FFT // 2 + 1, sample_rate=16_000, low_hz=20.0, high_hz=8_000.0
        )
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The energies, and how many frames each clip has, `(batch,)`."""
        spectrum = torch.fft.rfft(waveforms.unfold(1, WINDOW, HOP) * self.window, n=_FFT)
        # Not abs() ** 2: the squares have a gradient of zero at zero, the modulus has none.
        energies = (spectrum.real.square() + spectrum.imag.square()) @ self.filters
        logs = torch.log(energies + EPSILON)
        frames = count_frames(lengths)
        heard = inside(frames, logs.shape[1]).unsqueeze(2)
        mean = (logs * heard).sum(dim=1, keepdim=True) / frames[:, None, None]
        return ((logs - mean) / _SPREAD) * heard, frames
