"""Universal perturbations: fitted on some clips, then added to any other."""

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

from sottovoce.core.attack import WITH_A_NORM, Attack
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import CheckedSettings
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target, shown_name
from sottovoce.errors import InputError


@final
@dataclass(frozen=True, eq=False)
class Perturbation(Attack):
    """One waveform `(time,)` that is added to every clip: cut for shorter clips, repeated for longer ones.

    Under a budget that is relative to the clip, such as an SNR, it is scaled to that budget for each clip; an
    absolute budget only bounds it.

    >>> hum = torch.sin(2 * torch.pi * 60 * torch.arange(16000) / 16000)
    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> trial = sv.attack("keyword", clips, sv.attacks.Perturbation(waveform=hum, sample_rate=16000),
    ...                   budget="snr(db=30)")
    >>> snr = sv.metrics.Snr()(trial.clean.waveforms, trial.adversarial.waveforms, sample_rate=16000)
    >>> [round(decibels) for decibels in snr.tolist()]
    [30, 30]
    """

    waveform: Tensor
    sample_rate: int
    made_by: str = ""

    def __post_init__(self) -> None:
        if self.waveform.ndim != 1 or not bool(torch.isfinite(self.waveform).all()) or not len(self.waveform):
            raise InputError(
                f"expected one finite waveform of shape (time,), got {tuple(self.waveform.shape)}; give a "
                "mono clip."
            )

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return self.played(clean, budget)

    def played(self, clean: AudioBatch, budget: Budget) -> Tensor:
        """The perturbation as it is added to each clip under a budget, `(batch, time)`."""
        laid = self.over(clean)
        if isinstance(budget, Ball) and budget.relative:
            return budget.fill(laid, clean)
        return budget.project(laid, clean)

    def over(self, clean: AudioBatch) -> Tensor:
        """The perturbation cut or repeated to each clip's length, `(batch, time)`, zero in the padding."""
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
        """Write it to a safetensors file."""
        facts = {"sample_rate": str(self.sample_rate), "made_by": self.made_by}
        save_file({"waveform": self.waveform.detach().cpu().contiguous()}, str(path), metadata=facts)

    @classmethod
    def load(cls, path: Path | str) -> Perturbation:
        """Read a file written by `save`."""
        try:
            with safe_open(str(path), framework="pt") as file:
                facts = file.metadata() or {}
                return cls(file.get_tensor("waveform"), int(facts["sample_rate"]), facts.get("made_by", ""))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise InputError(
                f"expected a perturbation saved by sottovoce, got {str(path)!r} ({error}); fit and save it "
                "again."
            ) from None


def check_norm(attack: UniversalAttack, budget: Budget) -> None:
    """Raise if a budget has no norm, and so no radius that all clips share."""
    if not isinstance(budget, Ball):
        raise InputError(f"{shown_name(attack)} needs {WITH_A_NORM}, got {budget}.")


class UniversalAttack(CheckedSettings, ABC):
    """An attack fitted on a set of clips. A subclass is a frozen dataclass that writes `fit`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Hum(sv.attacks.UniversalAttack):
    ...     hertz: float = 60.0
    ...     def fit(self, target, clips, goal, budget, *, draws):
    ...         seconds = torch.arange(target.sample_rate) / target.sample_rate
    ...         wave = torch.sin(2 * torch.pi * self.hertz * seconds)
    ...         return sv.attacks.Perturbation(waveform=wave, sample_rate=target.sample_rate)
    >>> model = sv.testing.ToyClassifier()
    >>> fitted = Hum().fit(model, [sv.testing.clips_for(model)], sv.goals.Evade(), sv.budgets.Snr(30),
    ...                    draws=sv.Draws(0))
    >>> len(fitted.waveform) == model.sample_rate
    True
    """

    name: ClassVar[str] = ""
    """The name it is registered under, for messages."""
    needs: ClassVar[tuple[type, ...]] = ()
    """Capabilities that the target must have."""

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
        """One perturbation for all clips; where it is added, `Perturbation` keeps each clip's budget."""
