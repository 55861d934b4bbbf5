"""Parts of one's own by name: `register`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sottovoce import registry
from sottovoce.errors import InputError


def register(kind: str, name: str, part: str | type | Callable[..., Any]) -> None:
    """Give a part of your own a name, so that texts such as "mine(steps=3)" build it.

    kind: "attack", "budget", "goal", "transform", "vote", "metric", "target", "corpus" ...
    part: its class, for a target or a corpus the function that opens it, or "module:attribute" of either,
        which is imported when it is asked for. It must be found by its name in its module, so no lambda.
        With `workers`, other processes must find it too: register it in a plugin (docs/how-to.md).

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
