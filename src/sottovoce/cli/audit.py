"""`sottovoce audit`: attack a model, measure what was added, write the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.audit.plan import Plan
    from sottovoce.core.target import Target


def audit(
    plan_file: Annotated[
        Path | None, typer.Argument(metavar="[PLAN.yaml]", help="A plan file; options are laid over it.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="keyword, speaker, sound, recogniser, deepspeech2:FILE, whisper:FILE_OR_ID, "
            "huggingface:FOLDER_OR_ID, speechbrain:SOURCE, python:MODULE:FUNCTION; settings as in "
            "'keyword(variant=pgd)' or 'whisper(model=tiny.pt, beams=5)'.",
            show_default="keyword",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="embedded, strings, prompts, prompts:LANG, sounds, librispeech:DIR, speechcommands:DIR, "
            "audiomnist:DIR, pack:FILE.npz, a folder of classes, or a CSV; see `sottovoce parts corpus`.",
            show_default="those shipped for the kind of model",
        ),
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Names with settings, such as 'pgd(steps=100),deepfool'; see `sottovoce parts`.",
            show_default="noise,fgsm,pgd and for classifiers deepfool",
        ),
    ] = None,
    snr: Annotated[
        str | None,
        typer.Option(
            help="Budgets in dB: 20,40 or from:to:step.", show_default="20:60:10; 30,40 for recognisers"
        ),
    ] = None,
    audible: Annotated[
        str | None,
        typer.Option(
            help="Budgets by audibility: 0.1,0.25 for what at most one listener in ten, and one in four, "
            "would notice. By the learned ear (trained on simulated listeners); for noise, fgsm, pgd, apgd "
            "and cw."
        ),
    ] = None,
    budgets: Annotated[
        str | None, typer.Option(help="Other budgets, such as 'linf(eps=0.01),dbmax(db=-32)'.")
    ] = None,
    goals: Annotated[
        str | None,
        typer.Option(
            help="evade, 'force(text=stop)', 'force-nearest(choices=\\[yes, no])', 'prefix(word=But)', "
            "'language(code=sr)'.",
            show_default="evade",
        ),
    ] = None,
    defenses: Annotated[
        str | None,
        typer.Option(
            help="none, 'gaussian(sigma=0.01)+majority(passes=8)': transforms and a vote, joined by +.",
            show_default="none",
        ),
    ] = None,
    average: Annotated[
        int | None,
        typer.Option(
            help="Passes that each gradient is averaged over.",
            show_default="16 where the target is random, or 1",
        ),
    ] = None,
    attackers: Annotated[
        str | None,
        typer.Option(
            help="Who attacks a defended target: adaptive goes through the defense, transfer attacks the "
            "bare model, black-box sees scores alone.",
            show_default="adaptive,transfer,black-box",
        ),
    ] = None,
    black_box: Annotated[
        str | None,
        typer.Option(
            help="The black-box attack, such as 'taori(steps=50)'.",
            show_default="genetic(steps=100, population=10)",
        ),
    ] = None,
    probe: Annotated[
        int | None,
        typer.Option(
            help="Clips on which the strongest attack is tried with twice the steps and passes; 0 for none.",
            show_default="8",
        ),
    ] = None,
    fit: Annotated[
        str | None, typer.Option(help="Clips to fit universal attacks on.", show_default="every other clip")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most so many clips, evenly over classes or speakers.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Names of metrics, such as success,p-heard,pesq.", show_default="all but slow ones"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Every random number hangs on it.", show_default="0")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Clips attacked at once.", show_default="32; 8 for recognisers")
    ] = None,
    audio: Annotated[str | None, typer.Option(help="Save clips: all or none.", show_default="all")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results.", show_default="runs/<model>-<id of the plan>"),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Attack a model on clips, measure what was added, and write a report.

    Without options the shipped keyword spotter is attacked on the shipped clips. The same command goes on
    where an interrupted run stopped. Exit codes: 0 done, 1 some clips failed, 2 a mistake in the command.

    A target behind a defense is attacked by three attackers: one that goes through the defense with averaged
    gradients, one that knows the bare model alone, and one that sees nothing but scores. The strongest
    counts. What makes the figures doubtful is said below the table and in the report.

    Examples:

      sottovoce audit

      sottovoce audit --attacks 'pgd(steps=200),cw' --snr 30:50:5

      sottovoce audit --audible 0.1,0.25,0.5

      sottovoce audit --model huggingface:my-model/ --data clips/ --goals 'force(text=stop)'

      sottovoce audit --defenses 'none,gaussian(sigma=0.02)+majority(passes=8)' --attacks noise,pgd --limit 20

      sottovoce audit --model whisper:tiny.pt --attacks cw-asr --goals 'force(text="open the door")' --snr 30
    """
    from sottovoce.audit.parts import split_list
    from sottovoce.audit.plan import Plan, make_plan, read_plan
    from sottovoce.audit.run import find_device, open_target

    settings = read_plan(plan_file) if plan_file is not None else {}
    lists = {
        "attacks": attacks, "goals": goals, "defenses": defenses, "metrics": metrics, "attackers": attackers,
    }  # fmt: skip
    settings |= {name: split_list(text) for name, text in lists.items() if text is not None}
    if any(each is not None for each in (snr, audible, budgets)):
        settings["budgets"] = parse_snr(snr or "") + parse_audible(audible or "") + split_list(budgets or "")
    plain: dict[str, Any] = {
        "model": model, "data": data, "average": average, "fit": fit, "limit": limit, "seed": seed,
        "batch": batch, "audio": audio, "black_box": black_box, "probe": probe,
    }  # fmt: skip
    settings |= {name: value for name, value in plain.items() if value is not None}
    if audible is not None:
        # Attacks that look for the nearest wrong answer, such as deepfool, cannot search such a budget.
        settings.setdefault("attacks", ["noise", "fgsm", "pgd"])
    make_plan(settings)  # A mistake shows before the model is loaded.
    device = find_device(device)
    target = open_target(str(settings.get("model", Plan().model)), device)
    plan = make_plan({**Plan.usual(target.says), **settings})
    run(plan, out or default_folder(plan), device, target, as_json)


def run(plan: Plan, out: Path, device: str, target: Target, as_json: bool) -> None:
    from sottovoce.audit.heard import heard_to_json
    from sottovoce.audit.run import run_audit
    from sottovoce.audit.sanity import examine
    from sottovoce.audit.summary import summarise
    from sottovoce.cli.show import list_doubts, progress, summary_table
    from sottovoce.report.heard import tell_heard
    from sottovoce.report.html import write_report
    from sottovoce.report.tables import make_panels

    console = Console(stderr=as_json)
    with progress(console) as (begin, advance):
        folder = run_audit(plan, out, device=device, target=target, begin=begin, advance=advance)
        advance(0, "writing the report")
        report = write_report(folder)
    summary = summarise(plan, folder.records())
    checks = examine(plan, summary, folder.probes())
    if as_json:
        doubts = [check.to_json() for check in checks]
        found = {**summary.to_json(), "heard": heard_to_json(summary), "checks": doubts}
        typer.echo(json.dumps({"run": plan.run_id, "report": str(report), **found}))
    else:
        console.print(summary_table(plan, summary))
        for sentence in tell_heard(summary, make_panels(plan, summary)):
            console.print(sentence, soft_wrap=True, highlight=False, markup=False)
        for line in list_doubts(plan, summary, checks):
            console.print(line, soft_wrap=True)
        console.print(f"report: {report}", soft_wrap=True)
    for record in summary.failures:
        console.print(
            f"[yellow]failed[/yellow]: {record.clip}: {record.reason}", soft_wrap=True, highlight=False
        )
    if summary.failures:
        raise typer.Exit(1)


def default_folder(plan: Plan) -> Path:
    return Path("runs") / f"{re.split('[:(]', plan.model)[0]}-{plan.run_id}"


def parse_snr(text: str) -> list[str]:
    """`20,40` or `20:60:10` (ends included) as budgets."""
    try:
        levels = [level for item in text.split(",") if item for level in _levels(item)]
    except ValueError:
        raise InputError(
            f"expected decibels such as 20,40 or 20:60:10 for --snr, got {text!r}; write numbers."
        ) from None
    return [f"snr(db={level:g})" for level in levels]


def parse_audible(text: str) -> list[str]:
    """`0.1,0.25` as budgets."""
    try:
        return [f"audible(p={float(item):g})" for item in text.split(",") if item]
    except ValueError:
        raise InputError(
            f"expected probabilities such as 0.1,0.25 for --audible, got {text!r}; write numbers."
        ) from None


def _levels(item: str) -> list[float]:
    numbers = [float(word) for word in item.split(":")]
    if len(numbers) == 1:
        return numbers
    first, last, step = numbers
    if step <= 0 or last < first:
        raise ValueError(item)
    return [first + k * step for k in range(int((last - first) / step + 1e-9) + 1)]
