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
    """A subclass writes `scores`; loss is the cross-entropy of each clip, the decision its best class."""

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
    """Any `torch.nn.Module` from waveforms `(batch, time)` to scores `(batch, classes)`, in one line:

        target = ModuleClassifier(module, ["yes", "no"], sample_rate=16000)

    clip_samples: the length the module was made for; clips are padded to it with zeros. Without it the
    module sees clips of each length apart, so that no clip's padding changes what it hears.
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
                f"{got}; give one class name per output, or wrap the module."
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
    """Refuse class names that cannot tell a decision."""
    if len(classes) < 2 or len(set(classes)) != len(classes):
        raise InputError(f"expected two or more different classes, got {list(classes)}; name every output.")
