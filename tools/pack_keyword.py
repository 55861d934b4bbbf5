"""Pack recordings, made silence and synthetic voices into the one file that keyword training reads.

python tools/pack_keyword.py speech_commands/ pack.npz --synthetic voices.npz
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from sottovoce.training.keyword.keyword_pack import pack


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="holds train|valid|test/WORD/*.flac (or .ogg, .wav)")
    parser.add_argument("out", type=Path)
    parser.add_argument("--synthetic", type=Path, help="made by tools/make_clips.py --training")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    whole = pack(options.folder, options.out, synthetic=options.synthetic, seed=options.seed)
    for (split, label), count in sorted(Counter(zip(whole.split, whole.labels, strict=True)).items()):
        print(f"{split:6}{label:8}{count:6}")


if __name__ == "__main__":
    main()
