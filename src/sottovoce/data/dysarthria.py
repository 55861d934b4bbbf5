"""A dysarthria-like transform of healthy speech: it does not represent patients, but is a known change.

Eight signs that clinicians hear and that have an acoustic measure are changed on a source and a filter
(`source_filter`). Healthy speakers go through the same analysis and synthesis with settings from the healthy
range: otherwise a detector would hear the vocoder and not the voice.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d, uniform_filter1d

from sottovoce.data.source_filter import (
    HOP,
    LOWEST_HZ,
    SAMPLE_RATE,
    Floats,
    Speech,
    analyse,
    frame_of,
    from_line_spectrum,
    line_spectrum,
    power_gain,
    resonate,
)
from sottovoce.errors import InputError

FULL_SCALE = 32768
PEAK = 0.95
"""A clip that would be louder is scaled down to it."""


@final
@dataclass(frozen=True, kw_only=True)
class Voice:
    """What the transform does; the defaults leave the speech as it is, up to the traces of the synthesis.

    stretch: how many times as long speech takes.
    pause_stretch: how many times as long a pause takes, over and above `stretch`.
    pitch_range: how far the pitch strays from its mean, on a log scale, times what it did.
    centralisation: how far the filter is moved to the clip's mean vowel: 0 stays, 1 has one vowel only.
    jitter_percent: mean difference of neighbouring periods, of the mean period ("local" in Praat).
    shimmer_percent: mean difference of neighbouring pulses' amplitudes, of the mean amplitude.
    breath_db: power of the breath in the voice over that of the voice; the negative of a harmonics-to-noise
        ratio. It goes through the filter of the speech, as air in the vocal tract does.
    loudness_range: how far the level strays from its mean, in dB, times what it did.
    """

    stretch: float = 1.0
    pause_stretch: float = 1.0
    pitch_range: float = 1.0
    centralisation: float = 0.0
    jitter_percent: float = 0.0
    shimmer_percent: float = 0.0
    breath_db: float = -80.0
    loudness_range: float = 1.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value, (least, most) = getattr(self, item.name), LIMITS[item.name]
            if not least <= value <= most:
                raise InputError(f"{item.name}: expected {least:g} to {most:g}, got {value:g}.")


LIMITS = {
    "stretch": (0.5, 3.0),
    "pause_stretch": (0.5, 5.0),
    "pitch_range": (0.0, 2.0),
    "centralisation": (-0.3, 1.0),
    "jitter_percent": (0.0, 10.0),
    "shimmer_percent": (0.0, 50.0),
    "breath_db": (-80.0, 10.0),
    "loudness_range": (0.0, 2.0),
}

HEALTHY = {
    # Readers differ by some 10 % in rate and by a quarter in how lively they speak; the rest is around the
    # mean of healthy adults: jitter under 1.04 % and shimmer under 3.81 % (the limits of the MDVP), a
    # harmonics-to-noise ratio of about 20 dB or better.
    "stretch": (0.92, 1.08),
    "pause_stretch": (0.85, 1.2),
    "pitch_range": (0.8, 1.2),
    "centralisation": (-0.1, 0.1),
    "jitter_percent": (0.3, 0.9),
    "shimmer_percent": (1.5, 3.8),
    "breath_db": (-34.0, -22.0),
    "loudness_range": (0.85, 1.15),
}
"""The range in which healthy speakers are drawn, evenly."""

SEVERE = {
    "stretch": 1.5,  # dysarthric readers need up to half as much time again, and more in severe cases
    "pause_stretch": 2.0,  # more of it in pauses than in speech
    "pitch_range": 0.3,  # monopitch: the deviation of f0 falls by a third to two thirds
    "centralisation": 0.45,  # the area of the vowels shrinks with the square: by two thirds
    "jitter_percent": 3.0,  # about three times the limit of the MDVP
    "shimmer_percent": 12.0,  # likewise
    "breath_db": -6.0,  # a markedly breathy voice: as low as hoarse voices are measured
    "loudness_range": 0.4,  # monoloudness
}
"""The settings at severity 1; severity s is that share of the way to them from a healthy voice."""

_REACH = round(SAMPLE_RATE / LOWEST_HZ)
# Pulses are laid to a quarter of a sample: whole samples would be a jitter of 0.5 % at 200 Hz.
_FINE = 4
_NOISE_WINDOW = np.sin(np.pi * np.arange(1, 2 * HOP + 2) / (2 * HOP + 2))

SPREAD = 0.15
"""Standard deviation, in units of severity, by which each sign differs from the speaker's severity."""


def draw_voice(severity: float, source: np.random.Generator) -> Voice:
    """The settings of one speaker: healthy at severity 0, and at 1 about `SEVERE`."""
    if not 0 <= severity <= 1:
        raise InputError(f"severity: expected 0 (healthy) to 1, got {severity:g}.")
    chosen = {}
    for name, (low, high) in HEALTHY.items():
        healthy, spread = source.uniform(low, high), source.normal(0, SPREAD)
        share = float(np.clip(severity + spread, 0, 1)) if severity else 0.0
        chosen[name] = healthy + share * (SEVERE[name] - healthy)
    return Voice(**chosen)


def render(waveform: Floats, voice: Voice, source: np.random.Generator) -> Floats:
    """Speech at 16 kHz, `(time,)`, in that voice: on the 16-bit grid, and as loud as before."""
    if waveform.ndim != 1 or not len(waveform) or not np.isfinite(waveform).all():
        raise InputError(
            f"expected finite samples of shape (time,), got shape {waveform.shape}, or NaN or infinity."
        )
    speech = analyse(waveform)
    clock = _clock(speech, voice, len(waveform))
    frame = np.minimum((clock / HOP + 0.5).astype(np.int64), len(speech) - 1)
    filters = _centralised(speech, voice.centralisation)
    excitation = _excite(speech, voice, clock, source)
    gain = np.sqrt(power_gain(speech.filters) / power_gain(filters))
    level = gaussian_filter1d(gain, 2.0, mode="nearest") * _evened(speech, voice.loudness_range)
    spoken = resonate(excitation * level[frame], filters, frame)
    # Measured outside pauses, so that longer ones do not make the speech louder.
    before = _rms(waveform, speech.pause[frame_of(len(waveform), len(speech))])
    return _on_grid(spoken * before / max(_rms(spoken, speech.pause[frame]), 1e-9))


def _clock(speech: Speech, voice: Voice, samples: int) -> Floats:
    """For every sample of the output, the sample of the input that sounds then."""
    pace = np.where(speech.pause, voice.stretch * voice.pause_stretch, voice.stretch)
    ends = np.concatenate([[0.0], np.cumsum(np.repeat(pace, HOP)[:samples])])
    return np.interp(np.arange(round(ends[-1])), ends, np.arange(samples + 1))


def _centralised(speech: Speech, share: float) -> Floats:
    """Filters with their line spectrum moved to the mean of the voiced ones; the rest stay as they are."""
    if not share or not speech.voiced.any():
        return speech.filters
    # Faded in and out over 15 ms, so that no filter jumps at the edge of a vowel.
    amount = gaussian_filter1d(speech.voiced.astype(np.float64), 3.0, mode="nearest")
    near = np.flatnonzero(amount > 0.01)
    lines = line_spectrum(speech.filters[near])
    loud = speech.voiced & (speech.level_db >= np.median(speech.level_db[speech.voiced]))
    moved = lines + share * amount[near, None] * (lines[loud[near]].mean(axis=0) - lines)
    # A negative share spreads the vowels out and may bring two lines too close together, or past the end.
    gaps = np.maximum(np.diff(moved, axis=1, prepend=0.0, append=np.pi), 0.01)
    moved = np.cumsum(gaps * (np.pi / gaps.sum(axis=1, keepdims=True)), axis=1)[:, :-1]
    filters = speech.filters.copy()
    filters[near] = from_line_spectrum(moved)
    return filters


def _evened(speech: Speech, share: float) -> Floats:
    """The factor of each frame that brings its level nearer to the mean of the clip."""
    audible = ~speech.pause
    if not audible.any():
        return np.ones(len(speech))
    contour = gaussian_filter1d(speech.level_db, 8.0, mode="nearest")
    away = np.clip(contour - contour[audible].mean(), -15.0, 15.0)
    change_db = gaussian_filter1d(np.where(audible, (share - 1) * away, 0.0), 4.0, mode="nearest")
    found: Floats = 10 ** (change_db / 20)
    return found


def _excite(speech: Speech, voice: Voice, clock: Floats, source: np.random.Generator) -> Floats:
    """The source at its new times: grains of the voice, grains of noise, and breath."""
    frame = np.minimum((clock / HOP + 0.5).astype(np.int64), len(speech) - 1)
    voiced = speech.voiced[frame]
    period = SAMPLE_RATE / _pitch(speech, voice.pitch_range)
    grains = _Grains(speech, len(clock))
    # Of independent normal deviations s, neighbours differ by 2 s / sqrt(pi) in the mean.
    uneven = np.sqrt(np.pi) / 200
    here = 0.0
    while here < len(clock):
        now = int(here)
        if voiced[now]:
            loudness = 1 + uneven * voice.shimmer_percent * source.standard_normal()
            grains.voice(here, clock[now], loudness)
            wander = uneven * voice.jitter_percent * source.standard_normal()
            here += float(period[frame[now]]) * (1 + float(np.clip(wander, -0.3, 0.3)))
        else:
            # Noise that is repeated as it was would ring: each grain is taken from a little beside.
            grains.noise(here, clock[now] + source.uniform(-24, 24))
            here += HOP
    made = grains.joined
    return made + _breath(made, voiced, voice.breath_db, source)


@final
class _Grains:
    """Pieces of a source laid over one another at any fraction of a sample."""

    def __init__(self, speech: Speech, samples: int) -> None:
        self._kept = scipy.signal.resample_poly(np.pad(speech.source, _REACH), _FINE, 1)
        self._out = np.zeros(samples + 2 * _REACH)
        self._pulses = speech.pulses
        self._between = (speech.pulses[1:] + speech.pulses[:-1]) / 2

    @property
    def joined(self) -> Floats:
        return self._out[_REACH:-_REACH]

    def voice(self, here: float, centre: float, loudness: float) -> None:
        """The pulse nearest to a place of the source, out to its neighbours on both sides."""
        pulse = int(np.searchsorted(self._between, centre))
        gaps = np.diff(self._pulses[max(pulse - 1, 0) : pulse + 2])
        # Beyond the first and the last pulse of a run lies no period but a pause.
        gaps = np.minimum(gaps, 1.5 * gaps.min()) if len(gaps) else np.array([HOP])
        left, right = (min(round(float(gap)), _REACH) for gap in (gaps[0], gaps[-1]))
        window = np.concatenate([_rise(left)[:left], _rise(right)[::-1]])
        self._lay(here, float(self._pulses[pulse]), left, loudness * window)

    def noise(self, here: float, centre: float) -> None:
        self._lay(here, centre, HOP, _NOISE_WINDOW)

    def _lay(self, here: float, centre: float, left: int, window: Floats) -> None:
        first = round(here) - left
        start = round(_FINE * (centre + first - here + _REACH))
        start = min(max(start, 0), len(self._kept) - _FINE * len(window))
        self._out[first + _REACH :][: len(window)] += window * self._kept[start::_FINE][: len(window)]


@lru_cache(maxsize=512)
def _rise(samples: int) -> Floats:
    """The first half of a Hann window and its top, `(samples + 1,)`."""
    return np.hanning(2 * samples + 1)[: samples + 1]


def _pitch(speech: Speech, share: float) -> Floats:
    """The pitch of each frame in Hz, its distance to the mean on a log scale times `share`."""
    if not speech.voiced.any():
        return np.full(len(speech), LOWEST_HZ)
    logs = np.log(np.where(speech.voiced, speech.f0_hz, 1.0))
    mean = logs[speech.voiced].mean()
    found: Floats = np.exp(np.where(speech.voiced, mean + share * (logs - mean), mean))
    return found


def _breath(made: Floats, voiced: NDArray[np.bool_], level_db: float, source: np.random.Generator) -> Floats:
    """White noise that follows the power of the voice; the filter gives it the colour of the speech."""
    power = uniform_filter1d(np.where(voiced, made**2, 0.0), SAMPLE_RATE // 40, mode="constant")
    gain: Floats = 10 ** (level_db / 20) * np.sqrt(np.maximum(power, 0.0))
    return gain * source.standard_normal(len(made))


def _on_grid(waveform: Floats) -> Floats:
    scaled = waveform * min(1.0, PEAK / max(float(np.abs(waveform).max()), 1e-9))
    return np.rint(scaled * FULL_SCALE) / FULL_SCALE


def _rms(waveform: Floats, pause: NDArray[np.bool_]) -> float:
    return float(np.sqrt(np.mean(waveform[~pause] ** 2)))
