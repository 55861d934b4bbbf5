"""What is wrong with an entry of a plan, and which entry it is."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from sottovoce.auditing.plan.cell_rules import CELL, RUN
from sottovoce.errors import InputError, UnknownName


def mistake(error: ValidationError, where: str, known: Iterable[str]) -> InputError:
    """The first thing that is wrong with entries, as one sentence. Errors of our own are one already.

    where: the kind of entry, for messages. known: the entries that there are.
    """
    first = error.errors()[0]
    found = _told(first["loc"], first["type"], first["msg"], first["input"], where, known)
    found.place = first["loc"]
    return found


def _told(
    loc: tuple[int | str, ...], kind: str, said: str, value: object, where: str, known: Iterable[str]
) -> InputError:
    place = [str(one) for one in loc]
    if kind == "extra_forbidden":
        if len(place) == 1:
            return UnknownName(where, place[0], known)
        return UnknownName(f"key of a rule of {place[0]!r}:", place[-1], (*RUN, *CELL))
    what = said.removeprefix("Value error, ")
    if kind != "value_error":
        what = f"{what}, got {value!r}; mend it."
    return InputError(f"{where} {'.'.join(place)!r}: {what}")
