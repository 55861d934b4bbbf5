"""`sottovoce`: the verbs, and how mistakes are shown."""

from __future__ import annotations

import sys
from itertools import pairwise, takewhile
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from sottovoce import __version__
from sottovoce.api.settings import LISTS
from sottovoce.cli.audit import audit
from sottovoce.cli.leaderboard import app as leaderboard
from sottovoce.cli.listen import app as listen
from sottovoce.cli.listen_results import results, simulate
from sottovoce.cli.listen_serve import serve
from sottovoce.cli.measure import measure
from sottovoce.cli.metric_verbs import app as metric
from sottovoce.cli.over_corpus.certify import certify
from sottovoce.cli.over_corpus.sparsity import sparsity
from sottovoce.cli.parts import parts
from sottovoce.cli.study_verbs import app as study
from sottovoce.cli.table import table
from sottovoce.cli.train import app as train
from sottovoce.cli.view import view
from sottovoce.errors import DamagedFile, InputError, SottovoceError, StoreError

SEVERAL = {*LISTS, "model", "snr", "audible", "budgets", "seeds"}
"""Options that take several values joined by commas."""
NUMBERS = {"integer": "an integer", "number": "a number", "float": "a number"}


class OptionsOnce(TyperCommand):
    """A verb that refuses an option that is given twice; Typer would drop all but the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = _given(args)
        for option, values in given.items():
            if len(values) > 1:
                joined = f"{option} {','.join(values)}"
                way = joined if option[2:] in SEVERAL else f"{option} {values[-1]}".strip()
                raise InputError(f"{option} is given {len(values)} times; give it once: {way}")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            option = error.param.opts[0] if error.param else ""
            wanted = [NUMBERS[word] for word in NUMBERS if word in error.message]
            if option not in given or not wanted:
                raise
            raise InputError(f"{option} {given[option][0]}: expected {wanted[0]}.") from None


def _given(args: list[str]) -> dict[str, list[str]]:
    """The values of each option in a command line."""
    found: dict[str, list[str]] = {}
    for word, after in takewhile(lambda pair: pair[0] != "--", pairwise([*args, ""])):
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            found.setdefault(option, []).append(value if equals else after)
    return found


app = typer.Typer(
    help="Audit speech models: attack them, measure what was added and whether a person would hear it, and "
    "write a report.\n\n"
    "Start with [bold]sottovoce audit[/bold]: it needs no data, no model and no network.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=OptionsOnce)(audit)
app.command(cls=OptionsOnce)(certify)
app.command(cls=OptionsOnce)(sparsity)
app.command()(view)
app.command()(table)
app.command(cls=OptionsOnce)(measure)
app.command(name="parts")(parts)
app.add_typer(leaderboard, name="leaderboard")
app.add_typer(study, name="study")
app.add_typer(train, name="train")
app.add_typer(metric, name="metric")
listen.command()(serve)
listen.command()(results)
listen.command()(simulate)
app.add_typer(listen, name="listen")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"sottovoce {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    return None


def main() -> None:
    """Run a verb. A mistake prints one line and gives exit code 2; a run that could not continue gives 1."""
    try:
        app()
    except SottovoceError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[bold red]error[/bold red]: {_escape(str(error))}"
        )
        sys.exit(1 if isinstance(error, StoreError) and not isinstance(error, DamagedFile) else 2)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; run the same command again to continue.")
        sys.exit(130)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
