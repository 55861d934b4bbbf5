"""A defense as text: transforms before the model and a vote over its answers, joined by +."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

from sottovoce import registry
from sottovoce.core.target import Target
from sottovoce.core.transform import Defended, Transform
from sottovoce.core.vote import Vote, Voted
from sottovoce.errors import InputError, UnknownName
from sottovoce.registry.part_text import Part, split_outside

NO_DEFENSE = "none"


@final
@dataclass(frozen=True)
class Defense:
    """What is put around a model: transforms, in the order that a clip passes them, then a vote."""

    transforms: tuple[Transform, ...] = ()
    vote: Vote | None = None

    @classmethod
    def parse(cls, text: str) -> Defense:
        """A defense from text such as `gaussian(sigma=0.01)+asnr+rover(passes=16)`; `none` is no defense."""
        if text.strip() == NO_DEFENSE:
            return cls()
        parts = list(parts_of(text))
        votes = [part for part in parts if part.name in registry.names("vote")]
        if votes and votes != parts[-1:]:
            raise InputError(
                f"expected at most one vote, at the end of the defense, got {text!r}; write it like "
                "gaussian(sigma=0.01)+majority."
            )
        vote: Vote | None = votes[0].build("vote") if votes else None
        if vote is not None:
            vote.check_passes()
        return cls(tuple(_transform(part) for part in parts if part not in votes), vote)

    @property
    def parts(self) -> tuple[Transform | Vote, ...]:
        """All of it, in order."""
        return (*self.transforms, *([] if self.vote is None else [self.vote]))

    def around(self, target: Target) -> Target:
        """The target behind this defense; the target itself where there is none."""
        heard: Target = Defended(target, self.transforms) if self.transforms else target
        if self.vote is None:
            return heard
        if not heard.random:
            name = registry.name_of("vote", type(self.vote)) or type(self.vote).__name__
            raise InputError(
                f"{name} needs a random model: put noise before it, such as gaussian(sigma=0.01)+{name}."
            )
        return Voted(heard, self.vote)


@lru_cache(maxsize=1024)
def parts_of(text: str) -> tuple[Part, ...]:
    """The parts of a defense's text; cached, because a plan of thousands of cells asks in each of them."""
    return tuple(Part.parse(item) for item in split_outside(text, "+"))


def _transform(part: Part) -> Transform:
    if part.name not in registry.names("transform"):
        raise UnknownName("defense", part.name, [*registry.names("transform"), *registry.names("vote")])
    transform: Transform = part.build("transform")
    return transform
