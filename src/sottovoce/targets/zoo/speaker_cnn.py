"""The speaker classifier that sottovoce ships: forty people by a spoken digit or more.

Olivier (2023), section 7.5.2, has a 1-D CNN of four convolutional layers and a final linear projection, whose
inputs are spectrograms of 201 frequencies: the frequencies are the channels, and the layers go over time.
What the section leaves open (widths, kernels, pooling) is chosen here. There is no normalisation layer, so
that the model has no statistics that an attack or a batch could disturb.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from sottovoce.data.sound_corpora import SPEAKERS
from sottovoce.targets.zoo.shipped_weights import PLAIN, fill
from sottovoce.targets.zoo.spectrogram import BINS, WINDOW, Spectrogram, average, begin, silence

CLASSES = SPEAKERS
"""The speakers of AudioMNIST that it knows."""
VARIANTS = (PLAIN, "lowpass", "biquad", "gaussian", "mad", "adversarial")
SHORTEST = WINDOW
KERNEL = 3


@final
class SpeakerCnn(nn.Module):
    """Waveforms `(batch, time)` at 16 kHz in [-1, 1] to logits `(batch, 40)`, in the order of `CLASSES`."""

    def __init__(self, *, width: int = 96, dropout: float = 0.2) -> None:
        super().__init__()
        self.spectrogram = Spectrogram()
        inputs = (BINS, width, width, width)
        layers = [nn.Conv1d(channels, width, KERNEL, padding=KERNEL // 2) for channels in inputs]
        begin(layers)
        self.layers = nn.ModuleList(layers)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(width, len(CLASSES))

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        hidden, frames = self.spectrogram(waveforms, lengths)
        for layer in self.layers:
            hidden = silence(torch.relu(layer(hidden)), frames)
        scores: Tensor = self.output(self.drop(average(hidden, frames)))
        return scores


def load(device: torch.device | str = "cpu", weights: Path | None = None, variant: str = PLAIN) -> SpeakerCnn:
    """A shipped model, or one of its size from another file, in evaluation mode with frozen parameters."""
    model = SpeakerCnn()
    fill(model, "speaker", variant, VARIANTS, weights)
    return model.to(device)
