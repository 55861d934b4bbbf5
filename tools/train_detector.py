"""Train detectors of pathological speech on one corpus, speaker by speaker apart, and keep one of them.

    python tools/train_detector.py pack:proxy.npz --note "PROXY: ..." --out detector.safetensors
    python tools/train_detector.py csv:clinic.csv --folds 10 --all --out mine.safetensors --device cuda

The CNN of Amiri and Kodrasi is trained on all speakers but those of two folds, which serve for validation and
for the test. --all goes through every fold; the file keeps the detector of the first. With --encoder and
--layer it is the detector of embeddings instead.
FILE.json beside the weights tells the settings, the speakers told right, and how each training went.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path

import torch

from sottovoce.core.draws import Draws
from sottovoce.data.corpora import open_corpus
from sottovoce.data.folds import Split, speaker_folds
from sottovoce.errors import SottovoceError
from sottovoce.metrics.speaker_votes import SpeakerVote, speaker_accuracy
from sottovoce.targets.adapters.speech_encoders import open_encoder
from sottovoce.targets.zoo.detector_targets import Detector, EmbeddingDetector, SegmentDetector, save_detector
from sottovoce.training.detector.detector_embeddings import EmbeddingCache, embed, train_embeddings
from sottovoce.training.detector.detector_material import Utterances
from sottovoce.training.detector.train_detector import FOR_EMBEDDINGS, FOR_SEGMENTS, Epoch, train_detector


def log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def tell(epoch: Epoch) -> None:
    log(
        f"train {epoch.train_loss:.3f}, validation {epoch.valid_loss:.3f} ({epoch.valid_accuracy:.1%}), "
        f"rate {epoch.learning_rate:g}, {epoch.seconds:.1f} s"
    )


def train(args: argparse.Namespace, data: Utterances, split: Split) -> tuple[Detector, list[Epoch]]:
    """A detector of either kind, and how its training went."""
    parts = data.by(split.train), data.by(split.valid)
    if args.encoder is None:
        recipe = replace(FOR_SEGMENTS, epochs=args.epochs or FOR_SEGMENTS.epochs)
        found = train_detector(*parts, seed=args.seed, device=args.device, recipe=recipe, tell=tell)
        return SegmentDetector(found.module), list(found.history)
    encoder = open_encoder(args.encoder, args.device)
    layer = encoder.layers if args.layer is None else args.layer
    cache = EmbeddingCache(args.cache) if args.cache else None
    recipe = replace(FOR_EMBEDDINGS, epochs=args.epochs or FOR_EMBEDDINGS.epochs)
    vectors = [embed(encoder, layer, part, cache) for part in parts]
    head = train_embeddings(*vectors, seed=args.seed, device=args.device, recipe=recipe, tell=tell)
    return EmbeddingDetector(encoder, layer, head.module), list(head.history)


@torch.no_grad()
def votes(detector: Detector, data: Utterances, speakers: frozenset[str], device: str) -> list[SpeakerVote]:
    """The soft votes of some speakers; each utterance counts once."""
    owner = dict(zip(data.clips.ids, data.speakers, strict=True))
    chances: dict[tuple[str, str], list[float]] = defaultdict(list)
    for some in data.by(speakers).in_order(8):
        found = detector.scores(some.batch.to(device), draws=Draws(0)).softmax(dim=1)
        for row, (name, label) in enumerate(zip(some.batch.ids, some.labels, strict=True)):
            chances[owner[name], label].append(float(found[row, detector.classes.index(label)]))
    return [
        SpeakerVote(speaker, label, sum(each) / len(each), len(each))
        for (speaker, label), each in sorted(chances.items())
    ]


def run(args: argparse.Namespace) -> None:
    corpus = open_corpus(args.data)
    data = Utterances.of(corpus, log=log)
    splits = speaker_folds(corpus, folds=args.folds, seed=args.seed)
    told: list[SpeakerVote] = []
    histories = []
    for place, split in enumerate(splits if args.all else splits[:1]):
        detector, history = train(args, data, split)
        told += votes(detector, data, split.test, args.device)
        histories.append([asdict(epoch) for epoch in history])
        right = speaker_accuracy(told)
        log(f"fold {place}: {right.value:.1%} of {right.n} speakers [{right.low:.1%}, {right.high:.1%}]")
        if place == 0:
            save_detector(args.out, detector, trained_on=args.note or corpus.name, half=args.half)
    about = {"data": args.data, "note": corpus.note, "folds": args.folds, "seed": args.seed}
    about |= {"speakers": speaker_accuracy(told)._asdict(), "votes": [asdict(vote) for vote in told]}
    args.out.with_suffix(".json").write_text(json.dumps(about | {"histories": histories}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", help="a corpus whose clips name their speakers, such as csv:manifest.csv")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--note", default="", help="what it was trained on, in words; kept in the file")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--all", action="store_true", help="train and test on every fold")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="at most so many; the paper's 100 if not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--half", action="store_true", help="write the weights in 16 bits")
    parser.add_argument("--encoder", help="wav2vec2:FOLDER, whisper:FILE.pt or recogniser")
    parser.add_argument("--layer", type=int, help="of the encoder; its last if not given")
    parser.add_argument("--cache", type=Path, help="a folder to keep embeddings in")
    try:
        run(parser.parse_args())
    except SottovoceError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
