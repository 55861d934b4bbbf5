"""How much of what an attack added rises above what the clip masks (`sottovoce.perception.masking`)."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

import torch
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.metric import Metric
from sottovoce.perception.masking import Excess, Masker


class Masking(Metric):
    """A subclass names the measure of a perturbation's excess; the summary is its mean over clips."""

    @abstractmethod
    def of_excess(self, excess: Excess) -> Tensor:
        """`(batch,)`."""

    @final
    def measure(self, trial: Trial) -> Tensor:
        masker = Masker(trial.clean.sample_rate)
        excess = masker.excess(trial.delta, masker.threshold(trial.clean))
        values = self.of_excess(excess).double().cpu()
        return torch.stack([values, torch.ones_like(values)], dim=1)


@final
class MaskingShare(Masking):
    """Share of the cells of a clip's spectrum in which what was added is above the masking threshold."""

    name, title, unit = "masking-share", "audible cells", "%"

    def of_excess(self, excess: Excess) -> Tensor:
        return excess.share


@final
class MaskingExcess(Masking):
    """How far what was added rises above the masking threshold, over all cells, those below counting 0."""

    name, title, unit = "masking-excess", "excess over the masking threshold", "dB"

    def of_excess(self, excess: Excess) -> Tensor:
        return excess.mean_db
