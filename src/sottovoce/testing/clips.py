"""Clips for checks: short, of different length and pitch, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.quantisation import round_clean
from sottovoce.core.target import Target

# Two clips have the same length, because some targets process those together.
SECONDS = (0.4, 0.25, 0.55, 0.4)


def example_clips(sample_rate: int = 16000, *, seconds: Sequence[float] = SECONDS) -> AudioBatch:
    """Made-up clips for tests: two tones in a little noise, at an RMS of 0.1, on the 16-bit grid.

    sample_rate: in Hz.
    seconds: the duration of each clip.

    >>> sv.testing.example_clips(8000, seconds=[0.5, 0.25]).lengths.tolist()
    [4000, 2000]
    """
    rows = []
    for place, duration in enumerate(seconds):
        source = Draws(0, ("example",)).generator(str(place))
        time = np.arange(max(1, round(duration * sample_rate)))
        pitches = source.uniform(0.02, 0.4, size=2)  # as a share of the sample rate
        tones = np.sin(2 * np.pi * np.outer(pitches, time) + source.uniform(0, 6.28, size=(2, 1)))
        sound = tones.sum(axis=0) + 0.3 * source.standard_normal(len(time))
        rows.append(0.1 * sound / np.sqrt(np.mean(sound**2)))
    ids = [f"example-{place}" for place in range(len(rows))]
    return round_clean(AudioBatch.of(rows, sample_rate, ids), 16)


def clips_for(target: Target) -> AudioBatch:
    """Example clips at the sample rate of a target, and of lengths that it accepts.

    >>> sv.testing.clips_for(sv.testing.ToyClassifier()).sample_rate
    1000
    """
    longest = target.longest or torch.inf
    samples = [max(target.shortest, min(longest, second * target.sample_rate)) for second in SECONDS]
    return example_clips(target.sample_rate, seconds=[count / target.sample_rate for count in samples])


def misnamed(batch: AudioBatch, rows: Sequence[int]) -> AudioBatch:
    """Some of the clips, each under the name of the clip before it: the same audio with another name."""
    part = batch.select(rows)
    names = tuple(batch.ids[row - 1] for row in rows)
    return AudioBatch(part.waveforms, part.lengths, part.sample_rate, names)


def widened(batch: AudioBatch, *, longest: int | None = None) -> AudioBatch:
    """The same clips with more padding, half of their width, but no wider than `longest`."""
    width = batch.waveforms.shape[1]
    wider = width + width // 2 + 1
    wider = wider if longest is None else max(width, min(wider, longest))
    waveforms = torch.nn.functional.pad(batch.waveforms, (0, wider - width))
    return AudioBatch(waveforms, batch.lengths, batch.sample_rate, batch.ids)
