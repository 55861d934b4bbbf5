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

    A clip that the ear cannot judge has no value, and neither has any clip where its weights are missing; the
    reason is the ear's own message.
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
    """Probability that an attentive listener tells the example from the clip, in %, by the learned ear.

    0 % for equal clips, 50 % at one just noticeable difference. The ear is `sottovoce.ears.Learned`; its
    shipped weights were trained on simulated answers, not on people's.

    >>> clean = 0.1 * torch.sin(torch.arange(16000) / 10)
    >>> changed = clean + 0.1 * torch.sin(torch.arange(16000) / 3)  # a second tone, as loud as the first
    >>> sv.measure(clean, changed, metrics="p-heard", sample_rate=16000)["p-heard"] > 0.9
    True
    """

    name, title, unit = "p-heard", "P(heard)", "%"
    ear = "learned"

    def ask(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        return open_ear(self.ear).probability(_learned_distance(clean, changed))


@final
class PHeardMasking(EarMetric):
    """Probability that a listener hears what was added, in %, by the masking model: a second opinion.

    0 % for equal clips, 50 % at the masking threshold. The ear is `sottovoce.ears.MaskingEar`.

    >>> clean = 0.1 * torch.sin(torch.arange(16000) / 10)
    >>> changed = clean + 0.1 * torch.sin(torch.arange(16000) / 3)  # a second tone, as loud as the first
    >>> sv.measure(clean, changed, metrics="p-heard-masking", sample_rate=16000)["p-heard-masking"] > 0.9
    True
    """

    name, title, unit = "p-heard-masking", "P(heard), masking model", "%"
    ear = "masking"

    def ask(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        return open_ear(self.ear).heard(clean, changed)


@final
class HeardDistance(EarMetric):
    """How different the example sounds from the clip, in just noticeable differences, by the learned ear.

    0 for equal clips; at 1 half of all attentive listeners notice (see `p-heard`).

    >>> clean = 0.1 * torch.sin(torch.arange(16000) / 10)
    >>> sv.measure(clean, clean, metrics="heard-distance", sample_rate=16000)["heard-distance"]
    0.0
    """

    name, title, unit = "heard-distance", "learned distance", "JND"
    ear = "learned"

    def ask(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        return _learned_distance(clean, changed)


@once_a_pair
def _learned_distance(clean: AudioBatch, changed: AudioBatch) -> Tensor:
    return open_ear("learned").distance(clean, changed)
