"""`sottovoce parts`: the list of parts.

Descriptions of the parts that come with sottovoce are kept in `parts.json`, so that listing them does not
load torch; `tools/describe_parts.py` regenerates it. Parts of plugins are imported.
"""

from __future__ import annotations

import json
from dataclasses import MISSING
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sottovoce.errors import MissingExtra

KEPT = files("sottovoce.cli") / "parts.json"


def parts(
    kind: Annotated[
        str | None, typer.Argument(help="One kind only: attack, budget, transform, metric, ear ...")
    ] = None,
) -> None:
    """List all parts with their settings and defaults: targets, attacks, budgets, metrics, ears, studies ...

    Examples:

    sottovoce parts

    sottovoce parts attack
    """
    from sottovoce import registry

    kinds = [kind] if kind else registry.kinds()
    for each in kinds:
        table = Table(title=each, title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for name in registry.names(each):
            table.add_row(name, _shown(each, name))
        Console(highlight=False).print(table, "")


def describe(kind: str, name: str) -> dict[str, str]:
    """What a part says of itself: "about" and "settings", of a study "title", "paper" and "reports"."""
    from sottovoce import registry

    kept = _kept().get(kind, {}).get(name) if registry.is_own(kind, name) else None
    return kept or ask(kind, name)


def ask(kind: str, name: str) -> dict[str, str]:
    """As `describe`, from the part itself, which is imported for it."""
    from sottovoce import registry

    part = registry.find(kind, name)
    if kind == "study":
        return {"title": part.title, "paper": part.paper, "reports": part.reports}
    about = " ".join((part.__doc__ or "").strip().partition("\n\n")[0].split())
    return {"about": about, "settings": _settings(registry.defaults(kind, name))}


def ask_all() -> dict[str, dict[str, dict[str, str]]]:
    """What `parts.json` holds: by kind and name, what every part of sottovoce says of itself."""
    from sottovoce import registry

    return {
        kind: {name: ask(kind, name) for name in registry.names(kind) if registry.is_own(kind, name)}
        for kind in registry.kinds()
    }


@cache
def _kept() -> dict[str, dict[str, dict[str, str]]]:
    kept: dict[str, dict[str, dict[str, str]]] = json.loads(KEPT.read_text("utf-8"))
    return kept


def _shown(kind: str, name: str) -> str:
    try:
        told = describe(kind, name)
    except MissingExtra as error:
        return escape(str(error))
    if kind == "study":
        return f"{escape(told['title'])} [dim]{escape(told['reports'])}[/dim]"
    return f"{escape(told['about'])} [dim]{escape(told['settings'])}[/dim]".strip()


def _settings(defaults: dict[str, Any]) -> str:
    needed = [key for key, value in defaults.items() if value is MISSING]
    given = [f"{key}={value}" for key, value in defaults.items() if value is not MISSING and key != "device"]
    return ", ".join([*needed, *given])
