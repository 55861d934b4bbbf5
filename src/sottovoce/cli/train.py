"""`sottovoce train`: make the shipped models again, or ones that are harder to fool, or smaller."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.data.load import Corpus
    from sottovoce.training.hardening import Hardening
    from sottovoce.training.learner import Learner
    from sottovoce.training.sources import ClipsInMemory, Source

app = typer.Typer(
    help="Train the models that sottovoce ships, harden them, or make them smaller.",
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
    pack: Annotated[Path, typer.Option(help="Folder of part-N.npz, from tools/pack_recogniser.py.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights and the report.")] = Path("recogniser"),
    minutes: Annotated[float, typer.Option(help="How long to train; on a GPU, 8 will do.")] = 8.0,
    seed: Annotated[int, typer.Option(help="Every random number hangs on it, but not the clock.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Train the recogniser on strings of spoken commands and synthetic sentences, and score it on both."""
    from sottovoce.targets.open_target import find_device
    from sottovoce.training.recogniser.train_recogniser import train

    if not 0 < minutes < math.inf:
        raise InputError(f"expected minutes above 0, got {minutes:g}; say how long.")
    train(pack, out, minutes=minutes, seed=seed, device=find_device(device), log=typer.echo)
    typer.echo(f"weights: {out / 'recogniser.safetensors'}")


@app.command()
def harden(
    model: Annotated[
        str, typer.Option(help="What to train: keyword, recogniser, deepspeech2, speaker or sound.")
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Training clips: a corpus as in sottovoce audit, a pack (pack:FILE.npz#train), or for "
            "recognisers the folder of part-N.npz that sottovoce train recogniser takes."
        ),
    ],
    valid: Annotated[
        str | None,
        typer.Option(
            help="Validation clips, which training must not see; a folder of part-N.npz has its own."
        ),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(help="Clips whose label the model cannot say: refuse to train, or skip them."),
    ] = "refuse",
    weights: Annotated[
        str, typer.Option(help="What to begin with: shipped, scratch, or a file of weights.")
    ] = "shipped",
    sigma: Annotated[
        str | None,
        typer.Option(
            help="Add noise of this deviation to every clip, so that smoothing with it costs little; "
            "LOW:HIGH draws one for each clip. Full swing is 1: 0.02 is usual."
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="Which noise: gaussian (as it is), or mad, which lies in the high frequencies."),
    ] = None,
    front: Annotated[
        str | None,
        typer.Option(help="Transforms that the model hears through, such as 'lowpass(share=0.05)'."),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            help="Train on adversarial examples: fgsm (one step from a random start, quick) or pgd (several "
            "steps, stronger)."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of pgd: each costs about as much as plain training.")] = 7,
    budget: Annotated[
        str, typer.Option(help="How much an example may add: snr(db=30), linf(eps=0.002), l2(eps=0.5).")
    ] = "snr(db=30)",
    share: Annotated[
        str,
        typer.Option(help="Share of clips that are attacked; 0.5,0.8 is half, then four fifths of training."),
    ] = "1",
    epochs: Annotated[int | None, typer.Option(help="Times through the clips; 10 without --minutes.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop by the clock.")] = None,
    batch: Annotated[int, typer.Option(help="Clips a step.")] = 64,
    rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 3e-4,
    average: Annotated[
        float, typer.Option(help="Decay of a running average of the weights, such as 0.998; 0: none.")
    ] = 0.0,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="Shift clips a little and change their level, each time anew.")
    ] = False,
    patience: Annotated[
        int, typer.Option(help="Stop after so many epochs without a better one; 0: never.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="Folder for weights, report and checkpoint.")] = Path("hardened"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the folder.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves for TensorBoard beside the checkpoint.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Every random number hangs on it.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
) -> None:
    """Make a model harder to fool: train it on noise, on adversarial examples, or on both.

    [bold]Noise[/bold] (--sigma) prepares a model for randomised smoothing with the same noise.
    [bold]Adversarial examples[/bold] (--attack) harden the model itself; they are made anew at every step,
    against the model as it is then. Validation clips are judged clean, under the same noise, and under ten
    steps of pgd or more; the epoch that did best under the hardest of them is kept.

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
            "expected --sigma, --attack or --front to harden with, got none; add one, or train anew with "
            "--weights scratch."
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
    seed: Annotated[int, typer.Option(help="Every random number hangs on it.")] = 0,
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
        raise InputError(f"expected --sigma beside --noise {noise}, got none; give one, such as 0.02.")
    defense = Defense.parse(front or "none")
    if defense.vote is not None:
        raise InputError(f"expected transforms in --front, got {front!r} with a vote; drop the vote.")
    # Shares are checked also where nothing is attacked: a typing error is one in any case.
    shares = AdversarialShare.parse(share)
    adversary = None
    if attack is not None:
        adversary = make_adversary(attack, Part.parse(budget).build("budget"), steps=steps, share=shares)
    return Hardening(
        noise=None if sigma is None else make_noise(noise or "gaussian", sigma),
        front=defense.transforms,
        adversary=adversary,
    )
