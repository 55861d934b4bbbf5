"""Train the four variants of the learned ear on one answers folder: pre, lin, fin and scratch.

    python tools/train_metric.py answers/ --classes words.npz speakers.npz@speakers sounds --out weights/ \
        --seconds 280

Answers come from tools/make_judgements.py, or from a listening test. --classes are packs for "pre", whose
labels are told apart, or after @speakers the speakers; "sounds" stands for those that sottovoce makes itself.
Every variant leaves learned-VARIANT.safetensors as soon as it is done; metrics.json and the card learned.md
tell of all so far.
--seconds is the time of everything together after the data have been read; variants share it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch

from sottovoce.data.pack import FULL_SCALE, Pack, load_pack
from sottovoce.data.sound_recipes import SAMPLE_RATE
from sottovoce.data.synthetic_sounds import made, synthesise
from sottovoce.errors import SottovoceError
from sottovoce.perception.ears.learned_network import LearnedNetwork
from sottovoce.perception.jnd.answers import AnswerSummary, read_answers
from sottovoce.training.checkpoint import write_whole
from sottovoce.training.ear.pretrain_ear import Column, Task, train_classes
from sottovoce.training.ear.pretrain_ear import PretrainRecipe as ClassRecipe
from sottovoce.training.ear.train_ear import (
    AnswerSplits,
    EarRecipe,
    EarReport,
    Variant,
    new_network,
    prepare,
    train_to,
)

SHARES = {"classes": 0.22, "lin": 0.16, "fin": 0.3, "scratch": 0.32}
SOUNDS_EACH = {"train": 120, "valid": 20}


def log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def sounds_pack() -> Pack:
    """Synthesised sounds of ten classes, made on all cores."""
    entries = [(split, entry) for split, each in SOUNDS_EACH.items() for entry in made(split, each)]
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as workers:
        ids, labels = zip(*((entry.id, entry.label) for _, entry in entries), strict=True)
        clips = list(workers.map(synthesise, ids, labels, chunksize=20))
    samples = [np.rint(clip * (FULL_SCALE - 1)).astype(np.int16) for clip in clips]
    blank = np.full(len(clips), "")
    return Pack(
        samples=np.concatenate(samples),
        lengths=np.array([len(one) for one in samples], dtype=np.int64),
        ids=np.array(ids, dtype=str),
        labels=np.array(labels, dtype=str),
        split=np.array([split for split, _ in entries], dtype=str),
        speakers=blank,
        sample_rate=SAMPLE_RATE,
    )


def open_pack(spec: str) -> Pack:
    file = spec.partition("@")[0]
    return sounds_pack() if file == "sounds" else load_pack(file)


def as_task(spec: str, pack: Pack, device: torch.device) -> Task:
    column: Column = "speakers" if spec.endswith("@speakers") else "labels"
    return Task.of(Path(spec.partition("@")[0]).stem, pack, column, device)


class Trainer:
    """What is trained so far, and where it is told."""

    def __init__(self, material: AnswerSplits, out: Path, seconds: float, seed: int, batch: int) -> None:
        self.material, self.out, self.seconds, self.seed, self.batch = material, out, seconds, seed, batch
        self.told: dict[str, object] = {}

    def tell(self, name: str, what: object) -> None:
        self.told[name] = what
        text = json.dumps(self.told, indent=1)
        write_whole(self.out / "metrics.json", lambda path: path.write_text(text + "\n", encoding="utf-8"))

    def write_card(self, reports: list[EarReport], classes: dict[str, float], summary: AnswerSummary) -> None:
        text = card(reports, classes, summary)
        write_whole(self.out / "learned.md", lambda path: path.write_text(text, encoding="utf-8"))

    def train(self, variant: Variant, network: LearnedNetwork, *, resume: bool) -> EarReport:
        seconds = SHARES.get(variant, 0.0) * self.seconds
        rate = {"lin": 2e-3, "fin": 5e-4}.get(variant, 1e-3)
        recipe = EarRecipe(
            steps=None, seconds=seconds or 1.0, learning_rate=rate, seed=self.seed, batch=self.batch
        )
        report = train_to(
            self.out / f"learned-{variant}.safetensors",
            network,
            self.material,
            variant=variant,
            recipe=recipe,
            resume=resume,
            log=log,
        )
        self.tell(variant, report.to_json())
        return report


def card(reports: list[EarReport], classes: dict[str, float], summary: AnswerSummary) -> str:
    """What the weights are, for whoever uses them."""
    listeners = reports[0].listeners
    who = {
        "simulated": "**Trained on judgements of a documented simulated listener "
        "(`perception/ears/auditory.py`, after ITU-R BS.1387), not of people.** No human set of just "
        "noticeable differences could be had.",
        "people": "Trained on judgements of people.",
    }.get(listeners, "**Trained on judgements of people and of simulated listeners.**")
    rows = "\n".join(
        f"| {one.variant} | {100 * one.held_out.accuracy:.1f} | {one.held_out.auc:.3f} | "
        f"{100 * one.held_out.calibration:.1f} | {one.held_out.loss:.3f} | {one.slope:.2f} | {one.steps:,} |"
        for one in reports
    )
    held = reports[0].held_out
    told = ", ".join(f"{name} {100 * one:.1f} %" for name, one in classes.items()) or "none"
    return CARD.format(
        who=who, rows=rows, summary=summary, answers=held.answers, pairs=held.pairs, classes=told
    )


CARD = """# The learned ear: weights

{who}

What it gives: a distance of two clips in just noticeable differences, and P(different) of an attentive
listener at that distance, one half at 1. It has not been calibrated on people: where it says 50 %, half of
the *simulated* listeners answered "different".

## Data
{summary}.
Clips are 1 to 2 s of read English speech and spoken words (LibriSpeech and Speech Commands, both CC BY 4.0;
AudioMNIST, MIT) and their changed versions along the perturbations of
`perception/degradations/perturbation_space.py`, gain, small
shifts and shaped noise. Speakers of the training, validation and test answers are different ones.
Features of pre, lin and fin were first trained to classify words, speakers (AudioMNIST) and synthesised
sounds; held-out accuracy: {classes}.

## Figures
On {answers:,} held-out answers about {pairs:,} pairs of clips. Answers near threshold are a coin's, so that
no metric comes near 100 %.

| variant | accuracy, % | AUC | calibration error, % | loss, nats | slope | steps |
|---|---:|---:|---:|---:|---:|---:|
{rows}

pre: features of the classifiers, only the just noticeable difference is fitted. lin: their weights are
trained too. fin: everything is, beginning with them. scratch: everything is, from nothing.

## Limits
- It knows what its simulated listener knows: no phase, no binaural hearing, no meaning of words, no music.
- Nothing above 8 kHz is heard. A sine of full scale is taken to play at 92 dB SPL.
- Clips are compared where they are: align them first. A shift of a millisecond counts for
  more than half a just noticeable difference.
- An attack that is bounded by it may fool it too: check against the masking model.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("answers", help="answers folder")
    parser.add_argument("--classes", nargs="*", default=["sounds"], help="packs for pre; PACK[@speakers]")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=280.0, help="of all training together")
    parser.add_argument("--batch", type=int, default=64, help="pairs a step")
    parser.add_argument("--variants", default="pre,lin,fin,scratch", help="those to train, in this order")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--resume", action="store_true", help="go on where variants were")
    options = parser.parse_args()
    # Multiplications in 19 bits where a GPU has them: enough to learn by. What is judged is 32 bits on a CPU.
    torch.set_float32_matmul_precision("high")
    try:
        run(options)
    except SottovoceError as error:
        sys.exit(f"error: {error}")


def run(options: argparse.Namespace) -> None:
    wanted = options.variants.split(",")
    device = torch.device(options.device)
    options.out.mkdir(parents=True, exist_ok=True)
    # Sounds are made in other processes, which must start before a GPU is in use.
    packs: dict[str, Pack] = {}
    if {"pre", "lin", "fin"} & set(wanted):
        log(f"reading classes: {', '.join(options.classes)}")
        packs = {spec: open_pack(spec) for spec in options.classes}
    log("reading answers")
    answers = read_answers(options.answers)
    log(str(answers.summary()))
    material = prepare(answers, device, log)
    trainer = Trainer(material, options.out, options.seconds, options.seed, options.batch)
    trainer.tell("answers", answers.summary()._asdict())
    pre = new_network(options.seed).to(device)
    classes: dict[str, float] = {}
    if packs:
        tasks = [as_task(spec, pack, device) for spec, pack in packs.items()]
        recipe = ClassRecipe(steps=None, seconds=SHARES["classes"] * options.seconds, seed=options.seed)
        classes = train_classes(pre, tasks, recipe, log)
        trainer.tell("classes", classes)
    reports: list[EarReport] = []
    for variant in wanted:
        network = new_network(options.seed + 1) if variant == "scratch" else deepcopy(pre)
        reports.append(trainer.train(variant, network, resume=options.resume))
        trainer.write_card(reports, classes, answers.summary())
    log(f"done: {', '.join(sorted(path.name for path in options.out.glob('*.safetensors')))}")


if __name__ == "__main__":
    main()
