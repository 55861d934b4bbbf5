"""Parts as text: `pgd(steps=100, momentum=0.9)`, a name and its settings, in plans and commands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from sottovoce import registry
from sottovoce.errors import InputError

_PART = re.compile(r"\s*(?P<name>[A-Za-z0-9_.-]+)\s*(?:\((?P<settings>.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A registered name with settings; reads and writes as text."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.settings:
            return self.name
        return f"{self.name}({', '.join(f'{key}={_write(value)}' for key, value in self.settings.items())})"

    def build(self, kind: str) -> Any:
        return registry.build(kind, self.name, self.settings)

    @classmethod
    def parse(cls, text: str) -> Part:
        found = _PART.fullmatch(text)
        if not found:
            raise InputError(
                f"expected name(setting=value, ...), got {text!r}; write for example pgd(steps=100)."
            )
        settings = {}
        for item in split_list(found["settings"] or ""):
            key, equals, value = item.partition("=")
            if not equals:
                raise InputError(
                    f"expected setting=value in {text!r}, got {item!r}; write for example steps=100."
                )
            settings[key.strip()] = yaml.safe_load(value)
        return cls(found["name"], settings)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, Part) else cls.parse(str(value)),
            serialization=core_schema.to_string_ser_schema(),
        )


def split_list(text: str) -> list[str]:
    """Split at commas that are not inside parentheses: `pgd(steps=5, step=.1),cw` has two items."""
    items, depth, start = [], 0, 0
    for place, letter in enumerate(text + ","):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            items.append(text[start:place].strip())
            start = place + 1
    return [item for item in items if item]


def _write(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...").strip()
