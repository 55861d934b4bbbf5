"""Types and limits of the settings of parts: `Pgd(steps="many")` and `Pgd(steps=0)` are refused by name."""

from __future__ import annotations

import math
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from numbers import Integral, Real
from types import NoneType
from typing import Any, final

from sottovoce.errors import InputError

_TYPES: dict[str, tuple[type, str]] = {
    "int": (Integral, "an integer"),
    "float": (Real, "a number"),
    "str": (str, "text"),
    "bool": (bool, "True or False"),
    "None": (NoneType, "None"),
}
_LIMITS = "limits"


@final
@dataclass(frozen=True)
class SettingLimits:
    """Which values a setting takes, besides None. hint: what to type, where the default does not tell."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    one_of: tuple[str, ...] = ()
    hint: str = ""

    def takes(self, value: Any) -> bool:
        """Whether a value is finite and inside, or one of the words."""
        if self.one_of:
            return value in self.one_of
        return math.isfinite(value) and not (
            (self.at_least is not None and value < self.at_least)
            or (self.above is not None and value <= self.above)
            or (self.at_most is not None and value > self.at_most)
            or (self.below is not None and value >= self.below)
        )

    def __str__(self) -> str:
        """What is expected, in words."""
        if self.one_of:
            return " or ".join(map(repr, self.one_of))
        if self.above is not None and self.below is not None:
            return f"a number between {self.above:g} and {self.below:g}"
        bounds = {
            "of at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below
        }  # fmt: skip
        said = [f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None]
        return f"a number {' and '.join(said)}" if said else "a finite number"


def limits(
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    one_of: tuple[str, ...] = (),
    hint: str = "",
) -> dict[str, SettingLimits]:
    """SettingLimits of a setting: `steps: int = field(default=40, metadata=limits(at_least=1))`.

    Without a bound, any finite number is taken.
    """
    return {_LIMITS: SettingLimits(at_least, above, at_most, below, one_of, hint)}


class CheckedSettings:
    """Base of parts that are dataclasses: settings are checked before the part's own checks run.

    Types are checked of fields of type int, float, str, bool, None or one of several of these, and only
    against the values that people confuse with these; a number of NumPy or PyTorch passes. Then the `limits`
    of fields are checked.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = cls.__dict__.get("__post_init__")
        if own is None:
            return

        @wraps(own)
        def checked(self: Any, *given: Any) -> None:
            _check(self)
            own(self, *given)

        cls.__post_init__ = checked  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        _check(self)


def _check(part: Any) -> None:
    for item in fields(part) if is_dataclass(part) else ():
        value = getattr(part, item.name)
        words, allowed = _words(item), item.metadata.get(_LIMITS)
        shown = f"{type(part).__name__}({item.name}={value!r})"
        if words and not _fits(value, words):
            raise InputError(f"{shown}: expected {' or '.join(_TYPES[word][1] for word in words)}.")
        if allowed is not None and value is not None and not allowed.takes(value):
            usual = "" if item.default in (MISSING, None) else f"the default is {item.default}"
            hint = allowed.hint or usual
            raise InputError(f"{shown}: expected {allowed}{'; ' if hint else ''}{hint}.")


def _words(item: Field[Any]) -> list[str]:
    """The names of a field's plain types; none where one of them is not plain."""
    text = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", "")
    words = text.split(" | ")
    return words if item.init and all(word in _TYPES for word in words) else []


def _fits(value: Any, words: list[str]) -> bool:
    if isinstance(value, bool):
        return "bool" in words
    confused = isinstance(value, str | int | float | list | tuple | dict | NoneType)
    return not confused or isinstance(value, tuple(_TYPES[word][0] for word in words))
