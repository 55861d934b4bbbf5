"""Samples that are lost one by one, and in gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import SILENCE
from sottovoce.core.draws import Draws
from sottovoce.perception.degradations.degradation import Degradation, Range

GAP_SECONDS = 0.02
"""The length of a dropout: a packet of telephony."""


@final
@dataclass(frozen=True, kw_only=True)
class Pops(Degradation):
    """Clicks: samples at random places are replaced by the clip's peak, positive or negative.

    strength: 0 to 100, logarithmic: 0.01 to 10 %; 50 where neither this nor percent is given.
    percent: share of the clip's samples, up to 100; at least one sample.

    >>> clip = sv.AudioBatch.of([[0.125, 0.25, -0.5, 0.25]], sample_rate=16000)
    >>> sv.defenses.Pops(percent=100)(clip, draws=sv.Draws(0)).waveforms.abs().tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """

    percent: float | None = None

    random = True
    range: ClassVar[Range] = Range(
        figure="percent", unit="%", least=0.01, most=10.0, legal=(1e-6, 100.0), log=True
    )

    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        signs = np.zeros(tuple(batch.waveforms.shape), dtype=np.float32)
        for row, (name, length) in enumerate(zip(batch.ids, batch.lengths.tolist(), strict=True)):
            source = draws.generator(name)
            # More pops keep the places of fewer ones.
            places = source.permutation(length)
            ups = source.integers(0, 2, length) * 2.0 - 1.0
            count = _count(self.asked, length)
            signs[row, places[:count]] = ups[:count]
        pops = torch.from_numpy(signs).to(batch.waveforms)
        peak = batch.waveforms.detach().abs().amax(dim=1, keepdim=True).clamp_min(SILENCE)
        return torch.where(pops == 0, batch.waveforms, pops * peak)


@final
@dataclass(frozen=True, kw_only=True)
class Dropouts(Degradation):
    """Gaps of silence of up to 20 ms at random places, as of lost packets.

    A clip is divided into packets of 20 ms. They are lost one after the other, in random order, until as many
    samples are gone as asked for; of the last packet only a part is.

    strength: 0 to 100, logarithmic: 0.01 to 20 %; 50 where neither this nor percent is given.
    percent: share of the clip's samples, up to 100; at least one sample.

    >>> clip = sv.AudioBatch.of([[0.5] * 1000], sample_rate=16000)
    >>> lossy = sv.defenses.Dropouts(percent=20)(clip, draws=sv.Draws(0))
    >>> int((lossy.waveforms == 0).sum())
    200
    """

    percent: float | None = None

    random = True
    range: ClassVar[Range] = Range(
        figure="percent", unit="%", least=0.01, most=20.0, legal=(1e-6, 100.0), log=True
    )

    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        gap = max(1, round(GAP_SECONDS * batch.sample_rate))
        lost = np.zeros(tuple(batch.waveforms.shape), dtype=bool)
        for row, (name, length) in enumerate(zip(batch.ids, batch.lengths.tolist(), strict=True)):
            lost[row, _packets(draws.generator(name), length, gap)[: _count(self.asked, length)]] = True
        return batch.waveforms.masked_fill(torch.from_numpy(lost).to(batch.device), 0.0)


def _packets(source: np.random.Generator, length: int, gap: int) -> NDArray[np.int64]:
    """All samples of a clip in the order in which they are lost."""
    starts = source.permutation(-(-length // gap)) * gap
    places: NDArray[np.int64] = (starts[:, None] + np.arange(gap)).ravel()
    return places[places < length]


def _count(percent: float, length: int) -> int:
    return min(length, max(1, round(percent / 100.0 * length)))
