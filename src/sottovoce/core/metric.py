"""Metrics: each clip gives additive parts, and the parts add up to an estimate with an interval."""

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
"""The fewest speakers whose resampling is meaningful: two speakers have only three different resamples."""


@dataclass(frozen=True)
class Estimate:
    """A value over clips with its confidence interval.

    n: the clips that have a value; with none of them value, low and high are NaN.
    method: how the interval was computed, such as "Clopper-Pearson 95%".

    >>> import numpy as np
    >>> found = sv.metrics.Success().summarise(np.array([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> print(found, found.n, found.method)
    0.75 [0.194, 0.994] 4 Clopper-Pearson 95%
    """

    value: float
    low: float
    high: float
    n: int
    method: str

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


class Metric(ABC):
    """A figure measured on the results of an attack. A subclass writes `measure`.

    It returns two parts for each clip. The value over clips is the sum of the first parts over the sum of the
    second: (value, 1) for a mean, (0 or 1, 1) for a rate, (errors, words) for a corpus error rate. A clip
    without a value has NaN parts, one without a finite value infinite ones (the SNR of an untouched clip);
    both are left out, never counted as 0.

    >>> class Peak(sv.Metric):
    ...     name, title, unit = "peak", "Largest change of a sample", "of full scale"
    ...     def measure(self, trial):
    ...         peak = trial.delta.abs().amax(dim=1).double()
    ...         return torch.stack([peak, torch.ones_like(peak)], dim=1)
    >>> trial = sv.attack("keyword", sv.open_data(model="keyword", limit=2), "fgsm", budget="linf(eps=0.125)")
    >>> round(Peak().summarise(Peak().measure(trial).numpy()).value, 3)
    0.125
    """

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str] = ""
    of: ClassVar[Literal["decisions", "audio"]] = "audio"
    """What it is about: the model's "decisions", or the "audio" that was added."""
    says: ClassVar[Literal["class", "words"] | None] = None
    """The kind of target that it applies to: "class", "words", or None for both."""
    measured: ClassVar[Literal["always", "pairs", "named"]] = "always"
    """When it is measured: "always", by default only in `sottovoce measure` ("pairs"), or only if "named"."""
    before: ClassVar[bool] = False
    """Whether it is about the clean clips only."""
    interval: ClassVar[Literal["bootstrap", "exact"]] = "bootstrap"
    """"exact" for rates whose parts are 0 or 1: Clopper-Pearson, which has no zero width at 0 % and 100 %."""

    @abstractmethod
    def measure(self, trial: Trial) -> Tensor:
        """The parts of each clip, `(batch, 2)` float64: numerator and weight."""

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
        """Why clips have no value: from the id of a clip without finite parts to a short reason.

        Called after `measure`, with its result. A metric overrides it if the reason is not obvious.
        """
        return {}

    @final
    def summarise(
        self, parts: NDArray[np.float64], groups: Sequence[str] | None = None, *, level: float = 0.95
    ) -> Estimate:
        """The estimate over clips from their parts `(n, 2)`.

        groups: the speaker of each clip, "" if unknown. With `FEWEST_SPEAKERS` or more the bootstrap
            resamples speakers; with fewer, or with an unknown one, clips. Exact intervals count clips.
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
    """Copies of the trial for one metric after another, so that none can change it for the next."""
    clean, adversarial = Lent(trial.clean), Lent(trial.adversarial)
    return lambda: replace(trial, clean=clean(), adversarial=adversarial())


def clip_values(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The value of each clip from its parts `(n, 2)`; NaN if it has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(parts[:, 1] > 0, parts[:, 0] / parts[:, 1], np.nan)
