"""Rules about cells: which ones of a grid to drop, and which ones to add, as in the matrix of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_serializer

from sottovoce.errors import InputError, UnknownName
from sottovoce.registry.part_text import Part


def _texts(value: Any) -> Any:
    """One text or number as a list of one."""
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(str(item) if isinstance(item, int | float) else item for item in items)


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
CELL = ("defense", "attack", "goal", "budget", "attacker")
RUN = ("model", "data", "seed")


class CellRule(BaseModel):
    """A rule about cells: keys such as `attack` with texts to match. A cell matches if every key does.

    A key matches the exact text, the same part written another way (`snr(db=30.0)`), or a pattern with *
    for any characters and ? for one. If a key lists several texts, one match is enough. Keys that are not
    named match everything. The keys of a whole run (model, data, seed) are for files of several runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Texts = ()
    data: Texts = ()
    seed: Texts = ()
    defense: Texts = ()
    attack: Texts = ()
    goal: Texts = ()
    budget: Texts = ()
    attacker: Texts = ()

    @model_serializer
    def plain(self) -> dict[str, str | list[str]]:
        """As a plan file has it: only the keys that are named, a single text without a list."""
        named = {key: getattr(self, key) for key in (*RUN, *CELL) if getattr(self, key)}
        return {key: texts[0] if len(texts) == 1 else list(texts) for key, texts in named.items()}

    def __str__(self) -> str:
        named = {key: " or ".join(listed) for key in (*RUN, *CELL) if (listed := getattr(self, key))}
        return f"{{{', '.join(f'{key}: {text}' for key, text in named.items())}}}"

    def matches(self, facts: Mapping[str, str]) -> bool:
        """Whether all keys match, of those that the facts know."""
        return all(self._takes(key, text) for key, text in facts.items())

    def _takes(self, key: str, text: str) -> bool:
        wanted: tuple[str, ...] = getattr(self, key)
        return not wanted or any(same(one, text) for one in wanted)

    @property
    def runs(self) -> bool:
        """Whether it is about whole runs, and names nothing of a cell."""
        return not any(getattr(self, key) for key in CELL)

    def for_cells(self) -> CellRule:
        """The same rule without what it says of whole runs."""
        return CellRule(**{key: getattr(self, key) for key in CELL})

    def for_runs(self) -> CellRule:
        """What it says of whole runs."""
        return CellRule(**{key: getattr(self, key) for key in RUN})

    def choices(self, key: str, listed: Iterable[str]) -> list[str]:
        """The values of a key that the rule names: the listed ones that it matches, and new ones."""
        known, wanted = list(listed), getattr(self, key)
        if not wanted:
            return known
        found: list[str] = []
        for one in wanted:
            hits = [text for text in known if same(one, text)]
            if not hits and is_pattern(one):
                raise UnknownName(f"{key} in a rule of 'include':", one, known)
            found += hits or [one]
        return list(dict.fromkeys(found))

    def refuse(self, entry: str, facts: Iterable[Mapping[str, str]]) -> None:
        """Raise where the rule matches none of these, naming the key that is to blame."""
        rows = list(facts)
        if any(self.matches(row) for row in rows):
            return
        for key in rows[0] if rows else ():
            known = list(dict.fromkeys(row[key] for row in rows))
            for text in getattr(self, key):
                if not any(same(text, one) for one in known):
                    raise UnknownName(f"{key} in a rule of {entry!r}:", text, known)
        raise InputError(
            f"expected a rule of {entry!r} to match a cell, got {self}: no cell matches all of its keys; "
            "correct or delete the rule."
        )


@lru_cache(maxsize=4096)
def same(pattern: str, text: str) -> bool:
    """Whether a text equals the one that is named, or matches the pattern."""
    if pattern == text:
        return True
    if is_pattern(pattern) and re.fullmatch(_form(pattern), text, re.DOTALL):
        return True
    try:
        return Part.parse(pattern) == Part.parse(text)
    except InputError:
        return False


def _form(pattern: str) -> str:
    """As a regular expression. A piece between stars is taken where it comes first, and for good, so that no
    pattern takes long to match."""
    first, *rest = (re.escape(piece).replace(r"\?", ".") for piece in pattern.split("*"))
    return first + "".join(f"(?>.*?{piece})" for piece in rest[:-1]) + "".join(f".*{it}" for it in rest[-1:])


def is_pattern(text: str) -> bool:
    return "*" in text or "?" in text
