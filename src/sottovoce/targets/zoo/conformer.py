"""A small Conformer that spells: the recogniser that sottovoce ships.

Gulati et al. (2020), "Conformer: Convolution-augmented Transformer for Speech Recognition", section 2: each
block is half a feed-forward layer, self-attention, convolution and another half. It differs in two places.
Positions are rotary (Su et al. 2021) instead of relative sinusoids. The convolution is followed by layer
instead of batch normalisation, so that the model has no statistics that an attack or a batch could disturb.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import safetensors
import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.errors import InputError
from sottovoce.targets.adapters.unpadded_layers import inside, windows
from sottovoce.targets.zoo.log_mel import HOP, WINDOW, LogMel, count_frames
from sottovoce.targets.zoo.shipped_weights import PLAIN, fill

VARIANTS = (PLAIN, "noisy", "pgd")
SAMPLE_RATE = 16_000
LETTERS = " 'abcdefghijklmnopqrstuvwxyz"
BLANK = 0
"""The token that writes nothing; letters follow it in the order of `LETTERS`."""
TOKENS = 1 + len(LETTERS)
# Each of the two strided convolutions needs three frames for one: 7 frames give 3, and 3 give 1.
SHORTEST = WINDOW + 6 * HOP


@dataclass(frozen=True, kw_only=True)
class ConformerSize:
    """How large a Conformer is. The default is the shipped one."""

    bands: int = 80
    maps: int = 64
    width: int = 144
    blocks: int = 8
    heads: int = 4
    kernel: int = 15
    expansion: int = 4

    def __post_init__(self) -> None:
        if self.width % (2 * self.heads) or self.kernel % 2 == 0:
            raise InputError(
                f"expected a width that is a multiple of {2 * self.heads} (twice the heads) and an odd "
                f"kernel, got {self.width} and {self.kernel}."
            )


def subsample(frames: Tensor) -> Tensor:
    """How many of each clip's frames are left after the two strided convolutions."""
    for _ in range(2):
        frames = windows(frames, 3, 2)
    return frames


def rotate(values: Tensor) -> Tensor:
    """Turn each pair of features by an angle that grows with the frame: `(batch, heads, frames, features)`.

    Products of queries and keys then depend on how far apart their frames are (Su et al. 2021, eq. 34).
    """
    half = values.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=values.device) / half)
    angle = torch.arange(values.shape[-2], device=values.device).unsqueeze(1) * speed
    cosine, sine = angle.cos().to(values), angle.sin().to(values)
    first, second = values[..., :half], values[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


@final
class Subsampling(nn.Module):
    """Two convolutions of stride 2 over time and frequency: `(batch, frames, bands)` to a quarter, `width`.

    They pad nothing, so a frame inside a clip sees frames inside that clip alone.
    """

    def __init__(self, size: ConformerSize) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, size.maps, kernel_size=3, stride=2)
        self.second = nn.Conv2d(size.maps, size.maps, kernel_size=3, stride=2)
        left = ((size.bands - 1) // 2 - 1) // 2
        self.output = nn.Linear(size.maps * left, size.width)

    def forward(self, features: Tensor) -> Tensor:
        hidden = torch.relu(self.first(features.unsqueeze(1)))
        hidden = torch.relu(self.second(hidden))
        found: Tensor = self.output(hidden.transpose(1, 2).flatten(2))
        return found


@final
class FeedForward(nn.Module):
    """Section 2.3: normalise, widen, swish, narrow."""

    def __init__(self, size: ConformerSize, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size.width)
        self.widen = nn.Linear(size.width, size.expansion * size.width)
        self.narrow = nn.Linear(size.expansion * size.width, size.width)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        wide = self.drop(functional.silu(self.widen(self.norm(hidden))))
        found: Tensor = self.drop(self.narrow(wide))
        return found


@final
class SelfAttention(nn.Module):
    """Section 2.1: every frame looks at all frames of its clip."""

    def __init__(self, size: ConformerSize, dropout: float) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm = nn.LayerNorm(size.width)
        self.inputs = nn.Linear(size.width, 3 * size.width)
        self.output = nn.Linear(size.width, size.width)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, heard: Tensor) -> Tensor:
        parts = self.inputs(self.norm(hidden)).unflatten(2, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            rotate(query), rotate(key), value, attn_mask=heard[:, None, None, :]
        )
        found: Tensor = self.drop(self.output(mixed.transpose(1, 2).flatten(2)))
        return found


@final
class Convolution(nn.Module):
    """Section 2.2: gate, convolve each feature over time, swish, mix."""

    def __init__(self, size: ConformerSize, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size.width)
        self.gate = nn.Linear(size.width, 2 * size.width)
        self.depthwise = nn.Conv1d(
            size.width, size.width, size.kernel, padding=size.kernel // 2, groups=size.width
        )
        self.after = nn.LayerNorm(size.width)
        self.mix = nn.Linear(size.width, size.width)
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, heard: Tensor) -> Tensor:
        gated = functional.glu(self.gate(self.norm(hidden)), dim=2)
        # Past its end a clip must look as it does alone: the convolution's own zeros.
        gated = gated.masked_fill(~heard.unsqueeze(2), 0.0)
        smooth = self.depthwise(gated.transpose(1, 2)).transpose(1, 2)
        found: Tensor = self.drop(self.mix(functional.silu(self.after(smooth))))
        return found


@final
class ConformerBlock(nn.Module):
    """Section 2.4, equation 1."""

    def __init__(self, size: ConformerSize, dropout: float) -> None:
        super().__init__()
        self.before = FeedForward(size, dropout)
        self.attention = SelfAttention(size, dropout)
        self.convolution = Convolution(size, dropout)
        self.behind = FeedForward(size, dropout)
        self.norm = nn.LayerNorm(size.width)

    def forward(self, hidden: Tensor, heard: Tensor) -> Tensor:
        hidden = hidden + 0.5 * self.before(hidden)
        hidden = hidden + self.attention(hidden, heard)
        hidden = hidden + self.convolution(hidden, heard)
        found: Tensor = self.norm(hidden + 0.5 * self.behind(hidden))
        return found


@final
class Conformer(nn.Module):
    """Waveforms `(batch, time)` at 16 kHz to log probabilities of tokens, one row in 40 ms."""

    def __init__(self, size: ConformerSize | None = None, *, dropout: float = 0.1) -> None:
        super().__init__()
        size = size or ConformerSize()
        self.mel = LogMel(bands=size.bands)
        self.subsampling = Subsampling(size)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([ConformerBlock(size, dropout) for _ in range(size.blocks)])
        self.output = nn.Linear(size.width, TOKENS)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Log probabilities `(batch, frames, tokens)`, and how many frames each clip has, `(batch,)`."""
        return self.spell(*self.mel(waveforms, lengths))

    def spell(self, features: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """As `forward`, from log-mel energies `(batch, frames, bands)` and how many of them count."""
        hidden = self.drop(self.subsampling(features))
        left = subsample(frames)
        heard = inside(left, hidden.shape[1])
        for block in self.blocks:
            hidden = block(hidden, heard)
        return self.output(hidden).float().log_softmax(dim=2), left


def count_output(samples: Tensor) -> Tensor:
    """Rows of log probabilities for clips of so many samples, any shape."""
    return subsample(count_frames(samples))


def size_of(weights: Path) -> ConformerSize:
    """The size of the Conformer in a file, by the shapes of its tensors; bands and heads as by default.

    A file of something else gives the default size, which then does not fit and is refused.
    """
    try:
        with safetensors.safe_open(weights, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        width = shapes["output.weight"][1]
        return ConformerSize(
            maps=shapes["subsampling.first.weight"][0],
            width=width,
            blocks=1 + max(int(name.split(".")[1]) for name in shapes if name.startswith("blocks.")),
            kernel=shapes["blocks.0.convolution.depthwise.weight"][2],
            expansion=shapes["blocks.0.before.widen.weight"][0] // width,
        )
    except (OSError, KeyError, ValueError, IndexError, InputError, safetensors.SafetensorError):
        return ConformerSize()


def load(device: torch.device | str = "cpu", weights: Path | None = None, variant: str = PLAIN) -> Conformer:
    """A shipped model, or one of any size from another file, in evaluation mode with frozen parameters."""
    model = Conformer(size_of(weights) if weights else None)
    fill(model, "recogniser", variant, VARIANTS, weights, plain="recogniser")
    return model.to(device)
