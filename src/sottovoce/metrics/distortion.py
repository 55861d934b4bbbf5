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
    """Signal-to-noise ratio in dB: energy of the clip over energy of what was added.

    Higher is quieter; what is audible it does not say (see `p-heard`). A clip that was not changed has an
    infinite SNR and is left out of the mean.

    >>> clean = torch.tensor([0.5, -0.5, 0.5, -0.5])
    >>> changed = 1.1 * clean  # a tenth of the amplitude was added
    >>> round(sv.measure(clean, changed, metrics="snr", sample_rate=16000)["snr"], 3)
    20.0
    """

    name, title, unit = "snr", "SNR", "dB"

    def values(self, trial: Trial) -> Tensor:
        return signal.snr_db(trial.clean.waveforms, trial.delta, trial.clean.lengths)


@final
class SegmentalSnrDb(ClipMean):
    """SNR in dB of 30 ms frames, each limited to -10..35 dB, mean over the frames.

    Quiet passages count as much as loud ones, so noise in pauses costs more than in `snr` (Hu and Loizou
    2008).

    >>> clean = 0.5 * torch.sin(torch.arange(16000) / 10)
    >>> found = sv.measure(clean, 1.1 * clean, metrics="segmental-snr", sample_rate=16000)
    >>> round(found["segmental-snr"], 3)
    20.0
    """

    name, title, unit = "segmental-snr", "segmental SNR", "dB"

    def values(self, trial: Trial) -> Tensor:
        clean = trial.clean
        return signal.segmental_snr_db(
            clean.waveforms, trial.delta, clean.lengths, sample_rate=clean.sample_rate
        )


@final
class LInfNorm(ClipMean):
    """Largest change of a single sample, where 1 is full scale; one step of a 16-bit file is 1/32768.

    >>> clean, changed = torch.tensor([0.5, -0.5]), torch.tensor([0.5, -0.25])
    >>> sv.measure(clean, changed, metrics="linf", sample_rate=16000)["linf"]
    0.25
    """

    name, title = "linf", "L-infinity"

    def values(self, trial: Trial) -> Tensor:
        return signal.linf(trial.clean.waveforms, trial.delta, trial.clean.lengths)


@final
class L2Norm(ClipMean):
    """Euclidean norm of what was added, where a sample of full scale is 1; it grows with the clip's length.

    >>> clean, changed = torch.zeros(2), torch.tensor([0.375, 0.5])
    >>> sv.measure(clean, changed, metrics="l2", sample_rate=16000)["l2"]
    0.625
    """

    name, title = "l2", "L2"

    def values(self, trial: Trial) -> Tensor:
        return signal.l2(trial.clean.waveforms, trial.delta, trial.clean.lengths)


class PartDb(ClipMean):
    """Level of what was added against that of the clip, on a part of it (Vadillo and Santana, eqs. 1, 4)."""

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
    """Peak of the perturbation against the peak of the clip, in dB: dB_x,max.

    0 dB is as loud as the clip, and -32 dB is what the literature accepts as quiet (Vadillo and Santana, eq.
    1).

    >>> clean, changed = torch.tensor([0.5, -0.25]), torch.tensor([0.55, -0.25])
    >>> round(sv.measure(clean, changed, metrics="db-max", sample_rate=16000)["db-max"], 2)
    -20.0
    """

    name, title = "db-max", "dB max, whole clip"


@final
class DbMaxVocal(PartDb):
    """As `db-max`, over the vocal part of each clip: the shortest range with 95 % of its energy.

    Clips labelled "silence" have no vocal part and no value (Vadillo and Santana, section 4.2).

    >>> clean = torch.tensor([0.01, 0.1, 0.1, 0.01])  # the two samples in the middle are the vocal part
    >>> found = sv.measure(clean, clean + 0.001, metrics="db-max-vocal", sample_rate=16000)
    >>> round(found["db-max-vocal"], 2)
    -40.0
    """

    name, title, part = "db-max-vocal", "dB max, vocal part", "vocal"


@final
class DbMaxBackground(PartDb):
    """As `db-max`, over what lies outside the vocal part of each clip.

    >>> clean = torch.tensor([0.01, 0.1, 0.1, 0.01])  # the two samples in the middle are the vocal part
    >>> found = sv.measure(clean, clean + 0.001, metrics="db-max-background", sample_rate=16000)
    >>> round(found["db-max-background"], 2)
    -20.0
    """

    name, title, part = "db-max-background", "dB max, background", "background"


@final
class DbMean(PartDb):
    """Mean magnitude of the perturbation against that of the clip, in dB: dB_x,mean.

    Vadillo and Santana, eq. 4. Lower is quieter.

    >>> clean, changed = torch.tensor([0.5, -0.5]), torch.tensor([0.5, -0.4])
    >>> round(sv.measure(clean, changed, metrics="db-mean", sample_rate=16000)["db-mean"], 2)
    -20.0
    """

    name, title, level = "db-mean", "dB mean, whole clip", "mean"


@final
class DbMeanVocal(PartDb):
    """As `db-mean`, over the vocal part of each clip: the shortest range with 95 % of its energy.

    >>> clean = torch.tensor([0.01, 0.1, 0.1, 0.01])  # the two samples in the middle are the vocal part
    >>> found = sv.measure(clean, clean + 0.001, metrics="db-mean-vocal", sample_rate=16000)
    >>> round(found["db-mean-vocal"], 2)
    -40.0
    """

    name, title, part, level = "db-mean-vocal", "dB mean, vocal part", "vocal", "mean"


@final
class DbMeanBackground(PartDb):
    """As `db-mean`, over what lies outside the vocal part of each clip.

    >>> clean = torch.tensor([0.01, 0.1, 0.1, 0.01])  # the two samples in the middle are the vocal part
    >>> found = sv.measure(clean, clean + 0.001, metrics="db-mean-background", sample_rate=16000)
    >>> round(found["db-mean-background"], 2)
    -20.0
    """

    name, title, part, level = "db-mean-background", "dB mean, background", "background", "mean"


@final
class BelowAccepted(Metric):
    """Share of clips whose `db-max` is below -32 dB, in %: what the literature accepts as quiet.

    Vadillo and Santana, section 4.1. It does not prove that nobody hears it (see `p-heard`).

    >>> clean = torch.tensor([0.5, -0.25])
    >>> sv.measure(clean, 1.01 * clean, metrics="below-32db", sample_rate=16000)["below-32db"]  # -40 dB
    1.0
    """

    name, title, unit = "below-32db", "clips below -32 dB", "%"
    interval: ClassVar[Literal["exact", "bootstrap"]] = "exact"

    def measure(self, trial: Trial) -> Tensor:
        loudness = DbMax().values(trial)
        return torch.stack([(loudness < ACCEPTED_DB).double(), torch.ones_like(loudness)], dim=1)
