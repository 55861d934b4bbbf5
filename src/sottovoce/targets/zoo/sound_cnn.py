"""The sound classifier that sottovoce ships: ten sounds of a street and a home.

Olivier (2023), section 7.5.4, has a 2-D CNN of five convolutional layers and a final projection of two
layers. What it leaves open is chosen here: log-mel energies as the image, convolutions that halve it in both
directions, a mean over the clip's own frames. There is no normalisation layer, so that the model has no
statistics that an attack or a batch could disturb.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from sottovoce.targets.adapters.unpadded_layers import windows
from sottovoce.targets.zoo.shipped_weights import PLAIN, fill
from sottovoce.targets.zoo.spectrogram import SAMPLE_RATE, WINDOW, Spectrogram, average, begin, silence

CLASSES = (
    "clapping",
    "crackling_fire",
    "dog",
    "engine",
    "keyboard_typing",
    "rain",
    "siren",
    "vacuum_cleaner",
    "water_drops",
    "wind",
)
"""Named as in ESC-50."""
VARIANTS = (PLAIN, "gaussian", "mad")
SHORTEST = WINDOW
LONGEST = 5 * SAMPLE_RATE
BANDS = 64
MAPS = (16, 32, 48, 64, 64)


@final
class SoundCnn(nn.Module):
    """Waveforms `(batch, time)` at 16 kHz in [-1, 1] to logits `(batch, 10)`, in the order of `CLASSES`."""

    def __init__(self, *, width: int = 128, dropout: float = 0.2) -> None:
        super().__init__()
        self.spectrogram = Spectrogram(bands=BANDS)
        pairs = zip((1, *MAPS), MAPS, strict=False)
        layers = [nn.Conv2d(*pair, 3, stride=2, padding=1) for pair in pairs]
        begin(layers)
        self.layers = nn.ModuleList(layers)
        self.drop = nn.Dropout(dropout)
        self.hidden = nn.Linear(MAPS[-1] * BANDS // 2 ** len(MAPS), width)
        self.output = nn.Linear(width, len(CLASSES))

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        image, frames = self.spectrogram(waveforms, lengths)
        hidden = image.unsqueeze(1)
        for layer in self.layers:
            # A padded convolution of stride 2 keeps every other frame, the first among them.
            frames = windows(frames + 2, 3, 2)
            hidden = silence(torch.relu(layer(hidden)), frames)
        mean = average(hidden.flatten(1, 2), frames)
        scores: Tensor = self.output(self.drop(torch.relu(self.hidden(self.drop(mean)))))
        return scores


def load(device: torch.device | str = "cpu", weights: Path | None = None, variant: str = PLAIN) -> SoundCnn:
    """A shipped model, or one of its size from another file, in evaluation mode with frozen parameters."""
    model = SoundCnn()
    fill(model, "sound", variant, VARIANTS, weights)
    return model.to(device)
