"""What is wrong with an entry of a plan, and which entry it is."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sottovoce.auditing.plan.cell_rules import CELL, RUN
from sottovoce.core.files.expected_values import expected
from sottovoce.errors import InputError, UnknownName


def mistake(error: ValidationError, where: str, known: Iterable[str]) -> InputError:
    """The first thing that is wrong with the entries, as one sentence.

    where: the kind of entry, for messages. known: the entries that exist.
    """
    first = error.errors()[0]
    found = _message(first, where, known)
    found.place = first["loc"]
    return found


def _message(error: ErrorDetails, where: str, known: Iterable[str]) -> InputError:
    place = [str(one) for one in error["loc"]]
    if error["type"] == "extra_forbidden":
        if len(place) == 1:
            return UnknownName(where, place[0], known)
        return UnknownName(f"key of a rule of {place[0]!r}:", place[-1], (*RUN, *CELL))
    what = error["msg"].removeprefix("Value error, ")
    if error["type"] != "value_error":
        what = f"{expected(error)}, got {error['input']!r}."
    return InputError(f"{where} {_name(error['loc'])}: {what}")


def _name(place: tuple[int | str, ...]) -> str:
    """`'attacks', item 2` for the second attack of a list."""
    below = (f"item {one + 1}" if isinstance(one, int) else repr(one) for one in place[1:])
    return ", ".join([*(repr(str(one)) for one in place[:1]), *below])
