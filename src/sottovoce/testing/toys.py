"""Toy targets: small models with fixed weights, for fast tests without a download.

Their sample rate is 1000 Hz, so that a clip of half a second is 500 numbers. Their answers mean nothing, but
they differ from clip to clip, and an attack with a large budget can change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import evaluating
from sottovoce.core.transform import Defended, Transform
from sottovoce.targets.families.classifier import Classifier

SAMPLE_RATE = 1000


def weights(seed: int, *shape: int, scale: float = 1.0) -> torch.nn.Parameter:
    """Fixed normal weights; the global random generator is not used."""
    source = torch.Generator().manual_seed(seed)
    return torch.nn.Parameter(scale * torch.randn(*shape, generator=source))


@final
class ToyFilters(torch.nn.Module):
    """Waveforms `(batch, time)` to filter outputs `(batch, frames, filters)`.

    Frames of `size` samples do not overlap; a rest that does not fill one is ignored.
    """

    def __init__(self, filters: int, size: int, seed: int, scale: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.filters = weights(seed, filters, 1, size, scale=scale / size**0.5)

    def forward(self, waveforms: Tensor) -> Tensor:
        outputs = torch.nn.functional.conv1d(waveforms[:, None], self.filters, stride=self.size)
        return outputs.transpose(1, 2)

    def count(self, lengths: Tensor) -> Tensor:
        """The number of whole frames in each clip, `(batch,)`."""
        return lengths // self.size

    def inside(self, lengths: Tensor, width: int) -> Tensor:
        """Which frames belong to each clip, `(batch, width)` bool."""
        return torch.arange(width, device=lengths.device) < self.count(lengths)[:, None]


@final
class ToyModule(torch.nn.Module):
    """Log energies of a few filters, averaged over a clip's frames, then batch norm and a linear layer.

    Batch norm and dropout are there to reveal a model that is run in training mode by mistake.
    """

    def __init__(self, classes: int, filters: int = 8) -> None:
        super().__init__()
        self.frames = ToyFilters(filters, size=20, seed=1)
        self.norm = torch.nn.BatchNorm1d(filters)
        self.dropout = torch.nn.Dropout(0.5)
        self.readout = weights(18, filters, classes)
        # The running means that training on clips of this loudness would have left.
        self.norm.running_mean = torch.full((filters,), -4.5)

    def forward(self, waveforms: Tensor, lengths: Tensor) -> Tensor:
        energies = self.frames(waveforms).square()
        inside = self.frames.inside(lengths, energies.shape[1])
        mean = energies.masked_fill(~inside[..., None], 0.0).sum(dim=1) / self.frames.count(lengths)[:, None]
        scores: Tensor = self.dropout(self.norm((mean + 1e-4).log())) @ self.readout
        return scores


@final
class ToyClassifier(Classifier):
    """A toy classifier of four classes, for tests. It works on the spectrum of a clip.

    >>> model = sv.testing.ToyClassifier()
    >>> model.classes
    ('north', 'east', 'south', 'west')
    >>> sv.attack(model, sv.testing.clips_for(model), "pgd", budget="snr(db=0)").achieved
    (True, True, True, True)
    """

    classes = ("north", "east", "south", "west")
    sample_rate = SAMPLE_RATE

    def __init__(self) -> None:
        self.module = ToyModule(len(self.classes)).eval()

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with evaluating(self.module):
            scores: Tensor = self.module(batch.waveforms, batch.lengths)
            return scores


@final
class ToyScorer(Classifier):
    """The toy classifier with scores that have no gradient, like a model in ONNX.

    >>> model = sv.testing.ToyScorer()
    >>> model.shows
    'scores'
    >>> clips = sv.testing.clips_for(model)
    >>> attack = sv.attacks.Genetic(steps=20, population=10)
    >>> sv.attack(model, clips, attack, budget="snr(db=0)").achieved
    (True, True, True, True)
    """

    classes = ToyClassifier.classes
    sample_rate = SAMPLE_RATE
    shows = "scores"

    def __init__(self) -> None:
        self.toy = ToyClassifier()

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.toy.scores(batch, draws=draws).detach()


@final
@dataclass(frozen=True, kw_only=True)
class ToyNoise(Transform):
    """Gaussian noise of standard deviation `sigma`, for tests: it makes any target random.

    >>> sv.testing.ToyNoise(sigma=0.1).random
    True
    """

    sigma: float = 0.02

    random = True

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return batch.waveforms + self.sigma * draws.normal(batch)


def toy_random() -> Defended:
    """A toy classifier behind noise, for tests: its answer depends on the draws.

    >>> sv.testing.toy_random().random
    True
    """
    return Defended(ToyClassifier(), (ToyNoise(),))
