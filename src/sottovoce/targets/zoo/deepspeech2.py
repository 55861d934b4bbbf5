"""Deep Speech 2: convolutions over the spectrogram, then recurrent layers in both directions, then letters.

Amodei et al. (2016), "Deep Speech 2: End-to-End Speech Recognition in English and Mandarin", section 3, with
two convolutions and five bidirectional recurrent layers, here LSTMs. Layer normalisation is used where the
paper has batch normalisation, so that the model has no statistics that an attack or a batch could disturb.
No weights are shipped.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sottovoce.targets.adapters.unpadded_layers import inside
from sottovoce.targets.zoo.conformer import TOKENS
from sottovoce.targets.zoo.log_mel import LogMel


@dataclass(frozen=True, kw_only=True)
class DeepSpeech2Size:
    """How large a Deep Speech 2 is; the default has 30 million weights."""

    bands: int = 80
    maps: int = 32
    layers: int = 5
    width: int = 512
    """Of each direction."""


@final
class DeepSpeech2(nn.Module):
    """Waveforms `(batch, time)` at 16 kHz to log probabilities of tokens, one row in 20 ms.

    Tokens are those of the Conformer: blank, space, apostrophe and letters.
    """

    def __init__(self, size: DeepSpeech2Size | None = None) -> None:
        super().__init__()
        size = size or DeepSpeech2Size()
        self.mel = LogMel(bands=size.bands)
        self.first = nn.Conv2d(1, size.maps, kernel_size=(11, 41), stride=(2, 2), padding=(5, 20))
        self.second = nn.Conv2d(size.maps, size.maps, kernel_size=(11, 21), stride=(1, 2), padding=(5, 10))
        bands = -(-size.bands // 4)
        self.norm = nn.LayerNorm(size.maps * bands)
        self.recurrent = nn.LSTM(
            size.maps * bands, size.width, num_layers=size.layers, bidirectional=True, batch_first=True
        )
        self.after = nn.LayerNorm(2 * size.width)
        self.output = nn.Linear(2 * size.width, TOKENS)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Log probabilities `(batch, frames, tokens)`, and how many frames each clip has, `(batch,)`."""
        features, frames = self.mel(waveforms, lengths)
        left = count_output(frames)
        heard = inside(left, -(-features.shape[1] // 2))[:, None, :, None]
        # The paper's clipped ReLU. Past its end a clip must look as it does alone: the convolution's zeros.
        hidden = self.first(features.unsqueeze(1)).clamp(0.0, 20.0) * heard
        hidden = self.second(hidden).clamp(0.0, 20.0)
        hidden = self.recur(self.norm(hidden.transpose(1, 2).flatten(2)), left)
        return self.output(self.after(hidden)).log_softmax(dim=2), left

    def recur(self, hidden: Tensor, frames: Tensor) -> Tensor:
        """`(batch, frames, features)` through the recurrent layers; backwards begins at a clip's own end."""
        packed = pack_padded_sequence(hidden, frames.cpu(), batch_first=True, enforce_sorted=False)
        # cuDNN's recurrent layers give a gradient in training mode alone; torch's own give it in both.
        slow = hidden.requires_grad and not self.training
        with torch.backends.cudnn.flags(enabled=False) if slow else nullcontext():
            output, _ = self.recurrent(packed)
        return pad_packed_sequence(output, batch_first=True, total_length=hidden.shape[1])[0]


def count_output(frames: Tensor) -> Tensor:
    """Rows of log probabilities for clips of so many log-mel frames: half, rounded up."""
    return (frames + 1).div(2, rounding_mode="floor")
