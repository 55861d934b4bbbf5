"""`sottovoce parts`: what is in the box."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sottovoce.errors import MissingExtra


def parts(
    kind: Annotated[
        str | None, typer.Argument(help="One kind only: attack, universal, budget, metric ...")
    ] = None,
) -> None:
    """List every attack, budget, goal, metric, transform, target and corpus, with settings and defaults."""
    from sottovoce import registry

    kinds = [kind] if kind else registry.kinds()
    for each in kinds:
        table = Table(title=each, title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for name in registry.names(each):
            table.add_row(name, _describe(each, name))
        Console(highlight=False).print(table, "")


def _describe(kind: str, name: str) -> str:
    from sottovoce import registry

    try:
        part = registry.find(kind, name)
    except MissingExtra as error:
        return str(error)
    if kind == "study":
        return f"{part.title} [dim]{part.reports}[/dim]"
    first = (part.__doc__ or "").strip().partition("\n")[0]
    return f"{first} [dim]{_settings(part)}[/dim]".strip()


def _settings(part: Any) -> str:
    if not is_dataclass(part):
        return ""
    shown = [item for item in fields(part) if item.name != "references"]
    return ", ".join(
        item.name if item.default is MISSING else f"{item.name}={item.default}" for item in shown
    )
