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
    """A subclass names the measure of a perturbation's excess; the summary is its mean over clips."""

    @abstractmethod
    def of_excess(self, excess: Excess) -> Tensor:
        """`(batch,)`."""

    @final
    def measure(self, trial: Trial) -> Tensor:
        values = self.of_excess(_excess(trial.clean, trial.adversarial)).double().cpu()
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


@final
class MaskingMax(Masking):
    """How far what was added rises above the masking threshold where it does most; below 0: all is masked."""

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
