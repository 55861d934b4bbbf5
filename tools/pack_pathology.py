"""Pack a corpus of pathological speech into one file that NumPy alone can read, up to a size.

    python tools/pack_pathology.py clinic.npz csv:manifest.csv
    python tools/pack_pathology.py proxy.npz proxy:librispeech:DIR+speechcommands:DIR --speakers 80

Speakers take turns, a clip at a time, until the samples fill the size; speakers, labels and splits are kept.
Clips that cannot be read are named and left out. A pack of patients' voices is as confidential as they are.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator

from sottovoce.data.clinical_corpora import clinical
from sottovoce.data.clinical_proxy import SEVERITY, SPEAKERS, proxy
from sottovoce.data.corpora import open_corpus
from sottovoce.data.folds import speaker_labels
from sottovoce.data.load import Clip, Corpus, Entry
from sottovoce.data.pack import save_pack
from sottovoce.errors import InputError, SottovoceError

BYTES = 2


def in_turn(corpus: Corpus) -> Iterator[Entry]:
    """The first clip of every speaker, then the second, and so on."""
    clips: dict[str, list[Entry]] = defaultdict(list)
    for entry in corpus:
        clips[entry.facts["speaker"]].append(entry)
    for turn in range(max(map(len, clips.values()))):
        yield from (own[turn] for own in clips.values() if turn < len(own))


def fill(corpus: Corpus, sample_rate: int, megabytes: float) -> list[Clip]:
    """As many clips as fit."""
    left = int(megabytes * 1e6)
    clips = []
    for entry in in_turn(corpus):
        try:
            clip = corpus.load(entry, sample_rate)
        except InputError as error:
            print(f"left out {entry.id}: {error}", file=sys.stderr)
            continue
        left -= BYTES * len(clip.waveform)
        if left < 0:
            print(f"full: {len(clips)} of {len(corpus)} clips", file=sys.stderr)
            break
        clips.append(clip)
    return clips


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", help="the pack to write, OUT.npz")
    parser.add_argument("corpus", help="such as pcgita:DIR, torgo:DIR, csv:FILE or proxy:CORPUS+CORPUS")
    parser.add_argument("--megabytes", type=float, default=24.0, help="of samples, before compression")
    parser.add_argument("--rate", type=int, default=16_000, metavar="HZ", help="sample rate of the pack")
    parser.add_argument("--speakers", type=int, default=SPEAKERS, help="of a proxy")
    parser.add_argument("--severity", type=float, nargs=2, default=SEVERITY, help="of a proxy, from and to")
    parser.add_argument("--seed", type=int, default=0, help="of a proxy")
    wanted = parser.parse_args()
    name, _, data = wanted.corpus.partition(":")
    try:
        if name == "proxy":
            corpus = proxy(data, wanted.speakers, tuple(wanted.severity), wanted.seed)
        else:
            corpus = clinical(open_corpus(wanted.corpus))
        labels = speaker_labels(corpus)
        clips = fill(corpus, wanted.rate, wanted.megabytes)
        made = save_pack(wanted.out, clips, [clip.facts.get("split", "") for clip in clips])
    except SottovoceError as error:
        sys.exit(str(error))
    counts = Counter(labels[name] for name in set(made.speakers.tolist()))
    minutes = len(made.samples) / made.sample_rate / 60
    print(f"{wanted.out}: {len(made)} clips of {dict(counts)} speakers, {minutes:.1f} minutes\n{corpus.note}")


if __name__ == "__main__":
    main()
