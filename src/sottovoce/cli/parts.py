"""`sottovoce parts`: what is in the box."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sottovoce.errors import MissingExtra


def parts(
    kind: Annotated[
        str | None, typer.Argument(help="One kind only: attack, budget, transform, metric, ear ...")
    ] = None,
) -> None:
    """List everything in the box with its settings: targets, attacks, budgets, metrics, ears, studies ..."""
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
    about = " ".join((part.__doc__ or "").strip().partition("\n\n")[0].split())
    return f"{escape(about)} [dim]{escape(_settings(registry.defaults(kind, name)))}[/dim]".strip()


def _settings(defaults: dict[str, Any]) -> str:
    needed = [key for key, value in defaults.items() if value is MISSING]
    given = [f"{key}={value}" for key, value in defaults.items() if value is not MISSING and key != "device"]
    return ", ".join([*needed, *given])
