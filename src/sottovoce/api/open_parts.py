"""Models and clips: `open_model` and `open_data`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from sottovoce.api.fingerprint import OPENED, fingerprint, modules_of
from sottovoce.core.batch import AudioBatch
from sottovoce.core.target import Target
from sottovoce.data.corpora import open_corpus
from sottovoce.data.labels import open_settled
from sottovoce.data.load import Clip, Corpus, collate
from sottovoce.errors import InputError
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.open_target import OBJECT, find_device, open_target

AT_ONCE = 64


class Opened(NamedTuple):
    """What a target was opened from."""

    text: str
    device: str


def open_model(
    model: str | torch.nn.Module | Target,
    *,
    classes: Sequence[str] | None = None,
    sample_rate: int | None = None,
    clip_samples: int | None = None,
    device: str = "auto",
) -> Target:
    """A model to attack: every text that `--model` takes, or a `torch.nn.Module`.

    A module takes waveforms `(batch, time)` and gives scores `(batch, classes)`; it needs the names of its
    `classes` in order and the `sample_rate` of its clips in Hz. `clip_samples`: the length that it was made
    for, where it takes one length alone. It stays on its device unless another is named.

    >>> import sottovoce as sv
    >>> sv.open_model("keyword", device="cpu").sample_rate
    16000
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Unflatten(1, (1, -1)), torch.nn.AdaptiveAvgPool1d(2),
    ...                           torch.nn.Flatten())
    >>> sv.open_model(net, classes=["yes", "no"], sample_rate=16000).classes
    ('yes', 'no')
    """
    given = {"classes": classes, "sample_rate": sample_rate, "clip_samples": clip_samples}
    if isinstance(model, torch.nn.Module) and not isinstance(model, Target):
        if classes is None or sample_rate is None:
            missing = "classes" if classes is None else "sample_rate"
            raise InputError(
                f"open_model expected {missing} with a torch.nn.Module, got none; write open_model(module, "
                'classes=["yes", "no"], sample_rate=16000).'
            )
        if device != "auto":
            model = model.to(device)
        return ModuleClassifier(model, list(classes), sample_rate, clip_samples=clip_samples)
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise InputError(
            f"open_model expected {unused[0]} with a torch.nn.Module alone, got it with "
            f"{type(model).__name__}; drop it."
        )
    if isinstance(model, Target):
        return model
    if not isinstance(model, str):
        raise InputError(
            f"open_model expected a text such as 'keyword', a torch.nn.Module or a Target, got "
            f"{type(model).__name__}."
        )
    device = find_device(device)
    target = open_target(model, device)
    with suppress(AttributeError, TypeError):
        object.__setattr__(target, OPENED, Opened(model, device))
    return target


def model_text(model: Target) -> str:
    """How a plan writes a target: the text that it was opened from, or `object(NAME, sha256)`."""
    opened: Opened | None = getattr(model, OPENED, None)
    if opened is not None:
        return opened.text
    modules = modules_of(model)
    name = type(modules[0] if modules else model).__name__
    return f"{OBJECT}({name}, {fingerprint(model)})"


def device_of(model: Target) -> str:
    """Where a target is."""
    opened: Opened | None = getattr(model, OPENED, None)
    if opened is not None:
        return opened.device
    for part in modules_of(model):
        for value in (*part.parameters(), *part.buffers()):
            return str(value.device)
    return "cpu"


@final
@dataclass(frozen=True)
class Clips:
    """Clips with their labels, read when they are asked for.

    corpus: where they are. sample_rate: that of the model they were opened for, in Hz; None: not known yet.

    >>> import sottovoce as sv
    >>> clips = sv.open_data("embedded", limit=12, sample_rate=16000)
    >>> len(clips), clips.batch().sample_rate
    (12, 16000)
    """

    corpus: Corpus
    sample_rate: int | None = None

    def __len__(self) -> int:
        return len(self.corpus)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self.load())

    @property
    def ids(self) -> tuple[str, ...]:
        """The name of each clip."""
        return tuple(entry.id for entry in self.corpus)

    @property
    def labels(self) -> tuple[str, ...]:
        """The true class or text of each clip."""
        return tuple(entry.label for entry in self.corpus)

    @property
    def facts(self) -> tuple[Mapping[str, str], ...]:
        """What else is known of each clip, such as its speaker."""
        return tuple(entry.facts for entry in self.corpus)

    def load(self, sample_rate: int | None = None) -> list[Clip]:
        """Every clip at a rate; `InputError` where one cannot be read."""
        rate = sample_rate or self.sample_rate
        if rate is None:
            raise InputError(
                "expected the sample rate of the model, got none; give open_data model= or sample_rate=."
            )
        loaded: list[Clip] = []
        for clips, failures in self.corpus.chunks(AT_ONCE, rate):
            if failures:
                raise InputError(f"clip {failures[0].id!r}: {failures[0].reason}")
            loaded += clips
        return loaded

    def batch(self, sample_rate: int | None = None) -> AudioBatch:
        """All clips as one batch, padded with zeros."""
        return collate(self.load(sample_rate))


def open_data(
    data: str = "embedded",
    *,
    model: str | Target | None = None,
    limit: int | None = None,
    labels: str = "refuse",
    sample_rate: int | None = None,
) -> Clips:
    """Clips to attack: every text that `--data` takes, with their labels and at the model's rate.

    With a `model`, "embedded" are the clips that are shipped for its kind, and labels that it has no class
    for are refused, or left out with labels="skip". `limit`: at most so many clips, evenly over classes or
    speakers, the same ones as `--limit` takes.

    >>> import sottovoce as sv
    >>> clips = sv.open_data("embedded", model=sv.open_model("keyword", device="cpu"), limit=12)
    >>> clips.sample_rate, sorted(set(clips.labels))[:3]
    (16000, ['down', 'go', 'left'])
    """
    if model is None:
        corpus = open_corpus(data)
    else:
        target = open_model(model)
        corpus = open_settled(data, target, labels).corpus
        sample_rate = sample_rate or target.sample_rate
    return Clips(corpus if limit is None else corpus.limit(limit), sample_rate)
