"""`sottovoce leaderboard`: runs beside each other on one page, and claims to be checked."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

if TYPE_CHECKING:
    from sottovoce.leaderboard.claims.check_claim import ClaimVerdict

MAKE = "site"
TRUST = "Allow parts of plugins that claims name."
SHIPPED = "the plan's, if it comes with sottovoce"
NAMES = {"success": "success", "wer": "WER", "clean-accuracy": "accuracy", "clean-wer": "WER"}


class Verbs(TyperGroup):
    """`leaderboard RUN...` is short for `leaderboard site RUN...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [MAKE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Verbs,
    help="Compare runs on one page, and check the claims of others.\n\n"
    "[bold]sottovoce leaderboard RUN...[/bold] is short for [bold]sottovoce leaderboard site RUN...[/bold]",
    rich_markup_mode="rich",
    no_args_is_help=True,
)


@app.command(MAKE)
def make(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Folders of runs, grids of runs, certificates, claims; or claims themselves. Folders may be "
            "URLs such as s3://bucket/run.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the site.")] = Path("site"),
    trust: Annotated[bool, typer.Option("--trust", help=TRUST)] = False,
) -> None:
    """Make a static site: one row per target and defense, with worst cases, intervals, charts and plans.

    Open its index.html in a browser; it needs no network. Runs of one plan with different seeds share one
    row. Every row is also written as a claim, a JSON file in site/claims that others can check with
    `sottovoce leaderboard check`.

    Examples:

      sottovoce leaderboard runs/keyword-* --out site

      sottovoce leaderboard runs/ certificates/ claims/ --out site
    """
    from sottovoce.auditing.remote.remote_folder import opened
    from sottovoce.leaderboard.static_site import write_site

    console = Console(stderr=True)
    with ExitStack() as stack:
        folders = [stack.enter_context(opened(run, write=False)) for run in runs]
        index = write_site(
            folders,
            out,
            trust=trust,
            tell=lambda note: console.print(note, style="dim", soft_wrap=True, markup=False),
        )
    Console().print(f"leaderboard: {index}", soft_wrap=True, markup=False, highlight=False)


@app.command()
def check(
    claim: Annotated[Path, typer.Argument(metavar="CLAIM.json", help="A claim, as in site/claims.")],
    clips: Annotated[int, typer.Option(min=1, help="How many of its clips to run again.")] = 20,
    cells: Annotated[
        int,
        typer.Option(min=0, help="Attacks to run at each budget, the strongest first; 0: all of the plan."),
    ] = 3,
    seed: Annotated[
        int, typer.Option(help="Seed that draws the clips. The attacks keep the seed of the plan.")
    ] = 0,
    data: Annotated[
        str | None,
        typer.Option(help="Where you have its clips, as in `sottovoce audit`.", show_default=SHIPPED),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Where you have its model.", show_default=SHIPPED)] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            help="Where you have the clips that universal attacks are fitted on.", show_default=SHIPPED
        ),
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help=TRUST)] = False,
    most_passes: Annotated[
        int, typer.Option(min=1, help="Refuse a check that would take more passes of the model than this.")
    ] = 2_000_000,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Run a claim again on a sample of its clips, and say whether it holds.

    A claim may come from anyone. Its model and its clips are opened only if they come with sottovoce; name
    your own copies of others with --model and --data. A path, an address, a hub id or code anywhere else in
    its plan is refused.

    A claim does not hold if the target breaks significantly more often than claimed: clip by clip (exact sign
    test) or at the upper end of the claimed interval (exact binomial test), each at the 5 % level; or if the
    answers to clean clips differ. Exit codes: 0 it holds, 1 it does not or a budget could not be checked, 2 a
    mistake in the claim or the command. What a check cannot cover, such as doubts, is listed.

    Example:

      sottovoce leaderboard check site/claims/keyword_1f2e3d4c.json --clips 40
    """
    from sottovoce.leaderboard.claims.check_claim import check_claim
    from sottovoce.leaderboard.claims.claim import read_claim

    console = Console(stderr=as_json, highlight=False)
    found = read_claim(claim, trust=trust)
    with console.status("opening the model") as status:
        verdict = check_claim(
            found,
            clips=clips,
            cells=cells,
            seed=seed,
            model=model,
            data=data,
            fit=fit,
            trust=trust,
            most_passes=most_passes,
            device=device,
            tell=status.update,
        )
    if as_json:
        lines = [{**asdict(line), "holds": line.holds} for line in verdict.lines]
        content = {"claim": found.id, "holds": verdict.holds, "lines": lines}
        names = ("cells", "passes", "notes", "missing", "unchecked")
        rest = {name: getattr(verdict, name) for name in names}
        typer.echo(json.dumps({**content, **rest}))
    else:
        console.print(verdict_table(verdict))
        for note in verdict.notes:
            console.print(note, style="yellow", soft_wrap=True, markup=False)
        for title in verdict.missing:
            console.print(f"{title}: not checked, no clip that ran again was judged", style="yellow")
        console.print(f"not checked: {', '.join(verdict.unchecked)}", style="dim", soft_wrap=True)
        console.print(f"{found.id}: {conclude(verdict)} on these clips", soft_wrap=True)
    if not verdict.holds:
        raise typer.Exit(1)


def conclude(verdict: ClaimVerdict) -> str:
    if verdict.holds:
        return "[green]holds[/green]"
    return "[bold red]does not hold[/bold red]" if verdict.refuted else "[yellow]not checked[/yellow]"


def verdict_table(verdict: ClaimVerdict) -> Table:
    """One line a comparison: the claim, the claim on the clips that ran again, and what was found there."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("in %")
    for name in ("clips", "claimed", "here", "found", "worse", "better", "p", "holds"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in verdict.lines:
        shares = (f"{100 * share:.1f}" for share in (line.told, line.claimed, line.found))
        counts = str(line.worse), str(line.better)
        state = "[green]yes[/green]" if line.holds else "[bold red]no[/bold red]"
        what = f"{line.what}, {NAMES[line.metric]}"
        table.add_row(what, str(line.clips), *shares, *counts, f"{line.p:.2g}", state)
    return table
