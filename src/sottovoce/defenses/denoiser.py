"""A learned denoiser: sixteen layers of dilated convolutions on the waveform (Germain et al. 2019).

The shipped ones differ in the loss that they were trained with, and a little in how long (Manocha et al.
2020, section 4.2): see `weights/denoiser.md`. None of them was trained with people's judgements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.weight_files import note_file, read_weights, save_weights
from sottovoce.core.resampling import resample, resample_clips
from sottovoce.core.transform import Transform
from sottovoce.errors import InputError, UnknownName

Loss = Literal["l1", "mrstft", "features", "dpam", "learned", "l1-learned", "mrstft-learned"]
LOSSES: tuple[Loss, ...] = ("l1", "mrstft", "features", "dpam", "learned", "l1-learned", "mrstft-learned")
SAMPLE_RATE = 16_000
ARCHITECTURE = "denoiser"
FOLDER = Path(__file__).parent / "weights"
_SLOPE = 0.2
_EPSILON = 1e-5
# Mean square of a clip of silence, so that a level can be divided by: 100 dB below full scale.
_SILENCE = 1e-10


@final
@dataclass(frozen=True, kw_only=True)
class DenoiserShape:
    """Sizes of a network. width: channels. octaves: layers whose reach doubles, from 1 sample on.

    Before and after those there is one layer that reaches a single sample far, and the last one weighs
    channels: sixteen layers for thirteen octaves. Together they hear 0.5 s to each side at 16 kHz.
    """

    width: int = 48
    octaves: int = 13

    @property
    def dilations(self) -> list[int]:
        return [1, *(1 << octave for octave in range(self.octaves)), 1]

    @property
    def reach(self) -> int:
        """Samples to each side that an output sample depends on, apart from its clip's level."""
        return sum(self.dilations)


@final
class Layer(nn.Module):
    """A dilated convolution of three taps, adaptive normalisation and a leaky ReLU, added to what came in.

    Adaptive: a learned share of the features as they are, and one of them normalised. While training, by the
    statistics of the batch; otherwise by the averages that were kept, folded into the kernel.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, inputs: int, outputs: int, dilation: int, source: torch.Generator) -> None:
        super().__init__()
        self.dilation = dilation
        self.kernel = nn.Parameter(
            torch.randn(outputs, inputs, 3, generator=source) * math.sqrt(2.0 / (3 * inputs))
        )
        self.straight = nn.Parameter(torch.zeros(outputs))
        self.scale = nn.Parameter(torch.full((outputs,), 0.5))
        self.shift = nn.Parameter(torch.zeros(outputs))
        self.register_buffer("mean", torch.zeros(outputs))
        self.register_buffer("variance", torch.ones(outputs))

    def forward(self, features: Tensor) -> Tensor:
        """`(batch, inputs, time)` to `(batch, outputs, time)`."""
        if self.training:
            found = convolve(features, self.kernel, None, self.dilation)
            normal = functional.batch_norm(
                found, self.mean, self.variance, self.scale, self.shift, training=True, momentum=0.02,
                eps=_EPSILON,
            )  # fmt: skip
            found = normal + self.straight[:, None].to(normal) * found
        else:
            gain = self.scale * (self.variance + _EPSILON).rsqrt()
            kernel = self.kernel * (gain + self.straight)[:, None, None]
            found = convolve(features, kernel, self.shift - self.mean * gain, self.dilation)
        found = functional.leaky_relu(found, _SLOPE)
        return found if features.shape[1] == 1 else features + found


def convolve(features: Tensor, kernel: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    """Three taps `dilation` apart, zeros past both ends: `(batch, channels, time)` to the same of outputs."""
    if not features.is_cuda:
        return functional.conv1d(features, kernel, bias, padding=dilation, dilation=dilation)
    # There one product of matrices is as fast at any dilation, and so is its gradient.
    found = multiply_taps(features, kernel, dilation)
    return found if bias is None else found + bias[:, None].to(found)


def multiply_taps(features: Tensor, kernel: Tensor, dilation: int) -> Tensor:
    """The same as a product of the kernel, `(outputs, 3 inputs)`, and three shifted copies."""
    width = features.shape[2]
    padded = functional.pad(features, (dilation, dilation))
    taps = torch.cat([padded[..., :width], features, padded[..., 2 * dilation :]], dim=1)
    return torch.bmm(kernel.transpose(1, 2).flatten(1).expand(len(taps), -1, -1), taps)


@final
class DenoiserNetwork(nn.Module):
    """From noisy speech to what must be added to it, at any level: clips are brought to one level first.

    seed: of the weights that a new one begins with.
    """

    def __init__(self, shape: DenoiserShape | None = None, seed: int = 0) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.shape = shape or DenoiserShape()
        width = self.shape.width
        self.layers = nn.ModuleList(
            Layer(width if place else 1, width, dilation, source)
            for place, dilation in enumerate(self.shape.dilations)
        )
        # Begins with the clip as it is.
        self.out = nn.Parameter(torch.zeros(width))

    def forward(self, waveforms: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The change to clips `(batch, time)` at 16 kHz; lengths `(batch,)`, where they are not all."""
        inside = None
        power = waveforms.square().sum(dim=1, keepdim=True)
        if lengths is None:
            power = power / waveforms.shape[1]
        else:
            inside = (torch.arange(waveforms.shape[1], device=waveforms.device) < lengths[:, None])[:, None]
            power = power / lengths[:, None].to(power)
        level = (power + _SILENCE).sqrt()
        features = (waveforms / level)[:, None]
        for layer in self.layers:
            features = layer(features)
            if inside is not None:
                features = features * inside
        # In 32 bits, whatever the layers are run in.
        return level * (features.float() * self.out[:, None]).sum(dim=1).to(waveforms.dtype)


@final
@dataclass(frozen=True, kw_only=True)
class Denoise(Transform):
    """A learned denoiser: sixteen dilated convolutions, trained on read English in synthetic noise.

    The network of Germain et al. (2019). Clips at other rates are resampled to 16 kHz to find the noise; what
    lies above 8 kHz is left as it is.

    loss: what it was trained with: "l1" of samples, "mrstft" (spectrograms of several windows), "features" of
        a network that classifies sounds, "dpam", "learned" (the learned ear of this package), or a sum of
        two: "l1-learned", "mrstft-learned".
    weights: path of a file of your own, from tools/train_denoisers.py, instead.

    >>> silence = sv.AudioBatch.of([[0.0] * 8000], sample_rate=16000)
    >>> noisy = sv.defenses.Gaussian(sigma=0.01)(silence, draws=sv.Draws(0))
    >>> cleaned = sv.defenses.Denoise()(noisy, draws=sv.Draws(0))
    >>> bool(cleaned.length_l2 < 0.5 * noisy.length_l2)  # at least 6 dB less noise
    True
    """

    loss: Loss = "mrstft"
    weights: str | None = None

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise UnknownName("loss", self.loss, LOSSES)
        if not self.path.is_file():
            raise InputError(
                f"{self.path}: expected the weights of a denoiser, got no such file; train them with "
                "tools/train_denoisers.py, or use omlsa or asnr, which need none."
            )
        note_file(self.path)

    @property
    def path(self) -> Path:
        if self.weights is not None:
            return Path(self.weights).expanduser()
        return FOLDER / f"denoiser-{self.loss}.safetensors"

    @property
    def facts(self) -> dict[str, str]:
        """What is known of the weights, such as the speakers that they were trained on."""
        return _load(self.path, self.path.stat().st_mtime_ns, torch.device("cpu"), torch.float32)[1]

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        waveforms, rate = batch.waveforms, batch.sample_rate
        network = _load(self.path, self.path.stat().st_mtime_ns, waveforms.device, waveforms.dtype)[0]
        lengths = batch.lengths.to(waveforms.device)
        sounds, lengths = resample_clips(waveforms, lengths, rate, SAMPLE_RATE)
        change = network(sounds, lengths if batch.ragged else None)
        if batch.ragged:
            inside = torch.arange(change.shape[1], device=change.device) < lengths[:, None]
            change = change.masked_fill(~inside, 0.0)
        change = resample(change, SAMPLE_RATE, rate)
        # Resampled clips are cut to the longest, and there may be a sample too many.
        return waveforms + functional.pad(change, (0, waveforms.shape[1] - change.shape[1]))


def save_denoiser(path: Path, network: DenoiserNetwork, facts: Mapping[str, str]) -> None:
    """Weights as safetensors, kernels in 16 bits; the shape and what is known go into the metadata."""
    state = {
        name: value.half() if name.endswith("kernel") else value
        for name, value in network.state_dict().items()
    }
    save_weights(path, ARCHITECTURE, asdict(network.shape), state, facts)


def load_denoiser(path: Path) -> tuple[DenoiserNetwork, dict[str, str]]:
    """A network in evaluation, without gradients of its own, and the facts that were saved with it."""
    weights = read_weights(path, ARCHITECTURE, "tools/train_denoisers.py")
    return weights.fill(DenoiserNetwork(DenoiserShape(**weights.shape))), weights.facts


@lru_cache(maxsize=16)
def _load(
    path: Path, changed_ns: int, device: torch.device, dtype: torch.dtype
) -> tuple[DenoiserNetwork, dict[str, str]]:
    """`changed_ns`: when the file was changed last; a new one is read anew."""
    network, facts = load_denoiser(path)
    return network.to(device, dtype), facts
