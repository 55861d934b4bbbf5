"""JSON that strangers may have touched: every field checked by type and range, every mistake with its place.

What a field may hold is said once, by its annotation in the dataclass that is read; see `core.ranges`.
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
"""For `__pydantic_config__`: no number as text, no `true` for 1, no field that nobody knows."""
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class Mistake(ValueError):
    """What is wrong with a text of JSON. place: the way to the field; without one it is the whole, and the
    message is what came instead. fix: what to do, where that is not what one does about any mistake."""

    def __init__(self, words: str, place: Sequence[str | int] = (), fix: str = "") -> None:
        super().__init__(words)
        self.place, self.fix = tuple(place), fix

    @property
    def name(self) -> str:
        """The field as messages have it."""
        return ".".join(map(str, self.place))

    def in_file(self, where: str, what: str, fix: str) -> DamagedFile:
        """As one line. where: the file and the line. what: should be there. fix: what to do about it."""
        if not self.place:
            return DamagedFile(f"{where}: expected {what}, got {self}; {self.fix or fix}.")
        return DamagedFile(f"{where}, field {self.name!r}: {self}; {self.fix or fix}.")


def parse_json(text: bytes, kind: TypeAdapter[Kept]) -> Kept:
    """What a text holds, every field checked, none given twice. Raises `Mistake`."""
    try:
        found = kind.validate_json(text)
    except ValidationError as error:
        refuse(error, text)
    check_once(text)
    return found


def read_json(path: Path, kind: TypeAdapter[Kept], what: str) -> Kept:
    """What a file holds. what: it should be, such as "what is known of the run, an object in JSON"."""
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
        raise Mistake("expected a field that there is, got an unknown one", place) from None
    raise Mistake(f"{_expected(first['msg'])}, got {reprlib.repr(first['input'])}", place) from None


def check_once(text: bytes) -> Any:
    """The content of a text of JSON, as plain data; a key that an object has twice is a `Mistake`."""
    try:
        content = orjson.loads(text)
    except ValueError as error:
        raise Mistake(f"no JSON ({error})") from None
    # As sottovoce writes them: what is the same once more cannot have lost a key.
    if orjson.dumps(content) != text.rstrip() and (place := find_repeated(text)):
        raise Mistake("expected it once, got it twice", place)
    return content


def find_repeated(text: bytes) -> Place:
    """The first key that an object of a text of JSON has twice; nothing where there is none."""

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
    """The line of a text of JSON in which a field stands; where it is missing, that of what should hold it.

    Of a field that is there twice, the second one.
    """
    lines = dict(_keys(text))
    return next((lines[key] for end in range(len(place), 0, -1) if (key := tuple(place[:end])) in lines), 1)


def _keys(text: str) -> Iterator[tuple[Place, int]]:
    """Where the keys of a text of JSON stand: the way to each, and its line."""
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
    """The way to a field as far as the content has it: checks add words of their own."""
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
    """A check's own words, as messages have them."""
    words = re.sub("^Input should be (?=greater|less)", "expected a number ", words)
    words = re.sub("^String should ", "expected text to ", words)
    heads = "Input should be|(Tuple|List|Dictionary) should have|Value error, expected"
    return re.sub(f"^({heads})", "expected", words)
