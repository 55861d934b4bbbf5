"""What is kept of a screen that was given out: plain data, from which the screen can be made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, final

from sottovoce.listening.study.seating import Planned, slot_name
from sottovoce.listening.study.test_sounds import dither

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "clip": "Clip",
        "a": "A",
        "b": "B",
        "x": "X",
        "first": "First",
        "second": "Second",
        "reference": "Reference",
        "noise": "Noise",
    }
)


class Cue(NamedTuple):
    """What is played in a slot: a clip, and what its noise is drawn from where it is dithered."""

    clip: str
    secret: bytes | None = None

    def sound(self, wav: Callable[[str], bytes]) -> bytes:
        """The file. wav: files by the keys of clips."""
        plain = wav(self.clip)
        return plain if self.secret is None else dither(plain, self.secret)


@final
@dataclass(frozen=True)
class Step:
    """One screen of one session.

    place: from 0 on. kind: of the screen. roles: clip keys by the labels of the slots, in their order.
    truth, facts: as of `Planned`. Of a comparison of same/different, truth also has the strength; of
    headphones and attention the right choice. Facts of a notice say what it is about ("instructions",
    "block", "break"), those of the end how it came ("outcome") and the code. dither: whether each slot has
    noise of its own.
    """

    place: int
    kind: str
    planned: Planned | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    truth: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    dither: bool = False

    @property
    def teaching(self) -> bool:
        return self.planned is not None and self.planned.teaching

    @property
    def sentinel(self) -> bool:
        return self.planned is not None and self.planned.sentinel

    @property
    def block(self) -> int:
        """Of the study; -1 outside blocks."""
        return -1 if self.planned is None else self.planned.block

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "planned": None if self.planned is None else {**vars(self.planned)}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Step:
        planned = content.get("planned")
        return cls(**{**content, "planned": None if planned is None else Planned(**planned)})


def label_of(role: str) -> str:
    """What listeners call a role: "c1", "c2"... of a MUSHRA screen are A, B..."""
    return LABELS[role] if role in LABELS else slot_name(int(role.removeprefix("c")) - 1)


def step_of(planned: Planned, roles: Mapping[str, str], truth: Mapping[str, Any]) -> Step:
    """The step of a trial; its place in the session is set when it is given out."""
    slots = {label_of(role): key for role, key in roles.items()}
    return Step(0, planned.test, planned, slots, truth, planned.facts)
