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
    """The text and the device that a target was opened with."""

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
    """Open a model to attack: by name, or your own `torch.nn.Module`. Returns a `Target`.

    model: a text as for `--model`. "keyword", "recogniser", "speaker", "sound" and "detector" come with
        sottovoce; "whisper:FILE_OR_ID", "huggingface:FOLDER_OR_ID", "speechbrain:SOURCE" and
        "python:MODULE:FUNCTION" open yours; "api:URL" asks a service. Or a module that takes waveforms
        `(batch, time)` and gives scores `(batch, classes)`.
    classes, sample_rate: for a module: the names of its classes in order, and the rate of its clips in Hz.
    clip_samples: for a module that takes clips of one length only: that length.
    device: "cpu", "cuda", "mps", or "auto" for the fastest there is. A module stays where it is by default.

    Other kinds of model, such as a recogniser of your own, are subclasses of `Target`; see
    `sottovoce.targets`.

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
            f"{type(model).__name__}; leave it out."
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
    """The device that a target is on."""
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
    """Clips with their labels, as `open_data` returns them; audio is read when it is needed.

    `ids`, `labels` and `facts` need no audio. Iterate for single clips; `batch()` is all of them as one
    `AudioBatch`.

    corpus: where the clips come from.
    sample_rate: the rate of the model they were opened for, in Hz; None: not known yet.

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
        """Further facts about each clip, such as its speaker."""
        return tuple(entry.facts for entry in self.corpus)

    def load(self, sample_rate: int | None = None) -> list[Clip]:
        """All clips at a sample rate; raises `InputError` if one cannot be read."""
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
    """Open clips to attack, with their labels. Returns `Clips`.

    data: a text as for `--data`: "embedded" (shipped clips), "librispeech:DIR", "speechcommands:DIR",
        a folder with a subfolder for each class, a CSV file ...; `sottovoce parts corpus` lists all.
    model: the model they are for. Then they come at its sample rate, "embedded" are the clips shipped for its
        kind, and labels are tested against its classes.
    limit: at most so many clips, spread evenly over classes or speakers.
    labels: "refuse" raises an error if a label is no class of the model, "skip" leaves such clips out.
    sample_rate: in Hz, if no model is given.

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
