"""Logarithmic spectrograms for classifiers, each clip by itself and differentiable down to the waveform.

A clip is centred and scaled as a whole, by one mean and one deviation over its own frames: the colour of a
sound stays. Without that a network hardly learns under strong noise, which lifts all of the logarithms and
narrows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from sottovoce.targets.adapters.unpadded_layers import inside, windows
from sottovoce.targets.zoo.mfcc import EPSILON, mel_filters

SAMPLE_RATE = 16_000
WINDOW = 400
HOP = 160
BINS = WINDOW // 2 + 1
# In nats squared; only digital silence varies less.
_LEAST_VARIANCE = 0.1


@final
class Spectrogram(nn.Module):
    """Waveforms `(batch, time)` at 16 kHz to log power `(batch, bands, frames)`, zero past a clip's end.

    Frames are the windows of 25 ms every 10 ms that lie wholly inside a clip.

    bands: triangles on the mel scale; None keeps the 201 bins of the Fourier transform, 40 Hz apart.
    """

    window: Tensor
    filters: Tensor | None

    def __init__(self, *, bands: int | None = None) -> None:
        super().__init__()
        filters = None
        if bands is not None:
            filters = mel_filters(
                bands=bands, bins=BINS, sample_rate=SAMPLE_RATE, low_hz=20.0, high_hz=SAMPLE_RATE / 2
            )
        self.register_buffer("window", torch.hann_window(WINDOW), persistent=False)
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The standardised log power, and how many frames each clip has, `(batch,)`."""
        frames = windows(lengths, WINDOW, HOP)
        logs = silence(self.log_power(waveforms), frames)
        centred = silence(logs - average(logs, frames).mean(dim=1)[:, None, None], frames)
        variance = average(centred.square(), frames).mean(dim=1)
        return centred / (variance + _LEAST_VARIANCE).sqrt()[:, None, None], frames

    def log_power(self, waveforms: Tensor) -> Tensor:
        """In nats, `(batch, bands, frames)`, padding included."""
        spectrum = torch.fft.rfft(waveforms.unfold(1, WINDOW, HOP) * self.window)
        # Not abs() ** 2: the squares have a gradient of zero at zero, the modulus has none.
        power = spectrum.real.square() + spectrum.imag.square()
        energies = power if self.filters is None else power @ self.filters
        return torch.log(energies + EPSILON).transpose(1, 2)


def begin(layers: Sequence[nn.Conv1d] | Sequence[nn.Conv2d]) -> None:
    """First weights that keep the size of what goes through rectifiers (He et al. 2015, eq. 10)."""
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def silence(hidden: Tensor, frames: Tensor) -> Tensor:
    """`hidden (batch, ..., frames)` with zeros past each clip's own frames `(batch,)`.

    Behind every layer this makes the end of a clip look as it does alone: the zeros a convolution pads with.
    """
    heard = inside(frames, hidden.shape[-1])
    return hidden * heard.reshape(len(hidden), *[1] * (hidden.ndim - 2), -1)


def average(hidden: Tensor, frames: Tensor) -> Tensor:
    """The mean over each clip's own frames; `hidden (batch, features, frames)` is zero past them."""
    return hidden.sum(dim=2) / frames[:, None]
