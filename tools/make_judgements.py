"""Simulate a collection of same-different answers over real speech, to train a metric where nobody answered.

    python tools/make_judgements.py OUT librispeech:DIR speechcommands:DIR --processes 16 --device cuda

Each corpus is what the command line takes after --corpus; all splits of Speech Commands are read. Speakers
are shared out over train, valid and test. Every answer is marked as simulated. Degradations that cannot be
made here, such as MP3 where there is no encoder, are named and left out.
"""

from __future__ import annotations

import argparse
import sys
import time

from sottovoce.core.draws import Draws
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Corpus
from sottovoce.data.speech_commands import speech_commands
from sottovoce.errors import SottovoceError
from sottovoce.perception.jnd.references import Cut, cut_references
from sottovoce.perception.jnd.simulated_answers import Collection, find_impossible, simulate


def read(spec: str) -> Corpus:
    name, _, folder = spec.partition(":")
    if name != "speechcommands":
        return open_corpus(spec)
    parts = [speech_commands(folder, split=split) for split in ("train", "valid", "test")]
    # Names are told apart by the split alone where two splits share one; "silence" is no speech.
    entries = {entry.id: entry for part in parts for entry in part if entry.label != "silence"}
    return Corpus(name, tuple(entries.values()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", help="the answers folder to write")
    parser.add_argument(
        "corpora", nargs="+", metavar="CORPUS", help="such as librispeech:DIR or pack:FILE.npz"
    )
    parser.add_argument("--pairs", type=int, default=2000, help="references, each changed along one path")
    parser.add_argument("--people", type=int, default=4, help="simulated people who judge each pair")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="where the ear is: cpu or cuda")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    start = time.monotonic()
    told = [0.0]

    def tell(share: float, what: str) -> None:
        now = time.monotonic()
        if now - told[0] > 5 or share == 1.0:
            told[0] = now
            print(f"{now - start:6.1f} s  {100 * share:3.0f} %  {what}", file=sys.stderr, flush=True)

    try:
        without = find_impossible()
        for name, reason in without.items():
            print(f"left out {name}: {reason}", file=sys.stderr, flush=True)
        collection = Collection(people=wanted.people, seed=wanted.seed, without=tuple(without))
        corpora = [read(spec) for spec in wanted.corpora]
        references = cut_references(corpora, wanted.pairs, Cut(), Draws(wanted.seed).turn("references"))
        tell(0.0, f"{len(references):,} references cut")
        found = simulate(
            wanted.out,
            references,
            collection,
            processes=wanted.processes,
            device=wanted.device,
            tell=tell,
        )
    except SottovoceError as error:
        sys.exit(str(error))
    print(f"{wanted.out}: {found} (simulated listeners, not people); {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
