"""Degradations: transforms whose strength from 0 to 100 runs through the range of one physical figure."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError

USUAL_STRENGTH = 50.0


@final
@dataclass(frozen=True, kw_only=True)
class Range:
    """What strengths from 0 to 100 mean: from the figure that changes a clip least to the one that does most.

    figure: the setting that holds it, such as "snr_db".
    legal: which figures a user may ask for.
    log: equal steps of strength are equal ratios of the figure, not equal differences.
    """

    figure: str
    unit: str
    least: float
    most: float
    legal: tuple[float, float]
    log: bool = False

    def at(self, strength: float) -> float:
        share = strength / 100.0
        if self.log:
            found: float = self.least * (self.most / self.least) ** share
            return found
        return self.least + (self.most - self.least) * share


@dataclass(frozen=True, kw_only=True)
class Degradation(Transform):
    """One way in which sound gets worse, after Table 1 of Manocha et al. (2020). A subclass writes `degrade`.

    How much is set by its strength, or by the physical figure itself; strength 50 where neither is given.
    What is random depends on the draws and not on the strength: with growing strength the same noise gets
    louder and the same gaps get longer. Length and alignment stay. Samples may leave [-1, 1].

    strength: 0 (the least change of the range) to 100 (the most).
    """

    strength: float | None = None

    range: ClassVar[Range]

    def __post_init__(self) -> None:
        figure, given = self.range.figure, getattr(self, self.range.figure)
        if given is not None and self.strength is not None:
            raise InputError(
                f"strength and {figure} exclude each other, got {self.strength} and {given}; drop one of "
                "them."
            )
        if given is None and self.strength is None:
            object.__setattr__(self, "strength", USUAL_STRENGTH)
        if self.strength is not None and not 0 <= self.strength <= 100:
            raise InputError(f"strength: expected 0 to 100, got {self.strength}; 50 is in the middle.")
        low, high = self.range.legal
        if given is not None and not (low <= given <= high and math.isfinite(given)):
            raise InputError(
                f"{figure}: expected {low:g} to {high:g} {self.range.unit}".rstrip()
                + f", got {given}; the published range is {self.range.least:g} to {self.range.most:g}."
            )

    @property
    def asked(self) -> float:
        """The figure that is asked for, as given or as the strength has it."""
        given = getattr(self, self.range.figure)
        if given is not None:
            return float(given)
        assert self.strength is not None
        return self.range.at(self.strength)

    @abstractmethod
    def degrade(self, batch: AudioBatch, draws: Draws) -> Tensor:
        """The new samples of finite ones, `(batch, time)`; what falls into the padding is cut afterwards."""

    @final
    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        finite = torch.isfinite(batch.waveforms.detach()).all(dim=1)
        if not bool(finite.all()):
            raise InputError(
                f"clip {batch.ids[int((~finite).nonzero()[0])]!r}: got NaN or infinite samples; look for the "
                "cause in the transform or the attack before this one."
            )
        return self.degrade(batch, draws)


def at_level_of(clean: AudioBatch, heard: Tensor) -> Tensor:
    """`heard` `(batch, time)` at the RMS of the clips that it comes from, padding left out.

    In float64 on the way: a codec that follows may turn the last bit of a sample into something to be heard,
    and that bit must not depend on how wide the batch is.
    """
    heard = heard.double().masked_fill(~clean.mask, 0.0)
    wanted = torch.linalg.vector_norm(clean.waveforms.double(), dim=1, keepdim=True)
    found = torch.linalg.vector_norm(heard, dim=1, keepdim=True)
    scaled: Tensor = (heard * (wanted / found.clamp_min(torch.finfo(heard.dtype).tiny))).to(clean.waveforms)
    return scaled


def straight_through(batch: AudioBatch, heard: Tensor) -> Tensor:
    """The samples `(batch, time)` of a step that has no gradient, with the identity's."""
    # In this order the zero that carries the gradient is exact, and so is what is heard.
    return heard.detach() + (batch.waveforms - batch.waveforms.detach())
