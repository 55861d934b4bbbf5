"""Train the small recognisers of study O11: three of other seeds, and a relative that goes on from the first.

python tools/train_small_recognisers.py .carry/words docs/studies/weights/O11 --device cuda

Takes a folder of single words that tools/pack_recogniser.py made. The three are trained side by side, one
process each. The relative goes on from the first for a quarter of the steps, on other strings; with it,
transfer between relatives can be told from transfer between strangers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from sottovoce.training.recogniser.train_recogniser import RECIPES, train

SEEDS = (1, 2, 3)
RELATIVE_SEED = 11
RELATIVE_RATE = 5e-4


def train_one(name: str, seed: int, start: Path | None, options: argparse.Namespace) -> None:
    """One model: its weights and its report, by name, in the folder of all of them."""
    torch.set_num_threads(options.threads)
    recipe = RECIPES["small"]
    steps = options.steps
    if start is not None:
        recipe, steps = replace(recipe, learning_rate=RELATIVE_RATE), steps // 4
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        train(
            options.pack,
            made,
            steps=steps,
            seed=seed,
            device=options.device,
            recipe=recipe,
            log=partial(print, f"{name}:", flush=True),
            weights=start,
        )
        shutil.move(made / "recogniser.safetensors", options.out / f"{name}.safetensors")
        report = json.loads((made / "recogniser.json").read_text(encoding="utf-8"))
    (options.out / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    context = get_context("spawn")
    running = [
        context.Process(target=train_one, args=(f"seed-{seed}", seed, None, options)) for seed in SEEDS
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    train_one("seed-1-tuned", RELATIVE_SEED, options.out / "seed-1.safetensors", options)


if __name__ == "__main__":
    main()
