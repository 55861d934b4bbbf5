"""`sottovoce certify`: certified radii of a model behind Gaussian noise."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table

    from sottovoce.auditing.certificates.certify_folder import CertifiedCurve, CurvePoint
    from sottovoce.auditing.certificates.certify_run import CertifyPlan
    from sottovoce.core.statistics import Interval
    from sottovoce.core.target import Target


def certify(
    model: Annotated[
        str, typer.Option(help="As in `sottovoce audit`: keyword, recogniser, huggingface:FOLDER_OR_ID, ...")
    ] = "keyword",
    data: Annotated[
        str,
        typer.Option(
            help="As in `sottovoce audit`: embedded, strings, sounds, librispeech:DIR, a folder, ...",
            show_default="those shipped for the kind of model",
        ),
    ] = "embedded",
    limit: Annotated[
        int | None, typer.Option(help="Largest number of clips, taken evenly over classes or speakers.")
    ] = None,
    labels: Annotated[
        str, typer.Option(help="Clips whose label is not a class of the model: refuse or skip.")
    ] = "refuse",
    longest: Annotated[
        float, typer.Option(help="Longest clip in seconds; longer ones count as failed.")
    ] = 1800.0,
    sigma: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the Gaussian noise; full scale is 1.", show_default="0.01"),
    ] = None,
    defense: Annotated[
        str | None,
        typer.Option(
            help="Instead of --sigma: the noise and further transforms; 'gaussian(sigma=0.02)+asnr' "
            "certifies the model with asnr in front. A vote at the end elects the transcript.",
            show_default="gaussian(sigma=0.01)",
        ),
    ] = None,
    passes: Annotated[
        int, typer.Option(help="Number of noisy passes to count; large radii take 10000 and more.")
    ] = 1000,
    select: Annotated[
        int | None,
        typer.Option(
            help="Number of noisy passes that elect the answer to certify: the top class, or a transcript by "
            "ROVER.",
            show_default="the passes of the vote, or 100",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Largest probability that a radius is too large, per clip.")
    ] = 0.001,
    wer: Annotated[
        float | None,
        typer.Option(
            help="Recognisers only: certify that the WER against the elected transcript stays below this.",
            show_default="0.25",
        ),
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="Stop a clip once this L2 radius is certified, or out of reach.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Stop a clip once more passes would add less than this to its L2 radius."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    batch: Annotated[
        int | None, typer.Option(help="Noisy copies per batch.", show_default="what suits the device")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results.", show_default="runs/certify-<model>-<id of the plan>"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Repeat the clips that are recorded as failed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the curve as JSON.")] = False,
) -> None:
    """Certify a model behind Gaussian noise (randomised smoothing), clip by clip, and print the share of
    clips by radius.

    No perturbation with an L2 norm inside the radius changes the class of a classifier. For a recogniser,
    more than half of the noisy passes stay below the WER. The same command continues an interrupted one. Exit
    codes: 0 done, 1 some clips failed, 2 a mistake in the command.

    Examples:

      sottovoce certify --limit 24

      sottovoce certify --sigma 0.02 --passes 10000 --radius 0.03

      sottovoce certify --model recogniser --wer 0.5 --limit 4 --device cuda --passes 10000
    """
    from sottovoce.api.certifying import default_folder, make_certify_plan
    from sottovoce.targets.open_target import find_device, open_target

    plan = make_certify_plan(
        model=model, data=data, limit=limit, sigma=sigma, defense=defense, wer=wer, passes=passes,
        select=select, alpha=alpha, radius=radius, tolerance=tolerance, seed=seed, labels=labels,
        longest=longest,
    )  # fmt: skip
    device = find_device(device)
    target = open_target(plan.model, device)
    plan = plan.resolved(target)
    run(plan, out or default_folder(plan), device, batch, target, retry_failed, as_json)


def run(
    plan: CertifyPlan,
    out: Path,
    device: str,
    batch: int | None,
    target: Target,
    retry_failed: bool,
    as_json: bool,
) -> None:
    from rich.markup import escape

    from sottovoce.api.progress import progress
    from sottovoce.auditing.certificates.certify_folder import read_curve
    from sottovoce.auditing.certificates.certify_run import run_certify
    from sottovoce.report.certificate_chart import write_certificates
    from sottovoce.report.shown_words import plural

    console = Console(stderr=as_json)
    with progress(console) as (begin, advance):
        found = run_certify(
            plan, out, device=device, batch=batch, target=target, retry_failed=retry_failed, begin=begin,
            advance=advance,
        )  # fmt: skip
    records = list(found.records())
    curve = read_curve(records, sigma=plan.sigma)
    figure = write_certificates(records, found.path / "curve.png", sigma=plan.sigma, right=right_name(plan))
    if as_json:
        typer.echo(json.dumps({"run": plan.run_id, "folder": str(found.path), **curve.to_json()}))
    else:
        show(console, plan, curve)
        console.print(f"certificates: {found.records_path}\ncurve: {figure}", soft_wrap=True, highlight=False)
    for reason, count in Counter(record.reason for record in curve.skipped).items():
        console.print(
            f"[yellow]skipped[/yellow]: {plural(count, 'clip')}: {escape(reason)}",
            soft_wrap=True,
            highlight=False,
        )
    for record in curve.failed:
        console.print(
            f"[yellow]failed[/yellow]: {escape(record.clip)}: {escape(record.reason)}",
            soft_wrap=True,
            highlight=False,
        )
    if curve.failed:
        console.print("to repeat these: run the same command with --retry-failed", highlight=False)
        raise typer.Exit(1)


def right_name(plan: CertifyPlan) -> str:
    """What the second curve counts."""
    return "certified and right" if plan.wer is None else f"and elected within WER {plan.wer:g} of the label"


def show(console: Console, plan: CertifyPlan, curve: CertifiedCurve) -> None:
    """The curve as two tables, and below them what they leave out."""
    from sottovoce.report.shown_words import plural

    what = (
        "the class does not change"
        if plan.wer is None
        else f"WER against the elected transcript stays < {plan.wer:g}"
    )
    head = f"{plan.model} behind {plan.defense}: {what}, each at confidence {1 - plan.alpha:g}; in % of "
    console.print(
        f"{head}{plural(curve.clips, 'clip')}, with 95 % intervals", soft_wrap=True, highlight=False
    )
    console.print(_table("radius (L2)", curve.radii, plan, ".4g"))
    if curve.snrs:
        console.print(_table("SNR (dB)", curve.snrs, plan, "g"))
    elected = "accuracy of the elected classes" if plan.wer is None else "WER of the elected transcripts"
    console.print(
        f"abstained {_percent(curve.abstained)}; {elected} {_percent(curve.elected)}, "
        f"from {plan.select:,} passes each; {curve.passes:,} passes counted",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def _table(level: str, points: tuple[CurvePoint, ...], plan: CertifyPlan, form: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in (level, "certified", right_name(plan)):
        table.add_column(name, justify="right")
    for point in points:
        cells = (f"{point.level:{form}}", _percent(point.certified), _percent(point.right))
        table.add_row(*map(Text, cells))
    return table


def _percent(found: Interval) -> str:
    if not found.n:
        return "–"
    value, low, high = (100 * each for each in found[:3])
    return f"{value:.0f} [{low:.0f},{high:.0f}]" if low == low else f"{value:.0f}"
