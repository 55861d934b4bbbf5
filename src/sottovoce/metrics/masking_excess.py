"""How much of what an attack added rises above what the clip masks (`perception.masking.threshold`)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.metric import Metric
from sottovoce.metrics.shared_pairs import once_a_pair
from sottovoce.perception.masking.threshold import Excess, Masker


class Masking(Metric):
    """A figure of the excess over the masking threshold, which a subclass picks; mean over clips."""

    @abstractmethod
    def of_excess(self, excess: Excess) -> Tensor:
        """`(batch,)`."""

    @final
    def measure(self, trial: Trial) -> Tensor:
        values = self.of_excess(_excess(trial.clean, trial.adversarial)).double().cpu()
        return torch.stack([values, torch.ones_like(values)], dim=1)


@final
class MaskingShare(Masking):
    """Share of time-frequency cells in which what was added exceeds the masking threshold, in %.

    The threshold is that of psychoacoustic model 1 (ISO 11172-3) for the clean clip; 0 % is all masked.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> sv.measure(clean, 1.0001 * clean, metrics="masking-share", sample_rate=16000)["masking-share"]
    0.0
    """

    name, title, unit = "masking-share", "audible cells", "%"

    def of_excess(self, excess: Excess) -> Tensor:
        return excess.share


@final
class MaskingExcess(Masking):
    """Mean excess of what was added over the masking threshold, in dB; cells below it count as 0.

    The threshold is that of psychoacoustic model 1 (ISO 11172-3) for the clean clip; 0 dB is all masked.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> sv.measure(clean, 1.0001 * clean, metrics="masking-excess", sample_rate=16000)["masking-excess"]
    0.0
    """

    name, title, unit = "masking-excess", "excess over the masking threshold", "dB"

    def of_excess(self, excess: Excess) -> Tensor:
        return excess.mean_db


@final
class MaskingMax(Masking):
    """Largest excess of what was added over the masking threshold, in dB; below 0 all of it is masked.

    The threshold is that of psychoacoustic model 1 (ISO 11172-3) for the clean clip. A clip that was not
    changed has no value.

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> added = 0.1 * torch.sin(torch.arange(16000) / 3)
    >>> loud, quiet = (
    ...     sv.measure(clean, clean + gain * added, metrics="masking-max", sample_rate=16000)
    ...     for gain in (1.0, 0.1)
    ... )
    >>> round(loud["masking-max"] - quiet["masking-max"], 1)  # a tenth of the amplitude: 20 dB less
    20.0
    """

    name, title, unit = "masking-max", "largest excess over the masking threshold", "dB"

    def of_excess(self, excess: Excess) -> Tensor:
        return excess.max_db

    def reasons(self, trial: Trial, parts: Tensor) -> dict[str, str]:
        untouched = (~parts.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
        return {trial.clean.ids[row]: "nothing was added" for row in untouched}


@once_a_pair
def _excess(clean: AudioBatch, adversarial: AudioBatch) -> Excess:
    masker = Masker(clean.sample_rate)
    delta = adversarial.waveforms.detach() - clean.waveforms.detach()
    excess = masker.excess(delta, masker.threshold(clean))
    # Of nothing no cell is the worst.
    return replace(excess, max_db=excess.max_db.where(delta.any(dim=1), -torch.inf))
