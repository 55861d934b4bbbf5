"""Strict JSON: every field is checked by type and range, and every mistake is reported with its position.

The annotations of the dataclass that is read define what a field may hold; see `core.files.field_ranges`.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from sottovoce.errors import DamagedFile

Kept = TypeVar("Kept")
Place = tuple[str | int, ...]
STRICT = ConfigDict(extra="forbid", strict=True)
"""For `__pydantic_config__`: no number as text, no `true` for 1, no unknown field."""
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class Mistake(ValueError):
    """What is wrong with a text of JSON.

    place: the path to the field. Without one it is the whole text, and the message is what came instead.
    fix: what to do, if there is something better than the usual advice.
    """

    def __init__(self, words: str, place: Sequence[str | int] = (), fix: str = "") -> None:
        super().__init__(words)
        self.place, self.fix = tuple(place), fix

    @property
    def name(self) -> str:
        """The path to the field, for messages."""
        return ".".join(map(str, self.place))

    def in_file(self, where: str, what: str, fix: str) -> DamagedFile:
        """The error as one line. where: the file and the line. what: what was expected. fix: what to do."""
        if not self.place:
            return DamagedFile(f"{where}: expected {what}, got {self}; {self.fix or fix}.")
        return DamagedFile(f"{where}, field {self.name!r}: {self}; {self.fix or fix}.")


def parse_json(text: bytes, kind: TypeAdapter[Kept]) -> Kept:
    """Parse a text, with every field checked and none given twice. Raises `Mistake`."""
    try:
        found = kind.validate_json(text)
    except ValidationError as error:
        refuse(error, text)
    check_once(text)
    return found


def read_json(path: Path, kind: TypeAdapter[Kept], what: str) -> Kept:
    """Parse a file. what: what it should be, such as "what is known of the run, an object in JSON"."""
    fix = "restore it from a copy of the run"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Mistake(error.strerror or str(error)).in_file(str(path), what, fix) from None
    try:
        return parse_json(text, kind)
    except Mistake as error:
        line = f", line {find_line(text.decode(), error.place)}" if error.place else ""
        raise error.in_file(f"{path}{line}", what, fix) from None


def refuse(error: ValidationError, text: bytes) -> NoReturn:
    """Raise the first mistake that a check found in a text."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        raise Mistake(f"no JSON ({first['ctx']['error']})") from None
    content = json.loads(text)
    if not first["loc"]:
        raise Mistake(reprlib.repr(content)) from None
    place = _trim(first["loc"], content)
    if first["type"] in _MISSING:
        raise Mistake("expected one, got none", (*place, first["loc"][-1])) from None
    if first["type"] in _UNKNOWN:
        raise Mistake("expected a known field, got an unknown one", place) from None
    raise Mistake(f"{_expected(first['msg'])}, got {reprlib.repr(first['input'])}", place) from None


def check_once(text: bytes) -> Any:
    """The content of a text of JSON, as plain data; a repeated key raises `Mistake`."""
    try:
        content = orjson.loads(text)
    except ValueError as error:
        raise Mistake(f"no JSON ({error})") from None
    # If writing the content gives the same text, no key was lost.
    if orjson.dumps(content) != text.rstrip() and (place := find_repeated(text)):
        raise Mistake("expected it once, got it twice", place)
    return content


def find_repeated(text: bytes) -> Place:
    """The path to the first repeated key of a text of JSON; empty if there is none."""

    def once(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            raise KeyError

    seen: set[Place] = set()
    try:
        json.loads(text, object_pairs_hook=once)
    except KeyError:
        for place, _ in _keys(text.decode()):
            if place in seen:
                return place
            seen.add(place)
    return ()


def find_line(text: str, place: Sequence[str | int]) -> int:
    """The line of a field in a text of JSON; if it is missing, the line of the object that should have it.

    For a repeated field, the second line.
    """
    lines = dict(_keys(text))
    return next((lines[key] for end in range(len(place), 0, -1) if (key := tuple(place[:end])) in lines), 1)


def _keys(text: str) -> Iterator[tuple[Place, int]]:
    """The path to each key of a text of JSON, and its line."""
    way: list[str | int] = []
    objects: list[bool] = []
    wanted, line, last = False, 1, 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        line, last = line + text.count("\n", last, found.start()), found.start()
        if token in "{[":
            wanted = token == "{"
            objects.append(wanted)
            way.append("" if wanted else 0)
        elif token in "}]":
            objects.pop()
            way.pop()
            wanted = False
        elif token == ",":
            wanted = objects[-1]
            if not wanted:
                way[-1] = int(way[-1]) + 1
        elif wanted and token[0] == '"':
            way[-1], wanted = json.loads(token), False
            yield tuple(way), line


def _trim(way: Sequence[str | int], content: Any) -> Place:
    """The path to a field as far as the content has it: checks add words of their own."""
    kept: list[str | int] = []
    for step in way:
        inside = (
            step in content
            if isinstance(content, dict)
            else isinstance(content, list) and isinstance(step, int) and step < len(content)
        )
        if not inside:
            break
        kept.append(step)
        content = content[step]
    return tuple(kept)


def _expected(words: str) -> str:
    """The words of a check, reworded for messages."""
    words = re.sub("^Input should be (?=greater|less)", "expected a number ", words)
    words = re.sub("^String should ", "expected text to ", words)
    heads = "Input should be|(Tuple|List|Dictionary) should have|Value error, expected"
    return re.sub(f"^({heads})", "expected", words)
