"""Recognisers trained with connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import CtcFrames, Matches, TimedWord, Timings, check_scores
from sottovoce.errors import InputError
from sottovoce.targets.families.recogniser import Recogniser

Floats = NDArray[np.float64]
# A token this unlikely in a frame never leads to the best text; leaving it out makes the search quick.
UNLIKELY = float(np.log(1e-4))


@final
@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a CTC model, a letter each; tokens that write nothing (the blank, padding) are empty.

    letters: one a token, in the order of the model's output; "" for a token that writes nothing.
    blank: which token is the blank.
    case: "lower" or "upper" where the vocabulary has only one; labels are converted to it.

    >>> vocabulary = sv.targets.Vocabulary(("", "a", "b", " "), case="lower")
    >>> vocabulary.encode("A ba")
    [1, 3, 2, 1]
    >>> vocabulary.decode([1, 3, 3, 2, 1])
    'a ba'
    """

    letters: tuple[str, ...]
    blank: int = 0
    case: Literal["lower", "upper"] | None = None
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {letter: place for place, letter in enumerate(self.letters) if letter}
        object.__setattr__(self, "_places", places)

    def encode(self, label: str) -> list[int]:
        text = {"lower": label.lower(), "upper": label.upper(), None: label}[self.case]
        strange = sorted({letter for letter in text if letter not in self._places})
        if strange:
            raise InputError(
                f"expected a text of the letters {''.join(sorted(self._places))!r}, got {label!r} with "
                f"{''.join(strange)!r}; use the model's letters only."
            )
        return [self._places[letter] for letter in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens after merging, as words with one space between."""
        return " ".join("".join(self.letters[token] for token in tokens).split())


class Ctc(Recogniser, Matches, Timings, CtcFrames):
    """A recogniser trained with CTC (Graves et al. 2006): a token a frame, repeats merged, blanks dropped.

    A subclass gives `vocabulary`, `sample_rate`, `frame_seconds` (from the start of one frame to the next)
    and `log_probs`; loss, decoding and word times follow.

    beams: 1 for the most likely token of each frame; more for a beam search over texts.

    >>> model = sv.testing.ToyCtc()  # its tokens: the blank, then "abcde "
    >>> said = torch.nn.functional.one_hot(torch.tensor([[1, 1, 0, 1, 2]]), 7).float().log()
    >>> model.spell(said, torch.tensor([5]))  # a a blank a b
    ['aab']
    """

    vocabulary: Vocabulary
    beams: int = 1

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.beams == 1

    @property
    @abstractmethod
    def frame_seconds(self) -> float:
        """From the start of one frame to the next."""

    @final
    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self._loss(batch, labels, *self.log_probs(batch, draws=draws))

    @final
    def loss_and_match(
        self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws, first_token: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        log_probs, frames = self.log_probs(batch, draws=draws)
        said = greedy_tokens(log_probs, frames, self.vocabulary.blank)
        match = [
            self.vocabulary.decode(tokens) == self.vocabulary.decode(self.vocabulary.encode(label))
            for tokens, label in zip(said, labels, strict=True)
        ]
        return self._loss(batch, labels, log_probs, frames), torch.tensor(match, device=log_probs.device)

    @final
    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.spell(*self._readable(batch, draws))

    @final
    def spell(self, log_probs: Tensor, frames: Tensor) -> list[str]:
        return [self.vocabulary.decode(tokens) for tokens in self._said(log_probs, frames)]

    @final
    def timings(self, batch: AudioBatch, *, draws: Draws) -> list[list[TimedWord]]:
        log_probs, frames = self._readable(batch, draws)
        rows = log_probs.detach().double().cpu().numpy()
        return [self._words(row[:count]) for row, count in zip(rows, frames.tolist(), strict=True)]

    @final
    def check_labels(self, labels: Sequence[str]) -> None:
        for label in labels:
            self.vocabulary.encode(label)

    def _readable(self, batch: AudioBatch, draws: Draws) -> tuple[Tensor, Tensor]:
        """What `log_probs` gives, refused where a frame has no likeliest token."""
        log_probs, frames = self.log_probs(batch, draws=draws)
        return check_scores(log_probs, batch.ids, frames), frames

    def _said(self, log_probs: Tensor, frames: Tensor) -> list[list[int]]:
        if self.beams == 1:
            return greedy_tokens(log_probs, frames, self.vocabulary.blank)
        rows = log_probs.detach().double().cpu().numpy()
        return [
            beam_tokens(row[:count], self.vocabulary.blank, self.beams)
            for row, count in zip(rows, frames.tolist(), strict=True)
        ]

    def _loss(self, batch: AudioBatch, labels: Sequence[str], log_probs: Tensor, frames: Tensor) -> Tensor:
        """Minus the log probability of each label over its number of tokens, `(batch,)`."""
        rows = [self.vocabulary.encode(label) for label in labels]
        for name, label, row, count in zip(batch.ids, labels, rows, frames.tolist(), strict=True):
            # A blank must part two equal letters. Without room the loss is infinite and has no gradient.
            needed = len(row) + sum(one == two for one, two in pairwise(row))
            if needed > count:
                raise InputError(
                    f"clip {name!r}: {label!r} needs {needed} frames, and the clip has {count}; use a "
                    "shorter text or a longer clip."
                )
        lengths = torch.tensor([len(row) for row in rows])
        tokens = torch.tensor([token for row in rows for token in row], dtype=torch.int64)
        total = torch.nn.functional.ctc_loss(
            log_probs.transpose(0, 1).float(),
            tokens.to(log_probs.device),
            frames.cpu(),
            lengths,
            blank=self.vocabulary.blank,
            reduction="none",
        )
        return total / lengths.clamp_min(1).to(total)

    def _words(self, rows: Floats) -> list[TimedWord]:
        blank = self.vocabulary.blank
        if self.beams == 1:
            tokens, spans = greedy_spans(rows, blank)
        else:
            tokens = beam_tokens(rows, blank, self.beams)
            spans = align(rows, tokens, blank)
        letters = [self.vocabulary.letters[token] for token in tokens]
        words = []
        for is_space, group in groupby(range(len(tokens)), key=lambda place: letters[place].isspace()):
            places = [place for place in group if letters[place]]
            if is_space or not places:
                continue
            start, end = spans[places[0]][0], spans[places[-1]][1]
            text = "".join(letters[place] for place in places)
            sure = np.mean([rows[spans[place][0] : spans[place][1], tokens[place]].max() for place in places])
            times = start * self.frame_seconds, end * self.frame_seconds
            # The geometric mean over letters, so that a long word is not less sure for its length.
            words.append(TimedWord(text, *times, confidence=min(1.0, float(np.exp(sure)))))
        return words


def greedy_tokens(log_probs: Tensor, frames: Tensor, blank: int) -> list[list[int]]:
    """The likeliest token of each frame, merged, one list a clip."""
    best = log_probs.detach().argmax(dim=-1).tolist()
    merged = [
        [token for token, _ in groupby(row[:count])] for row, count in zip(best, frames.tolist(), strict=True)
    ]
    return [[token for token in row if token != blank] for row in merged]


def greedy_spans(log_probs: Floats, blank: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The likeliest token of each frame of `(frames, tokens)`, merged, and the frames of each.

    Frames are the first, and one past the last. It is the likeliest path of all, so it is what `align` finds
    for its own tokens.
    """
    best = log_probs.argmax(axis=1)
    edges = [0, *(np.flatnonzero(np.diff(best)) + 1).tolist(), len(best)]
    runs = [(int(best[start]), (start, end)) for start, end in pairwise(edges) if best[start] != blank]
    return [token for token, _ in runs], [span for _, span in runs]


def beam_tokens(log_probs: Floats, blank: int, beams: int) -> list[int]:
    """The likeliest text by prefix search (Hannun et al. 2014) over log probabilities `(frames, tokens)`.

    Every prefix holds the log probability of ending in a blank and of ending in its last token.
    """
    prefixes: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -np.inf)}
    for frame in log_probs:
        likely = [int(token) for token in np.flatnonzero(frame > UNLIKELY)]
        grown: dict[tuple[int, ...], list[float]] = {}

        def add(prefix: tuple[int, ...], ending: int, value: float, into: dict = grown) -> None:  # type: ignore[type-arg]
            entry = into.setdefault(prefix, [-np.inf, -np.inf])
            entry[ending] = np.logaddexp(entry[ending], value)

        for prefix, (after_blank, after_token) in prefixes.items():
            total = np.logaddexp(after_blank, after_token)
            for token in likely:
                chance = frame[token]
                if token == blank:
                    add(prefix, 0, total + chance)
                elif prefix and token == prefix[-1]:
                    add(prefix, 1, after_token + chance)
                    add((*prefix, token), 1, after_blank + chance)
                else:
                    add((*prefix, token), 1, total + chance)
        ranked = sorted(grown.items(), key=lambda item: (-np.logaddexp(item[1][0], item[1][1]), item[0]))
        prefixes = {prefix: (ending[0], ending[1]) for prefix, ending in ranked[:beams]}
    return list(max(prefixes.items(), key=lambda item: np.logaddexp(*item[1]))[0])


def align(log_probs: Floats, tokens: Sequence[int], blank: int) -> list[tuple[int, int]]:
    """The likeliest frames of each token: first, and one past the last (Viterbi over `(frames, tokens)`).

    The path runs over blank, token, blank, token, ..., blank; a blank between two different tokens may be
    skipped.
    """
    path = np.full(2 * len(tokens) + 1, blank)
    path[1::2] = tokens
    may_skip = np.zeros(len(path), dtype=bool)
    may_skip[2:] = (path[2:] != blank) & (path[2:] != path[:-2])
    score = np.full(len(path), -np.inf)
    score[:2] = log_probs[0, path[:2]]
    came_from = np.zeros((len(log_probs), len(path)), dtype=np.int64)
    for frame in range(1, len(log_probs)):
        one = np.concatenate([[-np.inf], score[:-1]])
        two = np.where(may_skip, np.concatenate([[-np.inf, -np.inf], score[:-2]])[: len(path)], -np.inf)
        came_from[frame] = np.argmax([score, one, two], axis=0)
        score = np.max([score, one, two], axis=0) + log_probs[frame, path]
    place = len(path) - 1 if len(path) == 1 or score[-1] >= score[-2] else len(path) - 2
    places = np.zeros(len(log_probs), dtype=np.int64)
    for frame in range(len(log_probs) - 1, -1, -1):
        places[frame] = place
        place -= came_from[frame, place]
    frames_of = [np.flatnonzero(places == 2 * token + 1) for token in range(len(tokens))]
    return [(int(found[0]), int(found[-1]) + 1) for found in frames_of]
