"""Take a few clips of every class out of a keyword pack, as small as the hardened variants were trained on.

    python tools/thin_keyword_pack.py pack.npz keyword.npz

The first is what tools/pack_keyword.py made; the second is a pack in the form of `sottovoce.data.pack`, which
tools/train_variants.py takes and `--data pack:keyword.npz#test` opens. Synthetic voices are left out, and
training clips lose their 3 lowest bits, for a smaller file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from sottovoce.data.load import Clip
from sottovoce.data.pack import save_pack
from sottovoce.targets.zoo.keyword_cnn import SAMPLE_RATE
from sottovoce.training.keyword.keyword_pack import load_pack

EACH = {"train": 170, "valid": 25, "test": 40}
DROPPED_BITS = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    whole, random = load_pack(asked.pack), np.random.default_rng(asked.seed)
    recorded = np.isin(whole.source, ("real", "silence"))
    clips, splits = [], []
    for split, most in EACH.items():
        for label in np.unique(whole.labels):
            own = np.flatnonzero((whole.split == split) & (whole.labels == label) & recorded)
            for place in random.permutation(own)[:most]:
                steps = whole.clips[place]
                if split == "train":
                    steps = (steps >> DROPPED_BITS) << DROPPED_BITS
                waveform = torch.from_numpy(steps.astype(np.float32) / 32768)
                clips.append(Clip(f"{split}-{label}-{place}", waveform, SAMPLE_RATE, str(label)))
                splits.append(split)
    save_pack(asked.out, clips, splits)


if __name__ == "__main__":
    main()
