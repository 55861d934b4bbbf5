"""`sottovoce audit`: attack a model, measure what was added, write the report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sottovoce.api.settings import (
    Way,
    lay_over,
    opened,
    parse_audible,
    parse_budgets,
    parse_seeds,
    parse_snr,
    plan_settings,
    refuse_plan_changes,
    replay_entries,
)
from sottovoce.cli.audit_run import run, run_many
from sottovoce.cli.dry_run import foretell

__all__ = ["audit", "parse_audible", "parse_snr"]


def audit(
    plan_file: Annotated[
        Path | None, typer.Argument(metavar="[PLAN.yaml]", help="A plan file; options override its entries.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model: keyword, speaker, sound, recogniser, deepspeech2:FILE, whisper:FILE_OR_ID, "
            "huggingface:FOLDER_OR_ID, speechbrain:SOURCE, python:MODULE:FUNCTION; settings as in "
            "'keyword(variant=pgd)' or 'whisper(model=tiny.pt, beams=5)'. Several, joined by commas, are "
            "compared.",
            show_default="keyword",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="The clips: embedded, strings, prompts, prompts:LANG, sounds, librispeech:DIR, "
            "speechcommands:DIR, audiomnist:DIR, pack:FILE.npz, a folder of classes, or a CSV; see "
            "`sottovoce parts corpus`.",
            show_default="those shipped for the kind of model",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="What fills in options that you leave out: quick (minutes), standard (what a claim of "
            "robustness must withstand) or paper (as many steps as in the papers: hours to days)."
        ),
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Names with settings, such as 'pgd(steps=100),deepfool'; `sottovoce parts attack` lists "
            "them. none: measure clean accuracy or WER only.",
            show_default="noise,fgsm,pgd and for classifiers deepfool",
        ),
    ] = None,
    snr: Annotated[
        str | None,
        typer.Option(
            help="Signal-to-noise ratios of the perturbation in dB, higher is quieter: 20,40 or "
            "low:high:step.",
            show_default="20:60:10; 30,40 for recognisers",
        ),
    ] = None,
    audible: Annotated[
        str | None,
        typer.Option(
            help="Budgets by audibility, P(heard): 0.1,0.25 allows what at most one listener in ten, and one "
            "in four, would notice. Judged by the learned ear (trained on simulated listeners); works with "
            "noise, fgsm, pgd, apgd and cw."
        ),
    ] = None,
    budgets: Annotated[
        str | None, typer.Option(help="Other budgets, such as 'linf(eps=0.01),dbmax(db=-32)'.")
    ] = None,
    goals: Annotated[
        str | None,
        typer.Option(
            help="What the attack is to achieve: evade (any wrong answer), 'force(text=stop)', "
            "'force-nearest(choices=\\[yes, no])', 'prefix(word=But)', 'language(code=sr)'.",
            show_default="evade",
        ),
    ] = None,
    defenses: Annotated[
        str | None,
        typer.Option(
            help="none, or transforms and a vote joined by +, such as "
            "'gaussian(sigma=0.01)+majority(passes=8)'.",
            show_default="none",
        ),
    ] = None,
    average: Annotated[
        int | None,
        typer.Option(
            help="Number of passes of a random target that each gradient is averaged over.",
            show_default="16 if the target is random, else 1",
        ),
    ] = None,
    attackers: Annotated[
        str | None,
        typer.Option(
            help="Who attacks a defended target: adaptive attacks through the defense, transfer attacks the "
            "bare model, black-box sees only scores or decisions.",
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
            help="Number of clips on which the strongest attack is repeated with twice the steps and passes, "
            "to see whether it had converged; 0: none.",
            show_default="8",
        ),
    ] = None,
    fit: Annotated[
        str | None, typer.Option(help="Clips to fit universal attacks on.", show_default="every other clip")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Largest number of clips, taken evenly over classes or speakers.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Clips whose label is not a class of the model: refuse (stop with an error) or skip.",
            show_default="refuse",
        ),
    ] = None,
    longest: Annotated[
        float | None,
        typer.Option(help="Longest clip in seconds; longer ones count as failed.", show_default="1800"),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Names of metrics, such as success,p-heard,pesq; `sottovoce parts metric` lists them.",
            show_default="all but slow ones",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers.", show_default="0")] = None,
    seeds: Annotated[str | None, typer.Option(help="Several seeds, such as 0,1,2: one run each.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="Clips attacked together.", show_default="32; 8 for recognisers")
    ] = None,
    audio: Annotated[
        str | None, typer.Option(help="Which clips to save: all or none.", show_default="all")
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(
            help="The folder of a run, whose saved examples are tried again instead of attacking: on another "
            "--model, or behind --defenses.",
            metavar="FOLDER",
            show_default="none",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder for the results, or a URL such as s3://BUCKET/RUN.",
            show_default="runs/<model>-<id of the plan>",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="Continue the run, or the grid of runs, in this folder.", metavar="FOLDER"),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Repeat the trials that are recorded as failed.")
    ] = False,
    max_requests: Annotated[
        int | None,
        typer.Option(
            help="Most requests sent to models behind an address, over all workers and resumes; the run then "
            "stops, and can be continued.",
            show_default="any number",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Attack nothing: print the cells, an estimate of passes, time and memory (from trying them "
            "for some seconds), and what is recorded already.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(help="Number of processes that share the work.", show_default="1, or one per GPU"),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="Where the work is done: local (processes on this machine) or ray (a cluster)."),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            help="The Ray cluster to join, such as 10.0.0.1:6379.", show_default="a local one is started"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Attack a model on clips, measure what was added, and write a report.

    Without options the shipped keyword spotter is attacked on the shipped clips. Several models or seeds give
    one run each, and a page that compares them. A plan file can hold everything that the options say, and
    more: see docs/plans.md.

    A defended target is attacked by three attackers: one that attacks through the defense with averaged
    gradients, one that knows only the bare model, and one that sees only scores. The strongest one counts.
    Reasons to doubt the figures are printed below the table and in the report.

    Nothing recorded is lost: Ctrl-C stops after the trials in progress, and the same command, or --resume,
    continues. Exit codes: 0 done, 1 something failed, 2 a mistake in the command, 130 stopped.

    Examples:

      sottovoce audit

      sottovoce audit --preset standard --dry-run

      sottovoce audit --attacks 'pgd(steps=200),cw' --snr 30:50:5

      sottovoce audit --audible 0.1,0.25,0.5

      sottovoce audit --model huggingface:my-model/ --data clips/ --labels skip --attacks none

      sottovoce audit --model huggingface:my-model/ --data clips/ --goals 'force(text=stop)'

      sottovoce audit --model 'keyword,keyword(variant=pgd),speaker' --preset quick --seeds 0,1 --workers 2

      sottovoce audit --defenses 'none,gaussian(sigma=0.02)+majority(passes=8)' --attacks noise,pgd --limit 20

      sottovoce audit --model whisper:tiny.pt --attacks cw-asr --goals 'force(text="open the door")' --snr 30

      sottovoce audit --model api:http://localhost:8000 --data librispeech:dev-clean/ --max-requests 500

      sottovoce audit plan.yaml --engine ray --address 10.0.0.1:6379 --out s3://bucket/run

      sottovoce audit --examples runs/recogniser-0a1b2c3d4e --model whisper:tiny.pt

      sottovoce audit --resume runs/grid-1f2e3d4c5b --retry-failed
    """
    way = Way(device, engine, address, workers, retry_failed, as_json, max_requests)
    way.check()
    options: dict[str, Any] = {
        "model": model, "data": data, "preset": preset, "attacks": attacks, "goals": goals,
        "defenses": defenses, "metrics": metrics, "attackers": attackers, "average": average, "fit": fit,
        "limit": limit, "labels": labels, "longest": longest,
        "seed": seed, "seeds": parse_seeds(seeds), "batch": batch, "audio": audio,
        "black_box": black_box, "probe": probe, "budgets": parse_budgets(snr, audible, budgets),
    }  # fmt: skip
    if resume is not None:
        named = [name for name, value in options.items() if value is not None]
        others = (("out", out), ("plan file", plan_file), ("examples", examples))
        named += [name for name, value in others if value is not None]
        refuse_plan_changes(named)
        go_on(resume, way, dry_run)
        return
    aims = {"snr": snr, "audible": audible, "budgets": budgets, "goals": goals}
    given = [f"--{name}" for name, value in aims.items() if value is not None]
    settings = lay_over(_read(plan_file), options)
    settings = plan_settings(settings, given if attacks is not None else [], audible=audible is not None)
    if examples is not None:
        settings = replay_entries(examples, settings)
    begin(settings, out, way, dry_run)


def begin(settings: dict[str, Any], out: str | None, way: Way, dry_run: bool) -> None:
    """Run the plan, or the grid of plans, that the settings describe."""
    from sottovoce.api.running import ManyPlans, resolve
    from sottovoce.targets.open_target import Openings

    found = resolve(settings, way)
    with opened(out or str(found.folder)) as folder:
        if isinstance(found, ManyPlans):
            if dry_run:
                foretell(found.grid.plans(), folder, way, found.openings, many=True)
            else:
                run_many(found.grid, folder, way, place(out), found.openings)
            return
        plan, target = found.plan, found.target
        if dry_run:
            foretell({found.name: plan}, folder, way, Openings(way.home(), {plan.model: target}))
        else:
            run(plan, folder, target, way, place(out))


def go_on(resume: str, way: Way, dry_run: bool) -> None:
    """Run what is left of the plan that a folder holds."""
    from sottovoce.auditing.plan.plan_file import read_plan
    from sottovoce.auditing.plan.plan_grid import make_grid
    from sottovoce.auditing.run.run_folder import RunFolder
    from sottovoce.auditing.run.run_grid import is_grid

    with opened(resume) as folder:
        if is_grid(folder):
            grid = make_grid(read_plan(folder / "plan.yaml"))
            if dry_run:
                foretell(grid.plans(), folder, way, many=True)
            else:
                run_many(grid, folder, way, place(resume))
            return
        plan = RunFolder(folder).plan()
        if dry_run:
            foretell({folder.name: plan}, folder, way)
        else:
            run(plan, folder, None, way, place(resume))


def place(out: str | None) -> str:
    """The address of a remote folder as the user typed it; empty for a local one."""
    return out.rstrip("/") if out is not None and "://" in out else ""


def _read(plan_file: Path | None) -> dict[str, Any]:
    from sottovoce.auditing.plan.plan_file import read_plan

    return read_plan(plan_file) if plan_file is not None else {}
