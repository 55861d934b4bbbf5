"""Train the hardened models that sottovoce ships.

    python tools/train_variants.py speaker --pack speaker.npz --out variants --minutes 2
    python tools/train_variants.py keyword-pgd keyword-mixed --pack keyword.npz --out variants
    python tools/train_variants.py recogniser-noisy --pack packs/recogniser --out variants --minutes 5

Jobs are MODEL-VARIANT; MODEL alone stands for all of its variants. --minutes is the time of each job, and its
learning rate has come down to zero by then. Each leaves NAME.safetensors (16 bits) and NAME.json. Packs come
from tools/pack_sounds.py, tools/pack_keyword.py and tools/pack_recogniser.py.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch

from sottovoce.errors import SottovoceError
from sottovoce.registry.part_text import Part
from sottovoce.training.hardening import AdversarialShare
from sottovoce.training.variants import VARIANTS, adjust, find_variants, train_variant


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("jobs", nargs="+", metavar="JOB", help=", ".join(VARIANTS))
    parser.add_argument("--pack", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, help="time of each job, instead of its epochs")
    parser.add_argument("--epochs", type=int, help="another number of epochs")
    parser.add_argument("--check", type=int, help="epochs from one judgement to the next")
    parser.add_argument("--batch", type=int, help="clips a step")
    parser.add_argument("--rate", type=float, help="another highest learning rate")
    parser.add_argument("--sigma", help="another level of noise, or LOW:HIGH")
    parser.add_argument("--budget", help="another budget of the adversary, such as 'linf(eps=0.001)'")
    parser.add_argument("--share", help="another share of attacked clips, such as 0.5,0.8")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--resume", action="store_true", help="go on where jobs were")
    options = parser.parse_args()
    # Multiplications in 19 bits where a GPU has them: several times as fast, and enough to learn by.
    torch.set_float32_matmul_precision("high")
    given = {
        "check_epochs": options.check,
        "batch_size": options.batch,
        "epochs": options.epochs,
        "learning_rate": options.rate,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if options.minutes is not None:
        changes = {"epochs": None, **changes, "minutes": options.minutes}
    try:
        budget = Part.parse(options.budget).build("budget") if options.budget else None
        share = AdversarialShare.parse(options.share) if options.share else None
        for name in find_variants(options.jobs):
            variant = adjust(VARIANTS[name], sigma=options.sigma, budget=budget, share=share)
            variant = replace(variant, recipe=replace(variant.recipe, seed=options.seed, **changes))
            train_variant(
                name, variant, options.pack, options.out, device=options.device, resume=options.resume
            )
    except SottovoceError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
