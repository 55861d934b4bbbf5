"""Sounds that a listening test makes by itself: anchors, tones, noise; and the file that all come in."""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import shake_128

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.listening.study.sound_keys import ANTIPHASE, PLAIN, QUIET
from sottovoce.perception.degradations.added_noise import pink

STEPS = 32768
STOP = 8 / 7
"""Where an anchor's stop band begins, over where its pass band ends: 4 kHz of 3.5, 8 kHz of 7."""
STOP_DB = 80.0
TONE_HZ, TONE_SECONDS, RAMP_SECONDS = 200.0, 1.0, 0.1
"""Of the headphone check (Woods et al. 2017)."""
QUIETER_DB = 6.0
TONE_PEAK = 0.25
TURN_SECONDS = 1.5
SOFTEST_DB = 20.0
"""The soft noise of the volume screen is at most so far below the loud one."""

HEADER_BYTES = 44
"""Of every file that `to_wav` writes."""
DITHER = np.repeat(np.array([-1, 0, 1], dtype=np.int16), (32, 192, 32))
"""What a random byte adds to a sample: triangular noise of one step either way, rounded to whole steps."""

Samples = NDArray[np.float64]
Pcm = NDArray[np.int16]


def to_wav(samples: Pcm, sample_rate: int, frames: int) -> bytes:
    """A PCM WAV of exactly `frames`, zeros at the end: two of one rate, channels and frames differ in samples
    alone. samples: `(time,)`, or `(time, channels)`."""
    if len(samples) > frames:
        raise InputError(f"expected at most {frames} samples, got {len(samples)}.")
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    wide = 2 * channels
    sound = np.ascontiguousarray(samples, dtype="<i2").tobytes()
    size = frames * wide
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, sample_rate, sample_rate * wide, wide, 16)
    head = struct.pack("<4sI4s", b"RIFF", 36 + size, b"WAVE") + form + struct.pack("<4sI", b"data", size)
    return head + sound + bytes(size - len(sound))


def dither(wav: bytes, secret: bytes) -> bytes:
    """A file of `to_wav` in which no sample, silence included, is more than one 16-bit step off.

    The same secret gives the same noise. It is drawn by SHAKE, so that the noise in a silent stretch does not
    reveal the rest of it.
    """
    samples = np.frombuffer(wav, dtype="<i2", offset=HEADER_BYTES)
    noise = DITHER[np.frombuffer(shake_128(secret).digest(len(samples)), dtype=np.uint8)]
    noisy = np.clip(samples.astype(np.int32) + noise, -STEPS, STEPS - 1).astype("<i2")
    return wav[:HEADER_BYTES] + bytes(noisy.tobytes())


def to_pcm(samples: Samples) -> Pcm:
    """On the 16-bit grid. Whoever calls has seen to it that nothing is past full scale."""
    return np.clip(np.rint(samples * STEPS), -STEPS, STEPS - 1).astype(np.int16)


def lowpass(samples: Samples, sample_rate: int, hz: float) -> Samples:
    """A copy without what is above `hz`, `(time,)`: linear phase, no delay.

    BS.1534 asks of its anchors a ripple of 0.1 dB at most up to the edge, and of that at 3.5 kHz 25 dB of
    attenuation at 4 kHz and 50 dB at 4.5 kHz.
    """
    from scipy.signal import fftconvolve

    passed: Samples = fftconvolve(samples, _taps(sample_rate, hz), mode="same")
    return passed


@lru_cache(maxsize=16)
def _taps(sample_rate: int, hz: float) -> Samples:
    from scipy.signal import firwin, kaiserord

    if 2 * STOP * hz > sample_rate:
        raise InputError(
            f"expected an anchor of at most {sample_rate / 2 / STOP:.0f} Hz at {sample_rate} Hz, got {hz:g}; "
            "lower it."
        )
    width = (STOP - 1) * hz
    count, beta = kaiserord(STOP_DB, 2 * width / sample_rate)
    taps: Samples = firwin(count | 1, hz + width / 2, window=("kaiser", beta), fs=sample_rate)
    return taps


def tones(sample_rate: int) -> dict[str, Pcm]:
    """The three tones of the headphone check, `(time, 2)`: plain, 6 dB quieter, in antiphase.

    Over loudspeakers the antiphase tone cancels itself and seems the quietest; over headphones it does not.
    """
    time = np.arange(round(TONE_SECONDS * sample_rate)) / sample_rate
    tone = TONE_PEAK * np.sin(2 * np.pi * TONE_HZ * time) * _ramps(len(time), sample_rate, RAMP_SECONDS)
    quiet = tone * 10 ** (-QUIETER_DB / 20)
    both = {PLAIN: (tone, tone), QUIET: (quiet, quiet), ANTIPHASE: (tone, -tone)}
    return {name: to_pcm(np.stack(channels, axis=1)) for name, channels in both.items()}


def volume_noise(sample_rate: int, loud_rms: float, soft_rms: float, seed: int) -> Pcm:
    """Pink noise, `(time,)`, as loud as the loudest clip and then as soft as the softest."""
    size = round(TURN_SECONDS * sample_rate)
    noise = pink(Draws(seed).turn("volume").generator("noise"), size)
    noise /= np.sqrt(np.mean(noise**2))
    soft_rms = max(soft_rms, loud_rms * 10 ** (-SOFTEST_DB / 20))
    turn = noise * _ramps(size, sample_rate, RAMP_SECONDS)
    sound = np.concatenate([loud_rms * turn, soft_rms * turn])
    return to_pcm(sound * min(1.0, 0.98 / float(np.abs(sound).max())))


def _ramps(samples: int, sample_rate: int, seconds: float) -> Samples:
    """A window that rises and falls along half a cosine."""
    size = round(seconds * sample_rate)
    rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(size) + 0.5) / size)
    window = np.ones(samples)
    window[:size] = rise
    window[-size:] = rise[::-1]
    return window
