"""`sottovoce train`: train the shipped models again, make a model harder to fool, or make it smaller."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.errors import InputError, UnknownName

if TYPE_CHECKING:
    from sottovoce.data.load import Corpus
    from sottovoce.training.hardening import Hardening
    from sottovoce.training.learner import Learner
    from sottovoce.training.sources import ClipsInMemory, Source

app = typer.Typer(
    help="Train the models that come with sottovoce, make a model harder to fool, or make it smaller.",
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
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Number of training steps instead of a time; the run can then be repeated."),
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="shipped: strings and sentences, 4.1 million weights; small: strings of words alone, 0.9 "
            "million weights, 6,000 steps take half an hour of one core."
        ),
    ] = "shipped",
    weights: Annotated[
        Path | None,
        typer.Option(help="A file of weights to begin with, instead of random ones; its size is kept."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of all random numbers. Without --steps the clock decides how many steps there are."
        ),
    ] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Train the recogniser on strings of spoken commands and synthetic sentences, and score it on both.

    Example:

    sottovoce train recogniser --pack parts/ --minutes 8 --device cuda
    """
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.recogniser.train_recogniser import RECIPES, train

    if not 0 < minutes < math.inf:
        raise InputError(f"expected --minutes above 0, got {minutes:g}; 8 are enough on a GPU.")
    if recipe not in RECIPES:
        raise UnknownName("recipe", recipe, RECIPES)
    train(
        pack,
        out,
        minutes=minutes,
        steps=steps,
        seed=seed,
        device=find_device(device),
        recipe=RECIPES[recipe],
        log=typer.echo,
        weights=weights,
    )
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
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.loop import fit
    from sottovoce.training.recipe import TrainingRecipe
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
    source, clips = _open_clips(learner, data, valid, labels, jitter)
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


@app.command()
def prune(
    data: Annotated[
        str,
        typer.Option(help="Training clips: a corpus as in sottovoce audit, or a pack (pack:FILE.npz#train)."),
    ],
    valid: Annotated[
        str | None, typer.Option(help="Validation clips, which training must not see: they set the limit.")
    ] = None,
    model: Annotated[str, typer.Option(help="What to prune: keyword.")] = "keyword",
    labels: Annotated[
        str,
        typer.Option(help="Clips whose label the model cannot say: refuse to run, or skip them."),
    ] = "refuse",
    weights: Annotated[
        str, typer.Option(help="What to begin with: shipped, or a file of weights, pruned or not.")
    ] = "shipped",
    lose: Annotated[
        float,
        typer.Option(
            help="How much accuracy on validation clips may be lost: 0.02 is two points; 1: no limit."
        ),
    ] = 0.02,
    keep: Annotated[
        float, typer.Option(help="Share of a layer's neurons that stays in any case, such as 0.5.")
    ] = 0.0,
    share: Annotated[
        float, typer.Option(help="Share of a layer's neurons that goes in a round, at most.")
    ] = 0.25,
    measure: Annotated[int, typer.Option(help="Training clips that redundancy is measured on.")] = 512,
    epochs: Annotated[int, typer.Option(help="Times through the clips after each round.")] = 1,
    batch: Annotated[int, typer.Option(help="Clips a step.")] = 64,
    rate: Annotated[float, typer.Option(help="Highest learning rate after a round.")] = 3e-4,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="Shift clips a little and change their level, each time anew.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for weights, report, card and checkpoint.")] = Path(
        "pruned"
    ),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Make a model smaller: drop neurons that say what others say already, and train in between.

    Linear redundancy pruning, after the published description (Olivier 2023, section 3.6): what a neuron says
    is written as a combination of what the others of its layer say, and folded into the layer behind; those
    whose own part is of least use go first. The last hidden layer is shrunk first, then the one before it, as
    far as the accuracy on validation clips allows.

    sottovoce train prune --data pack:FILE.npz#train --valid pack:FILE.npz#valid --lose 0.02

    The result opens as --model 'keyword(weights=pruned/model.safetensors)'. Smaller is not harder to fool:
    audit it. A module of your own is pruned from Python, see the how-to.
    """
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.pruning.prune_layers import PruningRecipe, prune
    from sottovoce.training.recipe import TrainingRecipe
    from sottovoce.training.sources import ClipSource
    from sottovoce.training.trainable_models import SCRATCH, build_learner

    if weights == SCRATCH:
        raise InputError("--weights scratch: expected a trained model to prune; give shipped or a file.")
    tuning = TrainingRecipe(
        epochs=epochs, batch_size=batch, learning_rate=rate, warm_up_steps=5, weight_decay=1e-4
    )
    recipe = PruningRecipe(lose=lose, keep=keep, share=share, clips=measure, tuning=tuning, seed=seed)
    learner = build_learner(model, weights, seed=seed)
    source, clips = _open_clips(learner, data, valid, labels, jitter)
    if not isinstance(source, ClipSource):
        raise InputError(
            f"--data {data}: expected single clips to prune with, got a folder of part-N.npz; name a corpus."
        )
    prune(
        learner,
        source,
        clips,
        out=out,
        recipe=recipe,
        device=find_device(device),
        resume=resume,
        log=typer.echo,
    )
    typer.echo(f"open it with: --model '{model}(weights={out / 'model.safetensors'})'")


def _open_clips(
    learner: Learner, data: str, valid: str | None, labels: str, jitter: bool
) -> tuple[Source, ClipsInMemory]:
    """Training batches and validation clips, in the model's own names of classes."""
    from sottovoce.data.labels import settle_labels
    from sottovoce.training.sources import Jitter, open_clips

    target = learner.target()

    def settle(corpus: Corpus) -> Corpus:
        settled = settle_labels(corpus, target, labels, spelled=True)
        if settled.skipped:
            typer.echo(settled.corpus.note)
        return settled.corpus

    changed = Jitter() if jitter else None
    return open_clips(data, valid, target.sample_rate, changed, settle=settle, log=typer.echo)


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
