"""What a degradation did, measured on its output: the figures of Table 1, each by its own definition."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.defenses.codecs import encode
from sottovoce.metrics.signal_distortion import snr_db
from sottovoce.perception.degradations.coding_rates import nearest_kbps
from sottovoce.perception.degradations.equaliser import LARGEST_GAIN_DB, Equaliser, edges_hz

Floats = NDArray[np.float64]

DIRECT_SECONDS = 0.0025
FIT_DB = (-5.0, -35.0)
"""The stretch of the decay that an RT60 is fitted to (ISO 3382's T30)."""
WINDOW_SECONDS, HOP_SECONDS, FLOOR_DB = 0.025, 0.010, -80.0


def response_of(transform: Transform, seconds: float, sample_rate: int, draws: Draws) -> Floats:
    """The impulse response, `(time,)`."""
    impulse = np.zeros(round(seconds * sample_rate))
    impulse[0] = 0.5
    batch = AudioBatch.of([impulse], sample_rate, ["impulse"])
    found: Floats = transform(batch, draws=draws).clip(0).double().cpu().numpy()
    return found


def drr_db(response: Floats, sample_rate: int) -> float:
    """Energy of the first 2.5 ms over that of all the rest, in dB."""
    late = round(DIRECT_SECONDS * sample_rate)
    return float(10 * np.log10((response[:late] ** 2).sum() / (response[late:] ** 2).sum()))


def rt60_seconds(response: Floats, sample_rate: int) -> float:
    """From the backward-integrated energy of the tail (Schroeder 1965), fitted from -5 to -35 dB."""
    late = round(DIRECT_SECONDS * sample_rate)
    left = np.cumsum(response[late:][::-1] ** 2)[::-1]
    level = 10 * np.log10(left / left[0] + 1e-30)
    places = np.flatnonzero((level <= FIT_DB[0]) & (level >= FIT_DB[1]))
    fall = np.polyfit(places / sample_rate, level[places], 1)[0]
    return float(-60.0 / fall)


def bit_rate(kbps: float, sample_rate: int, seconds: float = 20.0) -> float:
    """kbit/s of a stream that is made for a rate, by its size."""
    sound = white_noise(sample_rate, seconds).clip(0).numpy()
    stream = encode(sound, sample_rate, nearest_kbps(kbps, sample_rate))
    return len(stream) * 8 / seconds / 1000


def count_levels(transform: Transform, sample_rate: int, draws: Draws) -> int:
    """The number of different samples in the response to a ramp over the whole scale."""
    ramp = np.linspace(-1.0, 1.0, 65537)
    return len(torch.unique(transform(AudioBatch.of([ramp], sample_rate), draws=draws).waveforms))


def band_gain(amount: float, sample_rate: int, draws: Draws) -> float:
    """By how much a boosted middle band rises above the low one in white noise, in units of 20 dB."""
    batch = white_noise(sample_rate)
    heard = Equaliser(amount=amount, bands=(0, 1, 0))(batch, draws=draws)
    first, second = edges_hz(sample_rate)
    hz = np.fft.rfftfreq(len(batch.clip(0)), 1 / sample_rate)
    inside = [(hz > 50) & (hz < first / 1.4), (hz > first * 1.4) & (hz < second / 1.4)]
    before, after = (np.abs(np.fft.rfft(one.clip(0).double().numpy())) ** 2 for one in (batch, heard))
    low, middle = (10 * np.log10(after[band].sum() / before[band].sum()) for band in inside)
    return float((middle - low) / LARGEST_GAIN_DB)


def noise_db(clean: AudioBatch, changed: AudioBatch) -> Floats:
    """SNR of each clip in dB, `(batch,)`."""
    found: Floats = snr_db(clean.waveforms, changed.waveforms - clean.waveforms, clean.lengths).numpy()
    return found


def changed_percent(transform: Transform, sample_rate: int, draws: Draws) -> float:
    """Samples of white noise, none of which is zero, that are others now, in per cent."""
    noise = white_noise(sample_rate)
    return 100.0 * float((transform(noise, draws=draws).waveforms != noise.waveforms).double().mean())


def white_noise(sample_rate: int, seconds: float = 20.0) -> AudioBatch:
    sound = 0.1 * np.random.default_rng(0).standard_normal(round(seconds * sample_rate))
    return AudioBatch.of([sound], sample_rate, ["noise"])


def spectral_distance_db(clean: AudioBatch, changed: AudioBatch) -> Floats:
    """RMS difference of log magnitudes over all cells, `(batch,)` in dB; cells below -80 dB of the clip's
    largest one count as that."""
    found = []
    for row in range(len(clean)):
        one, two = (magnitudes(batch.clip(row), batch.sample_rate) for batch in (clean, changed))
        floor = float(one.max()) * 10 ** (FLOOR_DB / 20) + 1e-12
        levels = [20 * torch.log10(cells.clamp_min(floor)) for cells in (one, two)]
        found.append(float((levels[0] - levels[1]).square().mean().sqrt()))
    return np.array(found)


def magnitudes(clip: torch.Tensor, sample_rate: int) -> torch.Tensor:
    size, hop = round(WINDOW_SECONDS * sample_rate), round(HOP_SECONDS * sample_rate)
    window = torch.hann_window(size, dtype=torch.float64)
    padded = torch.nn.functional.pad(clip.detach().cpu().double(), (size - hop, size - hop))
    return torch.stft(padded, size, hop, window=window, center=False, return_complex=True).abs()
