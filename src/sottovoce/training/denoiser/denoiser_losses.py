"""What a denoiser can be trained to make small: distances of clean and cleaned speech, and sums of them.

Every term is divided by its mean over noisy speech before training, so that it begins at 1 and two of them
weigh alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from sottovoce.core.resampling import resample
from sottovoce.defenses.denoiser import LOSSES
from sottovoce.errors import InputError, MissingExtra, UnknownName
from sottovoce.perception.ears.dpam import SAMPLE_RATE as DPAM_RATE
from sottovoce.perception.ears.dpam import Dpam
from sottovoce.perception.ears.learned import FOLDER
from sottovoce.perception.ears.learned_network import SAMPLE_RATE, LearnedNetwork, load_network

Term = Callable[[Tensor, Tensor], Tensor]
"""Clean and cleaned speech, both `(batch, time)` at 16 kHz, to the mean over the batch."""


@final
@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """Where the weights are that losses need. ears: the folder of learned-pre and learned-scratch.
    dpam: DPAM's published weights, or their folder."""

    ears: Path = FOLDER
    dpam: str | None = None


@final
class Objective:
    """A loss by its name, such as "l1-learned": a sum of terms, each of which begins at 1.

    Call `calibrate` before the first step.
    """

    def __init__(self, name: str, sources: LossWeights, device: torch.device | str = "cpu") -> None:
        if name not in LOSSES:
            raise UnknownName("loss", name, LOSSES)
        self.name = name
        self.terms = {part: make_term(part, sources, torch.device(device)) for part in name.split("-")}
        self.weights = dict.fromkeys(self.terms, 1.0)

    @torch.no_grad()
    def calibrate(self, clean: Tensor, noisy: Tensor) -> None:
        """clean, noisy: `(batch, time)`, of the kind that training will see."""
        for part, term in self.terms.items():
            value = float(term(clean, noisy))
            if not 0 < value < float("inf"):
                raise InputError(
                    f"loss {part}: expected a finite value above 0 for noisy speech, got {value}; check the "
                    "weights that it needs."
                )
            self.weights[part] = 1.0 / (value * len(self.terms))

    def __call__(self, clean: Tensor, cleaned: Tensor) -> Tensor:
        total = torch.zeros((), device=clean.device)
        for part, term in self.terms.items():
            total = total + self.weights[part] * term(clean, cleaned)
        return total


def make_term(name: str, sources: LossWeights, device: torch.device) -> Term:
    """One term by its name."""
    if name == "l1":
        return mean_l1
    if name == "mrstft":
        return _mrstft(device)
    if name == "dpam":
        return _dpam(sources, device)
    variant = {"features": "pre", "learned": "scratch"}[name]
    network = load_network(sources.ears / f"learned-{variant}.safetensors")[0].to(device)
    return FeatureL1(network) if name == "features" else LearnedDistance(network)


def mean_l1(clean: Tensor, cleaned: Tensor) -> Tensor:
    """Mean absolute difference of samples."""
    return (clean - cleaned).abs().mean()


def _mrstft(device: torch.device) -> Term:
    """Spectral convergence and log magnitudes at three resolutions (Yamamoto et al. 2020), by auraloss."""
    try:
        from auraloss.freq import MultiResolutionSTFTLoss
    except ImportError as error:
        raise MissingExtra(
            "the loss mrstft needs the package auraloss, which is not installed; type: pip install "
            "'sottovoce[denoise]'."
        ) from error
    measure = MultiResolutionSTFTLoss(device=device)

    def term(clean: Tensor, cleaned: Tensor) -> Tensor:
        found: Tensor = measure(cleaned[:, None], clean[:, None])
        return found

    return term


def _dpam(sources: LossWeights, device: torch.device) -> Term:
    """DPAM's distance, as published."""
    if sources.dpam is None:
        raise InputError("loss dpam: expected DPAM's published weights, got none; name their folder.")
    network = Dpam(weights=sources.dpam).network.to(torch.zeros(1, device=device))

    def term(clean: Tensor, cleaned: Tensor) -> Tensor:
        one, two = (resample(each, SAMPLE_RATE, DPAM_RATE) for each in (clean, cleaned))
        return network.distance(torch.stack([one, two], dim=1)).mean()

    return term


@final
class LearnedDistance:
    """The learned ear's distance in JNDs."""

    def __init__(self, network: LearnedNetwork) -> None:
        self.network = network

    def __call__(self, clean: Tensor, cleaned: Tensor) -> Tensor:
        lengths = torch.full((len(clean),), clean.shape[1], device=clean.device)
        distances: Tensor = self.network(clean, cleaned, lengths)
        return distances.mean()


@final
class FeatureL1:
    """The deep feature loss of Germain et al. (2019): absolute differences of a classifier's activations.

    Layers weigh alike: each is divided by the mean activation of the clean speech.
    """

    def __init__(self, network: LearnedNetwork) -> None:
        self.network = network

    def __call__(self, clean: Tensor, cleaned: Tensor) -> Tensor:
        lengths = torch.full((2 * len(clean),), clean.shape[1], device=clean.device)
        layers = self.network.features(torch.cat([clean, cleaned]), lengths).layers
        total = torch.zeros((), device=clean.device)
        # The first two are levels in bands, which nothing was learned for.
        for layer in layers[2:]:
            one, two = layer.chunk(2)
            total = total + (one - two).abs().mean() / one.detach().abs().mean().clamp_min(1e-9)
        return total
