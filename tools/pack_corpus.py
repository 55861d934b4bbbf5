"""Pack any corpora into one file, so that training and audits can read them with NumPy alone.

    python tools/pack_corpus.py words.npz strings
    python tools/pack_corpus.py sounds.npz train=folder:sounds/train test=folder:sounds/test --limit 2000

Each corpus is what the command line takes after --corpus, with SPLIT= before it if it is one split of the
pack: train, valid or test. Labels, ids, speakers and languages are kept; an id that two splits share gets its
split before it. Clips that cannot be read are named and left out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace

from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Clip
from sottovoce.data.pack import SPLITS, save_pack
from sottovoce.errors import SottovoceError

CHUNK = 64


def read(spec: str, limit: int | None, sample_rate: int) -> list[Clip]:
    corpus = open_corpus(spec)
    clips = []
    for chunk in (corpus.limit(limit) if limit else corpus).chunks(CHUNK, sample_rate):
        clips += chunk.clips
        for failure in chunk.failures:
            print(f"left out {failure.id}: {failure.reason}", file=sys.stderr)
    return clips


def split_of(spec: str) -> tuple[str, str]:
    """A split, or "", and the corpus it is."""
    head, mark, rest = spec.partition("=")
    return (head, rest) if mark and head in SPLITS else ("", spec)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", help="the pack to write, OUT.npz")
    parser.add_argument("corpora", nargs="+", metavar="[SPLIT=]CORPUS", help="such as train=folder:DIR")
    parser.add_argument("--limit", type=int, help="at most so many clips of each corpus, balanced by label")
    parser.add_argument("--rate", type=int, default=16_000, metavar="HZ", help="sample rate of the pack")
    wanted = parser.parse_args()
    try:
        found = [
            (split, clip)
            for split, spec in map(split_of, wanted.corpora)
            for clip in read(spec, wanted.limit, wanted.rate)
        ]
        count = Counter(clip.id for _, clip in found)
        clips = [
            replace(clip, id=f"{split}/{clip.id}") if split and count[clip.id] > 1 else clip
            for split, clip in found
        ]
        made = save_pack(wanted.out, clips, [split for split, _ in found])
    except SottovoceError as error:
        sys.exit(str(error))
    minutes = len(made.samples) / made.sample_rate / 60
    splits = ", ".join(
        f"{name or 'no split'} {count}" for name, count in Counter(made.split.tolist()).items()
    )
    print(f"{wanted.out}: {len(made)} clips ({splits}), {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
