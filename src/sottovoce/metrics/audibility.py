"""Whether what an attack added would be heard, as an ear of `sottovoce.perception` judges it."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.metric import Metric
from sottovoce.errors import SottovoceError
from sottovoce.metrics.shared_pairs import once_a_pair
from sottovoce.perception.audible_budget import open_ear


class EarMetric(Metric):
    """A subclass names an ear and what it is asked; the summary is the mean over clips.

    A clip that the ear cannot judge, and every clip where it has no weights, is without a value, and the
    reason is what the ear says.
    """

    ear: ClassVar[str]

    @abstractmethod
    def ask(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        """`(batch,)`."""

    @final
    def measure(self, trial: Trial) -> Tensor:
        try:
            values = self._asked(trial.clean, trial.adversarial)
        except SottovoceError:
            # One clip that cannot be judged must not take the others along.
            alone = [self._one(trial, row) for row in range(len(trial.clean))]
            values = torch.tensor([math.nan if isinstance(value, str) else value for value in alone]).double()
        return torch.stack([values, torch.ones_like(values).masked_fill(values.isnan(), math.nan)], dim=1)

    @final
    def reasons(self, trial: Trial, parts: Tensor) -> dict[str, str]:
        """What the ear says of each clip that it does not judge."""
        missing = (~parts.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
        said = {trial.clean.ids[row]: self._one(trial, row) for row in missing}
        return {clip: value for clip, value in said.items() if isinstance(value, str)}

    def _one(self, trial: Trial, row: int) -> float | str:
        """The value of one clip, or why it has none."""
        try:
            return float(self._asked(trial.clean.select([row]), trial.adversarial.select([row])))
        except SottovoceError as error:
            return str(error)

    def _asked(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        with torch.no_grad():
            return self.ask(clean, changed).double().cpu()


@final
class PHeard(EarMetric):
    """How likely an attentive listener tells the example from the clip, says the learned ear."""

    name, title, unit = "p-heard", "P(heard)", "%"
    ear = "learned"

    def ask(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        return open_ear(self.ear).probability(_learned_distance(clean, changed))


@final
class PHeardMasking(EarMetric):
    """How likely a listener hears what was added, says the masking model: a second opinion."""

    name, title, unit = "p-heard-masking", "P(heard), masking model", "%"
    ear = "masking"

    def ask(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        return open_ear(self.ear).heard(clean, changed)


@final
class HeardDistance(EarMetric):
    """How far the example sounds from the clip, in just noticeable differences of the learned ear."""

    name, title, unit = "heard-distance", "learned distance", "JND"
    ear = "learned"

    def ask(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        return _learned_distance(clean, changed)


@once_a_pair
def _learned_distance(clean: AudioBatch, changed: AudioBatch) -> Tensor:
    return open_ear("learned").distance(clean, changed)
