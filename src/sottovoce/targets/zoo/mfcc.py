"""Mel-frequency cepstral coefficients, differentiable down to the waveform.

Each clip is framed, windowed and transformed on its own, so an item gives the same image alone and in any
batch. The logarithm is smooth at zero: `log(energy + EPSILON)`, with EPSILON some 25 dB below the energy of
the faintest recordings, keeps the gradient useful on quiet clips and finite on digital silence.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

EPSILON = 1e-6


def mel_from_hz(frequency_hz: float) -> float:
    """Pitch in mel on the HTK scale: 2595 log10(1 + f / 700)."""
    return 2595.0 * math.log10(1.0 + frequency_hz / 700.0)


def hz_from_mel(pitch_mel: Tensor) -> Tensor:
    """Frequency in Hz of pitches on the HTK mel scale, any shape."""
    return 700.0 * (10.0 ** (pitch_mel / 2595.0) - 1.0)


def mel_filters(*, bands: int, bins: int, sample_rate: int, low_hz: float, high_hz: float) -> Tensor:
    """Triangles of height one, evenly spaced in mel: `(bins, bands)` weights on a power spectrum."""
    pitches = torch.linspace(mel_from_hz(low_hz), mel_from_hz(high_hz), bands + 2, dtype=torch.float64)
    corners_hz = hz_from_mel(pitches)
    left, peak, right = corners_hz[:-2], corners_hz[1:-1], corners_hz[2:]
    bin_hz = torch.linspace(0.0, sample_rate / 2, bins, dtype=torch.float64).unsqueeze(1)
    rising = (bin_hz - left) / (peak - left)
    falling = (right - bin_hz) / (right - peak)
    return torch.minimum(rising, falling).clamp(min=0.0).float()


def cosine_basis(*, inputs: int, outputs: int) -> Tensor:
    """The orthonormal discrete cosine transform of type II as a matrix `(inputs, outputs)`."""
    position = torch.arange(inputs, dtype=torch.float64).unsqueeze(1) + 0.5
    order = torch.arange(outputs, dtype=torch.float64)
    basis = torch.cos(math.pi / inputs * position * order) * math.sqrt(2.0 / inputs)
    basis[:, 0] /= math.sqrt(2.0)
    return basis.float()


class Mfcc(nn.Module):
    """Waveforms `(batch, time)` in [-1, 1] to cepstral images `(batch, frames, coefficients)`."""

    window: Tensor
    filters: Tensor
    basis: Tensor

    def __init__(
        self,
        *,
        sample_rate: int = 16_000,
        window_samples: int = 512,
        hop_samples: int = 160,
        bands: int = 40,
        coefficients: int = 40,
        low_hz: float = 20.0,
        high_hz: float = 8_000.0,
    ) -> None:
        super().__init__()
        self.window_samples = window_samples
        self.hop_samples = hop_samples
        filters = mel_filters(
            bands=bands,
            bins=window_samples // 2 + 1,
            sample_rate=sample_rate,
            low_hz=low_hz,
            high_hz=high_hz,
        )
        basis = cosine_basis(inputs=bands, outputs=coefficients)
        self.register_buffer("window", torch.hann_window(window_samples), persistent=False)
        self.register_buffer("filters", filters, persistent=False)
        self.register_buffer("basis", basis, persistent=False)

    def power(self, waveforms: Tensor) -> Tensor:
        """Squared magnitude of each whole frame's spectrum, `(batch, frames, bins)`."""
        spectrum = torch.stft(
            waveforms,
            n_fft=self.window_samples,
            hop_length=self.hop_samples,
            window=self.window,
            center=False,
            return_complex=True,
        )
        # Not abs() ** 2: the squares have a gradient of zero at zero, the modulus has none.
        return (spectrum.real.square() + spectrum.imag.square()).transpose(1, 2)

    def forward(self, waveforms: Tensor) -> Tensor:
        energies = self.power(waveforms) @ self.filters
        return torch.log(energies + EPSILON) @ self.basis
