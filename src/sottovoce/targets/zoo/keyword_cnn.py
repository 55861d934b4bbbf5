"""The keyword classifier that sottovoce ships: twelve classes, one second of speech.

The topology is the small-footprint one of Sainath and Parada (2015) as section 3.1 of Vadillo and Santana
(2022, "On the human evaluation of universal audio adversarial perturbations") describes it: the waveform
becomes a two-dimensional image of MFCC features, which two convolutional layers with ReLU, one fully
connected layer and a softmax turn into class probabilities. There is no batch normalisation, so the model
has no statistics that an attack could disturb. `forward` returns logits, the softmax is left to the loss.
"""

from __future__ import annotations

from pathlib import Path

import safetensors
import torch
from torch import Tensor, nn

from sottovoce.errors import InputError
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.zoo.mfcc import Mfcc
from sottovoce.targets.zoo.shipped_weights import PLAIN, fill

CLASSES = (
    "silence",
    "unknown",
    "yes",
    "no",
    "up",
    "down",
    "left",
    "right",
    "on",
    "off",
    "stop",
    "go",
)
VARIANTS = (PLAIN, "fgsm", "pgd", "mixed")
SAMPLE_RATE = 16_000
CLIP_SAMPLES = 16_000

MAPS = (40, 72)
FRAMES = 97
COEFFICIENTS = 40


class KeywordCnn(nn.Module):
    """Waveforms `(batch, 16000)` in [-1, 1] to logits `(batch, 12)`, in the order of `CLASSES`."""

    center: Tensor
    spread: Tensor

    def __init__(self, *, maps: tuple[int, int] = MAPS, dropout: float = 0.4) -> None:
        super().__init__()
        first, second = maps
        self.mfcc = Mfcc(sample_rate=SAMPLE_RATE, coefficients=COEFFICIENTS)
        # Fixed at training time: each coefficient's mean and deviation over the training clips.
        self.register_buffer("center", torch.zeros(COEFFICIENTS))
        self.register_buffer("spread", torch.ones(COEFFICIENTS))
        self.first = nn.Conv2d(1, first, kernel_size=(15, 7), stride=2, padding=(7, 3))
        self.second = nn.Conv2d(first, second, kernel_size=(7, 5), padding=(3, 2))
        self.pool = nn.MaxPool2d(2)
        self.drop_maps = nn.Dropout2d(dropout / 2)
        self.drop = nn.Dropout(dropout)
        # Stride and pooling halve the image three times over, rounding up first and down then.
        self.output = nn.Linear(second * (FRAMES // 8) * (COEFFICIENTS // 8), len(CLASSES))

    def image(self, waveforms: Tensor) -> Tensor:
        """The standardised MFCC image, `(batch, 1, 97, 40)`: time down, cepstral order across."""
        if waveforms.ndim != 2 or waveforms.shape[1] != CLIP_SAMPLES:
            raise InputError(
                f"KeywordCnn expects waveforms (batch, {CLIP_SAMPLES}), got {tuple(waveforms.shape)}; "
                f"pad or cut each clip to one second at {SAMPLE_RATE} Hz."
            )
        found: Tensor = ((self.mfcc(waveforms) - self.center) / self.spread).unsqueeze(1)
        return found

    def classify(self, image: Tensor) -> Tensor:
        """Logits `(batch, 12)` of an MFCC image `(batch, 1, 97, 40)`."""
        hidden = self.drop_maps(self.pool(torch.relu(self.first(image))))
        hidden = self.pool(torch.relu(self.second(hidden)))
        found: Tensor = self.output(self.drop(hidden.flatten(1)))
        return found

    def forward(self, waveforms: Tensor) -> Tensor:
        return self.classify(self.image(waveforms))


def load(device: torch.device | str = "cpu", weights: Path | None = None, variant: str = PLAIN) -> KeywordCnn:
    """A shipped model, or one from another file, which may be pruned; in evaluation mode, frozen."""
    model = KeywordCnn(maps=MAPS if weights is None else maps_in(weights))
    fill(model, "keyword", variant, VARIANTS, weights, plain="keyword_cnn")
    # Channels last: a fifth less time for forward and backward on a CPU.
    model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def maps_in(weights: Path) -> tuple[int, int]:
    """How many feature maps the two convolutions in a file have: fewer than the shipped ones where they
    were pruned. For a file that does not say, those of the shipped model: loading it tells what is wrong."""
    try:
        with safetensors.safe_open(weights, framework="pt") as file:
            first, second = (file.get_slice(f"{name}.weight").get_shape()[0] for name in ("first", "second"))
    except (OSError, ValueError, safetensors.SafetensorError):
        return MAPS
    return first, second


def keyword(device: str = "cpu", variant: str = PLAIN, weights: str | None = None) -> ModuleClassifier:
    """The embedded keyword model: 12 classes, one second at 16 kHz.

    variant: how it was trained: plain, or against attacks: fgsm, pgd or mixed.
    weights: path of another file that `sottovoce train` wrote.
    """
    module = load(device, Path(weights) if weights else None, variant)
    return ModuleClassifier(module, CLASSES, SAMPLE_RATE, clip_samples=CLIP_SAMPLES)
