"""DPAM, the metric of Manocha et al. (2020), from its published weights.

Its faults are kept, because they are what was published: every layer is normalised by the statistics of the
clip itself, so that the distance hardly sees gain; a shift of one sample reads like noise; and P(different)
comes from a small network that need not rise with the distance, nor be 0 at 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Literal, final
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sottovoce.core.batch import AudioBatch
from sottovoce.core.resampling import resample_clips
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.ears.ear import Ear, check_pair

Variant = Literal["scratch", "fin", "lin", "pre"]
FILES = {
    "scratch": "scratch.npz",
    "fin": "finetune.npz",
    "lin": "linear_layer.npz",
    "pre": "pretrained.npz",
}
SAMPLE_RATE = 22_050
CHANNELS = (32,) * 5 + (64,) * 5 + (128,) * 4
"""Of the fourteen layers (section 3.3)."""
HEAD = (16, 6, 2)
FULL_SCALE = 32768.0
_EPSILON, _SLOPE = 1e-3, 0.2

Arrays = Mapping[str, NDArray[np.float32]]


@final
@dataclass(frozen=True, kw_only=True)
class Dpam(Ear):
    """DPAM, the learned distance of Manocha et al. (2020), from its published weights.

    It is not calibrated in just noticeable differences: a distance of 1 means nothing in particular. Clips
    are resampled to 22.05 kHz and judged one pair at a time, as the authors do.

    weights: path of the folder of the published npz files, or of one such file.
    variant: which file of the folder: "scratch", "fin", "lin" or "pre".

    >>> ear = sv.ears.Dpam(weights="dpam/weights", variant="lin")  # read when it is first asked
    >>> clips = sv.testing.example_clips(16000)
    >>> ear.distance(clips, clips).tolist()  # doctest: +SKIP
    [0.0, 0.0, 0.0, 0.0]
    """

    name: ClassVar[str] = "dpam"
    title: ClassVar[str] = "DPAM"

    weights: str
    variant: Variant = "scratch"

    def __post_init__(self) -> None:
        if self.variant not in FILES:
            raise UnknownName("variant", self.variant, FILES)

    @cached_property
    def network(self) -> DpamNetwork:
        path = Path(self.weights).expanduser()
        path = path / FILES[self.variant] if path.is_dir() else path
        if not path.is_file():
            raise InputError(
                f"weights: expected DPAM's published weights at {path}, but nothing is there; name the "
                f"folder with {', '.join(FILES.values())}, or one of these files."
            )
        return _load(path, path.stat().st_mtime_ns)

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        check_pair(clean, changed)
        pair = torch.stack([clean.waveforms, changed.waveforms], dim=1)
        lengths = clean.lengths.to(pair.device)
        sounds, lengths = resample_clips(
            pair.flatten(0, 1), lengths.repeat_interleave(2), clean.sample_rate, SAMPLE_RATE
        )
        sounds, lengths = sounds.unflatten(0, (-1, 2)), lengths[::2]
        network = self.network.to(pair)
        # Clips of one length go together: past its end a clip has no samples to take statistics of.
        found = torch.zeros(len(clean), device=pair.device, dtype=pair.dtype)
        for length in sorted(set(lengths.tolist())):
            rows = (lengths == length).nonzero()[:, 0]
            found = found.index_put((rows,), network.distance(sounds[rows, :, :length]))
        return found

    def probability(self, distance: Tensor) -> Tensor:
        """What the published classifier says of a distance; it need not be 0 at 0, nor rise with it.

        "pre" was published without one, and raises.
        """
        return self.network.to(distance).probability(distance)


@final
class DpamNetwork:
    """Fourteen layers and a head. kernels: `(out, in, 3)`; betas, weights: `(out,)` of each layer."""

    def __init__(
        self,
        kernels: Sequence[Tensor],
        betas: Sequence[Tensor],
        weights: Sequence[Tensor],
        head: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        self.kernels, self.betas, self.weights, self.head = kernels, betas, weights, head

    def to(self, like: Tensor) -> DpamNetwork:
        if self.kernels[0].device == like.device and self.kernels[0].dtype == like.dtype:
            return self
        return DpamNetwork(
            [kernel.to(like) for kernel in self.kernels],
            [beta.to(like) for beta in self.betas],
            [weight.to(like) for weight in self.weights],
            [(kernel.to(like), bias.to(like)) for kernel, bias in self.head],
        )

    def distance(self, pairs: Tensor) -> Tensor:
        """`(batch, 2, time)` at 22.05 kHz in [-1, 1] to `(batch,)` (section 2.2)."""
        count = len(pairs)
        features = FULL_SCALE * pairs.flatten(0, 1)[:, None]
        total = torch.zeros(count, device=pairs.device, dtype=pairs.dtype)
        for place, (kernel, beta, weight) in enumerate(
            zip(self.kernels, self.betas, self.weights, strict=True)
        ):
            features = _convolve(features, kernel, stride=1 if place == len(self.kernels) - 1 else 2)
            features = functional.leaky_relu(_normalise(features) + beta[:, None], _SLOPE)
            pair = features.unflatten(0, (count, 2))
            total = total + (weight[:, None] * (pair[:, 0] - pair[:, 1])).abs().mean(dim=(1, 2))
        return total

    def probability(self, distance: Tensor) -> Tensor:
        if not self.head:
            raise InputError(
                "DPAM's variant 'pre' gives no P(different): it was published without a classifier. Choose "
                "scratch, fin or lin, or ask for the distance."
            )
        layer = distance[:, None]
        for kernel, bias in self.head[:-1]:
            layer = (layer @ kernel + bias).relu()
        kernel, bias = self.head[-1]
        return (layer @ kernel + bias).softmax(dim=1)[:, 1]


def _convolve(features: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """As TensorFlow pads with SAME: for an even length and stride 2, one zero behind and none before."""
    size = features.shape[2]
    needed = max((-(-size // stride) - 1) * stride + 3 - size, 0)
    return functional.conv1d(
        functional.pad(features, (needed // 2, needed - needed // 2)), kernel, stride=stride
    )


def _normalise(features: Tensor) -> Tensor:
    """Each channel by its own mean and deviation over time; a single frame becomes 0."""
    centred = features - features.mean(dim=2, keepdim=True)
    return centred * (centred.square().mean(dim=2, keepdim=True) + _EPSILON).rsqrt()


@lru_cache(maxsize=8)
def _load(path: Path, changed_ns: int) -> DpamNetwork:
    """`changed_ns`: when the file was changed last; a new one is read anew."""
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(
            f"{path}: expected DPAM's weights as npz, got another kind of file; check the path."
        ) from error
    kernels, betas, weights = [], [], []
    for place, (inputs, outputs) in enumerate(zip((1, *CHANNELS), CHANNELS, strict=False)):
        kernel = _take(arrays, f"loss_conv_{place}/weights", (1, 3, inputs, outputs), path)
        kernels.append(kernel[0].permute(2, 1, 0).contiguous())
        betas.append(_take(arrays, f"loss_conv_{place}/BatchNorm/beta", (outputs,), path))
        # The pretrained network has no weights: all channels count alike.
        given = f"weights_{place}" in arrays or "dense/kernel" in arrays
        weights.append(_take(arrays, f"weights_{place}", (outputs,), path) if given else torch.ones(outputs))
    head = []
    if "dense/kernel" in arrays:
        for name, inputs, outputs in zip(("dense", "dense_1", "dense_2"), (1, *HEAD), HEAD, strict=False):
            kernel = _take(arrays, f"{name}/kernel", (inputs, outputs), path)
            head.append((kernel, _take(arrays, f"{name}/bias", (outputs,), path)))
    return DpamNetwork(kernels, betas, weights, head)


def _take(arrays: Arrays, name: str, shape: tuple[int, ...], path: Path) -> Tensor:
    if name not in arrays or arrays[name].shape != shape:
        got = arrays[name].shape if name in arrays else "none"
        raise InputError(
            f"{path}: expected DPAM's weights with {name} {shape}, got {got}; name one of the published "
            "files."
        )
    return torch.from_numpy(np.ascontiguousarray(arrays[name], dtype=np.float32))
