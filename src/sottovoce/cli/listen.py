"""`sottovoce listen`: listening tests in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sottovoce.errors import InputError

app = typer.Typer(
    help="Listening tests in the browser: make a study, serve it to listeners, analyse the answers.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)


@app.command()
def new(
    study: Annotated[Path, typer.Argument(help="The study file to write, such as study.yaml.")],
    run: Annotated[
        Path | None, typer.Option("--from", help="Folder of an audit: take its clean and adversarial clips.")
    ] = None,
    clips: Annotated[
        Path | None,
        typer.Option(
            help="Or clips of your own: a folder with clean/ and one folder per condition, class folders, a "
            "CSV with the column path, or pairs to compare (a CSV with the columns reference, a and b)."
        ),
    ] = None,
    test: Annotated[
        str,
        typer.Option(
            help="v6 (the experiment of Vadillo and Santana 2020), naming, abx, same-different, mushra, "
            "preference or closer."
        ),
    ] = "abx",
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Take only clips that meet this condition: level=high, class=yes, snr>=30, success=yes, "
            "cell=...; may be repeated."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Largest number of items, taken evenly over classes and levels.",
            show_default="by the test",
        ),
    ] = None,
    level: Annotated[
        str, typer.Option(help="Results are grouped by this fact or figure of the audit.")
    ] = "intensity",
    direction: Annotated[
        list[str] | None,
        typer.Option(
            help="For same-different: the degradations, such as white+mp3; may be repeated.",
            show_default="drawn for each clip",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="What listeners read at the top.")] = None,
    seats: Annotated[
        int, typer.Option(min=1, help="Number of listeners that the design is balanced for.")
    ] = 18,
    seed: Annotated[int, typer.Option(help="Seed of all choices and orders.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing study file.")] = False,
) -> None:
    """Write a study file, which you can edit, and copy the clips that it plays beside it.

    --test v6 takes only clips that the model got right before the attack and wrong after it, as in the paper.

    Examples:

      sottovoce listen new study.yaml --from runs/keyword-1a2b3c --test v6

      sottovoce listen new study.yaml --from runs/keyword-1a2b3c --where level=high --where "snr>=30"

      sottovoce listen new study.yaml --clips pairs/ --test preference
    """
    from sottovoce.listening.study.clip_sources import Candidate, keep, leave_silence, read_clips, read_run
    from sottovoce.listening.study.new_study import write_study

    if (run is None) == (clips is None):
        raise InputError("give either --from RUN or --clips FOLDER.")
    conditions = list(where or [])
    if test == "v6":
        if run is None:
            raise InputError(
                "--test v6 needs the clips of an audit: give --from RUN, or use --test naming or --test abx."
            )
        conditions += ["right=yes", "success=yes"]
    found = read_run(run, level) if run is not None else read_clips(clips or "")
    candidates = [one for one in found if isinstance(one, Candidate)]
    if conditions and not candidates:
        raise InputError(
            "--where does not work with pairs, which have no facts; delete rows of the CSV instead."
        )
    kept = keep(candidates, conditions) if candidates else []
    silent = 0
    if run is not None and not any(one.strip().startswith(("class", "label")) for one in conditions):
        kept, silent = leave_silence(kept)
        if not kept:
            raise InputError(
                f"{run}: all {silent} clips are of the class silence; attack other clips, or ask for these "
                "with "
                "--where class=silence."
            )
    _, notes = write_study(
        study,
        kept if candidates else found,
        test,
        limit=limit,
        seed=seed,
        seats=seats,
        title=title,
        directions=direction or [],
        force=force,
    )
    if silent:
        notes.insert(0, f"left out {silent} clips of the class silence; --where class=silence takes them")
    for note in notes[:-1]:
        typer.secho(f"note: {note}", fg="yellow")
    typer.echo(f"{study}: {notes[-1]}")
    typer.echo(f"next: sottovoce listen serve {study}")
