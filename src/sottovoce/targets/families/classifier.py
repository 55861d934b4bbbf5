"""The family of classifiers: scores in, a class name out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Scores, Target, best_places, evaluating
from sottovoce.errors import InputError, UnknownName


class Classifier(Target, Scores):
    """A target that names a class. A subclass writes `scores` and sets `classes` and `sample_rate`.

    The loss is the cross-entropy of each clip, and the decision the class with the highest score. For a
    `torch.nn.Module` there is `ModuleClassifier`.

    >>> class Louder(sv.targets.Classifier):
    ...     classes, sample_rate = ("quiet", "loud"), 16000
    ...     def scores(self, batch, *, draws):
    ...         energy = batch.waveforms.square().sum(dim=1)
    ...         return torch.stack([1.0 - energy, energy], dim=1)
    >>> Louder().decode(sv.AudioBatch.of([[0.1], [0.9]], sample_rate=16000), draws=sv.Draws(0))
    ['quiet', 'loud']
    """

    @abstractmethod
    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor: ...

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        scores = self.scores(batch, draws=draws)
        wanted = torch.tensor([self._place(label) for label in labels], device=scores.device)
        return torch.nn.functional.cross_entropy(scores, wanted, reduction="none")

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        places = best_places(self.scores(batch, draws=draws), batch.ids)
        return [self.classes[place] for place in places.tolist()]

    def check_labels(self, labels: Sequence[str]) -> None:
        for label in labels:
            self._place(label)

    def _place(self, label: str) -> int:
        if label not in self.classes:
            raise UnknownName("class", label, self.classes)
        return self.classes.index(label)


class ModuleClassifier(Classifier):
    """A `torch.nn.Module` from waveforms `(batch, time)` to scores `(batch, classes)` as a target.

    module: run in evaluation mode, and handed back as it was.
    classes: the name of each output, in order.
    sample_rate: of the clips that the module hears, in Hz.
    clip_samples: the length that the module was made for; clips are padded to it with zeros. Without it the
        module sees clips of each length apart, so that padding changes no answer.

    `sottovoce.open_model(module, classes=..., sample_rate=...)` makes the same.

    >>> module = torch.nn.Linear(2, 2, bias=False)
    >>> _ = module.load_state_dict({"weight": torch.eye(2)})
    >>> target = sv.targets.ModuleClassifier(module, ["first", "second"], sample_rate=16000)
    >>> target.decode(sv.AudioBatch.of([[0.1, 0.5]], sample_rate=16000), draws=sv.Draws(0))
    ['second']
    """

    def __init__(
        self,
        module: torch.nn.Module,
        classes: Sequence[str],
        sample_rate: int,
        *,
        clip_samples: int | None = None,
    ) -> None:
        check_classes(classes)
        self.module = module
        self.classes = tuple(classes)
        self.sample_rate = sample_rate
        self.clip_samples = clip_samples

    @property
    def longest(self) -> int | None:
        return self.clip_samples

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with evaluating(self.module):
            if self.clip_samples is not None:
                missing = self.clip_samples - batch.waveforms.shape[1]
                full = torch.nn.functional.pad(batch.waveforms, (0, missing)) if missing else batch.waveforms
                return self._run(full)
            return by_length(batch, batch.waveforms, self._run)

    def _run(self, waveforms: Tensor) -> Tensor:
        scores = self.module(waveforms)
        if not isinstance(scores, Tensor) or scores.shape != (len(waveforms), len(self.classes)):
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise InputError(
                f"expected scores of shape ({len(waveforms)}, {len(self.classes)}) from the module, got "
                f"{got}; give one class name per output of the module."
            )
        return scores


def by_length(batch: AudioBatch, rows: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """`run` on the clips of each length apart, without padding; results come back in the batch's order.

    rows: the clips `(batch, time)`, as waveforms or as anything else with a value a sample.
    """
    if not batch.ragged:
        return run(rows)
    places, results = [], []
    for length in sorted(set(batch.lengths.tolist())):
        same = (batch.lengths == length).nonzero()[:, 0]
        places.append(same)
        results.append(run(rows[same, :length]))
    return torch.cat(results)[torch.cat(places).argsort()]


def check_classes(classes: Sequence[str]) -> None:
    """Refuse class names that cannot name every decision."""
    if len(classes) < 2 or len(set(classes)) != len(classes):
        raise InputError(
            f"classes: expected two or more different names, got {list(classes)}; name every output."
        )
