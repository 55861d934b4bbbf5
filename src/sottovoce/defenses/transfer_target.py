"""Two models as one target: attacks follow the gradient of one, and the other judges (Table 7.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Says, Sight, Target
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import InputError
from sottovoce.targets.open_target import open_target


@final
@dataclass(frozen=True)
class Transfer(Target):
    """The loss of `source` and the decisions of `judge`. It has no other capability."""

    source: Target
    judge: Target

    def __post_init__(self) -> None:
        for name in ("sample_rate", "says"):
            ours, theirs = getattr(self.source, name), getattr(self.judge, name)
            if ours != theirs:
                raise InputError(
                    f"transfer: source and judge need the same {name}, got {ours} and {theirs}; choose two "
                    "models that agree."
                )

    @property
    def sample_rate(self) -> int:  # type: ignore[override]
        return self.judge.sample_rate

    @property
    def says(self) -> Says:  # type: ignore[override]
        return self.judge.says

    @property
    def shows(self) -> Sight:
        return self.source.shows

    @property
    def clips(self) -> str:  # type: ignore[override]
        return self.judge.clips

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.source.random

    @property
    def repeats(self) -> bool:  # type: ignore[override]
        return self.source.repeats and self.judge.repeats

    @property
    def paid(self) -> bool:  # type: ignore[override]
        return self.source.paid or self.judge.paid

    @property
    def shortest(self) -> int:
        return max(self.source.shortest, self.judge.shortest)

    @property
    def longest(self) -> int | None:
        return min(
            (one for one in (self.source.longest, self.judge.longest) if one is not None), default=None
        )

    def check_labels(self, labels: Sequence[str]) -> None:
        self.source.check_labels(labels)
        self.judge.check_labels(labels)

    def canonical(self, text: str) -> str:
        return self.judge.canonical(text)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.source.loss(batch, labels, draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.judge.decode(batch, draws=draws)


def transfer(
    source: str,
    judge: str,
    device: str = "cpu",
    source_defense: str = NO_DEFENSE,
    judge_defense: str = NO_DEFENSE,
) -> Transfer:
    """Examples made on one model and judged by another, each with a defense of its own.

    source, judge: models as in plans, such as `speaker(variant=lowpass)`.
    device: where both run.
    source_defense, judge_defense: their defenses, such as `gaussian(sigma=0.01)+majority`.
    """
    return Transfer(
        Defense.parse(source_defense).around(open_target(source, device)),
        Defense.parse(judge_defense).around(open_target(judge, device)),
    )
