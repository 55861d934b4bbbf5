"""Ways from a clip to changed ones, along which listeners are asked: directions, and controls beside them.

Controls are what an audit shows a listener and Table 1 of Manocha et al. (2020) does not hold: another level,
a small delay, noise of the kinds that attacks leave, and no change at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.degradations.perturbation_space import Direction, Rendered

Floats = NDArray[np.float64]
Along = Callable[[float], Floats]
"""A clip `(time,)` at a strength."""

GAIN_DB = (0.2, 12.0)
SHIFT_SAMPLES = (1, 40)
SNR_DB = (60.0, 10.0)
MIX_DB = -60.0
AT = "@"
HIGH_HZ = 3000.0
ENVELOPE_SECONDS = 0.02


class Path(Protocol):
    """What a listener is led along, from strength 0 to 100; `str` writes it down, `find_path` reads it."""

    def render(
        self, batch: AudioBatch, strengths: Iterable[float], *, draws: Draws
    ) -> Iterator[Rendered]: ...


@final
@dataclass(frozen=True)
class Control:
    """A control by name; see `CONTROLS`. The same draws at every strength, as along a direction."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in CONTROLS:
            raise UnknownName("control", self.name, CONTROLS)

    def __str__(self) -> str:
        return self.name

    def render(self, batch: AudioBatch, strengths: Iterable[float], *, draws: Draws) -> Iterator[Rendered]:
        starts = [
            CONTROLS[self.name](
                batch.clip(row).double().cpu().numpy(),
                batch.sample_rate,
                draws.turn(self.name).generator(name),
            )
            for row, name in enumerate(batch.ids)
        ]
        for strength in strengths:
            waveforms = torch.zeros_like(batch.waveforms)
            clipped = torch.zeros(len(batch))
            for row, along in enumerate(starts):
                loud = along(strength)
                clipped[row] = float((np.abs(loud) > 1.0).mean())
                waveforms[row, : len(loud)] = torch.from_numpy(loud.clip(-1.0, 1.0)).to(waveforms)
            yield Rendered(strength, batch.with_waveforms(waveforms), clipped)


@final
@dataclass(frozen=True)
class Mix:
    """From a clip straight to what a direction makes of it at one strength: written "pops+mulaw@60".

    The change is mixed in at -60 to 0 dB. Some of Table 1's ranges start where everybody hears the change:
    here there is a just noticeable amount of any.
    """

    direction: Direction
    whole: float

    def __str__(self) -> str:
        return f"{self.direction}{AT}{self.whole:g}"

    def render(self, batch: AudioBatch, strengths: Iterable[float], *, draws: Draws) -> Iterator[Rendered]:
        change = self.direction.at(self.whole)(batch, draws=draws).waveforms - batch.waveforms
        for strength in strengths:
            share = 10 ** (MIX_DB * (1.0 - strength / 100) / 20)
            waveforms = batch.waveforms + share * change
            yield Rendered(strength, batch.with_waveforms(waveforms), torch.zeros(len(batch)))


def find_path(text: str) -> Path:
    """From "white+drr", which is a direction, "white+drr@60", which leads there, or "gain", a control."""
    if text in CONTROLS:
        return Control(text)
    names, at, whole = text.partition(AT)
    if not at:
        return Direction.parse(text)
    try:
        return Mix(Direction.parse(names), float(whole))
    except ValueError:
        raise InputError(
            f"expected a strength from 0 to 100 after {AT!r}, got {text!r}; write white+drr{AT}60."
        ) from None


def _equal(clip: Floats, sample_rate: int, source: np.random.Generator) -> Along:
    return lambda strength: clip


def _gain(clip: Floats, sample_rate: int, source: np.random.Generator) -> Along:
    """Louder or softer by 0.2 to 12 dB, in equal ratios; softer where the loudest would be clipped."""
    low, high = GAIN_DB
    up = source.random() < 0.5 and np.abs(clip).max() * 10 ** (high / 20) <= 1.0
    sign = 1.0 if up else -1.0
    return lambda strength: clip * 10 ** (sign * low * (high / low) ** (strength / 100) / 20)


def _shift(clip: Floats, sample_rate: int, source: np.random.Generator) -> Along:
    """Later or earlier by 1 to 40 samples; zeros come in."""
    low, high = SHIFT_SAMPLES
    later = source.random() < 0.5

    def along(strength: float) -> Floats:
        by = min(round(low + (high - low) * strength / 100), len(clip))
        zeros = np.zeros(by)
        return np.concatenate([zeros, clip[: len(clip) - by]] if later else [clip[by:], zeros])

    return along


def _bursts(clip: Floats, sample_rate: int, source: np.random.Generator) -> Along:
    """One to three bursts of noise, 30 to 300 ms each, at 60 to 10 dB SNR over the whole clip."""
    envelope = np.zeros(len(clip))
    for _ in range(source.integers(1, 4)):
        size = min(int(sample_rate * source.uniform(0.03, 0.3)), len(clip))
        start = source.integers(0, len(clip) - size + 1)
        envelope[start : start + size] += np.hanning(size + 2)[1:-1]
    return _noisy(clip, envelope * _noise(len(clip), sample_rate, source))


def _shaped(clip: Floats, sample_rate: int, source: np.random.Generator) -> Along:
    """Noise that follows the loudness of the clip, as a masked perturbation does, at 60 to 10 dB SNR."""
    window = np.hanning(max(3, round(2 * ENVELOPE_SECONDS * sample_rate)))
    envelope = np.sqrt(np.convolve(clip**2, window / window.sum(), mode="same")[: len(clip)])
    return _noisy(clip, envelope * _noise(len(clip), sample_rate, source))


def _sign(clip: Floats, sample_rate: int, source: np.random.Generator) -> Along:
    """Plus or minus one amplitude in every sample, as a step of signs leaves it, at 60 to 10 dB SNR."""
    return _noisy(clip, np.sign(source.standard_normal(len(clip))))


def _noise(size: int, sample_rate: int, source: np.random.Generator) -> Floats:
    """White, or with equal chance only what lies above 3 kHz."""
    noise: Floats = source.standard_normal(size)
    if source.random() < 0.5:
        return noise
    spectrum = np.fft.rfft(noise)
    spectrum[np.fft.rfftfreq(size, 1 / sample_rate) < min(HIGH_HZ, sample_rate / 4)] = 0.0
    return np.fft.irfft(spectrum, size)


def _noisy(clip: Floats, noise: Floats) -> Along:
    energy = float(np.sum(noise**2))
    scale = np.sqrt(np.sum(clip**2) / energy) if energy else 0.0
    quiet, loud = SNR_DB
    return lambda strength: clip + noise * scale * 10 ** (-(quiet + (loud - quiet) * strength / 100) / 20)


CONTROLS: Mapping[str, Callable[[Floats, int, np.random.Generator], Along]] = MappingProxyType(
    {"equal": _equal, "gain": _gain, "shift": _shift, "bursts": _bursts, "shaped": _shaped, "sign": _sign}
)
"""Equal: the clip itself at every strength."""
