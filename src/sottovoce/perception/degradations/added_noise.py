"""Noise under a clip at an exact SNR: white, pink, applause, water drops, a room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar, Literal, final

import numpy as np
import torch
from numpy.random import Generator, Philox
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import SILENCE
from sottovoce.core.draws import Draws
from sottovoce.data import sound_recipes as recipes
from sottovoce.errors import InputError
from sottovoce.perception.degradations.degradation import Degradation, Range
from sottovoce.perception.degradations.recorded_files import (
    Waveform,
    cut,
    list_files,
    pick_file,
    read_recording,
    to_rate,
)

Kind = Literal["white", "pink", "applause", "water-drops", "room"]

MADE_SECONDS = 5.0
"""A made recording lasts so long, or as long as the clip; a piece of it is used."""
PEOPLE = 30


@final
@dataclass(frozen=True, kw_only=True)
class Noise(Degradation):
    """Noise of one of five kinds, at an SNR that is exact for each clip over its own length.

    strength: 0 to 100, linear in dB: 66 to 2 dB SNR; 50 where neither this nor snr_db is given.
    kind: "white" (Gaussian) or "pink" (-3 dB an octave), both without DC; "applause", "water-drops" or
        "room", synthesised below 8 kHz where no recording is given.
    snr_db: energy of the clip over that of the noise in dB; a clip of zeros counts as half a 16-bit step
        loud.
    file: path of a recording, or of a folder of which each clip gets one: cut at a random place, or repeated
        where it is too short. Not for white and pink noise.

    >>> clips = sv.testing.example_clips(16000)
    >>> noisy = sv.defenses.Noise(kind="pink", snr_db=20)(clips, draws=sv.Draws(0))
    >>> noise = (noisy.waveforms - clips.waveforms).norm(dim=1)
    >>> (20 * (clips.length_l2 / noise).log10()).round().tolist()  # SNR of each clip in dB
    [20.0, 20.0, 20.0, 20.0]
    """

    kind: Kind = "white"
    snr_db: float | None = None
    file: str | None = None

    random = True
    range: ClassVar[Range] = Range(figure="snr_db", unit="dB", least=66.0, most=2.0, legal=(-120.0, 120.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file is None:
            return
        if self.kind not in RECIPES:
            raise InputError(
                f"file: {self.kind} noise is synthesised and takes no recording, got {self.file!r}; leave "
                "file out, or set kind=room."
            )
        list_files(self.file)

    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        noise = torch.zeros_like(batch.waveforms, requires_grad=False)
        for row, (name, length) in enumerate(zip(batch.ids, batch.lengths.tolist(), strict=True)):
            piece = make_noise(self.kind, self.file, draws.key(name), length, batch.sample_rate)
            noise[row, :length] = piece.to(noise)
        ratio = 10.0 ** (-self.asked / 20.0)
        # float64, so that the last bit of the level does not depend on how wide the batch is.
        loudness = torch.linalg.vector_norm(batch.waveforms.double(), dim=1, keepdim=True)
        silence = SILENCE * batch.lengths.to(loudness).sqrt()[:, None]
        found: Tensor = batch.waveforms + (ratio * loudness.maximum(silence) * noise).to(batch.waveforms)
        return found


# A clip is heard at many strengths in a row, always with the same noise.
@lru_cache(maxsize=64)
def make_noise(kind: Kind, file: str | None, key: int, samples: int, sample_rate: int) -> Tensor:
    """Noise of unit length (its energy is 1), `(time,)` float32; all of it depends on the key."""
    source = Generator(Philox(key=key))
    if kind == "white":
        sound = source.standard_normal(samples)
        sound -= sound.mean()
    elif kind == "pink":
        sound = pink(source, samples)
    elif file is not None:
        choice, place = source.random(2)
        sound = cut(read_recording(pick_file(file, choice), sample_rate), samples, place)
    else:
        seconds = max(MADE_SECONDS, samples / sample_rate + 0.1)
        made = RECIPES[kind](source, int(seconds * recipes.SAMPLE_RATE))
        sound = cut(to_rate(made, recipes.SAMPLE_RATE, sample_rate), samples, source.random())
    length = float(np.linalg.norm(sound))
    if not length > 0:
        raise InputError(f"a clip of {samples} samples is too short for noise without DC; drop such clips.")
    return torch.from_numpy((sound / length).astype(np.float32))


def pink(source: Generator, samples: int) -> Waveform:
    """Gaussian noise whose power falls as 1/f from the lowest frequency on, `(time,)`; no DC."""
    spectrum = np.fft.rfft(source.standard_normal(samples))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0.0
    return np.fft.irfft(spectrum, n=samples)


def applause(source: Generator, samples: int) -> Waveform:
    """A crowd in a hall: each claps with a sound, a loudness and a rhythm of their own."""
    claps = []
    for _ in range(PEOPLE):
        hand = recipes.click(source, source.uniform(700, 2_500), source.uniform(0.004, 0.012))
        gain = source.lognormal(0, 0.5)
        times = recipes.beats(source, samples, source.uniform(0.18, 0.4), 0.12)
        claps += [(time, gain * source.lognormal(0, 0.2), hand) for time in times]
    return recipes.room(source, recipes.scatter(samples, claps), source.uniform(0.08, 0.2), 0.6)


def room_tone(source: Generator, samples: int) -> Waveform:
    """A quiet room: rumble that falls by 6 dB an octave, air from a vent, and the hum of the mains."""
    rumble = recipes.noise(source, samples, -6.0, 40, 4_000) * 10 ** (0.1 * recipes.drift(source, samples, 1))
    vent = recipes.noise(source, samples, -3.0, 200, source.uniform(1_500, 5_000))
    mains = np.full(samples, float(source.choice([50.0, 60.0])))
    hum = recipes.tones(mains, source.lognormal(0, 0.6, 8) / np.arange(1, 9), source.uniform(0, 6.28, 8))
    return rumble + source.uniform(0.2, 0.8) * vent + source.uniform(0.05, 0.4) * hum


RECIPES: Mapping[str, Callable[[Generator, int], Waveform]] = MappingProxyType(
    {"applause": applause, "water-drops": recipes.water_drops, "room": room_tone}
)
"""Made at 16 kHz where no recording is given."""
