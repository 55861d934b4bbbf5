"""`sottovoce train`: train the shipped models again, or make a model harder to fool."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.data.load import Corpus
    from sottovoce.training.hardening import Hardening

app = typer.Typer(
    help="Train the models that come with sottovoce, or make a model harder to fool.",
    rich_markup_mode="rich",
    no_args_is_help=True,
)


@app.callback()
def _verbs() -> None:
    return None


@app.command()
def keyword(
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with train/, valid/ and test/, each with WORD/*.wav (or FLAC, Ogg); or a pack, .npz."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where to write the weights.")] = Path("keyword_cnn.safetensors"),
    synthetic: Annotated[
        Path | None, typer.Option(help="Pack of synthetic voices, made by tools/make_clips.py --training.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Train the keyword spotter on Speech Commands and score it on the test split.

    Example:

    sottovoce train keyword --data speech_commands/ --out keyword.safetensors
    """
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.keyword.keyword_pack import pack
    from sottovoce.training.keyword.train_keyword import train

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
    pack: Annotated[Path, typer.Option(help="Folder of part-N.npz, made by tools/pack_recogniser.py.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights and the report.")] = Path("recogniser"),
    minutes: Annotated[float, typer.Option(help="Training time in minutes; 8 are enough on a GPU.")] = 8.0,
    seed: Annotated[
        int,
        typer.Option(help="Seed of all random numbers. The clock still decides how many steps there are."),
    ] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Train the recogniser on strings of spoken commands and synthetic sentences, and score it on both.

    Example:

    sottovoce train recogniser --pack parts/ --minutes 8 --device cuda
    """
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.recogniser.train_recogniser import train

    if not 0 < minutes < math.inf:
        raise InputError(f"expected --minutes above 0, got {minutes:g}; 8 are enough on a GPU.")
    train(pack, out, minutes=minutes, seed=seed, device=find_device(device), log=typer.echo)
    typer.echo(f"weights: {out / 'recogniser.safetensors'}")


@app.command()
def harden(
    model: Annotated[
        str, typer.Option(help="Model to train: keyword, recogniser, deepspeech2, speaker or sound.")
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Training clips: a corpus as in `sottovoce audit`, a pack (pack:FILE.npz#train), or for "
            "recognisers the folder of part-N.npz that `sottovoce train recogniser` takes."
        ),
    ],
    valid: Annotated[
        str | None,
        typer.Option(
            help="Validation clips, not among the training clips; a folder of part-N.npz has its own."
        ),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(help="Clips whose label the model does not have: refuse (stop with an error) or skip."),
    ] = "refuse",
    weights: Annotated[
        str, typer.Option(help="Initial weights: shipped, scratch (random), or a file.")
    ] = "shipped",
    sigma: Annotated[
        str | None,
        typer.Option(
            help="Add noise of this standard deviation to every clip, so that smoothing with it costs little "
            "accuracy; LOW:HIGH draws one for each clip. Full scale is 1; 0.02 is usual."
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="Kind of noise: gaussian, or mad, whose energy lies in the high frequencies."),
    ] = None,
    front: Annotated[
        str | None,
        typer.Option(help="Transforms in front of the model, such as 'lowpass(share=0.05)'."),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="Train on adversarial examples by this attack: fgsm (one step from a random start, fast) or "
            "pgd (several steps, stronger)."
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Number of pgd steps; each costs about as much as plain training.")
    ] = 7,
    budget: Annotated[
        str, typer.Option(help="Budget of the attack: snr(db=30), linf(eps=0.002) or l2(eps=0.5).")
    ] = "snr(db=30)",
    share: Annotated[
        str,
        typer.Option(
            help="Share of clips to attack, 0 to 1; 0.5,0.8: half of the clips in the first half of "
            "training, four fifths in the second."
        ),
    ] = "1",
    epochs: Annotated[int | None, typer.Option(help="Number of epochs; 10 without --minutes.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after this many minutes.")] = None,
    batch: Annotated[int, typer.Option(help="Clips per step.")] = 64,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 3e-4,
    average: Annotated[
        float,
        typer.Option(help="Decay of an exponential moving average of the weights, such as 0.998; 0: none."),
    ] = 0.0,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="Augmentation: random small shifts and changes of level.")
    ] = False,
    patience: Annotated[
        int, typer.Option(help="Stop after this many epochs without improvement; 0: never.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="Folder for weights, report and checkpoint.")] = Path("hardened"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint in the folder.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard curves beside the checkpoint.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Make a model harder to fool: train it on noise, on adversarial examples, or on both.

    [bold]Noise[/bold] (--sigma) prepares a model for randomised smoothing with the same noise.
    [bold]Adversarial examples[/bold] (--attack) make the model itself more robust; they are computed at every
    step, against the current weights. Validation clips are judged clean, under the same noise, and under at
    least ten steps of pgd; the epoch that is best under the hardest of these is kept.

    Examples:

    sottovoce train harden --model keyword --data speechcommands:DIR --valid folder:VALID --attack fgsm

    For several GPUs: accelerate launch $(which sottovoce) train harden ...
    """
    from sottovoce.data.labels import settle_labels
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.loop import fit
    from sottovoce.training.recipe import TrainingRecipe
    from sottovoce.training.sources import Jitter, open_clips
    from sottovoce.training.trainable_models import SCRATCH, build_learner

    hardening = _hardening(sigma, noise, front, attack, steps, budget, share)
    if sigma is None and attack is None and front is None and weights != SCRATCH:
        raise InputError(
            "give --sigma, --attack or --front, which say how to harden the model; plain training from "
            "scratch takes --weights scratch."
        )
    recipe = TrainingRecipe(
        epochs=10 if epochs is None and minutes is None else epochs,
        minutes=minutes,
        batch_size=batch,
        learning_rate=rate,
        average_decay=average,
        patience=patience,
        seed=seed,
    )
    learner = build_learner(model, weights, seed=seed)
    target = learner.target()

    def settle(corpus: Corpus) -> Corpus:
        settled = settle_labels(corpus, target, labels, spelled=True)
        if settled.skipped:
            typer.echo(settled.corpus.note)
        return settled.corpus

    changed = Jitter() if jitter else None
    source, clips = open_clips(data, valid, target.sample_rate, changed, settle=settle, log=typer.echo)
    fit(
        learner,
        source,
        clips,
        out=out,
        recipe=recipe,
        hardening=hardening,
        device=find_device(device),
        resume=resume,
        tensorboard=tensorboard,
        log=typer.echo,
    )


def _hardening(
    sigma: str | None,
    noise: str | None,
    front: str | None,
    attack: str | None,
    steps: int,
    budget: str,
    share: str,
) -> Hardening:
    """What the options ask for."""
    from sottovoce.defenses.defense_text import Defense
    from sottovoce.registry.part_text import Part
    from sottovoce.training.hardening import AdversarialShare, Hardening, make_adversary, make_noise

    if sigma is None and noise is not None:
        raise InputError(f"--noise {noise} needs --sigma, such as --sigma 0.02.")
    defense = Defense.parse(front or "none")
    if defense.vote is not None:
        raise InputError(f"--front {front}: expected transforms only, got a vote; leave the vote out.")
    # Shares are checked even if nothing is attacked: a mistyped option is a mistake in any case.
    shares = AdversarialShare.parse(share)
    adversary = None
    if attack is not None:
        adversary = make_adversary(attack, Part.parse(budget).build("budget"), steps=steps, share=shares)
    return Hardening(
        noise=None if sigma is None else make_noise(noise or "gaussian", sigma),
        front=defense.transforms,
        adversary=adversary,
    )
