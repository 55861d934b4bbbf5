"""Packs for the classifiers of speakers and sounds, which NumPy alone can read.

    python tools/pack_sounds.py speakers audiomnist/ out/     # speaker.npz and speaker-test.npz
    python tools/pack_sounds.py sounds sounds.npz             # 2,600 synthesised clips, about 250 MB
    python tools/pack_sounds.py real noise/ sounds-real.npz   # NAME_1.flac and so on, for judging alone

Training and validation clips of speakers go through 8-bit mu-law, which makes their pack a third smaller;
test clips are lossless. All clips have a peak of 0.9.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sottovoce.data.load import Clip, Corpus, Entry
from sottovoce.data.pack import save_pack
from sottovoce.data.sound_corpora import audiomnist, levelled
from sottovoce.data.synthetic_sounds import made
from sottovoce.errors import SottovoceError
from sottovoce.targets.zoo.sound_cnn import CLASSES
from sottovoce.training.recogniser.recogniser_pack import from_mu_law, to_mu_law

RATE = 16_000
STEPS = 32768
SOUNDS_EACH = {"train": 200, "valid": 30, "test": 30}
VALID_SPEAKER_CLIPS = 600


def companded(clip: Clip) -> Clip:
    samples = (clip.waveform.numpy() * STEPS).astype(np.int16)
    heard = from_mu_law(to_mu_law(samples)).astype(np.float32) / STEPS
    return replace(clip, waveform=torch.from_numpy(heard))


def load(corpus: Corpus) -> list[Clip]:
    return [corpus.load(entry, RATE) for entry in corpus.entries]


def pack_speakers(folder: str, out: Path) -> None:
    train = [companded(clip) for clip in load(audiomnist(f"{folder}#train"))]
    valid = load(audiomnist(f"{folder}#valid").limit(VALID_SPEAKER_CLIPS))
    splits = ["train"] * len(train) + ["valid"] * len(valid)
    save_pack(out / "speaker.npz", train + [companded(clip) for clip in valid], splits)
    save_pack(out / "speaker-test.npz", load(audiomnist(f"{folder}#test")), "test")


def pack_sounds(out: Path) -> None:
    clips: list[Clip] = []
    splits: list[str] = []
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as workers:
        for split, each in SOUNDS_EACH.items():
            corpus = made(split, each)
            clips += workers.map(corpus.load, corpus.entries, [RATE] * len(corpus), chunksize=20)
            splits += [split] * len(corpus)
    save_pack(out, clips, splits)


def pack_real(folder: Path, out: Path) -> None:
    files = [(file, file.stem.rpartition("_")[0]) for file in sorted(folder.iterdir())]
    entries = [Entry(file.stem, file, name, source=levelled(file)) for file, name in files if name in CLASSES]
    save_pack(out, load(Corpus("real", tuple(entries))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name in ("speakers", "sounds", "real"):
        kind = kinds.add_parser(name)
        if name != "sounds":
            kind.add_argument("folder")
        kind.add_argument("out", type=Path)
    wanted = parser.parse_args()
    try:
        if wanted.kind == "speakers":
            pack_speakers(wanted.folder, wanted.out)
        elif wanted.kind == "real":
            pack_real(Path(wanted.folder), wanted.out)
        else:
            pack_sounds(wanted.out)
    except SottovoceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
