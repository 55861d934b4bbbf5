"""Files of entries: YAML in which every key is a word, and there once; and what is wrong with an entry."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sottovoce.audit.rule import CELL, RUN
from sottovoce.errors import InputError, UnknownName

_MERGE = "tag:yaml.org,2002:merge"


class Loader(yaml.SafeLoader):
    """YAML itself keeps the last of two keys in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if not isinstance(key, str):
                raise InputError(f"line {line}: expected a word before the colon, got {key!r}; mend it.")
            if key in seen:
                raise InputError(
                    f"line {line}: expected every key once, got {key!r} twice; drop one of them."
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_file(path: Path, what: str, example: str) -> dict[str, Any]:
    """The entries of a file. what: it is, such as "a plan"; example: of an entry."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except InputError as error:
        raise InputError(f"{path}, {error}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"expected {what} in YAML, got {str(path)!r} ({reason}); check the path.") from None
    if not isinstance(content, dict):
        raise InputError(f"expected {what} of entries such as {example!r} in {str(path)!r}; mend the file.")
    return content


def mistake(error: ValidationError, where: str, known: Iterable[str]) -> InputError:
    """The first thing that is wrong with entries, as one sentence. Errors of our own are one already.

    where: the kind of entry, for messages. known: the entries that there are.
    """
    first = error.errors()[0]
    place = [str(one) for one in first["loc"]]
    if first["type"] == "extra_forbidden":
        if len(place) == 1:
            return UnknownName(where, place[0], known)
        return UnknownName(f"key of a rule of {place[0]!r}:", place[-1], (*RUN, *CELL))
    what = first["msg"].removeprefix("Value error, ")
    if first["type"] != "value_error":
        what = f"{what}, got {first['input']!r}; mend it."
    return InputError(f"{where} {'.'.join(place)!r}: {what}")
