"""`sottovoce metric`: train the learned ear on answers of listeners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError, UnknownName

app = typer.Typer(
    help="Train the learned ear on answers of a listening test, or simulate such answers.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)


@app.command()
def train(
    answers: Annotated[
        Path, typer.Argument(help="Answers folder: answers.jsonl, and clips.npz or audio/ID.flac.")
    ],
    variant: Annotated[
        str,
        typer.Option(
            help="scratch: train everything; fin: start from the shipped features; lin: freeze the features, "
            "train their weights; pre: freeze both, train only where the just noticeable difference lies."
        ),
    ] = "scratch",
    out: Annotated[Path, typer.Option(help="Where to write the weights.")] = Path("learned.safetensors"),
    steps: Annotated[
        int | None,
        typer.Option(help="Largest number of training steps.", show_default="4000 without --minutes"),
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after this many minutes.")] = None,
    batch: Annotated[int, typer.Option(min=2, help="Pairs per step.")] = 64,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-3,
    check: Annotated[int, typer.Option(min=1, help="Steps between two validations.")] = 200,
    patience: Annotated[
        int, typer.Option(help="Stop after this many validations without improvement; 0: never.")
    ] = 8,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint beside the weights.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Train the learned ear on same-different answers, and score it on answers that it has not seen.

    Answers of people and of simulated listeners have the same format. Listeners who got a sentinel wrong are
    left out. Speakers are split into training, validation and test; the step with the best validation score
    is kept, and a report is written beside the weights. Audits and `measure` use the weights with
    [bold]SOTTOVOCE_EAR_WEIGHTS=FILE[/bold] in the environment; in Python with
    [bold]Learned(weights=FILE)[/bold].

    Examples:

      sottovoce metric train answers/ --out mine.safetensors

      sottovoce metric train answers/ --variant lin --minutes 5
    """
    from sottovoce.perception.ears.learned import VARIANTS, Learned
    from sottovoce.perception.ears.learned_network import load_network
    from sottovoce.perception.jnd.answers import read_answers
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.checkpoint import write_whole
    from sottovoce.training.ear.train_ear import EarRecipe, new_network, prepare, train_to

    kind = next((one for one in VARIANTS if one == variant), None)
    if kind is None:
        raise UnknownName("variant", variant, VARIANTS)
    if out.suffix != ".safetensors":
        raise InputError(f"--out {out}: expected a name that ends in .safetensors.")
    recipe = EarRecipe(
        steps=4000 if steps is None and minutes is None else steps,
        seconds=None if minutes is None else 60 * minutes,
        batch=batch,
        learning_rate=rate,
        check=check,
        patience=patience,
        seed=seed,
    )
    found = read_answers(answers)
    typer.echo(str(found.summary()))
    material = prepare(found, find_device(device), typer.echo)
    network = new_network(seed) if kind == "scratch" else load_network(Learned(variant="pre").path)[0]
    report = train_to(out, network, material, variant=kind, recipe=recipe, resume=resume, log=typer.echo)
    text = json.dumps(report.to_json(), indent=1) + "\n"
    write_whole(out.with_suffix(".json"), lambda place: place.write_text(text, encoding="utf-8"))
    typer.echo(f"{report.held_out.answers:,} held-out answers: {report.held_out}")
    if report.listeners != "people":
        typer.secho(
            f"note: trained on answers of {report.listeners} listeners: it is not known how well it predicts "
            "people.",
            fg="yellow",
        )
    typer.echo(f"weights: {out}, report: {out.with_suffix('.json')}")


@app.command()
def simulate(
    out: Annotated[Path, typer.Argument(help="The answers folder to write.")],
    data: Annotated[
        list[str],
        typer.Option(help="Clips of speech: librispeech:DIR, embedded, ...; may be given several times."),
    ],
    pairs: Annotated[
        int, typer.Option(min=3, help="Number of clips to degrade, each in steps of growing strength.")
    ] = 300,
    people: Annotated[int, typer.Option(min=1, help="Simulated listeners per clip.")] = 4,
    processes: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Make same-different answers of simulated listeners, to try things out before you ask people.

    The listeners hear through a published model of the ear, not as people do: every line is marked as
    simulated, and so is every model trained on it.

    Examples:

      sottovoce metric simulate answers/ --data embedded --pairs 20
    """
    from sottovoce.core.draws import Draws
    from sottovoce.data.corpora import open_corpus
    from sottovoce.perception.jnd.references import Cut, cut_references
    from sottovoce.perception.jnd.simulated_answers import Collection, simulate
    from sottovoce.targets.open_target import find_device

    corpora = [open_corpus(spec) for spec in data]
    references = cut_references(corpora, pairs, Cut(), Draws(seed).turn("references"))

    def tell(share: float, what: str) -> None:
        typer.echo(f"{100 * share:3.0f} % {what}")

    found = simulate(
        out,
        references,
        Collection(people=people, seed=seed),
        processes=processes,
        device=str(find_device(device)),
        tell=tell,
    )
    typer.echo(f"{out}: {found}")
