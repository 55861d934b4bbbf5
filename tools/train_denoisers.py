"""Train a denoiser with each of the losses that it can be trained with, on one pack of speech.

    python tools/train_denoisers.py speech.npz --dpam dpam/scratch.npz --out weights/ --seconds 45

The pack (tools/pack_corpus.py) must name its speakers: a tenth of them is for validation and a tenth is left
for tests. Noises are synthesised here. Every loss leaves denoiser-LOSS.safetensors as soon as it is done, and
metrics.json tells of all so far, with their curves. --seconds is the time of each loss; --ears a folder of
learned-pre.safetensors and learned-scratch.safetensors, where they are not the shipped ones. mrstft needs
auraloss, dpam the published weights: what cannot be trained is named at once, before anything is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from sottovoce.data.pack import load_pack
from sottovoce.defenses.denoiser import LOSSES, DenoiserShape
from sottovoce.errors import SottovoceError
from sottovoce.perception.ears.learned import FOLDER
from sottovoce.training.checkpoint import write_whole
from sottovoce.training.denoiser.denoiser_losses import LossWeights, Objective
from sottovoce.training.denoiser.denoiser_material import make_material, make_noises
from sottovoce.training.denoiser.train_denoiser import DenoiserRecipe, train_denoiser


def log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("speech", help="a pack of clean speech at 16 kHz")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--losses", default=",".join(LOSSES), help="those to train, in this order")
    parser.add_argument("--seconds", type=float, default=45.0, help="of each loss")
    parser.add_argument("--steps", type=int, help="of each loss, at most")
    parser.add_argument("--batch", type=int, default=16, help="pieces a step")
    parser.add_argument("--piece", type=float, default=1.5, metavar="SECONDS", help="of speech, each")
    parser.add_argument("--valid", type=int, default=64, help="pieces to judge on the way")
    parser.add_argument("--rate", type=float, default=2e-3, help="the largest learning rate")
    parser.add_argument("--width", type=int, default=48, help="channels")
    parser.add_argument("--noises", type=int, default=40, help="of each kind")
    parser.add_argument("--ears", type=Path, default=FOLDER)
    parser.add_argument("--dpam", help="DPAM's published weights, or their folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    # Multiplications in 19 bits where a GPU has them: enough to learn by.
    torch.set_float32_matmul_precision("high")
    try:
        run(options)
    except SottovoceError as error:
        sys.exit(f"error: {error}")


def run(options: argparse.Namespace) -> None:
    began = time.monotonic()
    losses = options.losses.split(",")
    sources = LossWeights(ears=options.ears, dpam=options.dpam)
    for loss in losses:
        Objective(loss, sources)
    pack = load_pack(options.speech)
    log(f"making noises, {options.noises} of each kind")
    noises = {
        "train": make_noises(options.noises, "train"),
        "valid": make_noises(max(1, options.noises // 8), "valid"),
    }
    material = make_material(pack, noises, options.device)
    log(
        f"speech {material.train.speech.seconds / 60:.1f} minutes of {len(material.speakers['train'])} "
        f"speakers, noise {material.train.noise.seconds / 60:.1f} minutes; test speakers "
        f"{', '.join(material.speakers['test'])}"
    )
    recipe = DenoiserRecipe(
        steps=options.steps,
        seconds=options.seconds,
        batch=options.batch,
        piece_seconds=options.piece,
        valid_pieces=options.valid,
        learning_rate=options.rate,
        seed=options.seed,
        shape=DenoiserShape(width=options.width),
    )
    told: dict[str, object] = {}
    failed = 0
    for loss in losses:
        try:
            told[loss] = train_denoiser(
                loss,
                material,
                sources=sources,
                recipe=recipe,
                out=options.out,
                facts={"speech": Path(options.speech).stem},
                log=log,
            ).to_json()
        except SottovoceError as error:
            # The others need not wait for a second try.
            failed += 1
            told[loss] = {"failed": str(error)}
            log(f"{loss} FAILED: {error}")
        text = json.dumps(told, indent=1) + "\n"
        write_whole(
            options.out / "metrics.json", lambda path, text=text: path.write_text(text, encoding="utf-8")
        )
    log(f"{len(losses) - failed} of {len(losses)} losses done in {time.monotonic() - began:.0f} s")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
