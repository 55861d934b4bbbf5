"""Pack recorded words and synthetic voices into the folder that the recogniser's training reads.

python tools/pack_recogniser.py speech_commands/ .carry/recogniser --hours 3
python tools/pack_recogniser.py speech_commands/ .carry/words --hours 0 --words 5500 --others 0.45

Needs what tools/make_clips.py needs. Every random choice is seeded. The voices of the embedded clips read the
test sentences and are heard nowhere else.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import soundfile
import soxr
from make_clips import EMBEDDED_VOICES, Voice, draw_voice, run_engine, to_int16

from sottovoce.targets.zoo.keyword_cnn import SAMPLE_RATE
from sottovoce.training.recogniser.recogniser_pack import (
    RecogniserPack,
    join,
    of_items,
    read_words,
    save_pack,
)
from sottovoce.training.recogniser.sentences import draw_sentence

SHORTEST_SECONDS, LONGEST_SECONDS = 0.6, 7.0
VALID_SENTENCES, TEST_SENTENCES = 120, 240
AMPLITUDE = 16_000
Job = tuple[Voice, str]


def read_aloud(job: Job) -> np.ndarray:
    """A sentence at 16 kHz, int16 `(time,)`, with 50 ms before and after it."""
    voice, text = job
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "speech.wav"
        run_engine(voice, text, wav)
        samples, rate = soundfile.read(wav, dtype="float64")
    samples = soxr.resample(samples, rate, SAMPLE_RATE) if rate != SAMPLE_RATE else samples
    heard = np.flatnonzero(np.abs(samples) > 0.01 * np.abs(samples).max())
    edge = np.zeros(SAMPLE_RATE // 20)
    speech = np.concatenate([edge, samples[heard[0] : heard[-1] + 1], edge])
    return to_int16(speech / np.abs(speech).max() * AMPLITUDE)


def draw_jobs(random: np.random.Generator, voices: tuple[Voice, ...], taken: set[str]) -> Iterator[Job]:
    """Endless voices with sentences that nobody has read; of `voices`, or of all others if there are none."""
    while True:
        voice = draw_voice(random)
        if voices:
            chosen = voices[random.integers(len(voices))]
            voice = replace(chosen, speed=random.uniform(0.85, 1.2))
        text = draw_sentence(random)
        if text not in taken:
            taken.add(text)
            yield voice, text


def read_sentences(
    jobs: Iterator[Job], split: str, *, seconds: float = 0.0, count: int = 0
) -> RecogniserPack:
    """Sentences until they last so many seconds in all, or until there are so many."""
    items: list[np.ndarray] = []
    read: list[Job] = []
    samples = 0
    with ThreadPoolExecutor(2) as pool:
        while samples < seconds * SAMPLE_RATE or len(items) < count:
            batch = list(islice(jobs, 64))
            for job, item in zip(batch, pool.map(read_aloud, batch), strict=True):
                if SHORTEST_SECONDS <= len(item) / SAMPLE_RATE <= LONGEST_SECONDS:
                    items.append(item)
                    read.append(job)
                    samples += len(item)
    keep = count or len(items)
    return of_items(
        items[:keep],
        texts=[text for _, text in read[:keep]],
        split=[split] * keep,
        kind=["sentence"] * keep,
        source=[voice.id for voice, _ in read[:keep]],
    )


def some_of(words: RecogniserPack, training: int | None, others: float, seed: int) -> RecogniserPack:
    """At most so many words of the training split, and a share of those of the other two, drawn at random."""
    random, chosen = np.random.default_rng(seed), list[np.ndarray]()
    for split in ("train", "valid", "test"):
        places = np.flatnonzero(words.split == split)
        count = training if split == "train" else round(others * len(places))
        chosen.append(np.sort(random.permutation(places)[:count]))
    return words.part(np.concatenate(chosen))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="holds train|valid|test/WORD/*.flac (or .ogg, .wav)")
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--hours", type=float, default=3.0, help="of synthetic training sentences; 0: words alone"
    )
    parser.add_argument("--words", type=int, help="of the training split, at most; default: all")
    parser.add_argument("--others", type=float, default=1.0, help="share of the words of the other splits")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random, taken = np.random.default_rng(options.seed), set[str]()
    packs = [some_of(read_words(options.folder), options.words, options.others, options.seed)]
    if options.hours > 0:
        jobs = draw_jobs(random, EMBEDDED_VOICES, taken)
        packs.append(read_sentences(jobs, "test", count=TEST_SENTENCES))
        jobs = draw_jobs(random, (), taken)
        packs.append(read_sentences(jobs, "valid", count=VALID_SENTENCES))
        packs.append(read_sentences(jobs, "train", seconds=options.hours * 3600))
    whole = join(packs)
    for path in save_pack(whole, options.out, parts=options.parts, seed=options.seed):
        print(f"{path} {path.stat().st_size / 2**20:.1f} MiB")
    for split, kind in sorted(Counter(zip(whole.split, whole.kind, strict=True))):
        chosen = (whole.split == split) & (whole.kind == kind)
        seconds = whole.lengths[chosen].sum() / SAMPLE_RATE
        print(f"{split:6}{kind:9}{chosen.sum():6} items {seconds / 3600:6.2f} h")


if __name__ == "__main__":
    main()
