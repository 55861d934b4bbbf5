"""Parts as text: an object of a registered class is written as the text that builds it.

So texts and objects give the same ids of cells and runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING
from typing import Any

from sottovoce import registry
from sottovoce.core.metric import Metric
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part, split_list

PLAIN = (str, int, float, bool, type(None))


def texts_of(items: Any, *kinds: str) -> list[str] | None:
    """A list of parts as texts: one text with commas, one object, or several of either; None stays None."""
    if items is None:
        return None
    if isinstance(items, str):
        return split_list(items)
    return [text_of(item, *kinds) for item in (items if _several(items) else [items])]


def text_of(item: Any, *kinds: str) -> str:
    """A part as text. kinds: where its class is looked up. Raises `InputError` if it is not registered."""
    if isinstance(item, str | Part):
        return str(item)
    for kind in kinds:
        if (name := registry.name_of(kind, type(item))) is not None:
            return str(Part(name, _settings(kind, name, item)))
    what = type(item).__name__
    raise InputError(
        f"expected a text such as {kinds[0]}(...) or an object of a registered class, got {what}, which is "
        f'not registered; call sottovoce.register("{kinds[0]}", "my-name", {what}) first.'
    )


def defense_text(item: Any) -> str:
    """A defense as text: a text, a transform or vote, several of them in order, or None for none."""
    if item is None:
        return NO_DEFENSE
    if isinstance(item, Defense):
        item = item.parts or NO_DEFENSE
    parts = item if _several(item) else [item]
    return "+".join(text_of(part, "transform", "vote") for part in parts)


def defense_texts(items: Any) -> list[str] | None:
    """Several defenses; a list inside the list is one defense of several parts."""
    if items is None or isinstance(items, str):
        return texts_of(items, "transform", "vote")
    return [defense_text(item) for item in (items if _several(items) else [items])]


def metric_names(items: Any) -> list[str] | None:
    """Names of metrics, from names, objects or classes."""
    if items is None or isinstance(items, str):
        return texts_of(items, "metric")
    return [_metric_name(item) for item in (items if _several(items) else [items])]


def numbers(items: Any) -> str | None:
    """One number, several, or a text such as `20:60:10`, as the command line writes them."""
    if items is None or isinstance(items, str):
        return items
    return ",".join(f"{item:g}" for item in (items if _several(items) else [items]))


def _several(items: Any) -> bool:
    return isinstance(items, Iterable) and not isinstance(items, str)


def _metric_name(item: Any) -> str:
    if isinstance(item, Metric) or (isinstance(item, type) and issubclass(item, Metric)):
        return item.name
    return str(item)


def _settings(kind: str, name: str, item: Any) -> dict[str, Any]:
    """The settings that are not at their default, in order."""
    found = {}
    for key, default in registry.defaults(kind, name).items():
        value = getattr(item, key, default)
        if default is MISSING or value != default:
            found[key] = _plain(f"{name}({key}=...)", value)
    return found


def _plain(what: str, value: Any) -> Any:
    """A setting as it is written in a text: 30.0 becomes 30."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(what, item) for item in value]
    if not isinstance(value, PLAIN):
        raise InputError(f"{what}: expected a number, a text or a list, got {type(value).__name__}.")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value
