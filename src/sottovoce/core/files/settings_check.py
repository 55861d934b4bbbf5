"""Types of the settings of parts that Python code makes: `Pgd(steps="many")` is refused with its name."""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from functools import wraps
from numbers import Integral, Real
from types import NoneType
from typing import Any

from sottovoce.errors import InputError

_TYPES: dict[str, tuple[type, str]] = {
    "int": (Integral, "an integer"),
    "float": (Real, "a number"),
    "str": (str, "text"),
    "bool": (bool, "True or False"),
    "None": (NoneType, "None"),
}


class CheckedSettings:
    """Base of parts that are dataclasses: settings are checked by type before the part's own checks run.

    Only fields of type int, float, str, bool, None or one of several of these are checked, and only against
    the values that people confuse with these; a number of NumPy or PyTorch passes.
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
        words = _words(item)
        if words and not _fits(value, words):
            expected = " or ".join(_TYPES[word][1] for word in words)
            raise InputError(f"{type(part).__name__}({item.name}={value!r}): expected {expected}.")


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
