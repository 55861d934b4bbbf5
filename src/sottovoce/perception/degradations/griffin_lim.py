"""A clip's phases discarded and rebuilt from its magnitudes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.perception.degradations.degradation import Degradation, Range, straight_through

HOP_SECONDS = 0.008
OVERLAP = 4
"""A window is so many hops long: 32 ms."""
MOMENTUM = 0.99
# Sum over hops of a squared Hann window of four hops.
_GAIN = 1.5


@final
@dataclass(frozen=True, kw_only=True)
class GriffinLim(Degradation):
    """Phases that are rebuilt from the clip's magnitudes, starting at random ones (Griffin and Lim 1984).

    Frames stay where they are, so the clip stays aligned. Even 500 iterations do not find the old phases: the
    magnitudes are right, and the waveform is another. There is no gradient, so the identity's is used.

    strength: 0 to 100, logarithmic: 500 iterations to 1; 50 where neither this nor iterations is given.
    iterations: fewer is worse; with momentum (Perraudin et al. 2013), which makes one worth several plain
        ones.

    >>> clip = sv.AudioBatch.of([0.5 * torch.sin(torch.arange(16000) / 10)], sample_rate=16000)
    >>> rebuilt = sv.defenses.GriffinLim(iterations=8)(clip, draws=sv.Draws(0))
    >>> before, after = (torch.fft.rfft(each.waveforms[0]).abs() for each in (clip, rebuilt))
    >>> bool((before.argmax() - after.argmax()).abs() < 32)  # the tone is where it was, within 32 Hz
    True
    """

    iterations: int | None = None

    random = True
    range: ClassVar[Range] = Range(
        figure="iterations", unit="iterations", least=500.0, most=1.0, legal=(1, 10_000), log=True
    )

    @torch.no_grad()
    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        hop = max(2, round(HOP_SECONDS * batch.sample_rate))
        window = torch.hann_window(OVERLAP * hop, dtype=batch.waveforms.dtype, device=batch.device)
        padded = _padded(batch, hop)
        magnitudes = _spectra(padded, window, hop).abs()
        phases = _first_phases(batch, draws, magnitudes, hop)
        found = rebuild(magnitudes, phases, window, hop, round(self.asked))
        start = OVERLAP * hop
        with torch.enable_grad():
            return straight_through(batch, found[:, start : start + batch.waveforms.shape[1]])


def rebuild(magnitudes: Tensor, phases: Tensor, window: Tensor, hop: int, iterations: int) -> Tensor:
    """Waveforms `(batch, time)` of magnitudes `(batch, frames, bins)`, from complex phases of that shape."""
    spectra, before = magnitudes * phases, torch.zeros_like(phases)
    tiny = torch.finfo(magnitudes.dtype).tiny
    for _ in range(iterations):
        consistent = _spectra(_waveforms(spectra, window, hop), window, hop)
        ahead = consistent + MOMENTUM * (consistent - before)
        before = consistent
        # Quicker than dividing by the magnitude of complex numbers.
        spectra = ahead * (magnitudes * (ahead.real.square() + ahead.imag.square() + tiny).rsqrt())
    return _waveforms(spectra, window, hop)


def _padded(batch: AudioBatch, hop: int) -> Tensor:
    """Silence around the clips: every frame that touches a clip is whole, and so are its neighbours."""
    width = batch.waveforms.shape[1]
    before, after = OVERLAP * hop, 2 * OVERLAP * hop
    after += -(before + width + after) % hop
    return torch.nn.functional.pad(batch.waveforms, (before, after))


def _spectra(waveforms: Tensor, window: Tensor, hop: int) -> Tensor:
    """`(batch, frames, bins)`."""
    spectra: Tensor = torch.fft.rfft(waveforms.unfold(1, len(window), hop) * window)
    return spectra


def _waveforms(spectra: Tensor, window: Tensor, hop: int) -> Tensor:
    """Frames added up again, `(batch, time)`; where fewer than all overlap there must be silence."""
    frames = torch.fft.irfft(spectra, n=len(window)) * window
    batch, count, _ = frames.shape
    total = frames.new_zeros(batch, count + OVERLAP - 1, hop)
    for place, piece in enumerate(frames.unflatten(2, (OVERLAP, hop)).unbind(dim=2)):
        total[:, place : place + count] += piece
    found: Tensor = total.flatten(1) / _GAIN
    return found


def _first_phases(batch: AudioBatch, draws: Draws, magnitudes: Tensor, hop: int) -> Tensor:
    """Random ones, drawn for as many frames as touch the clip: the others are silent."""
    bins = magnitudes.shape[2]
    angles = np.zeros(tuple(magnitudes.shape), dtype=np.float32)
    for row, (name, length) in enumerate(zip(batch.ids, batch.lengths.tolist(), strict=True)):
        frames = min(magnitudes.shape[1], -(-length // hop) + OVERLAP)
        angles[row, :frames] = draws.generator(name).random((frames, bins), dtype=np.float32)
    turns = 2.0 * np.pi * torch.from_numpy(angles).to(magnitudes)
    return torch.polar(torch.ones_like(turns), turns)
