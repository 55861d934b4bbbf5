"""`sottovoce sparsity`: how rare the perturbations are that fool a model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from sottovoce.auditing.sparsity.sparsity_folder import SparseClip, SparsityRow
    from sottovoce.auditing.sparsity.sparsity_run import SparsityPlan
    from sottovoce.core.target import Target


def sparsity(
    model: Annotated[
        str, typer.Option(help="As of `sottovoce audit`: keyword, recogniser, huggingface:FOLDER_OR_ID, ...")
    ] = "keyword",
    data: Annotated[
        str,
        typer.Option(
            help="As of `sottovoce audit`: embedded, strings, sounds, librispeech:DIR, a folder, ...",
            show_default="those shipped for the kind of model",
        ),
    ] = "embedded",
    limit: Annotated[
        int | None, typer.Option(help="At most so many clips, evenly over classes or speakers.")
    ] = None,
    labels: Annotated[
        str, typer.Option(help="Clips whose label is no class of the model: refuse to run, or skip them.")
    ] = "refuse",
    longest: Annotated[float, typer.Option(help="Seconds of the longest clip; a longer one fails.")] = 1800.0,
    snr: Annotated[
        str | None,
        typer.Option(
            help="Radii as SNR in dB: 20,40 or from:to:step. Sparsity is an angle.",
            show_default="15:45:10, unless other radii are given",
        ),
    ] = None,
    linf: Annotated[
        str | None,
        typer.Option(
            help="Radii in L-infinity, such as 0.002. Sparsity is a number of samples that must be free."
        ),
    ] = None,
    l2: Annotated[
        str | None, typer.Option(help="Radii in L2 that are the same for every clip, such as 0.5.")
    ] = None,
    defenses: Annotated[
        str | None,
        typer.Option(
            help="none, 'mp3,gaussian(sigma=0.01)+majority(passes=8)': as of `sottovoce audit`, attacked "
            "through the defense, with averaged gradients where it is random.",
            show_default="none",
        ),
    ] = None,
    goal: Annotated[
        str, typer.Option(help="evade, or a text to force: 'force(text=stop)'; see `sottovoce parts goal`.")
    ] = "evade",
    directions: Annotated[int, typer.Option(help="Random directions a clip; their spread is printed.")] = 4,
    passes: Annotated[
        int,
        typer.Option(
            help="Passes with a gradient: for one attack on each clip, and again for each direction."
        ),
    ] = 40,
    wer: Annotated[
        float | None,
        typer.Option(
            help="For recognisers: the WER from which on a transcript counts as wrong.", show_default="0.5"
        ),
    ] = None,
    average: Annotated[
        int | None,
        typer.Option(
            help="Passes that each gradient is averaged over.", show_default="16 where the target is random"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Directions and all other random numbers follow from it.")] = 0,
    batch: Annotated[
        int | None,
        typer.Option(help="Clips at once, all directions together.", show_default="8; 2 of a recogniser"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results. In the folder of an audit of the same model they go into "
            "`sparsity`, and its report gets a section.",
            show_default="runs/sparsity-<model>-<id of the plan>",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Do again what is recorded as failed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Measure how rare the perturbations are that fool a model, where success rates all read 100 %.

    A random direction is drawn, and the nearest perturbation of full length that fools the model is looked
    for. Sparsity is the angle between the two, from 0 (the direction itself fools) to pi, the mean over a few
    directions of each clip; in L-infinity, the number of samples that must be free to change. Larger is more
    robust. A clip that nothing fools has no value; how many these are is printed beside.

    The same command goes on where an interrupted one stopped. Exit codes: 0 done, 1 some clips failed, 2 a
    mistake in the command.

    Examples:

      sottovoce sparsity --limit 12 --snr 30

      sottovoce sparsity --model 'keyword(variant=pgd)' --snr 15:45:10 --linf 0.002

      sottovoce sparsity --defenses 'none,mp3,quantise(bits=8)' --limit 24 --snr 30

      sottovoce sparsity --model recogniser --limit 4 --snr 20 --wer 0.5 --directions 2
    """
    from sottovoce.api.sparse import make_sparsity_plan, place_of
    from sottovoce.registry.part_text import split_list
    from sottovoce.targets.open_target import find_device, open_target

    plan = make_sparsity_plan(
        model=model, data=data, limit=limit, labels=labels, longest=longest, snr=snr, linf=linf, l2=l2,
        defenses=None if defenses is None else split_list(defenses), goal=goal, directions=directions,
        passes=passes, wer=wer, average=average, seed=seed,
    )  # fmt: skip
    device = find_device(device)
    target = open_target(plan.model, device)
    plan = plan.resolved(target)
    run(plan, place_of(out, plan), device, batch, target, retry_failed, as_json)


def run(
    plan: SparsityPlan,
    out: Path,
    device: str,
    batch: int | None,
    target: Target,
    retry_failed: bool,
    as_json: bool,
) -> None:
    from sottovoce.api.progress import progress
    from sottovoce.api.sparse import show_in_report
    from sottovoce.auditing.sparsity.sparsity_folder import tabulate
    from sottovoce.auditing.sparsity.sparsity_run import run_sparsity
    from sottovoce.report.sparsity_section import write_sparsity

    console = Console(stderr=as_json)
    with progress(console) as (begin, advance):
        found = run_sparsity(
            plan, out, device=device, batch=batch, target=target, retry_failed=retry_failed, begin=begin,
            advance=advance,
        )  # fmt: skip
    records = list(found.records())
    rows = tabulate(plan.settings(), records)
    figure = write_sparsity(rows, found.path / "sparsity.png")
    report = show_in_report(found.path)
    if as_json:
        content = {"run": plan.run_id, "folder": str(found.path), "rows": [row.to_json() for row in rows]}
        typer.echo(json.dumps(content))
    else:
        show(console, plan, rows)
        places = [f"records: {found.records_path}", f"chart: {figure}"]
        places += [f"report: {report}"] if report else []
        console.print("\n".join(places), soft_wrap=True, highlight=False, markup=False)
    _tell_failures(console, records)


def _tell_failures(console: Console, records: list[SparseClip]) -> None:
    from rich.markup import escape

    from sottovoce.report.shown_words import plural

    skipped = Counter(record.reason for record in records if record.status == "skipped")
    for reason, count in skipped.items():
        words = f"[yellow]skipped[/yellow]: {plural(count, 'record')}: {escape(reason)}"
        console.print(words, soft_wrap=True, highlight=False)
    failed = [record for record in records if record.status == "failed"]
    for record in failed:
        words = f"[yellow]failed[/yellow]: {escape(record.clip)}: {escape(record.reason)}"
        console.print(words, soft_wrap=True, highlight=False)
    if failed:
        console.print("to try these again: give the same command with --retry-failed", highlight=False)
        raise typer.Exit(1)


def show(console: Console, plan: SparsityPlan, rows: list[SparsityRow]) -> None:
    """A table a norm, and below what it leaves out."""
    from rich.text import Text

    from sottovoce.cli.wide_table import WideTable
    from sottovoce.report.sparsity_section import notes_on, tables_of

    clips = max((row.clips + row.wrong for row in rows), default=0)
    console.print(
        f"{plan.model}: adversarial sparsity over {clips} clips, {plan.directions} directions each, with "
        "95 % intervals over clips",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    for shown in tables_of(rows):
        console.print(shown.head, soft_wrap=True, highlight=False, markup=False)
        texts = [[Text(cell) for cell in row] for row in shown.rows]
        console.print(WideTable([(shown.columns[0], 0)], shown.columns[1:], texts))
    for note in notes_on(rows):
        console.print(note, soft_wrap=True, highlight=False, markup=False)
