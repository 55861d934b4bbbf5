"""Whether a model answers the same clips alike twice: asked before a run, for models that do not say.

Dropout that was left on, a random crop, state that is kept from one call to the next: an attack that treats
such a model as deterministic follows the gradient of one draw, and counts successes that do not recur.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.field_ranges import Count
from sottovoce.core.files.strict_json import STRICT
from sottovoce.core.target import Scores, Target
from sottovoce.data.load import Clip, collate
from sottovoce.errors import exits_are_errors

CLIPS = 4
"""Clips that are decoded twice."""
LOOKED_AT = 16
"""Most clips that are tried to find enough usable ones."""
JUDGED = 8
"""Passes over which every judgement of a model that does not repeat itself is taken."""
NOISE = 1e-4
"""Scores differ by more than this share of what lies between the highest and the lowest of them. Kernels of a
GPU that add up in any order are a hundred times below it."""
LOSS_NOISE = 1e-3
"""The same of losses, as a share of the loss or, where that is less, of 1: a loss adds up many frames."""
ROUNDINGS = 16
"""Steps of their own number type that are no difference either: scores in half precision have long ones."""


class Repeated(BaseModel):
    """The outcome of decoding clips twice: on how many the texts differed, and on how many the scores, or the
    loss where there are none. said: whether the model declares itself random. asked: whether it was decoded
    twice at all, which is not done where every request costs money."""

    model_config = ConfigDict(**STRICT, frozen=True)

    clips: Count = 0
    texts: Count = 0
    scores: Count = 0
    said: bool = False
    asked: bool = True

    def __add__(self, other: Repeated) -> Repeated:
        return Repeated(
            clips=self.clips + other.clips,
            texts=self.texts + other.texts,
            scores=self.scores + other.scores,
            said=self.said or other.said,
            asked=self.asked and other.asked,
        )

    def to_json(self) -> dict[str, int | bool]:
        """As plain data, without what is not known."""
        return self.model_dump(exclude={"asked"}) if self.asked else {"asked": False}

    @property
    def steady(self) -> bool:
        return not (self.texts or self.scores or self.said)


def hear_twice(target: Target, clips: Sequence[Clip], *, batch: int, device: str, seed: int) -> Repeated:
    """Decode clips twice, each time in the same batches of at most `batch` and with the same draws.

    A clip over which the model raises has nothing to say here; its records will tell.
    """
    found = Repeated(said=not target.repeats, asked=not (target.paid and target.repeats))
    if target.paid or found.said:
        return found
    for first in range(0, len(clips), batch):
        found += _heard(target, clips[first : first + batch], device, Draws(seed).turn("repeat"))
    return found


def _heard(target: Target, clips: Sequence[Clip], device: str, draws: Draws) -> Repeated:
    try:
        with exits_are_errors():
            rows = list(_differing(target, collate(clips).to(device), draws))
    # Someone's own model may raise anything.
    except Exception:
        if len(clips) == 1:
            return Repeated()
        half = len(clips) // 2
        return _heard(target, clips[:half], device, draws) + _heard(target, clips[half:], device, draws)
    texts, scores = (sum(column) for column in zip(*rows, strict=True))
    return Repeated(clips=len(rows), texts=texts, scores=scores)


@torch.no_grad()
def _differing(target: Target, batch: AudioBatch, draws: Draws) -> Iterator[tuple[bool, bool]]:
    """Of each clip whether the texts, and whether the scores differ."""
    texts = [target.decode(batch, draws=draws) for _ in range(2)]
    others = [one != two for one, two in zip(*texts, strict=True)]
    yield from zip(others, _scores_differ(target, batch, texts[0], draws), strict=True)


def _scores_differ(target: Target, batch: AudioBatch, texts: Sequence[str], draws: Draws) -> list[bool]:
    if target.shows == "decisions":
        return [False] * len(batch)
    if target.offers(Scores):
        power = target.capability(Scores)
        one, two = (power.scores(batch, draws=draws) for _ in range(2))
        span = one.amax(dim=1) - one.amin(dim=1)
        return _apart(one, two, NOISE * span)
    try:
        one, two = (target.loss(batch, texts, draws=draws)[:, None] for _ in range(2))
    except Exception:
        # Not every text that a model writes can be spelt by it again.
        if len(batch) > 1:
            raise
        return [False]
    return _apart(one, two, LOSS_NOISE * one[:, 0].abs().clamp_min(1.0))


def _apart(one: Tensor, two: Tensor, least: Tensor) -> list[bool]:
    """Whether numbers `(batch, n)` of a clip differ by more than `least` and rounding.

    NaN, which equals nothing, is no difference: it is a failure of its clip, which its records will tell.
    """
    rounding = ROUNDINGS * torch.finfo(one.dtype).eps * one.abs().amax(dim=1)
    found: list[bool] = ((one - two).abs().amax(dim=1) > least + rounding).tolist()
    return found
