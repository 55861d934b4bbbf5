"""Strict YAML: every key once, and every number as people read it.

In YAML 1.1, 1:30 is 90 (base 60), 010 is 8, yes is true, and of two equal keys the last one counts. Here such
numbers and keys are refused with their line, and yes, no, on and off are words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import yaml

from sottovoce.errors import InputError, Place

_TAG = "tag:yaml.org,2002:"
_OCTAL = re.compile(r"[-+]?0[0-7_]+")


class MisreadLine(InputError):
    """A line that YAML reads differently than it looks. reason: the message without the line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason


class StrictLoader(yaml.SafeLoader):
    """Safe YAML without these traps. Keys are words; a subclass may allow others, and call them otherwise."""

    words_alone = True
    named = ("word", "key", "drop one of them")

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping, refused if a key occurs twice."""
        word, key_name, cure = self.named
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == f"{_TAG}merge":
                continue
            key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
            if not isinstance(key, str if self.words_alone else Hashable):
                raise MisreadLine(line, f"expected a {word} before the colon, got {_short(key)}.")
            if key in seen:
                raise MisreadLine(line, f"expected every {key_name} once, got {key!r} twice; {cure}.")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """A number, refused if its value is not what it looks like."""
        text = str(self.construct_scalar(node))
        whole = node.tag == f"{_TAG}int"
        value = self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)
        if ":" in text or (whole and _OCTAL.fullmatch(text)):
            raise MisreadLine(
                node.start_mark.line + 1,
                f"expected a plain number, got {text}, which YAML takes for {value}; write the number in "
                f"full, or '{text}' in quotes if it is a text.",
            )
        if not math.isfinite(value):
            raise MisreadLine(node.start_mark.line + 1, f"expected a finite number, got {text}; change it.")
        return value


for _kind in ("int", "float"):
    StrictLoader.add_constructor(f"{_TAG}{_kind}", StrictLoader.construct_number)
StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in rules if tag != f"{_TAG}bool" or first in "tTfF"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Entries(dict[str, Any]):
    """The content of a file with its `lines`: the line of every entry and item by its position.

    A position is such as `("attacks", 0)`.
    """

    def __init__(self, content: Mapping[str, Any], path: Path, lines: Mapping[Place, int]) -> None:
        super().__init__(content)
        self.path, self.lines = path, dict(lines)

    def line_of(self, place: Place) -> int | None:
        """The line of an entry, or of the nearest enclosing one that has a line."""
        around = (place[:size] for size in range(len(place), 0, -1))
        return next((self.lines[one] for one in around if one in self.lines), None)


@contextmanager
def naming_lines(entries: Mapping[str, Any]) -> Iterator[None]:
    """Adds the file and the line to errors about an entry of a file."""
    try:
        yield
    except InputError as error:
        line = entries.line_of(error.place) if isinstance(entries, Entries) else None
        if line is None:
            raise
        raise InputError(f"{entries.path}, line {line}: {error}") from None  # type: ignore[attr-defined]


@contextmanager
def at_entry(*place: str | int) -> Iterator[None]:
    """Errors from in here are about the entry at this place, or about something below it."""
    try:
        yield
    except InputError as error:
        error.place = (*place, *error.place)
        raise


def read_yaml(path: Path, what: str, example: str, loader: type[StrictLoader] = StrictLoader) -> Entries:
    """The entries of a file. what: what it should be, such as "a plan"; example: an entry, for messages."""
    try:
        return parse_entries(path.read_text(encoding="utf-8"), path, what, example, loader)
    except FileNotFoundError:
        raise InputError(f"{path}: expected {what} file, got no such file; check the path.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read {what}: {error.strerror or error}; check the path.") from None
    except UnicodeDecodeError as error:
        raise _no_yaml(path, what, error) from None


def parse_entries(
    text: str, path: Path, what: str, example: str, loader: type[StrictLoader] = StrictLoader
) -> Entries:
    """The entries of a text that is, or will be, the content of a file."""
    lines: dict[Place, int] = {}
    try:
        content = parse_yaml(text, loader, lines)
    except MisreadLine as error:
        raise InputError(f"{path}, {error}") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise _no_yaml(path, what, error) from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected {what} with entries such as {example!r}, got none.")
    return Entries(content, path, lines)


def parse_yaml(
    text: str, loader: type[StrictLoader] = StrictLoader, lines: dict[Place, int] | None = None
) -> Any:
    """Parse a text. lines: filled with the line of every entry and item, by its position."""
    reader = loader(text)
    try:
        node = reader.get_single_node()
        if node is None:
            return None
        if lines is not None:
            lines |= _lines(node)
        return reader.construct_document(node)
    finally:
        reader.dispose()


def refuse_truth(annotation: Any, value: Any) -> Any:
    """The value; raises if it is, or contains, true or false where a number is needed.

    Python would take True for 1.
    """
    kinds = {kind for kind in _kinds(annotation) if isinstance(kind, type)}
    if kinds & {int, float} and bool not in kinds:
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, bool):
                raise InputError(f"expected a number, got {str(item).lower()}.")
    return value


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def _lines(node: yaml.Node) -> dict[Place, int]:
    """The line of everything below a node. An alias keeps the line where its content was written."""
    found: dict[Place, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[Place, yaml.Node]] = [((), node)]
    while waiting:
        place, one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        inside = enumerate(one.value) if isinstance(one, yaml.SequenceNode) else ()
        below = [((*place, number), item, item) for number, item in inside]
        if isinstance(one, yaml.MappingNode):
            below = [((*place, str(key.value)), key, item) for key, item in one.value]
        found |= {where: mark.start_mark.line + 1 for where, mark, _ in below}
        waiting += [(where, item) for where, _, item in reversed(below)]
    return found


def _no_yaml(path: Path, what: str, error: Exception) -> InputError:
    mark = getattr(error, "problem_mark", None)
    line = f", line {mark.line + 1}" if mark else ""
    reason = getattr(error, "problem", None) or " ".join(str(error).split())
    return InputError(
        f"{path}{line}: expected {what} in YAML, got something else ({reason}); check the colons and spaces."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
