"""Parts of one's own by name: `register`."""

from __future__ import annotations

from sottovoce import registry


def register(kind: str, name: str, part: str | type) -> None:
    """Give a part of your own a name, so that texts such as "mine(steps=3)" build it.

    kind: "attack", "budget", "goal", "transform", "vote", "metric", "target", "corpus" ...
    part: its class, or "module:attribute" of a class or function that is imported when it is asked for. With
        `workers`, other processes must find it too: register it in a plugin (docs/how-to.md).

    >>> import sottovoce as sv
    >>> sv.register("attack", "my-pgd", "sottovoce.attacks.pgd:Pgd")
    >>> trial = sv.attack("keyword", sv.open_data("embedded", limit=2), "my-pgd(steps=3)")
    >>> len(trial.achieved)
    2
    """
    registry.add(kind, name, part if isinstance(part, str) else f"{part.__module__}:{part.__qualname__}")
