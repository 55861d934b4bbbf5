"""A model as an attacker meets it: the text that a user would read and, where there is one, a loss."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor

from sottovoce.core.batch import PASS, AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, MissingCapability, ScoreError

Capability = TypeVar("Capability")
Says = Literal["class", "words"]
Sight = Literal["gradient", "scores", "decisions", "nothing"]
"""What an attack observes of a target, from the most to the least."""
SIGHTS: tuple[Sight, ...] = get_args(Sight)
RUNS: dict[Sight, str] = {
    "scores": "noise, kenansville, yeehaw, genetic or taori",
    "decisions": "noise, kenansville, yeehaw or genetic",
}
"""The attacks that run on targets that show no more than this, for messages."""


class Target(ABC):
    """A speech model under attack. A subclass writes `decode` and, if it can, `loss`; labels are strings.

    A label is a transcript for a recogniser and the name of a class for a classifier: the target turns it
    into tokens itself. Without a `loss` it gives answers alone, like a service behind an endpoint, and the
    attacks that need more are refused. What else a model can do (class scores, word timings ...) are
    separate classes to inherit, such as `Scores`; an attack asks for them with `target.capability(Scores)`.
    Most models need no class of their own: `open_model` wraps a `torch.nn.Module`, and `sottovoce.targets`
    has `Classifier` and `Ctc`.

    >>> class Loudness(sv.Target):
    ...     sample_rate = 1000
    ...     def loss(self, batch, labels, *, draws):
    ...         level = batch.waveforms.square().mean(dim=1)
    ...         return torch.stack([v if label == "quiet" else -v for v, label in zip(level, labels)])
    ...     def decode(self, batch, *, draws):
    ...         return ["loud" if v > 0.01 else "quiet" for v in batch.waveforms.square().mean(dim=1)]
    >>> batch = sv.AudioBatch.of([torch.full((100,), 0.5), torch.full((100,), 0.05)], sample_rate=1000)
    >>> Loudness().decode(batch, draws=sv.Draws(0))
    ['loud', 'quiet']
    """

    sample_rate: int
    says: Says = "class"
    """What `decode` gives: the name of a class, or a transcript."""
    clips: str = "embedded"
    """The corpus that it is audited on by default."""
    random: bool = False
    """True if the output is random; attacks then average gradients over several draws."""
    repeats: bool = True
    """True if the same clips with the same draws always give the same answer. An audit tests this once, so a
    model that is wrong about it is found out."""
    paid: bool = False
    """True if every query costs money; an audit then sends none only to test whether the model repeats."""

    @abstractmethod
    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        """What a user of the model would see, one string a clip."""

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        """How badly each clip fits its label, `(batch,)`, differentiable by `batch.waveforms`.

        A target that `shows` scores has a loss without a gradient; one that shows decisions has none.
        """
        raise MissingCapability(f"{type(self).__name__} gives answers alone: it has no loss.")

    @property
    def shows(self) -> Sight:
        """What an attack may observe: gradients where the class has a `loss`, else decisions alone.

        A model with a loss or with class scores but no gradient sets "scores".
        """
        return "decisions" if type(self).loss is Target.loss else "gradient"

    @property
    def known(self) -> Target:
        """What an attacker has in hand: this model, unless examples are made on another and tried here."""
        return self

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raise `InputError` for a label that the model cannot produce. Default: all labels are accepted."""
        return None

    def canonical(self, text: str) -> str:
        """The form in which two texts are compared. A recogniser drops what does not change the words."""
        return text

    @property
    def shortest(self) -> int:
        """The fewest samples a clip may have: 20 ms unless the model says otherwise."""
        return self.sample_rate // 50

    @property
    def longest(self) -> int | None:
        """The most samples a clip may have; None: any length."""
        return None

    def capability(self, kind: type[Capability]) -> Capability:
        """This target as a `kind` such as `Scores`; raises `MissingCapability` if it is none."""
        if isinstance(self, kind):
            return self
        raise MissingCapability(
            f"{type(self).__name__} has no {_called(kind)}: it is a {self._described}. Use another model."
        )

    def offers(self, kind: type) -> bool:
        """Whether the target has a capability."""
        try:
            self.capability(kind)
        except MissingCapability:
            return False
        return True

    @property
    def _described(self) -> str:
        return "speech recogniser" if self.says == "words" else "classifier"


class Scores(ABC):
    """Capability of a classifier: one score for each class, before the softmax.

    >>> scorer = sv.open_model("keyword", device="cpu").capability(sv.Scores)
    >>> scorer.classes[2:5]
    ('yes', 'no', 'up')
    >>> clips = sv.open_data("embedded", model="keyword", limit=2).batch()
    >>> scorer.scores(clips, draws=sv.Draws(0)).shape
    torch.Size([2, 12])
    """

    classes: tuple[str, ...]

    @abstractmethod
    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """Scores `(batch, classes)`, differentiable by `batch.waveforms`."""


class Matches(ABC):
    """Capability of a recogniser: compute the loss and, in the same pass, whether it would say the label.

    A targeted attack of thousands of steps decodes in full only the clips that match.

    >>> model = sv.testing.ToyCtc()
    >>> clips = sv.testing.clips_for(model)
    >>> texts = model.decode(clips, draws=sv.Draws(0))
    >>> loss, match = model.capability(sv.targets.Matches).loss_and_match(clips, texts, draws=sv.Draws(0))
    >>> match.tolist()  # whether each clip spells the text that it is decoded to
    [True, True, True, True]
    """

    exact: bool = False
    """Whether a match is as good as decoding: `decode` would say the label to the same clip."""

    @abstractmethod
    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The loss `(batch,)`, and whether the likeliest tokens spell the label, `(batch,)` bool.

        Tokens are compared frame by frame for CTC, and each after the label's own start for attention.

        first_token: extra weight of the first token in the loss of attention models (Olivier 2023, eq. 5.2);
            CTC has no first token and ignores it.
        """


class CtcFrames(ABC):
    """Capability of a CTC model: log probabilities of tokens, frame by frame, and how to read them."""

    @abstractmethod
    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        """Scores `(batch, frames, tokens)`, differentiable, and each clip's frame count, `(batch,)` int64."""

    @abstractmethod
    def spell(self, log_probs: Tensor, frames: Tensor) -> list[str]:
        """The texts that `decode` would read from such scores, one a clip. They need not sum to 1."""


class Languages(ABC):
    """Capability of a multilingual model: one score for each language that may be spoken."""

    languages: tuple[str, ...]
    """Codes such as "en", in the order of the scores."""

    @abstractmethod
    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """Scores `(batch, languages)` before the softmax, differentiable."""


@dataclass(frozen=True)
class TimedWord:
    """A word of a transcript, its start and end, and how confident the model is, from 0 to 1."""

    text: str
    start_seconds: float
    end_seconds: float
    confidence: float = 1.0


class Timings(ABC):
    """Capability of a recogniser: the start and the end of each word."""

    @abstractmethod
    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        """The words of each transcript in order.

        Joined by spaces they are the text of `decode`, in its canonical form.
        """


_CALLED: dict[type, str] = {
    Scores: "class scores",
    Matches: "token scores of a recogniser",
    CtcFrames: "CTC scores",
    Languages: "language scores",
    Timings: "word timings",
}


def _called(kind: type) -> str:
    return _CALLED.get(kind, kind.__name__)


def shown_name(part: object) -> str:
    """How messages name a part: by its registered name where its class has one, else by its class."""
    return getattr(type(part), "name", "") or type(part).__name__


def require_capabilities(part: object, kinds: Iterable[type], target: Target, instead: str) -> None:
    """Raise `MissingCapability` if a target lacks one that a part needs. instead: the advice to give."""
    for kind in kinds:
        try:
            target.capability(kind)
        except MissingCapability as error:
            name, reason = type(target).__name__, str(error)
            if not isinstance(target, kind) and (kind is Scores) == (target.says == "class"):
                reason = f"the model ({name}) does not have them. {instead}"
            elif not isinstance(target, kind):
                reason = f"the model is a {target._described} ({name}). {instead}"
            raise MissingCapability(f"{shown_name(part)} needs {_called(kind)}, but {reason}") from None


def shows_enough(target: Target, sight: Sight) -> bool:
    """Whether a target shows as much as an attack wants to see."""
    return SIGHTS.index(target.shows) <= SIGHTS.index(sight)


def require_sight(part: object, least: Sight, target: Target) -> None:
    """Raise `MissingCapability` if a target shows less than a part needs to see."""
    if shows_enough(target, least):
        return
    needed = {"gradient": "gradients", "scores": "scores"}[least]
    given = {"scores": "gives scores without gradients", "decisions": "gives answers alone"}[target.shows]
    raise MissingCapability(
        f"{shown_name(part)} needs {needed}, but the model ({type(target).__name__}) {given}. Use "
        f"{RUNS[target.shows]}, or examples made on another model: --model 'transfer(source=..., judge=...)' "
        "attacks one and asks the other, and --examples RUN takes those of a run."
    )


def check_clips(target: Target, batch: AudioBatch) -> None:
    """Raise `InputError` for clips of the wrong sample rate or length."""
    if batch.sample_rate != target.sample_rate:
        raise InputError(
            f"the model expects audio at {target.sample_rate} Hz, got {batch.sample_rate} Hz; resample it, "
            "for example with sottovoce.data.load_clip."
        )
    short = int(batch.lengths.argmin())
    if int(batch.lengths[short]) < target.shortest:
        raise InputError(
            f"clip {batch.ids[short]!r}: expected at least {target.shortest} samples "
            f"({1000 * target.shortest / target.sample_rate:.0f} ms), got {int(batch.lengths[short])}; "
            "pad it, or leave it out."
        )
    long = int(batch.lengths.argmax())
    if target.longest is not None and int(batch.lengths[long]) > target.longest:
        raise InputError(
            f"clip {batch.ids[long]!r}: expected at most {target.longest} samples "
            f"({target.longest / target.sample_rate:g} s), got {int(batch.lengths[long])}; "
            "cut it to that length."
        )


def best_places(scores: Tensor, ids: Sequence[str]) -> Tensor:
    """The index of each clip's best score, `(batch, ...)`, after `check_scores`.

    scores: `(batch, ..., choices)`.
    """
    return check_scores(scores, ids).argmax(dim=-1)


def check_scores(scores: Tensor, ids: Sequence[str], counts: Tensor | None = None) -> Tensor:
    """Scores `(batch, ..., choices)` unchanged; raises `ScoreError` if a clip has no finite best score.

    Minus infinity is allowed for classes and tokens that a model rules out, as long as one is left to choose.
    NaN, plus infinity and minus infinity for all are refused: an argmax over them says nothing about the
        clip.

    ids: one name for each clip, for the message.
    counts: `(batch,)`, the length of each clip along the second dimension; padding beyond it is not checked.
    """
    best = scores.detach().amax(dim=-1)  # NaN where there is one
    fine = best.isfinite()
    if counts is not None:
        fine |= torch.arange(best.shape[1], device=best.device) >= counts.to(best.device)[:, None]
    if not bool(fine.all()):
        row = int((~fine).nonzero()[0, 0])
        found = float(best[row][~fine[row]][0])
        got = "NaN" if math.isnan(found) else "infinity" if found > 0 else "minus infinity for every choice"
        raise ScoreError(
            f"clip {ids[row].partition(PASS)[0]!r}: expected scores with a finite best one, got {got}, so "
            "that the model has no answer; run it in float32, look for a division by zero, or leave the clip "
            "out."
        )
    return scores


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Run a module in evaluation mode; its training mode is restored afterwards, also after an error.

    >>> module = torch.nn.Dropout()
    >>> with sv.targets.evaluating(module):
    ...     module.training
    False
    >>> module.training
    True
    """
    in_training = [part for part in module.modules() if part.training]
    for part in in_training:
        part.training = False
    try:
        yield
    finally:
        for part in in_training:
            part.training = True
