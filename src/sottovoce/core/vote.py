"""Votes: a random model is run several times, and one answer is chosen from the passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import CheckedSettings
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.core.target import (
    Capability,
    CtcFrames,
    Languages,
    Matches,
    Scores,
    Target,
    TimedWord,
    Timings,
    check_scores,
    require_capabilities,
)
from sottovoce.core.transform import Wrapped
from sottovoce.errors import InputError, MissingCapability

MOST_PASSES = 100_000


@final
@dataclass(frozen=True)
class Passes:
    """Repeated passes of a target over a batch, run lazily, `at_once` rows at a time.

    Pass k of a clip has random numbers of its own, the same in any batch.

    >>> model = sv.testing.ToyClassifier()
    >>> noisy = sv.defenses.Defended(model, (sv.defenses.Gaussian(sigma=0.1),))
    >>> texts = sv.defenses.Passes(noisy, sv.testing.clips_for(model), sv.Draws(0), count=3).texts()
    >>> [len(answers) for answers in texts]  # four clips, three answers each
    [3, 3, 3, 3]
    """

    target: Target
    batch: AudioBatch
    draws: Draws
    count: int
    at_once: int = 64

    def texts(self) -> list[list[str]]:
        """The decoded texts, `[clip][pass]`."""
        found: list[list[str]] = [[] for _ in self.batch.ids]
        for rows, piece in self.batch.passes(self.count, self.at_once):
            for row, text in zip(rows, self.target.decode(piece, draws=self.draws), strict=True):
                found[row].append(text)
        return found

    def words(self) -> list[list[list[TimedWord]]]:
        """The words with their times, `[clip][pass][word]`; needs the capability `Timings`."""
        timer = self.target.capability(Timings)
        found: list[list[list[TimedWord]]] = [[] for _ in self.batch.ids]
        for rows, piece in self.batch.passes(self.count, self.at_once):
            for row, words in zip(rows, timer.timings(piece, draws=self.draws), strict=True):
                found[row].append(words)
        return found

    def mean_scores(self) -> Tensor:
        """Class scores `(batch, classes)`, averaged over the passes; needs the capability `Scores`."""
        scorer = self.target.capability(Scores)
        total = torch.zeros(len(self.batch), len(scorer.classes), device=self.batch.device)
        for rows, piece in self.batch.passes(self.count, self.at_once):
            scores = scorer.scores(piece, draws=self.draws)
            total.index_add_(0, torch.tensor(rows, device=total.device), scores.to(total))
        return check_scores(total / self.count, self.batch.ids)

    def mean_log_probs(self) -> tuple[Tensor, Tensor]:
        """Token scores `(batch, frames, tokens)`, averaged over the passes, and each clip's frame count."""
        reader = self.target.capability(CtcFrames)
        total, frames = torch.zeros(0), torch.zeros_like(self.batch.lengths)
        for rows, piece in self.batch.passes(self.count, self.at_once):
            scores, counts = reader.log_probs(piece, draws=self.draws)
            places = torch.tensor(rows, device=scores.device)
            frames[places] = counts.to(frames)
            if not total.numel():
                total = torch.zeros(len(self.batch), *scores.shape[1:], device=scores.device)
            # A piece with only short clips has fewer frames than the batch.
            missing = scores.shape[1] - total.shape[1]
            total = torch.nn.functional.pad(total, (0, 0, 0, max(missing, 0)))
            total[:, : scores.shape[1]].index_add_(0, places, scores.to(total))
        return check_scores(total / self.count, self.batch.ids, frames), frames


class Vote(CheckedSettings, ABC):
    """How several random passes become one answer. A subclass is a frozen dataclass that writes `elect`.

    `passes.texts()` gives what each pass said, `passes.mean_scores()` the averaged class scores. A vote
    is at the end of a defense, after noise: "gaussian(sigma=0.01)+majority(passes=16)".

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class First(sv.Vote):
    ...     passes: int = 3
    ...     def elect(self, passes):
    ...         return [min(texts) for texts in passes.texts()]  # the first by the alphabet
    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> defense = [sv.defenses.Gaussian(sigma=0.001), First()]
    >>> sv.attack("keyword", clips, "none", defense=defense).clean_texts == clips.labels
    True
    """

    passes: int
    name: ClassVar[str] = ""
    """The name it is registered under, for messages."""
    needs: ClassVar[tuple[type, ...]] = ()
    """Capabilities that the target must have."""

    @abstractmethod
    def elect(self, passes: Passes) -> list[str]:
        """One text for each clip."""

    def check(self, target: Target) -> None:
        """Raise if this vote does not work with this target."""
        require_capabilities(self, self.needs, target, "Use majority.")
        self.check_passes()

    def check_passes(self) -> None:
        """Raise if the number of passes is out of range."""
        if not 1 <= self.passes <= MOST_PASSES:
            raise InputError(f"passes must be from 1 to {MOST_PASSES:,}, got {self.passes}; 16 is usual.")


@final
@dataclass(frozen=True)
class Voted(Wrapped):
    """A random target whose answer is a vote over several passes.

    Its loss and scores are those of a single pass, because a count has no gradient; `Averaged` around it
    gives the gradient of the expectation that the vote estimates. `decode` gives the result of the vote.

    >>> noisy = sv.testing.toy_random()
    >>> voted = sv.defenses.Voted(noisy, sv.defenses.Majority(passes=5))
    >>> len(voted.decode(sv.testing.clips_for(noisy), draws=sv.Draws(0)))
    4
    """

    target: Target
    vote: Vote
    at_once: int = 64

    def __post_init__(self) -> None:
        self.vote.check(self.target)
        if self.at_once < 1:
            raise InputError(f"at_once must be at least 1, got {self.at_once}; 64 is usual.")

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return False

    def capability(self, kind: type[Capability]) -> Capability:
        """As that of the target inside, but for what a vote does not have."""
        if kind in (Timings, CtcFrames):
            raise MissingCapability(
                f"a vote has no {kind.__name__}: its text need not come from any single pass. Leave the vote "
                "out."
            )
        return super().capability(kind)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.target.loss(batch, labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        passes = Passes(self.target, batch, draws.turn("vote"), self.vote.passes, self.at_once)
        try:
            with torch.no_grad():
                return self.vote.elect(passes)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            rows = min(self.at_once, len(batch) * self.vote.passes)
            raise InputError(
                f"out of memory with {rows} clips of {batch.waveforms.shape[1]} samples at once; lower "
                f"`batch`, `passes` or `at_once`, so that fewer than {rows} are heard together."
            ) from None

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.capability(Scores).scores(batch, draws=draws)

    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        inner = self.target.capability(Matches)
        return inner.loss_and_match(batch, labels, draws=draws, first_token=first_token)

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.target.capability(Languages).language_scores(batch, draws=draws)

    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        return self.capability(Timings).timings(batch, draws=draws)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        return self.capability(CtcFrames).log_probs(batch, draws=draws)
