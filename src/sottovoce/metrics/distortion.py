"""What an attack added to the audio: `signal` and `parts` as metrics, one value a clip."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.metric import Metric
from sottovoce.metrics import signal_distortion as signal
from sottovoce.metrics import vocal_parts as parts

ACCEPTED_DB = -32.0
"""dB_x,max that the literature takes for quiet enough (Vadillo & Santana, section 4.1)."""


class ClipMean(Metric):
    """A metric whose summary is the mean over clips. A subclass writes `values`."""

    @abstractmethod
    def values(self, trial: Trial) -> Tensor:
        """`(batch,)` float64, NaN where a clip has no value."""

    @final
    def measure(self, trial: Trial) -> Tensor:
        values = self.values(trial).double().cpu()
        return torch.stack([values, torch.ones_like(values)], dim=1)


@final
class Snr(ClipMean):
    """Power of the clip over power of what was added; infinite ones are left out of the mean."""

    name, title, unit = "snr", "SNR", "dB"

    def values(self, trial: Trial) -> Tensor:
        return signal.snr_db(trial.clean.waveforms, trial.delta, trial.clean.lengths)


@final
class SegmentalSnrDb(ClipMean):
    """SNR of short frames, each limited to -10..35 dB: quiet passages count as much as loud ones."""

    name, title, unit = "segmental-snr", "segmental SNR", "dB"

    def values(self, trial: Trial) -> Tensor:
        clean = trial.clean
        return signal.segmental_snr_db(
            clean.waveforms, trial.delta, clean.lengths, sample_rate=clean.sample_rate
        )


@final
class LInfNorm(ClipMean):
    """Largest change of a sample, on the scale where full swing is 1."""

    name, title = "linf", "L-infinity"

    def values(self, trial: Trial) -> Tensor:
        return signal.linf(trial.clean.waveforms, trial.delta, trial.clean.lengths)


@final
class L2Norm(ClipMean):
    """Euclidean length of what was added."""

    name, title = "l2", "L2"

    def values(self, trial: Trial) -> Tensor:
        return signal.l2(trial.clean.waveforms, trial.delta, trial.clean.lengths)


class PartDb(ClipMean):
    """Level of what was added, relative to the clip, on one part of it (Vadillo & Santana, eqs. 1 and 4)."""

    unit: ClassVar[str] = "dB"
    part: ClassVar[Literal["whole", "vocal", "background"]] = "whole"
    level: ClassVar[Literal["max", "mean"]] = "max"

    @final
    def values(self, trial: Trial) -> Tensor:
        clean, lengths = trial.clean.waveforms, trial.clean.lengths
        whole = self.part == "whole"
        mask = trial.clean.mask if whole else getattr(parts.find_parts(clean, lengths), self.part)
        measure = parts.relative_db_max if self.level == "max" else parts.relative_db_mean
        values = measure(clean, trial.delta, mask)
        if self.part == "vocal" and trial.labels is not None:
            # Clips of silence have no vocal part (section 4.2).
            silent = torch.tensor([label == "silence" for label in trial.labels])
            values = values.masked_fill(silent, torch.nan)
        return values


@final
class DbMax(PartDb):
    """Peak of the perturbation under the peak of the clip: dB_x,max."""

    name, title = "db-max", "dB max, whole clip"


@final
class DbMaxVocal(PartDb):
    """As db-max, over the vocal part of each clip."""

    name, title, part = "db-max-vocal", "dB max, vocal part", "vocal"


@final
class DbMaxBackground(PartDb):
    """As db-max, over what lies outside the vocal part."""

    name, title, part = "db-max-background", "dB max, background", "background"


@final
class DbMean(PartDb):
    """Mean level of the perturbation under the mean level of the clip: dB_x,mean."""

    name, title, level = "db-mean", "dB mean, whole clip", "mean"


@final
class DbMeanVocal(PartDb):
    """As db-mean, over the vocal part of each clip."""

    name, title, part, level = "db-mean-vocal", "dB mean, vocal part", "vocal", "mean"


@final
class DbMeanBackground(PartDb):
    """As db-mean, over what lies outside the vocal part."""

    name, title, part, level = "db-mean-background", "dB mean, background", "background", "mean"


@final
class BelowAccepted(Metric):
    """Share of clips whose dB_x,max lies below -32 dB, which the literature takes for quiet enough."""

    name, title, unit = "below-32db", "clips below -32 dB", "%"
    interval: ClassVar[Literal["exact", "bootstrap"]] = "exact"

    def measure(self, trial: Trial) -> Tensor:
        loudness = DbMax().values(trial)
        return torch.stack([(loudness < ACCEPTED_DB).double(), torch.ones_like(loudness)], dim=1)
