"""Speech taken apart into a source and a filter, and put together again with either of them changed.

The filter is linear prediction on a grid of 5 ms; the source is what the prediction leaves over, cut into
grains of two periods around every pulse of the voice (pitch-synchronous overlap-add, Moulines and Charpentier
1990). NumPy and SciPy do the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np
import scipy
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.ndimage import binary_closing, binary_opening, gaussian_filter1d, median_filter

Floats = NDArray[np.float64]

SAMPLE_RATE = 16_000
HOP = 80
"""Samples between frames: 5 ms."""
ORDER = 18
"""Poles of the filter: a pair for each kHz (about one formant in each), and two for the slope."""
LOWEST_HZ, HIGHEST_HZ = 60.0, 420.0
PREEMPHASIS = 0.97
VOICED_BELOW = 0.25
"""YIN's aperiodicity (de Cheveigné and Kawahara 2002) under which a frame is voiced; 0 is periodic."""
PAUSE_DB = 25.0
"""A frame so far under the loud ones of its clip belongs to a pause."""
_WINDOW = 400
# 20 ms: one period of the lowest voice, and short enough for a pitch that glides.
_INTEGRATION = 320
_GRID = 512


@final
@dataclass(frozen=True, eq=False)
class Speech:
    """A clip in parts; n frames, one every `HOP` samples, the first at sample 0.

    filters: `(n, ORDER + 1)`, predictors that start with 1. source: `(time,)`, what they leave over.
    f0_hz: `(n,)`, 0 where there is no voice. level_db: `(n,)`. pause: `(n,)`.
    pulses: samples, and fractions of them, at which the vocal folds close; only where there is a voice.
    """

    filters: Floats
    source: Floats
    f0_hz: Floats
    level_db: Floats
    pause: NDArray[np.bool_]
    pulses: Floats

    def __len__(self) -> int:
        return len(self.f0_hz)

    @property
    def voiced(self) -> NDArray[np.bool_]:
        return self.f0_hz > 0


def analyse(waveform: Floats) -> Speech:
    """`(time,)` at 16 kHz in its parts."""
    emphasised = scipy.signal.lfilter([1.0, -PREEMPHASIS], [1.0], waveform)
    filters = predict(_frames(emphasised, _WINDOW) * np.hanning(_WINDOW))
    source = _leftover(emphasised, filters)
    level = 10 * np.log10(np.mean(_frames(waveform, _WINDOW) ** 2, axis=1) + 1e-10)
    quiet = level < np.percentile(level, 95) - PAUSE_DB
    # Shorter than 60 ms it is the closure of a stop.
    pause = binary_opening(quiet, np.ones(12))
    f0_hz = np.where(quiet, 0.0, track_pitch(waveform))
    return Speech(filters, source, f0_hz, level, pause, _find_pulses(source, f0_hz))


def track_pitch(waveform: Floats) -> Floats:
    """The fundamental in Hz of every frame by YIN, `(n,)`, 0 where there is no voice."""
    low, high = int(SAMPLE_RATE / HIGHEST_HZ), int(SAMPLE_RATE / LOWEST_HZ)
    frames = _frames(waveform, _INTEGRATION + high + 1)
    size = 1024
    head = np.fft.rfft(frames[:, :_INTEGRATION], size)
    both = np.fft.irfft(np.conj(head) * np.fft.rfft(frames, size), size)[:, : high + 1]
    sums = np.pad(np.cumsum(frames**2, axis=1), ((0, 0), (1, 0)))
    energy = sums[:, _INTEGRATION : _INTEGRATION + high + 1] - sums[:, : high + 1]
    difference = np.maximum(energy[:, :1] + energy - 2 * both, 0.0)
    lags = np.arange(1, high + 1)
    mean = np.cumsum(difference[:, 1:], axis=1) / lags
    ratio = np.concatenate([np.ones((len(frames), 1)), difference[:, 1:] / (mean + 1e-12)], axis=1)
    lag, least = _first_dip(ratio, low)
    f0_hz = np.where((least < VOICED_BELOW) & (energy[:, 0] > 1e-6), SAMPLE_RATE / lag, 0.0)
    return _tidy(f0_hz)


def _first_dip(ratio: Floats, low: int) -> tuple[Floats, Floats]:
    """The lag of the first clear dip of each row, or of its deepest, to a fraction; and how deep it is."""
    inner = ratio[:, low:-1]
    dips = (inner <= ratio[:, low - 1 : -2]) & (inner < ratio[:, low + 1 :])
    depth = np.where(dips, inner, np.inf)
    deepest = depth.min(axis=1, keepdims=True)
    # Near the deepest is good enough, so that a period is not taken for two.
    place = np.argmax(dips & (inner <= np.maximum(deepest + 0.07, 0.1)), axis=1)
    rows = np.arange(len(ratio))
    least = np.where(np.isfinite(deepest[:, 0]), inner[rows, place], 1.0)
    before, here, after = (ratio[rows, place + low + step] for step in (-1, 0, 1))
    bend = before - 2 * here + after
    shift = np.where(bend > 1e-9, 0.5 * (before - after) / np.maximum(bend, 1e-9), 0.0)
    return place + low + np.clip(shift, -0.5, 0.5), least


def _tidy(f0_hz: Floats) -> Floats:
    """Without stray frames and jumps of an octave; breaks of less than 20 ms are bridged."""
    voiced = binary_opening(binary_closing(f0_hz > 0, np.ones(4)), np.ones(6))
    known = (f0_hz > 0) & voiced
    if not known.any():
        return np.zeros_like(f0_hz)
    middle = np.median(f0_hz[known])
    known &= (f0_hz > 0.55 * middle) & (f0_hz < 1.8 * middle)
    filled = np.interp(np.arange(len(f0_hz)), np.flatnonzero(known), f0_hz[known])
    smooth: Floats = gaussian_filter1d(median_filter(filled, 5, mode="nearest"), 1.0, mode="nearest")
    return np.where(voiced, smooth, 0.0)


def _find_pulses(source: Floats, f0_hz: Floats) -> Floats:
    """The largest excursion of the source in each period, followed from the clearest one of a voiced run."""
    smooth = np.convolve(source, np.hanning(9) / 4, mode="same")
    inside = np.repeat(f0_hz > 0, HOP)[: len(source)]
    # Pulses point one way; which one depends on the microphone.
    smooth *= np.sign(np.sum(smooth[inside] ** 3)) or 1.0
    period = SAMPLE_RATE / np.maximum(f0_hz, LOWEST_HZ)
    found: list[int] = []
    for first, last in runs(f0_hz > 0):
        start, stop = first * HOP, min(last * HOP, len(source))
        seed = start + int(np.argmax(smooth[start:stop]))
        back = _follow(smooth, period, seed, start, stop, -1)
        found += [*reversed(back), seed, *_follow(smooth, period, seed, start, stop, 1)]
    return _refined(smooth, np.array(found, dtype=np.int64))


def _refined(smooth: Floats, places: NDArray[np.int64]) -> Floats:
    """Peaks to a fraction of a sample, by the parabola through three of them."""
    inner = np.clip(places, 1, len(smooth) - 2)
    before, here, after = smooth[inner - 1], smooth[inner], smooth[inner + 1]
    bend = before - 2 * here + after
    peak = (bend < 0) & (here >= before) & (here >= after)
    part: Floats = np.where(peak, 0.5 * (before - after) / np.where(peak, bend, 1.0), 0.0)
    return places.astype(np.float64) + part


def _follow(smooth: Floats, period: Floats, seed: int, start: int, stop: int, way: int) -> list[int]:
    found: list[int] = []
    here = seed
    while True:
        length = period[min(here // HOP, len(period) - 1)]
        reach = int(0.25 * length)
        centre = here + way * round(length)
        first, last = max(centre - reach, start), min(centre + reach + 1, stop)
        if last - first <= reach:
            return found
        offsets = np.arange(first, last) - centre
        piece = smooth[first:last] - smooth[first:last].min()
        here = first + int(np.argmax(piece * (1 - 0.8 * np.abs(offsets) / length)))
        found.append(here)


def runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where each run of True begins and where it is over."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def predict(frames: Floats) -> Floats:
    """Linear prediction of windowed frames `(n, time)` by Levinson and Durbin, `(n, ORDER + 1)`."""
    size = 2 * _GRID if frames.shape[1] <= _GRID else 4 * _GRID
    lags = np.fft.irfft(np.abs(np.fft.rfft(frames, size)) ** 2, size)[:, : ORDER + 1]
    # A floor 50 dB down, and peaks at least 40 Hz wide: harmonics are not to be taken for formants.
    lags[:, 0] = lags[:, 0] * (1 + 1e-5) + 1e-9
    lags *= np.exp(-0.5 * (2 * np.pi * 40.0 / SAMPLE_RATE * np.arange(ORDER + 1)) ** 2)
    filters = np.zeros_like(lags)
    filters[:, 0] = 1.0
    error = lags[:, 0].copy()
    for order in range(1, ORDER + 1):
        step = -np.sum(filters[:, :order] * lags[:, order:0:-1], axis=1) / error
        filters[:, 1 : order + 1] += step[:, None] * filters[:, order - 1 :: -1][:, :order]
        error *= 1 - step**2
    return filters


def line_spectrum(filters: Floats) -> Floats:
    """Line spectral frequencies of predictors, `(n, ORDER)` in radians, rising (Itakura 1975).

    Between two rising rows every mixture is a stable filter, and its resonances lie between theirs.
    """
    padded = np.pad(filters, ((0, 0), (0, 1)))
    total, gap = padded + padded[:, ::-1], padded - padded[:, ::-1]
    # The roots at -1 and 1 are always there: divided out, both are cosine sums of half the order.
    total, gap = scipy.signal.lfilter([1.0], [1.0, 1.0], total), scipy.signal.lfilter([1.0], [1.0, -1.0], gap)
    found = [_cosine_roots(part[:, : ORDER // 2 + 1]) for part in (total, gap)]
    return np.sort(np.concatenate(found, axis=1), axis=1)


def _cosine_roots(half: Floats) -> Floats:
    """The angles at which a palindrome of which half is given vanishes, `(n, ORDER // 2)`."""
    weights = np.concatenate([2 * half[:, :-1], half[:, -1:]], axis=1)
    orders = np.arange(ORDER // 2, -1, -1)
    angles = np.linspace(0, np.pi, 2 * _GRID + 1)
    values = weights @ np.cos(np.outer(orders, angles))
    crossed = values[:, :-1] * values[:, 1:] < 0
    # Two roots closer than the grid show no crossing; then the flattest places replace them.
    score = np.where(crossed, 2.0, 1.0 / (1.0 + np.abs(values[:, :-1])))
    place = np.sort(np.argpartition(-score, ORDER // 2 - 1, axis=1)[:, : ORDER // 2], axis=1)
    rows = np.arange(len(half))[:, None]
    before, after = values[rows, place], values[rows, place + 1]
    part = np.clip(before / np.where(before == after, 1.0, before - after), 0.0, 1.0)
    found: Floats = angles[place] + part * (angles[1] - angles[0])
    return found


def from_line_spectrum(lines: Floats) -> Floats:
    """The predictors of rising line spectral frequencies, `(n, ORDER + 1)`."""
    total, gap = _product(lines[:, 0::2]), _product(lines[:, 1::2])
    total = np.pad(total, ((0, 0), (0, 1))) + np.pad(total, ((0, 0), (1, 0)))
    gap = np.pad(gap, ((0, 0), (0, 1))) - np.pad(gap, ((0, 0), (1, 0)))
    return 0.5 * (total + gap)[:, : ORDER + 1]


def _product(angles: Floats) -> Floats:
    whole = np.ones((len(angles), 1))
    for column in angles.T:
        wider = np.pad(whole, ((0, 0), (0, 2)))
        wider[:, 1:-1] -= 2 * np.cos(column)[:, None] * whole
        wider[:, 2:] += whole
        whole = wider
    return whole


def power_gain(filters: Floats) -> Floats:
    """The power that white noise of power 1 has behind each filter, `(n,)`."""
    found: Floats = np.mean(1.0 / np.abs(np.fft.rfft(filters, 2 * _GRID)) ** 2, axis=1)
    return found


def _leftover(emphasised: Floats, filters: Floats) -> Floats:
    past = sliding_window_view(np.pad(emphasised, (ORDER, 0)), ORDER + 1)[:, ::-1]
    found: Floats = np.einsum("tk,tk->t", past, filters[frame_of(len(emphasised), len(filters))])
    return found


def resonate(source: Floats, filters: Floats, frame: NDArray[np.int64]) -> Floats:
    """Speech from a source `(time,)` and the filter that each sample goes through."""
    found: Floats = scipy.signal.lfilter([1.0], [1.0, -PREEMPHASIS], _through(source, filters, frame))
    return found


def _through(source: Floats, filters: Floats, frame: NDArray[np.int64]) -> Floats:
    """The source through each filter in turn, which goes on from what the last one left."""
    order = filters.shape[1] - 1
    out = np.zeros(len(source) + order)
    turns = np.flatnonzero(np.diff(frame)) + 1
    for start, end in pairwise([0, *turns.tolist(), len(source)]):
        poles = filters[frame[start]]
        # What scipy.signal.lfiltic gives, in a tenth of its time: this runs every 5 ms.
        past = out[start : start + order][::-1]
        state = -np.correlate(poles[1:], past, "full")[order - 1 :]
        out[start + order : end + order], _ = scipy.signal.lfilter([1.0], poles, source[start:end], zi=state)
    return out[order:]


def _frames(waveform: Floats, size: int) -> Floats:
    """`(n, size)`: one frame around every `HOP`-th sample."""
    padded = np.pad(waveform, (size // 2, size - size // 2))
    return sliding_window_view(padded, size)[: len(waveform) : HOP]


def frame_of(samples: int, frames: int) -> NDArray[np.int64]:
    """The frame that each sample of a clip is nearest to."""
    return np.minimum((np.arange(samples) + HOP // 2) // HOP, frames - 1)
