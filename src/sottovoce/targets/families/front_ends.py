"""Front ends of published models, differentiable down to the waveform.

Each turns waveforms `(batch, time)` into what a model was trained on, every clip by itself: an item gives the
same features alone and in any batch. Constants are those of the published feature extractors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor, nn

KALDI_WINDOW = 400
KALDI_HOP = 160
_KALDI_FFT = 512
_KALDI_LOW_HZ = 20.0
_KALDI_PREEMPHASIS = 0.97
_KALDI_FLOOR = 2.0**-23
_KALDI_RATE = 16_000
_KALDI_PEAK = 2.0**15
_POVEY_POWER = 0.85
# Bands of digital silence do not vary; those of any sound vary by far more than this.
_SILENT_VARIANCE = 1e-10
_UNIT_EPSILON = 1e-7
_WHISPER_HIGH_HZ = 8_000.0
_WHISPER_FLOOR = 1e-10
_WHISPER_DECADES = 8.0


class FrontEnd(nn.Module, ABC):
    """From waveforms to the input of a model."""

    fixed: ClassVar[bool]
    """Whether clips of every length become inputs of one size, so that they can share a run of the model."""
    shortest: int = 1
    """The fewest samples that give an input at all."""
    longest: int | None = None
    """The most samples that are heard; what comes later is cut off. None: all are."""

    @abstractmethod
    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        """Features of clips `(batch, time)` that are zero past their `lengths (batch,)` in samples."""


@final
class RawWaveform(FrontEnd):
    """The waveform itself `(batch, time)`, as wav2vec 2.0 and its relatives take it.

    normalise: shift and scale each clip, over its own length, to zero mean and unit variance.
    """

    fixed = False

    def __init__(self, *, normalise: bool) -> None:
        super().__init__()
        self.normalise = normalise

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        if not self.normalise:
            return waveforms
        samples = lengths.to(waveforms)[:, None]
        padding = torch.arange(waveforms.shape[1], device=waveforms.device) >= lengths[:, None]
        mean = waveforms.sum(dim=1, keepdim=True) / samples
        centred = (waveforms - mean).masked_fill(padding, 0.0)
        variance = centred.square().sum(dim=1, keepdim=True) / samples
        return centred / (variance + _UNIT_EPSILON).sqrt()


@final
class KaldiFilterbank(FrontEnd):
    """Kaldi's log-mel energies, `(batch, frames, bands)`, at 16 kHz: Audio Spectrogram Transformer's input.

    Each frame of 25 ms loses its mean, is pre-emphasised and windowed; frames are 10 ms apart and lie wholly
    inside the clip. Missing frames are zeros, frames past `frames` are cut.

    mean, spread: the energies become (energy - mean) / spread. The published scale is twice the deviation.
    """

    fixed = True
    shortest = KALDI_WINDOW
    window: Tensor
    filters: Tensor

    def __init__(
        self, *, bands: int = 128, frames: int = 1024, mean: float = 0.0, spread: float = 1.0
    ) -> None:
        super().__init__()
        self.frames = frames
        self.mean = mean
        self.spread = spread
        self.longest = KALDI_WINDOW + KALDI_HOP * frames - 1
        window = torch.hann_window(KALDI_WINDOW, periodic=False, dtype=torch.float64)
        self.register_buffer("window", window.float(), persistent=False)
        self.register_buffer("filters", kaldi_filters(bands), persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        frames = waveforms.unfold(1, KALDI_WINDOW, KALDI_HOP)[:, : self.frames]
        logs = _kaldi_logs(frames, self.window.to(waveforms), self.filters.to(waveforms))
        logs = logs.masked_fill(_missing_frames(lengths, logs), 0.0)
        logs = nn.functional.pad(logs, (0, 0, 0, self.frames - logs.shape[1]))
        return (logs - self.mean) / self.spread


@final
class KaldiNormalised(FrontEnd):
    """Kaldi's log-mel energies of 16-bit samples, `(batch, frames, bands)`, at 16 kHz: Speech2Text's input.

    Frames are those of `KaldiFilterbank`, in Povey's window; zeros past a clip's own.

    centre, scale: shift each band to zero mean, and scale it to unit variance, over the clip's frames.
    """

    fixed = False
    # One frame has no variance.
    shortest = KALDI_WINDOW + KALDI_HOP
    window: Tensor
    filters: Tensor

    def __init__(self, *, bands: int = 80, centre: bool = True, scale: bool = True) -> None:
        super().__init__()
        self.centre = centre
        self.scale = scale
        window = torch.hann_window(KALDI_WINDOW, periodic=False, dtype=torch.float64) ** _POVEY_POWER
        self.register_buffer("window", window.float(), persistent=False)
        self.register_buffer("filters", kaldi_filters(bands), persistent=False)

    def frames(self, lengths: Tensor) -> Tensor:
        """How many frames each clip has, `(batch,)`."""
        return 1 + (lengths - KALDI_WINDOW).div(KALDI_HOP, rounding_mode="floor")

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        frames = (_KALDI_PEAK * waveforms).unfold(1, KALDI_WINDOW, KALDI_HOP)
        logs = _kaldi_logs(frames, self.window.to(waveforms), self.filters.to(waveforms))
        missing = _missing_frames(lengths, logs)
        counts = self.frames(lengths).to(logs)[:, None, None]
        mean = logs.masked_fill(missing, 0.0).sum(dim=1, keepdim=True) / counts
        centred = (logs - mean).masked_fill(missing, 0.0)
        features = centred if self.centre else logs.masked_fill(missing, 0.0)
        if self.scale:
            variance = centred.square().sum(dim=1, keepdim=True) / counts
            features = features / (variance + _SILENT_VARIANCE).sqrt()
        return features


@final
class WhisperLogMel(FrontEnd):
    """Whisper's log-mel spectrogram, `(batch, bands, frames)`.

    Clips are padded with silence to `seconds`, or cut there, and what lies more than 80 dB under a clip's
    loudest point is raised to that level.
    """

    fixed = True
    window: Tensor
    filters: Tensor

    def __init__(
        self,
        *,
        bands: int = 80,
        seconds: int = 30,
        sample_rate: int = 16_000,
        fft_samples: int = 400,
        hop_samples: int = 160,
    ) -> None:
        super().__init__()
        self.samples = self.longest = seconds * sample_rate
        self.fft_samples = fft_samples
        self.hop_samples = hop_samples
        filters = slaney_filters(bands, fft_samples // 2 + 1, sample_rate, _WHISPER_HIGH_HZ)
        self.register_buffer("window", torch.hann_window(fft_samples), persistent=False)
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        # A negative pad cuts.
        waveforms = nn.functional.pad(waveforms, (0, self.samples - waveforms.shape[1]))
        spectrum = torch.stft(
            waveforms,
            n_fft=self.fft_samples,
            hop_length=self.hop_samples,
            window=self.window.to(waveforms),
            return_complex=True,
        )
        # The last frame is centred on the end of the clip; Whisper leaves it out.
        energies = self.filters.to(waveforms).T @ _power(spectrum[..., :-1])
        logs = energies.clamp_min(_WHISPER_FLOOR).log10()
        loudest = logs.amax(dim=(1, 2), keepdim=True)
        return (torch.maximum(logs, loudest - _WHISPER_DECADES) + 4.0) / 4.0


def _kaldi_logs(frames: Tensor, window: Tensor, filters: Tensor) -> Tensor:
    """Log-mel energies `(batch, frames, bands)` of frames `(batch, frames, window)`."""
    frames = frames - frames.mean(dim=2, keepdim=True)
    # Kaldi lets the sample before a frame be a copy of the frame's first one.
    before = torch.cat([frames[..., :1], frames[..., :-1]], dim=2)
    spectrum = torch.fft.rfft((frames - _KALDI_PREEMPHASIS * before) * window, n=_KALDI_FFT)
    return (_power(spectrum) @ filters).clamp_min(_KALDI_FLOOR).log()


def _missing_frames(lengths: Tensor, logs: Tensor) -> Tensor:
    """`(batch, frames, 1)` bool: true where a frame is not wholly inside its clip."""
    whole = 1 + (lengths - KALDI_WINDOW).div(KALDI_HOP, rounding_mode="floor")
    return (torch.arange(logs.shape[1], device=logs.device) >= whole[:, None])[..., None]


def kaldi_filters(bands: int) -> Tensor:
    """Triangles of height one, evenly spaced and straight in mel, on a power spectrum at 16 kHz.

    Weights `(bins, bands)`.
    """
    bins_hz = torch.linspace(0.0, _KALDI_RATE / 2, _KALDI_FFT // 2 + 1, dtype=torch.float64)
    low, high = _kaldi_mel(torch.tensor([_KALDI_LOW_HZ, _KALDI_RATE / 2], dtype=torch.float64)).tolist()
    corners = torch.linspace(low, high, bands + 2, dtype=torch.float64)
    return _triangles(_kaldi_mel(bins_hz), corners).float()


def slaney_filters(bands: int, bins: int, sample_rate: int, high_hz: float) -> Tensor:
    """Triangles of area one, evenly spaced in Slaney's mel and straight in Hz: `(bins, bands)` weights."""
    bins_hz = torch.linspace(0.0, sample_rate / 2, bins, dtype=torch.float64)
    high = _slaney_mel(high_hz)
    corners_hz = _slaney_hz(torch.linspace(0.0, high, bands + 2, dtype=torch.float64))
    return (_triangles(bins_hz, corners_hz) * 2.0 / (corners_hz[2:] - corners_hz[:-2])).float()


def _kaldi_mel(frequency_hz: Tensor) -> Tensor:
    return 1127.0 * torch.log1p(frequency_hz / 700.0)


def _slaney_mel(frequency_hz: float) -> float:
    """Slaney's Auditory Toolbox: 15 mel up to 1 kHz in even steps, then 27 mel for each factor of 6.4."""
    if frequency_hz < 1000.0:
        return 15.0 * frequency_hz / 1000.0
    return 15.0 + 27.0 * math.log(frequency_hz / 1000.0) / math.log(6.4)


def _slaney_hz(pitch_mel: Tensor) -> Tensor:
    curved = 1000.0 * torch.exp((pitch_mel - 15.0) * math.log(6.4) / 27.0)
    return torch.where(pitch_mel < 15.0, pitch_mel * 1000.0 / 15.0, curved)


def _triangles(places: Tensor, corners: Tensor) -> Tensor:
    """Triangular bands, `(places, bands)`.

    Each rises from one corner to a height of one at the next and falls to zero at the third.
    """
    left, peak, right = corners[:-2], corners[1:-1], corners[2:]
    rising = (places[:, None] - left) / (peak - left)
    falling = (right - places[:, None]) / (right - peak)
    return torch.minimum(rising, falling).clamp_min(0.0)


def _power(spectrum: Tensor) -> Tensor:
    # Not abs() ** 2: the squares have a gradient of zero at zero, the modulus has none.
    return spectrum.real.square() + spectrum.imag.square()
