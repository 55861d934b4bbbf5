"""The family of attention models: an encoder hears the clip, a decoder writes one token after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Matches, evaluating
from sottovoce.errors import InputError
from sottovoce.targets.families.recogniser import Recogniser


class Attention(Recogniser, Matches):
    """A recogniser with an encoder for the clip and a decoder that writes one token after another.

    A subclass gives `module`, `sample_rate` and `longest_text`, and writes `tokens_of`, `forced_scores` and
    `transcribe`. The loss of a clip is the mean negative log-likelihood of its label's tokens, the end of the
    text included. The decoder must be causal: what follows a token, padding too, must not change its scores.

    >>> sorted(sv.targets.Attention.__abstractmethods__)  # what a subclass writes
    ['forced_scores', 'tokens_of', 'transcribe']
    """

    module: torch.nn.Module
    """Everything with weights; it always runs in evaluation mode."""
    longest_text: int
    """The most tokens a label may have, its end included."""
    longest_said: int | None = None
    """The most tokens that decoding writes, its end not counted; None: as many as a label may have."""
    barred: tuple[int, ...] = ()
    """Tokens that decoding never writes, and so neither can a label that is to be said."""
    barred_first: tuple[int, ...] = ()
    """Tokens that decoding does not begin a text with."""

    @abstractmethod
    def tokens_of(self, label: str) -> list[int]:
        """The label's tokens, the end of the text last; `InputError` where the vocabulary cannot spell it."""

    @abstractmethod
    def forced_scores(self, batch: AudioBatch, tokens: Tensor, *, draws: Draws) -> Tensor:
        """Scores of every token before the softmax, `(batch, places, vocabulary)`, given the label so far.

        At each place they follow the clip and the tokens of the places before it. Differentiable to
        `batch.waveforms`.

        tokens: `(batch, places)`, one label a row as `tokens_of` gives it, then anything.
        """

    @abstractmethod
    def transcribe(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        """What `decode` gives; gradients are off and the module is in evaluation mode."""

    @final
    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        tokens, counts = self._spelt(labels, batch.device)
        with evaluating(self.module):
            return forced_loss(self.forced_scores(batch, tokens, draws=draws), tokens, counts)

    @final
    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        tokens, counts = self._spelt(labels, batch.device)
        with evaluating(self.module):
            scores = self.forced_scores(batch, tokens, draws=draws)
        said = self.permitted(scores.detach()).argmax(dim=-1)
        match = ((said == tokens) | ~_inside(tokens, counts)).all(dim=1)
        return forced_loss(scores, tokens, counts, first_token=first_token), match

    @final
    def permitted(self, scores: Tensor, *, first: bool = True) -> Tensor:
        """Scores `(batch, places, vocabulary)` in which tokens that decoding leaves out are minus infinity.

        first: whether place 0 is where the text begins.
        """
        scores = scores.clone()
        scores[..., list(self.barred)] = -torch.inf
        if first:
            scores[:, 0, list(self.barred_first)] = -torch.inf
        return scores

    @final
    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        with evaluating(self.module), torch.no_grad():
            return self.transcribe(batch, draws=draws)

    @final
    def check_labels(self, labels: Sequence[str]) -> None:
        for label in labels:
            tokens = self._checked(label)
            if self.longest_said is not None and len(tokens) > self.longest_said + 1:
                raise InputError(
                    f"expected a label of at most {self.longest_said} tokens, the most that this model "
                    f"writes, got {len(tokens) - 1} in {label[:40]!r}...; shorten it."
                )
            if not set(self.barred).isdisjoint(tokens):
                raise InputError(
                    f"expected a label that this model can write, got {label!r}, which has tokens that it "
                    "never writes; drop brackets, quotes and other marks that are not spoken."
                )

    def _checked(self, label: str) -> list[int]:
        tokens = self.tokens_of(label)
        if len(tokens) > self.longest_text:
            raise InputError(
                f"expected a label of at most {self.longest_text} tokens with the end of the text, got "
                f"{len(tokens)} in {label[:40]!r}...; shorten it."
            )
        return tokens

    def _spelt(self, labels: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
        """Tokens `(batch, places)`, zero past each label's end, and their counts `(batch,)`."""
        rows = [torch.tensor(self._checked(label)) for label in labels]
        counts = torch.tensor([len(row) for row in rows])
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device), counts.to(device)


def forced_loss(scores: Tensor, tokens: Tensor, counts: Tensor, *, first_token: float = 0.0) -> Tensor:
    """Weighted mean of each label's cross-entropies, `(batch,)` float32 (Olivier 2023, eq. 5.2).

    scores: `(batch, places, vocabulary)` before the softmax.
    tokens, counts: the labels `(batch, places)` and how many tokens each has, `(batch,)`.
    first_token: lambda, the extra weight of the first token; 0 is the plain mean.
    """
    missed = torch.nn.functional.cross_entropy(scores.float().transpose(1, 2), tokens, reduction="none")
    weights = _inside(tokens, counts).to(missed)
    weights[:, 0] += first_token
    return (weights * missed).sum(dim=1) / weights.sum(dim=1)


def _inside(tokens: Tensor, counts: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=tokens.device) < counts[:, None]
