"""The networks of two detectors of pathological speech (Amiri and Kodrasi, section 2, Table 1).

`SegmentCnn` hears half a second; `EmbeddingHead` sees the mean of an encoder's frames. What the paper leaves
open is said where it is decided.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

SAMPLE_RATE = 16_000
CLASSES = ("control", "pathological")
SEGMENT = 8_000
"""Samples of a segment: 500 ms."""
HOP = 4_000
"""Samples from one segment to the next: 250 ms."""
FRAME = 160
BINS = FRAME // 2 + 1
FRAMES = SEGMENT // FRAME
CHANNELS = 64
# Neither convolution pads: 81 x 50 -> 80 x 49 -> 40 x 24 (pool) -> 38 x 22 -> 19 x 11 (pool).
FLATTENED = CHANNELS * 19 * 11
HIDDEN = 256
FLOOR = 5e-9
"""Power added to each bin before the logarithm: what rounding to 16 bits alone leaves there, the variance
(1/32768)^2 / 12 of a sample times the 60 that the squares of the window add up to."""
# In nats squared: digital silence has no deviation to divide by. Speech has some 4, so this changes nothing.
_LEAST_VARIANCE = 1e-5


@final
class LogStft(nn.Module):
    """Segments `(segments, 8000)` to normalised log magnitudes `(segments, 1, 81, 50)`, in nats.

    Frames of 10 ms in a Hann window follow each other without overlap. Every segment has a mean of 0 and a
    deviation of 1 over its own bins and frames. The paper does not say over what; by the segment alone its
    level does not count, the network keeps no statistics of its training data, and no clip hears another.
    """

    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(FRAME), persistent=False)

    def forward(self, segments: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(segments.unfold(1, FRAME, FRAME) * self.window)
        # Not abs(): the squares have a gradient of zero at zero, the modulus has none.
        power = spectrum.real.square() + spectrum.imag.square()
        logs = 0.5 * torch.log(power + FLOOR).transpose(1, 2)
        centred = logs - logs.mean(dim=(1, 2), keepdim=True)
        variance = centred.square().mean(dim=(1, 2), keepdim=True)
        return (centred / (variance + _LEAST_VARIANCE).sqrt()).unsqueeze(1)


@final
class SegmentCnn(nn.Module):
    """Segments `(segments, 8000)` at 16 kHz in [-1, 1] to logits `(segments, 2)`, in the order of `CLASSES`.

    Batch normalisation follows the rectifier, as the paper has it. A target runs it in evaluation, with the
    statistics of training: then no segment sees another.
    """

    def __init__(self, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.stft = LogStft()
        self.layers = nn.Sequential(
            nn.Conv2d(1, CHANNELS, kernel_size=2),
            nn.ReLU(),
            nn.BatchNorm2d(CHANNELS),
            nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS, CHANNELS, kernel_size=3),
            nn.ReLU(),
            nn.BatchNorm2d(CHANNELS),
            nn.MaxPool2d(2),
        )
        # The layout in which pooling is fast on a CPU, and convolutions on a GPU; it changes no value.
        self.layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(FLATTENED, len(CLASSES))

    def forward(self, segments: Tensor) -> Tensor:
        return self.classify(self.stft(segments))

    def classify(self, features: Tensor) -> Tensor:
        """Logits from normalised log magnitudes, which training computes once."""
        scores: Tensor = self.output(self.drop(self.layers(features).flatten(1)))
        return scores


@final
class EmbeddingHead(nn.Module):
    """Embeddings `(clips, width)` to logits `(clips, 2)`: two linear layers with dropout between them.

    The paper names no activation between the two, so there is none.
    """

    def __init__(self, width: int = 768, *, dropout: float = 0.3) -> None:
        super().__init__()
        self.width = width
        self.hidden = nn.Linear(width, HIDDEN)
        self.drop = nn.Dropout(dropout)
        self.output = nn.Linear(HIDDEN, len(CLASSES))

    def forward(self, embeddings: Tensor) -> Tensor:
        scores: Tensor = self.output(self.drop(self.hidden(embeddings)))
        return scores
