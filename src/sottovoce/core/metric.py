"""Metrics, one shape for all: each clip gives additive parts, and parts add up to an estimate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch, Lent
from sottovoce.core.statistics import clopper_pearson, ratio_bootstrap
from sottovoce.errors import InputError

FEWEST_SPEAKERS = 5
"""With fewer, resampling them says little: two speakers have three different resamples."""


@dataclass(frozen=True)
class Estimate:
    """A summary with its interval. `n` counts the clips that have a value; without any, all is NaN."""

    value: float
    low: float
    high: float
    n: int
    method: str

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


class Metric(ABC):
    """A subclass writes `measure`; the summary is the ratio of summed parts, so it merges over shards.

    A mean has parts (value, 1), a rate (0 or 1, 1), a corpus error rate (errors, words).
    A clip without a value has NaN parts, and one without a finite value infinite ones (the SNR of an
    untouched clip): both are left out of the summary, never counted as 0.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str] = ""
    of: ClassVar[Literal["decisions", "audio"]] = "audio"
    """What it looks at: what the model said, or what was added to the clip."""
    says: ClassVar[Literal["class", "words"] | None] = None
    """What the target must say for it to make sense: the name of a class, words, or None for either."""
    measured: ClassVar[Literal["always", "pairs", "named"]] = "always"
    """When nobody says which metrics to take: in audits as well, by `sottovoce measure` alone, or never."""
    before: ClassVar[bool] = False
    """Whether it looks at clean clips alone, as they are before any attack."""
    interval: ClassVar[Literal["bootstrap", "exact"]] = "bootstrap"
    """"exact" for rates whose parts are 0 or 1: Clopper-Pearson, which has no zero width at 0 % and 100 %."""

    @abstractmethod
    def measure(self, trial: Trial) -> Tensor:
        """`(batch, 2)` float64: numerator and weight of each clip."""

    @final
    def __call__(
        self,
        clean: Tensor,
        changed: Tensor,
        *,
        sample_rate: int,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> Tensor:
        """The value of each pair of waveforms, without a `Trial`: float64 on the CPU, NaN where it has none.

        clean, changed: `(batch, time)`, for which the values are `(batch,)`, or one pair `(time,)`, for which
            there is one value without a dimension.
        sample_rate: in Hz.
        lengths: of each pair, in samples; None: the whole width.

        A metric of what a model said has no value for sounds alone, and refuses.

        >>> import torch
        >>> import sottovoce as sv
        >>> clean = torch.full((2, 8000), 0.5)
        >>> sv.metrics.Snr()(clean, clean * torch.tensor([[1.1], [1.01]]), sample_rate=16000).round()
        tensor([20., 40.], dtype=torch.float64)
        """
        if self.of != "audio":
            raise InputError(
                f"{self.name} looks at what a model said, so it cannot be measured on two waveforms; take a "
                "metric of audio such as snr, or call measure() with the Trial of an attack."
            )
        parts = self.measure(trial_of_pairs(*_as_batches(clean, changed, sample_rate, lengths)))
        values = torch.from_numpy(clip_values(parts.cpu().double().numpy()))
        return values if clean.ndim == 2 else values[0]

    def reasons(self, trial: Trial, parts: Tensor) -> dict[str, str]:
        """Why clips have no value: the id of a clip without finite parts to one phrase.

        Asked after `measure`, with what it gave, by whoever records the figures. A metric that can leave a
        clip out for more than one reason, or for one that a reader would not guess, says so here.
        """
        return {}

    @final
    def summarise(
        self, parts: NDArray[np.float64], groups: Sequence[str] | None = None, *, level: float = 0.95
    ) -> Estimate:
        """The estimate over clips from their parts `(n, 2)`.

        groups: who speaks in each clip, "" where that is not known. From `FEWEST_SPEAKERS` on the bootstrap
            resamples speakers; with fewer, or where one is not known, clips. Exact intervals count clips.
        """
        finite = np.isfinite(parts).all(axis=1)
        scored = parts[finite]
        n = len(scored)
        if n == 0:
            return Estimate(float("nan"), float("nan"), float("nan"), 0, "none")
        if self.interval == "exact":
            found = clopper_pearson(round(scored[:, 0].sum()), n, level=level)
            return Estimate(*found, f"Clopper-Pearson {level:.0%}")
        speakers = [] if groups is None else [groups[row] for row in np.flatnonzero(finite).tolist()]
        if all(speakers) and len(set(speakers)) >= FEWEST_SPEAKERS:
            found = ratio_bootstrap(scored, groups=speakers, level=level)
            return Estimate(*found, f"bootstrap over speakers {level:.0%}")
        return Estimate(*ratio_bootstrap(scored, level=level), f"bootstrap {level:.0%}")


def trial_of_pairs(clean: AudioBatch, changed: AudioBatch) -> Trial:
    """Pairs of clips as metrics of audio take them: nothing was said, and nothing attempted."""
    nothing, no = ("",) * len(clean), (False,) * len(clean)
    return Trial(clean, changed, nothing, None, nothing, nothing, no, no)


def _as_batches(
    clean: Tensor, changed: Tensor, sample_rate: int, lengths: Tensor | Sequence[int] | None
) -> tuple[AudioBatch, AudioBatch]:
    if clean.ndim not in (1, 2) or clean.shape != changed.shape:
        raise InputError(
            "expected clean and changed of one shape, (time,) or (batch, time), got "
            f"{tuple(clean.shape)} and {tuple(changed.shape)}; pad or crop one of them."
        )
    rows, width = (clean.shape[0] if clean.ndim == 2 else 1), clean.shape[-1]
    sizes = torch.as_tensor([width] * rows if lengths is None else lengths, dtype=torch.int64)
    names = tuple(map(str, range(rows)))
    # What lies past a length is no part of a clip, whatever is there.
    past = torch.arange(width) >= sizes[:, None]
    one, other = (
        each.detach().reshape(rows, width).masked_fill(past.to(each.device), 0.0) for each in (clean, changed)
    )
    return AudioBatch(one, sizes, sample_rate, names), AudioBatch(other, sizes, sample_rate, names)


def lend(trial: Trial) -> Callable[[], Trial]:
    """The trial as metrics get to see it, one after the other: what one of them writes into its clips reaches
    neither the next nor the trial."""
    clean, adversarial = Lent(trial.clean), Lent(trial.adversarial)
    return lambda: replace(trial, clean=clean(), adversarial=adversarial())


def clip_values(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """One value a clip from its parts `(n, 2)`; NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(parts[:, 1] > 0, parts[:, 0] / parts[:, 1], np.nan)
