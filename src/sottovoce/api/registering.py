"""Names for parts of your own: `register`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sottovoce import registry
from sottovoce.errors import InputError


def register(kind: str, name: str, part: str | type | Callable[..., Any]) -> None:
    """Give a part of your own a name, so that a text such as "mine(steps=3)" builds it.

    `attack` takes objects that are not registered; `audit` needs the name to record what was run.

    kind: "attack", "universal", "budget", "goal", "transform", "vote", "metric", "target", "corpus" or "ear".
    name: how texts call it. The fields of the class are its settings.
    part: its class, or "module:attribute" of a class or function, which is imported on first use. With
        several `workers` other processes must find it too: register it in a plugin (docs/how-to.md).

    >>> import sottovoce as sv
    >>> sv.register("attack", "my-pgd", "sottovoce.attacks.pgd:Pgd")
    >>> trial = sv.attack("keyword", sv.open_data("embedded", limit=2), "my-pgd(steps=3)")
    >>> len(trial.achieved)
    2
    """
    registry.add(kind, name, part if isinstance(part, str) else _place(part))


def _place(part: type | Callable[..., Any]) -> str:
    """Where a class or function is imported from."""
    name: str = getattr(part, "__qualname__", "")
    if not name or "<" in name:
        raise InputError(
            f"register expected a class or a function at the top of a module, got {name or repr(part)}; it "
            "is found again by its name, so give it one there."
        )
    return f"{part.__module__}:{name}"
