"""Parts as text, in plans and commands: a name and its settings, as in `pgd(steps=100, momentum=0.9)`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import yaml
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from sottovoce import registry
from sottovoce.core.files.yaml_reader import MisreadLine, StrictLoader, parse_yaml
from sottovoce.errors import InputError, UnknownName

_PART = re.compile(r"\s*(?P<name>[A-Za-z0-9_.-]+)\s*(?:\((?P<settings>.*)\))?\s*", re.DOTALL)
_QUOTED = {
    '"': re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL),
    "'": re.compile(r"'(?:[^']|'')*'", re.DOTALL),
}
_OPENING, _CLOSING = "([{", ")]}"
# Inside a word a quote is a letter, as in don't; it opens a text where a value can begin.
_BEFORE_A_VALUE = "=,:" + _OPENING
_LOADED = re.compile(r"""[,=()\[\]{}"']""")


@dataclass(frozen=True)
class Part:
    """A registered name with settings; `parse` reads it from text, `str` writes it."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        # Cached, because a plan of hundreds of cells needs it in each.
        if not self.settings:
            return self.name
        return f"{self.name}({', '.join(f'{key}={_write(value)}' for key, value in self.settings.items())})"

    def build(self, kind: str) -> Any:
        """The part itself."""
        return registry.build(kind, self.name, self.settings)

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read a part from its text."""
        found = _PART.fullmatch(text)
        if not found:
            raise InputError(f"expected name(setting=value, ...), such as pgd(steps=100), got {text!r}.")
        settings = {}
        for item in split_list(found["settings"] or ""):
            key, equals, value = item.partition("=")
            if not equals:
                raise InputError(
                    f"{text}: expected setting=value, such as steps=100, got {item!r}; write text with "
                    'commas in quotes: text="yes, now".'
                )
            try:
                settings[key.strip()] = _read(value)
            except InputError as error:
                raise InputError(f"{text}, setting {key.strip()!r}: {error}") from None
        return cls(found["name"], settings)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, Part) else cls.parse(str(value)),
            serialization=core_schema.to_string_ser_schema(),
        )


def attack_kind(name: str) -> Literal["attack", "universal"]:
    """Per-clip and universal attacks share one list of names for users; an unknown one names them all."""
    single, universal = registry.names("attack"), registry.names("universal")
    if name not in single and name not in universal:
        raise UnknownName("attack", name, [*single, *universal])
    return "universal" if name in universal else "attack"


def split_list(text: str) -> list[str]:
    """Split at commas outside brackets and quotes: `pgd(steps=5, step=.1),force(text="a, b")` has two."""
    return [item for item in split_outside(text, ",") if item]


def split_outside(text: str, mark: str) -> list[str]:
    """Split at a mark outside brackets and quotes; items may be empty."""
    items, depth, start, place, before = [], 0, 0, 0, mark
    while place < len(text):
        letter = text[place]
        if letter in _QUOTED and before in _BEFORE_A_VALUE + mark:
            place = _closing_quote(text, place)
        elif letter == mark and depth <= 0:
            items.append(text[start:place].strip())
            start = place + 1
        depth += (letter in _OPENING) - (letter in _CLOSING)
        before = before if letter.isspace() else letter
        place += 1
    return [*items, text[start:].strip()]


def _closing_quote(text: str, opening: int) -> int:
    r"""The index of the closing quote, by YAML's rules: \" and '' are quotes inside the text."""
    found = _QUOTED[text[opening]].match(text, opening)
    if not found:
        raise InputError(f"expected a closing {text[opening]} in {text!r}, got none.")
    return found.end() - 1


class _Loader(StrictLoader):
    """YAML in which only true and false are booleans: True is a word."""


_BOOL = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in rules if tag != _BOOL]
    for first, rules in StrictLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile(r"(?:true|false)\Z"), list("tf"))


def _read(value: str) -> Any:
    try:
        return parse_yaml(value, _Loader)
    except MisreadLine as error:
        raise InputError(error.reason) from None
    except yaml.YAMLError:
        raise InputError(f"expected a number, a word, a list or text in quotes, got {value!r}.") from None


def _write(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_write(item) for item in value)}]"
    if isinstance(value, str) and (_LOADED.search(value) or value != value.strip()):
        return _dump(value, default_style='"')
    # Inside a list, YAML quotes whatever could be read as something else.
    return _dump([value], default_flow_style=True)[1:-1]


def _dump(value: Any, **style: Any) -> str:
    text: str = yaml.safe_dump(value, width=math.inf, allow_unicode=True, **style)
    return text.removesuffix("\n")
