"""`sottovoce train`: make the shipped models again, or better ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Train the models that sottovoce ships.", no_args_is_help=True)


@app.callback()
def _verbs() -> None:
    return None


@app.command()
def keyword(
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with train, valid and test, each WORD/*.wav (or FLAC, Ogg); or a pack, .npz."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where to write the weights.")] = Path("keyword_cnn.safetensors"),
    synthetic: Annotated[
        Path | None, typer.Option(help="Pack of synthetic voices, from tools/make_clips.py --training.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Every random number hangs on it.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Train the keyword spotter on Speech Commands and score it on the test split."""
    from sottovoce.audit.run import find_device
    from sottovoce.training.keyword import train
    from sottovoce.training.keyword_pack import pack

    packed = data
    if data.suffix != ".npz":
        packed = out.with_suffix(".pack.npz")
        typer.echo(f"packing {data} into {packed}; give it with --data to skip this step next time")
        pack(data, packed, synthetic=synthetic, seed=seed)
    report = train(packed, out, seed=seed, device=find_device(device), log=typer.echo)
    out.with_suffix(".json").write_text(report.to_json() + "\n", encoding="utf-8")
    typer.echo(f"weights: {out}")


@app.command()
def recogniser(
    pack: Annotated[Path, typer.Option(help="Folder of part-N.npz, from tools/pack_recogniser.py.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights and the report.")] = Path("recogniser"),
    minutes: Annotated[float, typer.Option(help="How long to train; on a GPU, 8 will do.")] = 8.0,
    seed: Annotated[int, typer.Option(help="Every random number hangs on it, but not the clock.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Train the recogniser on strings of spoken commands and synthetic sentences, and score it on both."""
    from sottovoce.audit.run import find_device
    from sottovoce.training.recogniser import train

    train(pack, out, minutes=minutes, seed=seed, device=find_device(device), log=typer.echo)
    typer.echo(f"weights: {out / 'recogniser.safetensors'}")
