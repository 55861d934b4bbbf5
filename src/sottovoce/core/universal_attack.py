"""Universal perturbations: found once on some clips, then added to any other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sottovoce.core.attack import Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target
from sottovoce.errors import InputError


@final
@dataclass(frozen=True, eq=False)
class Perturbation(Attack):
    """One waveform `(time,)` that is added to every clip: cut to shorter clips, repeated over longer ones.

    A budget that is relative to the clip (an SNR) says how loud it is played there; an absolute one only
    bounds it.
    """

    waveform: Tensor
    sample_rate: int
    made_by: str = ""

    def __post_init__(self) -> None:
        if self.waveform.ndim != 1 or not bool(torch.isfinite(self.waveform).all()) or not len(self.waveform):
            raise InputError(
                f"expected one finite waveform of shape (time,), got {tuple(self.waveform.shape)}; "
                "give a mono clip."
            )

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return self.played(clean, budget)

    def played(self, clean: AudioBatch, budget: Budget) -> Tensor:
        """The perturbation as each clip hears it under a budget, `(batch, time)`."""
        laid = self.over(clean)
        if isinstance(budget, Ball) and budget.relative:
            return budget.fill(laid, clean)
        return budget.project(laid, clean)

    def over(self, clean: AudioBatch) -> Tensor:
        """The perturbation laid over each clip, `(batch, time)`, zero in the padding."""
        if clean.sample_rate != self.sample_rate:
            raise InputError(
                f"expected clips at the perturbation's {self.sample_rate} Hz, got {clean.sample_rate} Hz; "
                "resample the clips or fit the perturbation again."
            )
        width = clean.waveforms.shape[1]
        turns = -(-width // len(self.waveform))
        row = self.waveform.to(clean.waveforms).repeat(turns)[:width]
        return clean.with_waveforms(row.expand(len(clean), width)).waveforms

    def save(self, path: Path | str) -> None:
        facts = {"sample_rate": str(self.sample_rate), "made_by": self.made_by}
        save_file({"waveform": self.waveform.detach().cpu().contiguous()}, str(path), metadata=facts)

    @classmethod
    def load(cls, path: Path | str) -> Perturbation:
        try:
            with safe_open(str(path), framework="pt") as file:
                facts = file.metadata() or {}
                return cls(file.get_tensor("waveform"), int(facts["sample_rate"]), facts.get("made_by", ""))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise InputError(
                f"expected a perturbation saved by sottovoce, got {str(path)!r} ({error}); "
                "fit and save it again."
            ) from None


class UniversalAttack(ABC):
    """An attack fitted on a set of clips. A subclass is a frozen dataclass of settings with a `fit`."""

    needs: ClassVar[tuple[type, ...]] = ()
    """Powers that the target must have."""

    @abstractmethod
    def fit(
        self,
        target: Target,
        clips: Sequence[AudioBatch] | Iterable[AudioBatch],
        goal: Goal,
        budget: Budget,
        *,
        draws: Draws,
    ) -> Perturbation:
        """One perturbation for all clips; `Perturbation` keeps to the budget of each clip it is added to."""
