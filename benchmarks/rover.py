"""ROVER beside NIST's program, on noisy transcripts of a sentence of twenty words.

    python benchmarks/rover.py        # prints a section for benchmarks/README.md

NIST's program is `rover` of SCTK (Debian's package `sctk`), run on the same transcripts in the same run, the
start of its process included; it refuses more than 50 transcripts.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sottovoce.defenses.rover import rover

WORDS = 20
COUNTS = (16, 48, 1000)
GOAL_MS = {16: 6.0, 48: 40.0, 1000: 1000.0}
MOST_NIST = 50
NIST = shutil.which("rover", path="/usr/lib/sctk/bin")
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


def median_ms(vote: Callable[[list[list[str]]], object], count: int, repeats: int) -> float:
    """Median milliseconds of a vote over `count` transcripts, each time others."""
    spent = []
    for seed in range(repeats):
        hypotheses = noisy(count, seed=seed)
        start = time.perf_counter()
        vote(hypotheses)
        spent.append(1000 * (time.perf_counter() - start))
    return float(np.median(spent))


def nist_ms(count: int, repeats: int) -> float:
    """The same of NIST's program; its files are written beforehand."""
    spent = []
    for seed in range(repeats):
        with TemporaryDirectory() as folder:
            words = [str(NIST), "-m", "avgconf", "-a", "1.0", "-o", f"{folder}/out", "-f", "0"]
            for number, hypothesis in enumerate(noisy(count, seed=seed)):
                lines = [f"a 1 {0.5 * place:.2f} 0.40 {word} 1.0" for place, word in enumerate(hypothesis)]
                Path(folder, f"{number}.ctm").write_text("\n".join(lines) + "\n")
                words += ["-h", f"{folder}/{number}.ctm", "ctm"]
            start = time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            spent.append(1000 * (time.perf_counter() - start))
    return float(np.median(spent))


def first_call_ms() -> float:
    """The first vote of a fresh process, imports left out."""
    code = (
        "import time; from sottovoce.defenses.rover import rover; start = time.perf_counter(); "
        "rover([['a', 'b'], ['a', 'c'], ['a', 'b']]); print(1000 * (time.perf_counter() - start))"
    )
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    print("## ROVER\n")
    print(f"Noisy transcripts of a sentence of {WORDS} words, three in ten of them wrong.\n")
    print("| transcripts | sottovoce | goal | NIST |\n|---:|---:|---:|---:|")
    for count in COUNTS:
        spent = median_ms(rover, count, options.repeats)
        nist = "refused" if count > MOST_NIST else "not installed"
        if NIST and count <= MOST_NIST:
            nist = f"{nist_ms(count, options.repeats):.3g} ms"
        print(f"| {count:,} | {spent:.3g} ms | {GOAL_MS[count]:g} ms | {nist} |")
    print(f"\nThe first vote of a process takes {first_call_ms():.3g} ms.")


if __name__ == "__main__":
    main()
