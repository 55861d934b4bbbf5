"""Beam search, each clip by itself, over a decoder that remembers what it has computed.

The rules are those of OpenAI's Whisper: a clip is done when as many texts have ended as it has beams, and the
text with the highest mean log probability a token wins. One beam is greedy decoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from sottovoce.core.target import check_scores

Permit = Callable[[Tensor, bool], Tensor]
"""From scores `(rows, vocabulary)`, and whether the text begins here, to scores without barred tokens."""


class Writer(ABC):
    """A decoder at work on rows of text."""

    @abstractmethod
    def scores(self, tokens: Tensor) -> Tensor:
        """Scores `(rows, vocabulary)` of what comes next, after more tokens `(rows, places)` of each row."""

    @abstractmethod
    def keep(self, rows: Tensor, *, same_clips: bool) -> None:
        """Go on with these rows `(rows,)`, which may repeat; same_clips: each in the place of its clip."""


@final
class CachedWriter(Writer):
    """A decoder of the transformers library with an `EncoderDecoderCache`.

    run: from tokens `(rows, places)`, encoded clips `(rows, frames, width)` and the cache to scores.
    """

    def __init__(self, run: Callable[[Tensor, Tensor, Any], Tensor], encoded: Tensor, cache: Any) -> None:
        self.run = run
        self.encoded = encoded
        self.cache = cache

    def scores(self, tokens: Tensor) -> Tensor:
        return self.run(tokens, self.encoded, self.cache)

    def keep(self, rows: Tensor, *, same_clips: bool) -> None:
        if same_clips:
            # The keys of the clip are far larger than those of the text, and are the same for all its beams.
            self.cache.self_attention_cache.batch_select_indices(rows)
        else:
            self.cache.batch_select_indices(rows)
            self.encoded = self.encoded[rows]


@final
class _Ended:
    """Texts of one clip that came to their end, best first at each step."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.texts: list[tuple[float, list[int]]] = []

    def add(self, total: float, tokens: list[int]) -> None:
        if not self.full:
            self.texts.append((total / max(1, len(tokens)), tokens))

    @property
    def full(self) -> bool:
        return len(self.texts) >= self.room

    @property
    def best(self) -> list[int]:
        return max(self.texts, key=lambda text: text[0])[1]


def search(
    writer: Writer,
    start: Tensor,
    end: int,
    *,
    beams: int,
    longest: int,
    permit: Permit,
    ids: Sequence[str] | None = None,
) -> list[list[int]]:
    """The tokens written for each clip, without the end; `ScoreError` where a clip has no best token.

    start: what every text begins with, `(batch, places)`; it is not part of what is returned.
    longest: the most tokens written; a text that has not ended by then is taken as it is.
    ids: the clips' names, for the error; their places where not given.
    """
    names = [str(place) for place in range(len(start))] if ids is None else ids
    ended = [_Ended(beams) for _ in start]
    clips = list(range(len(start)))
    totals = torch.zeros(len(start), 1, device=start.device)
    written = start.new_zeros(len(start), 1, 0)
    fed = start
    for step in range(longest):
        scores = permit(writer.scores(fed).float(), step == 0).view(*totals.shape, -1)
        sums = totals[:, :, None] + scores.log_softmax(dim=-1)
        # Of twice as many candidates as beams, at most one a beam is an end, so that enough go on.
        best, places = sums.flatten(1).topk(min(2 * beams, sums[0].numel()))
        # Where there is no best score the softmax is NaN, which the search takes for the highest.
        if bool(best[:, 0].isnan().any()):
            check_scores(scores, [names[clip] for clip in clips])
        parents, tokens = places // sums.shape[2], places % sums.shape[2]
        ends = tokens == end
        counted = ends & ((~ends).cumsum(dim=1) < beams) & best.isfinite()
        for row, place in counted.nonzero().tolist():
            ended[clips[row]].add(float(best[row, place]), written[row, parents[row, place]].tolist())
        going = [row for row, clip in enumerate(clips) if not ended[clip].full]
        if not going:
            break
        onward = ends.int().argsort(dim=1, stable=True)[going, :beams]
        live = torch.tensor(going, device=start.device)
        # An end goes on only where the vocabulary is too small for the beams; it must never be chosen.
        best = best.masked_fill(ends, -torch.inf)
        totals, tokens, parents = (part[live].gather(1, onward) for part in (best, tokens, parents))
        written = torch.cat([written[live[:, None], parents], tokens[:, :, None]], dim=2)
        same_clips = len(going) == len(clips) and sums.shape[1] == beams
        if beams > 1 or not same_clips:
            writer.keep((live[:, None] * sums.shape[1] + parents).flatten(), same_clips=same_clips)
        clips = [clips[row] for row in going]
        fed = tokens.reshape(-1, 1)
    for clip, sums_left, texts in zip(clips, totals.tolist(), written.tolist(), strict=True):
        for total, text in zip(sums_left, texts, strict=True):
            ended[clip].add(total, text)
    return [texts.best for texts in ended]
