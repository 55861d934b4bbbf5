"""The network behind the learned ear: excitation patterns, a stack of convolutions, and weighted differences.

The idea is that of Manocha et al. (2020): the distance of two clips is the sum over layers of absolute
feature differences, with weights that are never negative. What differs from theirs: features are levels in
auditory bands, so that small shifts change little and gain is seen; statistics are fixed once trained; the
front end counts as a layer, so that distances go on growing far above threshold; and differences are pooled
in their fourth power, as independent chances of detection add up (Quick 1974), over channels, bands, layers
and the worst second of a clip, so that a short event counts in a long one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.core.files.weight_files import read_weights, save_weights
from sottovoce.perception.masking.hearing_curves import quiet_db

SAMPLE_RATE = 16_000
ARCHITECTURE = "learned-ear"
FULL_SCALE_DB = 92.0
"""Level of a sine of full scale, in dB SPL (as in ITU-R BS.1387): speech is then at about 65 dB."""
STEEPEST = 12.0
"""Largest slope of the head."""
# Frames of 64 ms in the window of a second, and in what lasts.
_WINDOW, _SMOOTH = 16, 3
# Fourth powers below this, of differences of a billionth of a level unit, are rounding.
_LEAST = 1e-36
_SLOPE = 0.2
# Forward masking: what was heard 8 ms ago counts a quarter, and then decays by 2.2 dB a frame.
_AFTER, _DECAY_DB, _TAPS = 0.25, 2.2, 16
_LEVEL_UNIT_DB = 10.0


@final
@dataclass(frozen=True, kw_only=True)
class EarShape:
    """Sizes of a network. hop, slow, fast: samples at 16 kHz from frame to frame, and of the two windows."""

    bands: int = 64
    channels: tuple[int, ...] = (16, 32, 64, 64)
    hop: int = 128
    slow: int = 512
    fast: int = 256
    lowest_hz: float = 60.0
    highest_hz: float = 7600.0

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Channels and bands of every layer: the front end, what of it lasts, and the convolutions."""
        halved = [(channels, self.bands >> place) for place, channels in enumerate(self.channels)]
        return [(2, self.bands), (2, self.bands), *halved]

    @property
    def strides(self) -> list[int]:
        """Frames of the front end in one of each layer."""
        return [1, self.coarse, *(1 << place for place in range(len(self.channels)))]

    @property
    def coarse(self) -> int:
        """Frames of the front end that make one of the last layer."""
        return 1 << max(len(self.channels) - 1, 0)


class Features(NamedTuple):
    """Layers `(batch, channels, bands, frames)`, and how many frames of the front end are a clip's own."""

    layers: list[Tensor]
    frames: Tensor


@final
class EarBlock(nn.Module):
    """A 3 x 3 convolution, its statistics and a leaky ReLU.

    While training, outputs are normalised over the batch, padding left out; otherwise by the averages that
    were kept, which are folded into the kernel.
    """

    def __init__(self, inputs: int, outputs: int, seed: int = 0) -> None:
        super().__init__()
        # A source of its own: loading weights must not move the random state of whoever asks for them.
        source = torch.Generator().manual_seed(seed)
        kernel = torch.randn(outputs, inputs, 3, 3, generator=source) * math.sqrt(2.0 / (9 * inputs))
        self.kernel = nn.Parameter(kernel)
        self.scale = nn.Parameter(torch.ones(outputs))
        self.shift = nn.Parameter(torch.zeros(outputs))
        self.mean: Tensor
        self.variance: Tensor
        self.register_buffer("mean", torch.zeros(outputs))
        self.register_buffer("variance", torch.ones(outputs))

    def forward(self, features: Tensor, inside: Tensor) -> Tensor:
        if self.training:
            features = functional.conv2d(features, self.kernel, padding=1)
            mean, variance = self._observe(features, inside)
            gain = self.scale * (variance + 1e-5).rsqrt()
            features = features * gain[:, None, None] + (self.shift - mean * gain)[:, None, None]
        else:
            gain = self.scale * (self.variance + 1e-5).rsqrt()
            kernel, bias = self.kernel * gain[:, None, None, None], self.shift - self.mean * gain
            features = functional.conv2d(features, kernel, bias, padding=1)
        return functional.leaky_relu(features, _SLOPE) * inside

    def _observe(self, features: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each channel over the cells that are inside; averages are updated."""
        cells = inside.sum() * features.shape[2]
        mean = (features * inside).sum(dim=(0, 2, 3)) / cells
        variance = ((features - mean[:, None, None]).square() * inside).sum(dim=(0, 2, 3)) / cells
        with torch.no_grad():
            self.mean.lerp_(mean, 0.05)
            self.variance.lerp_(variance, 0.05)
        return mean, variance


@final
class LearnedNetwork(nn.Module):
    """Features, weights `(channels, bands)` of each layer, and the head: d0 and b of P(different)."""

    def __init__(self, shape: EarShape | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape or EarShape()
        channels = (2, *self.shape.channels)
        self.blocks = nn.ModuleList(
            EarBlock(inputs, outputs, 1000 * seed + place)
            for place, (inputs, outputs) in enumerate(pairwise(channels))
        )
        sizes = self.shape.layers
        self.weights = nn.ParameterList(torch.ones(size) for size in sizes)
        self.log_jnd = nn.Parameter(torch.tensor(-1.0))
        self.raw_slope = nn.Parameter(torch.tensor(1.0))

    @property
    def slope(self) -> Tensor:
        """Parameter b of the head: above 1, so that the gradient is finite at 0, and at most 12."""
        return 1.0 + (STEEPEST - 1.0) * torch.sigmoid(self.raw_slope - 2.0)

    def features(self, waveforms: Tensor, lengths: Tensor) -> Features:
        """Of clips `(batch, time)` at 16 kHz, zero past their lengths."""
        front, frames = front_end(waveforms, lengths, self.shape)
        inside = _inside(frames, front.shape[3])
        layers = [front, _lasting(front, self.shape.coarse)]
        features = front
        for place, block in enumerate(self.blocks):
            if place:
                features, inside = _halve(features), inside[..., ::2]
            features = block(features, inside)
            layers.append(features)
        return Features(layers, frames)

    def forward(self, clean: Tensor, changed: Tensor, lengths: Tensor) -> Tensor:
        """Distance in JNDs, `(batch,)`, of clips `(batch, time)` at 16 kHz; 0 for equal ones."""
        found = self.features(torch.cat([clean, changed]), torch.cat([lengths, lengths]))
        frames = found.frames[: len(clean)]
        total = self.log_jnd.new_zeros(())
        for layer, weight, stride in zip(found.layers, self.weights, self.shape.strides, strict=True):
            one, two = layer.chunk(2)
            powers = (one - two).square().square().flatten(1, 2).transpose(1, 2)
            # The mean over channels of the paper's section 2.2, and over bands.
            mean = powers @ weight.square().square().flatten() / weight.numel()
            total = total + _to_coarse(mean, frames, stride, self.shape.coarse)
        pooled = pool_time(total, -(-frames // self.shape.coarse)) * torch.exp(-self.log_jnd)
        # Rows of a batch may be rounded differently, but equal clips are equal.
        return pooled * (clean != changed).any(dim=1)

    def probability(self, distance: Tensor) -> Tensor:
        """P(different) at a distance in JNDs: 0 at 0, one half at 1 (a Weibull function)."""
        # Where it is 1 to the last bit, a higher power would overflow.
        return -torch.expm1(-math.log(2.0) * distance.clamp(max=40.0) ** self.slope)

    @torch.no_grad()
    def project(self) -> None:
        """Weights back to 0 and above, after a step (section 7.3 of the paper)."""
        for weight in self.weights:
            weight.clamp_(min=0.0)


def front_end(waveforms: Tensor, lengths: Tensor, shape: EarShape) -> tuple[Tensor, Tensor]:
    """Levels `(batch, 2, bands, frames)` above the threshold in quiet, in 10 dB, and frames of each clip.

    Channel 0 has the longer window and forward masking, channel 1 the shorter one. Frames are a multiple of
    what later layers join, and 0, the level of silence, past a clip's own.
    """
    frames = torch.div(lengths.to(waveforms.device), shape.hop, rounding_mode="floor") + 1
    count = waveforms.shape[1] // shape.hop + 1
    wide = -(-count // shape.coarse) * shape.coarse
    levels = []
    for window, smear in ((shape.slow, True), (shape.fast, False)):
        matrix, floor, hann = _tables(shape, window, waveforms.device, waveforms.dtype)
        padded = functional.pad(waveforms, (window // 2, window // 2 + (wide - count) * shape.hop))
        spectrum = torch.stft(padded, window, shape.hop, window=hann, center=False, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        excitation = matrix @ power[:, :, :wide]
        if smear:
            excitation = _smear(excitation)
        levels.append((excitation / floor[:, None]).log1p())
    scale = 10.0 / math.log(10.0) / _LEVEL_UNIT_DB
    return scale * torch.stack(levels, dim=1) * _inside(frames, wide), frames


def pool_time(powers: Tensor, frames: Tensor) -> Tensor:
    """Fourth powers `(batch, frames)` of 64 ms to distances `(batch,)`: the mean over the worst second.

    Monotone, neither thinned by the length of a clip nor growing with it.
    """
    inside = torch.arange(powers.shape[1], device=powers.device) < frames[:, None]
    ends = functional.pad(powers.masked_fill(~inside, 0.0), (0, _WINDOW - 1))
    worst = functional.avg_pool1d(ends[:, None], _WINDOW, 1)[:, 0].amax(dim=1)
    mean = worst * _WINDOW / frames.clamp(max=_WINDOW)
    return mean.clamp_min(_LEAST) ** 0.25 * (mean > _LEAST)


def _lasting(front: Tensor, coarse: int) -> Tensor:
    """Levels `(batch, 2, bands, frames)` as means over three of the coarsest frames: what stays for 0.2 s."""
    means = front.unflatten(3, (-1, coarse)).mean(dim=4)
    smooth = functional.avg_pool1d(means.flatten(1, 2), _SMOOTH, 1, padding=_SMOOTH // 2)
    levels: Tensor = smooth.unflatten(1, front.shape[1:3])
    return levels


def _halve(features: Tensor) -> Tensor:
    """Means over two bands and two frames; several times as fast as torch's own pooling on a CPU."""
    bands = features[:, :, ::2] + features[:, :, 1::2]
    return 0.25 * (bands[..., ::2] + bands[..., 1::2])


def _to_coarse(apart: Tensor, frames: Tensor, stride: int, coarse: int) -> Tensor:
    """Frames `(batch, frames)` of a layer joined to the coarsest: means over those that are a clip's."""
    join = coarse // stride
    sums = apart.unflatten(1, (-1, join)).sum(dim=2)
    own = -(-frames // stride)
    before = join * torch.arange(sums.shape[1], device=sums.device)
    means: Tensor = sums / (own[:, None] - before).clamp(1, join)
    return means


def _smear(excitation: Tensor) -> Tensor:
    """`(batch, bands, frames)` with what still rings from the frames before."""
    kernel = excitation.new_tensor(_ringing()).flip(0)[None, None]
    rows = functional.pad(excitation.flatten(0, 1)[:, None], (_TAPS, 0))
    return functional.conv1d(rows, kernel)[:, 0].view_as(excitation)


def _ringing() -> list[float]:
    return [1.0, *(_AFTER * 10 ** (-_DECAY_DB * place / 10) for place in range(_TAPS))]


def _inside(frames: Tensor, wide: int) -> Tensor:
    """`(batch, 1, 1, frames)`: 1 in a clip's own frames, 0 past them."""
    there = torch.arange(wide, device=frames.device) < frames[:, None]
    return there[:, None, None].float()


@lru_cache(maxsize=8)
def _tables(
    shape: EarShape, window: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Band weights `(bands, bins)`, the power at the threshold in quiet `(bands,)`, and a Hann window.

    Bands are rounded exponential filters evenly spaced on the ERB scale (Glasberg & Moore 1990). The
    power of a sine of full scale in its own band is that of 92 dB SPL.
    """
    lowest, highest = _erb_number(shape.lowest_hz), _erb_number(shape.highest_hz)
    places = torch.linspace(lowest, highest, shape.bands, dtype=torch.float64)
    centres = (10 ** (places / 21.4) - 1) / 0.00437
    bins = torch.arange(window // 2 + 1, dtype=torch.float64) * SAMPLE_RATE / window
    # A filter narrower than a window's own resolution would fall between its bins.
    width = (24.7 * (0.00437 * centres + 1)).clamp_min(1.5 * SAMPLE_RATE / window)
    steps = 4.0 * (bins - centres[:, None]).abs() / width[:, None]
    hann = torch.hann_window(window, dtype=torch.float64)
    # A full-scale sine has this power in all bins together (Parseval).
    sine = window * hann.square().sum() / 4.0
    weights = (1 + steps) * torch.exp(-steps) * 10 ** (FULL_SCALE_DB / 10) / sine
    floor = 10 ** (quiet_db(centres) / 10)
    return weights.to(device, dtype), floor.to(device, dtype), hann.to(device, dtype)


def _erb_number(hz: float) -> float:
    return 21.4 * math.log10(0.00437 * hz + 1)


def save_network(path: Path, network: LearnedNetwork, facts: Mapping[str, str]) -> None:
    """Weights as safetensors; the shape and what is known of them go into the metadata."""
    save_weights(path, ARCHITECTURE, asdict(network.shape), network.state_dict(), facts)


def load_network(path: Path) -> tuple[LearnedNetwork, dict[str, str]]:
    """A network in evaluation, without gradients of its own, and the facts that were saved with it."""
    weights = read_weights(path, ARCHITECTURE, "`sottovoce metric train`")
    sizes = {**weights.shape, "channels": tuple(weights.shape["channels"])}
    return weights.fill(LearnedNetwork(EarShape(**sizes))), weights.facts
