"""ROVER beside NIST's program, on noisy transcripts of a sentence of twenty words.

    python benchmarks/rover.py        # prints a section for benchmarks/README.md

NIST's times are those of the C program `rover` of SCTK, process start and files included; it refuses more
than 50 transcripts.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from sottovoce.defenses.rover import rover

WORDS = 20
NIST = {16: "160 ms", 48: "2.8 s", 1000: "refused"}
GOAL_MS = {16: 2.0, 48: 10.0, 1000: 1000.0}
OTHERS = 2000


def noisy(count: int, *, share: float = 0.3, seed: int = 0) -> list[list[str]]:
    """Transcripts of one sentence in which `share` of the words is wrong: a third each is lost, replaced by
    another word, or followed by one."""
    source = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = []
        for place in range(WORDS):
            chance, other = source.random() / share, f"other{source.integers(OTHERS)}"
            if not 1 / 3 <= chance < 1:
                words.append(f"word{place}" if chance >= 1 else other)
            elif chance < 2 / 3:
                words += [f"word{place}", other]
        found.append(words)
    return found


def measure(repeats: int = 20) -> dict[int, float]:
    """Median milliseconds a vote by number of transcripts, machine code ready and each vote on its own."""
    rover(noisy(2))
    times = {}
    for count in NIST:
        votes = [noisy(count, seed=seed) for seed in range(repeats)]
        spent = []
        for hypotheses in votes:
            start = time.perf_counter()
            rover(hypotheses)
            spent.append(1000 * (time.perf_counter() - start))
        times[count] = float(np.median(spent))
    return times


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    print("## ROVER\n")
    print(f"Noisy transcripts of a sentence of {WORDS} words, three in ten of them wrong.\n")
    print("| transcripts | sottovoce | goal | NIST |\n|---:|---:|---:|---:|")
    for count, spent in measure(options.repeats).items():
        print(f"| {count:,} | {spent:.3g} ms | {GOAL_MS[count]:g} ms | {NIST[count]} |")


if __name__ == "__main__":
    main()
