"""Training of a denoiser with one of several losses (Manocha et al. 2020, section 4.2)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from sottovoce.core.draws import Draws
from sottovoce.defenses.denoiser import DenoiserNetwork, DenoiserShape, save_denoiser
from sottovoce.errors import GradientError, InputError
from sottovoce.training.checkpoint import write_whole
from sottovoce.training.denoiser.denoiser_losses import LossWeights, Objective
from sottovoce.training.denoiser.denoiser_material import SAMPLE_RATE, DenoiserMaterial, fixed_set

Log = Callable[[str], None]


@final
@dataclass(frozen=True, kw_only=True)
class DenoiserRecipe:
    """What shapes a run besides material, loss and device.

    steps, seconds: whichever is over first; at least one is given. piece_seconds: of speech, a batch row.
    warmup: the share of a run in which the learning rate rises; after it, it falls as a cosine.
    settled: the share of a run after which statistics stay as they are, as they do in use.
    looks: number of validations during the run.
    """

    steps: int | None = None
    seconds: float | None = 45.0
    batch: int = 16
    piece_seconds: float = 1.5
    learning_rate: float = 2e-3
    warmup: float = 0.05
    settled: float = 0.7
    looks: int = 6
    valid_pieces: int = 64
    seed: int = 0
    shape: DenoiserShape = field(default_factory=DenoiserShape)

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise InputError("give steps or seconds, after which training stops.")
        if self.batch < 1 or self.piece_seconds < 0.2 or self.looks < 1:
            raise InputError(
                f"expected a piece a batch or more, of 0.2 s or more, and a look, got {self.batch}, "
                f"{self.piece_seconds} and {self.looks}; raise them."
            )


@final
@dataclass(frozen=True, kw_only=True)
class DenoiserReport:
    """The result of a run. history: at each look the step, seconds, and means over the validation mixtures of
    the loss (1: as before training), of the SNR in dB and of what it was before."""

    loss: str
    steps: int
    seconds: float
    device: str
    recipe: dict[str, Any]
    weights: dict[str, float]
    speakers: dict[str, list[str]]
    history: list[dict[str, float]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@final
class DenoiserTraining:
    """A training run in progress."""

    def __init__(
        self, loss: str, material: DenoiserMaterial, sources: LossWeights, recipe: DenoiserRecipe, log: Log
    ) -> None:
        self.material, self.recipe, self.log = material, recipe, log
        self.objective = Objective(loss, sources, material.device)
        # Every loss begins with the same weights, and sees the same mixtures in the same order.
        self.network = DenoiserNetwork(recipe.shape, recipe.seed).to(material.device)
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=recipe.learning_rate, weight_decay=1e-4, betas=(0.9, 0.99)
        )
        self.samples = round(recipe.piece_seconds * SAMPLE_RATE)
        self.step, self.spent_seconds, self.history = 0, 0.0, list[dict[str, float]]()

    def go(self) -> DenoiserReport:
        draws = Draws(self.recipe.seed).turn("train")
        several = [
            self.material.train.mix(self.recipe.batch, self.samples, draws.generator(f"calibrate-{number}"))
            for number in range(4)
        ]
        self.objective.calibrate(*(torch.cat(each) for each in zip(*several, strict=True)))
        self._look()
        began = time.monotonic()
        looked = 0
        while (spent := self._spent()) < 1.0:
            self._take_step(spent, draws)
            self.spent_seconds = time.monotonic() - began
            if (now := int(self._spent() * self.recipe.looks)) > looked:
                looked = now
                self._look()
        recipe = {**asdict(self.recipe), "precision": self._precision}
        return DenoiserReport(
            loss=self.objective.name,
            steps=self.step,
            seconds=self.spent_seconds,
            device=str(self.material.device),
            recipe=recipe,
            weights=self.objective.weights,
            speakers=self.material.speakers,
            history=self.history,
        )

    @property
    def _precision(self) -> str:
        return "bfloat16" if self.material.device.type == "cuda" else "float32"

    def _spent(self) -> float:
        shares = [0.0]
        if self.recipe.steps:
            shares.append(self.step / self.recipe.steps)
        if self.recipe.seconds:
            shares.append(self.spent_seconds / self.recipe.seconds)
        return max(shares)

    def _rate(self, spent: float) -> float:
        """Share of the full learning rate."""
        if spent < self.recipe.warmup:
            return 0.05 + 0.95 * spent / self.recipe.warmup
        along = (spent - self.recipe.warmup) / (1.0 - self.recipe.warmup)
        return 0.5 * (1.0 + math.cos(math.pi * along)) + 0.005

    def _clean(self, noisy: Tensor) -> Tensor:
        """`(batch, time)` as the network leaves it."""
        half = self.material.device.type == "cuda"
        with torch.autocast(self.material.device.type, dtype=torch.bfloat16, enabled=half):
            change: Tensor = self.network(noisy)
        return noisy + change

    def _take_step(self, spent: float, draws: Draws) -> None:
        self.network.train(spent < self.recipe.settled)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.learning_rate * self._rate(spent)
        mixture = self.material.train.mix(
            self.recipe.batch, self.samples, draws.generator(f"step-{self.step}")
        )
        loss = self.objective(mixture.clean, self._clean(mixture.noisy))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        # Asking on every step would wait for the device.
        if self.step % 50 == 0 and not bool(torch.isfinite(norm)):
            raise GradientError(
                f"loss {self.objective.name}, step {self.step}: expected a finite gradient, got "
                f"{float(norm)}; lower the learning rate."
            )
        self.optimiser.step()
        self.step += 1

    @torch.no_grad()
    def _look(self) -> None:
        was = self.network.training
        self.network.eval()
        count, totals = 0, torch.zeros(3)
        for mixture in fixed_set(
            self.material.valid, self.recipe.valid_pieces, self.samples, self.recipe.seed, self.recipe.batch
        ):
            cleaned, rows = self._clean(mixture.noisy), len(mixture.clean)
            figures = [
                float(self.objective(mixture.clean, cleaned)),
                float(snr_db(mixture.clean, cleaned).mean()),
                float(snr_db(mixture.clean, mixture.noisy).mean()),
            ]
            totals += rows * torch.tensor(figures)
            count += rows
        self.network.train(was)
        loss, after, before = (totals / count).tolist()
        self.history.append(
            {
                "step": float(self.step),
                "seconds": self.spent_seconds,
                "loss": loss,
                "snr_db": after,
                "before_db": before,
            }
        )
        self.log(
            f"{self.objective.name}: step {self.step}, {self.spent_seconds:.0f} s, loss {loss:.4f}, "
            f"SNR {after:.2f} dB (before {before:.2f})"
        )


def snr_db(clean: Tensor, heard: Tensor) -> Tensor:
    """`(batch,)`: the clean clip's energy over that of the difference."""
    powers = [each.double().square().sum(dim=1).clamp_min(1e-12) for each in (clean, clean - heard)]
    return 10.0 * (powers[0] / powers[1]).log10()


def train_denoiser(
    loss: str,
    material: DenoiserMaterial,
    *,
    sources: LossWeights,
    recipe: DenoiserRecipe,
    out: Path,
    facts: dict[str, str] | None = None,
    log: Log = print,
) -> DenoiserReport:
    """Train one denoiser and leave denoiser-LOSS.safetensors in a folder."""
    run = DenoiserTraining(loss, material, sources, recipe, log)
    report = run.go()
    about = {
        "loss": loss,
        "steps": str(report.steps),
        "trained_on": ",".join(report.speakers["train"]),
        "validated_on": ",".join(report.speakers["valid"]),
        **(facts or {}),
    }
    write_whole(
        out / f"denoiser-{loss}.safetensors", lambda path: save_denoiser(path, run.network.eval(), about)
    )
    return report
