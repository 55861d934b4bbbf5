"""The learned distance on a pair of ten seconds: forward, forward and backward, and DPAM beside it.

    python benchmarks/learned.py --threads 2 [--dpam DIR]      # prints a section for benchmarks/perception.md

DPAM runs with its published weights where --dpam names their folder. Without trained weights of ours, random
ones stand in: they take as long.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.data.embedded import embedded
from sottovoce.perception.ears.dpam import Dpam
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.ears.learned import FOLDER, Learned
from sottovoce.perception.ears.learned_network import LearnedNetwork, save_network

RATE, SECONDS = 16_000, 10


def speech() -> np.ndarray:
    """The shipped clips, one after the other."""
    corpus = embedded()
    clips = [corpus.load(entry, RATE).waveform for entry in list(corpus)[: 2 * SECONDS]]
    return np.concatenate([np.asarray(clip) for clip in clips])[: RATE * SECONDS].astype(np.float32)


def our_ear(folder: str) -> Ear:
    if (FOLDER / "learned-scratch.safetensors").is_file():
        return Learned()
    path = Path(folder) / "random.safetensors"
    save_network(path, LearnedNetwork(), {"listeners": "none"})
    return Learned(weights=str(path))


def median_ms(work: Callable[[], object], repeats: int) -> float:
    work()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return 1000 * float(np.median(found))


def measure(ear: Ear, clean: AudioBatch, changed: AudioBatch, repeats: int) -> tuple[float, float]:
    """Milliseconds forward, and forward and backward to the changed clip."""

    def forward() -> None:
        with torch.no_grad():
            ear.heard(clean, changed)

    def both() -> None:
        waveforms = changed.waveforms.clone().requires_grad_()
        ear.distance(clean, changed.with_waveforms(waveforms)).sum().backward()

    return median_ms(forward, repeats), median_ms(both, repeats)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dpam", help="folder of DPAM's published weights")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clip = speech()
    noise = 0.003 * np.random.default_rng(0).standard_normal(len(clip)).astype(np.float32)
    clean, changed = (AudioBatch.of([one], RATE) for one in (clip, (clip + noise).clip(-1, 1)))
    with tempfile.TemporaryDirectory() as folder:
        ears: dict[str, Ear] = {"sottovoce": our_ear(folder)}
        if options.dpam:
            ears["DPAM"] = Dpam(weights=options.dpam)
        found = {name: measure(ear, clean, changed, options.repeats) for name, ear in ears.items()}
    print("## Learned distance\n")
    print(f"A pair of {SECONDS} s at 16 kHz, {options.threads} threads, median of {options.repeats}.\n")
    print("| ear | forward, ms | forward + backward, ms |\n|---|---:|---:|")
    for name, (forward, both) in found.items():
        print(f"| {name} | {forward:.0f} | {both:.0f} |")
    if "DPAM" in found:
        ratios = [theirs / ours for ours, theirs in zip(found["sottovoce"], found["DPAM"], strict=True)]
        print(
            f"\nDPAM, which resamples to 22.05 kHz, takes {ratios[0]:.1f} and {ratios[1]:.1f} times as long."
        )


if __name__ == "__main__":
    main()
