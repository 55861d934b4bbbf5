"""The parts of a study: one block a test, with what is asked about and how.

An item is what one trial is about. Of a block with `items` every listener gets all, or `per_listener` of them
in turn; of one with `sets` a listener gets one set, the next listener the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sottovoce.core.files.yaml_reader import refuse_truth
from sottovoce.errors import InputError, UnknownName
from sottovoce.listening.session.protocol import Long, Text
from sottovoce.perception.degradations.perturbation_space import Direction

Test = Literal["naming", "abx", "same-different", "mushra", "preference", "closer"]
TESTS: tuple[Test, ...] = ("naming", "abx", "same-different", "mushra", "preference", "closer")

NATURALNESS = (
    "Clearly perturbed audio with an artificial sound or noise.",
    "The audio is slightly perturbed by an artificial sound or noise, not likely to be caused by the low "
    "quality of the microphones or ambient sounds.",
    "Not sure",
    "No obvious signs of an artificial perturbation. The detectable perturbations are likely to be caused by "
    "a low- or mid-quality microphone, ambient sounds or ordinary noises.",
    "The audio clip clearly does not contain any artificial perturbation.",
)
"""The scale from 1 to 5 as its listeners read it (Vadillo and Santana 2020, section 5.1)."""
ANCHORS_HZ = (3500, 7000)
"""Low-pass anchors of ITU-R BS.1534."""

Key = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^:]+$")]
"""The id of a clip. A colon is for what is made from clips."""


class Strict(BaseModel):
    """A piece of a study file: nothing in it is left unread."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _know_keys(cls, content: Any) -> Any:
        for key, value in content.items() if isinstance(content, dict) else ():
            if key not in cls.model_fields:
                raise UnknownName("entry", str(key), cls.model_fields)
            try:
                refuse_truth(cls.model_fields[key].annotation, value)
            except InputError as error:
                error.place = (key,)
                raise
        return content


class ClipPair(Strict):
    """Two clips to choose from. better: the right one, of sentinels and teaching alone."""

    a: Key
    b: Key
    reference: Key | None = None
    better: Literal["a", "b"] | None = None

    def keys(self) -> Iterator[str]:
        yield from (key for key in (self.reference, self.a, self.b) if key is not None)


class Rack(Strict):
    """What is rated on one screen beside a reference; the hidden reference and anchors join by themselves."""

    reference: Key
    clips: Annotated[list[Key], Field(min_length=1, max_length=12)]

    def keys(self) -> Iterator[str]:
        yield self.reference
        yield from self.clips


class Track(Strict):
    """A reference and a way to change it more and more: one search for a just noticeable difference.

    direction: degradations, such as "white+mp3", rendered beforehand. steps: or clips by strength, 0 to 100,
    such as an attack at falling SNRs.
    """

    reference: Key
    direction: str | None = None
    steps: dict[Annotated[float, Field(ge=0, le=100)], Key] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.direction is None) == (self.steps is None):
            raise InputError("expected a direction or steps, got both or neither; keep one of them")
        if self.direction is not None:
            Direction.parse(self.direction)
        if self.steps is not None and len(self.steps) < 2:
            raise InputError(f"expected 2 steps or more, got {len(self.steps)}; add clips")
        return self

    def keys(self) -> Iterator[str]:
        yield self.reference
        yield from (self.steps or {}).values()


Item = TypeVar("Item")


class BaseBlock(Strict, Generic[Item]):
    """What all blocks have.

    sets: lists of items by name, one list a listener; then there are no `items`.
    order: "shuffled", or "latin": conditions one after the other, in an order that is balanced over
    listeners.
    break_after: trials between two breaks. teaching: items with feedback that come first and do not
    count. sentinels: items with a known answer, hidden among the others.
    """

    title: Text = ""
    instructions: Long = ""
    question: Text = ""
    items: list[Item] = []
    sets: dict[str, list[Item]] = {}
    per_listener: Annotated[int, Field(ge=1)] | None = None
    order: Literal["shuffled", "latin"] = "shuffled"
    break_after: Annotated[int, Field(ge=1)] | None = None
    rest_seconds: Annotated[int, Field(ge=0, le=600)] = 0

    @model_validator(mode="after")
    def _share(self) -> Self:
        if bool(self.items) == bool(self.sets):
            raise InputError("expected items or sets, got both or neither; list what the trials are about")
        for name, items in self.sets.items():
            if not items:
                raise InputError(f"set {name!r}: expected items, got none; fill or drop it")
        for name, pool in self.pools.items():
            twice = _repeated(pool)
            if twice is not None:
                place = f"set {name!r}" if name else "items"
                raise InputError(f"{place}: expected every item once, got {_show(twice)} twice; drop one")
        if self.per_listener is not None:
            if self.sets:
                raise InputError("expected per_listener with items, got it with sets; drop one of them")
            if self.per_listener > len(self.items):
                raise InputError(
                    f"expected per_listener of at most {len(self.items)} items, got {self.per_listener}; "
                    "lower it, or add items"
                )
        return self

    @property
    def pools(self) -> Mapping[str, Sequence[Item]]:
        """Items by set; of a block without sets, one pool without a name."""
        return self.sets or {"": self.items}

    def all_items(self) -> Iterator[Item]:
        for pool in self.pools.values():
            yield from pool


class NamingBlock(BaseBlock[Key]):
    """Say which word a clip holds, and how natural it sounds. choices: the words; labels are among them."""

    test: Literal["naming"]
    choices: Annotated[list[Text], Field(min_length=2, max_length=40)]
    scale_question: Text = "How natural does the clip sound?"
    scale: Annotated[list[Text], Field(min_length=5, max_length=5)] = list(NATURALNESS)
    teaching: list[Key] = []
    sentinels: list[Key] = []

    @field_validator("choices")
    @classmethod
    def _once(cls, choices: list[str]) -> list[str]:
        if len(set(choices)) < len(choices):
            raise InputError(f"expected every choice once, got {choices}; drop the repeated one")
        return choices


class AbxBlock(BaseBlock[Key]):
    """Is X the clip or its reference. Items are clips that have a `reference`."""

    test: Literal["abx"]
    teaching: list[Key] = []
    sentinels: list[Key] = []


class SameDifferentBlock(BaseBlock[Track]):
    """Same or different, ever closer to where the listener cannot tell (Manocha et al. 2020).

    per_listener: tracks a listener gets. comparisons: of each track, sentinels among them; sentinels: of the
    whole block, shared out evenly: obvious noise. teaching: the first are "same" and obvious noise in turn.
    strengths: how many are rendered, evenly from 0 to 100. interleaved: tracks take turns.
    """

    test: Literal["same-different"]
    comparisons: Annotated[int, Field(ge=1, le=200)] = 10
    sentinels: Annotated[int, Field(ge=0)] = 6
    teaching: Annotated[int, Field(ge=0, le=20)] = 2
    strengths: Annotated[int, Field(ge=2, le=201)] = 26
    gap_seconds: Annotated[float, Field(ge=0.0, le=5.0)] = 0.5
    interleaved: bool = True

    @model_validator(mode="after")
    def _plan(self) -> Self:
        if self.order == "latin":
            raise InputError("expected order: shuffled, as tracks take turns, got latin; drop it")
        sizes = {self.per_listener or len(pool) for pool in self.pools.values()}
        for size in sizes:
            if self.sentinels % size or self.sentinels // size >= self.comparisons:
                raise InputError(
                    f"expected sentinels that share out evenly over {size} tracks of {self.comparisons} "
                    f"comparisons, got {self.sentinels}; take a multiple of {size} below "
                    f"{size * self.comparisons}"
                )
        return self

    def grid(self) -> list[float]:
        """The strengths that are rendered of a direction."""
        return [round(float(one), 3) for one in np.linspace(0.0, 100.0, self.strengths)]

    def levels(self, track: Track) -> list[float]:
        """The strengths that can be played of a track."""
        return self.grid() if track.steps is None else sorted(track.steps)


class MushraBlock(BaseBlock[Rack]):
    """Rate clips from 0 to 100 beside a reference. anchors_hz: low-pass copies of it that are rated too."""

    test: Literal["mushra"]
    anchors_hz: list[Annotated[int, Field(ge=100)]] = list(ANCHORS_HZ)
    teaching: list[Rack] = []

    @model_validator(mode="after")
    def _fit(self) -> Self:
        for rack in (*self.all_items(), *self.teaching):
            total = len(rack.clips) + 1 + len(self.anchors_hz)
            if total > 15:
                raise InputError(
                    f"expected at most 15 clips on a screen, got {total} with reference and anchors of "
                    f"{rack.reference!r}; split the item"
                )
        return self


class PairBlock(BaseBlock[ClipPair]):
    """What preference and closer have in common."""

    teaching: list[ClipPair] = []
    sentinels: list[ClipPair] = []

    @model_validator(mode="after")
    def _known(self) -> Self:
        for pair in self.sentinels:
            if pair.better is None:
                raise InputError("sentinels: expected `better: a` or `better: b`, got neither; say it")
        return self


class PreferenceBlock(PairBlock):
    """Which of two clips is better; a reference is played where the pair has one."""

    test: Literal["preference"]


class CloserBlock(PairBlock):
    """Which of two clips is closer to the reference."""

    test: Literal["closer"]

    @model_validator(mode="after")
    def _referred(self) -> Self:
        for pair in (*self.all_items(), *self.teaching, *self.sentinels):
            if pair.reference is None:
                raise InputError(
                    f"expected a reference for the pair {pair.a!r}, {pair.b!r}, got none; add it"
                )
        return self


Block = Annotated[
    NamingBlock | AbxBlock | SameDifferentBlock | MushraBlock | PreferenceBlock | CloserBlock,
    Field(discriminator="test"),
]


def keys_of(item: str | ClipPair | Rack | Track) -> list[str]:
    """The clips that an item names."""
    return [item] if isinstance(item, str) else list(item.keys())


def extras(block: Block) -> list[Any]:
    """Items of a block that do not count: teaching and sentinels."""
    if isinstance(block, SameDifferentBlock):
        return []
    return [*block.teaching, *([] if isinstance(block, MushraBlock) else block.sentinels)]


def _repeated(items: Iterable[Any]) -> Any:
    seen = []
    for item in items:
        if item in seen:
            return item
        seen.append(item)
    return None


def _show(item: Any) -> str:
    return repr(item) if isinstance(item, str) else " / ".join(keys_of(item))
