"""The speech enhancement beside real time: batches of sixteen clips of ten seconds.

python benchmarks/asnr.py           # prints a section for benchmarks/README.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.data.embedded import embedded
from sottovoce.defenses.enhancement import Asnr
from sottovoce.defenses.randomised_smoothing import Gaussian

RATE, SECONDS, CLIPS = 16000, 10, 16
SIGMA = 0.01


@dataclass(frozen=True)
class Speed:
    """Median seconds for the batch, and how many times faster than its audio plays."""

    seconds: float

    @property
    def times_real_time(self) -> float:
        return CLIPS * SECONDS / self.seconds


def noisy_speech() -> AudioBatch:
    """The shipped clips one after the other, each row from another place on, in smoothing noise."""
    corpus = embedded()
    clips = np.concatenate([corpus.load(entry, RATE).waveform for entry in corpus])
    rows = [np.roll(clips, -place * RATE)[: RATE * SECONDS] for place in range(CLIPS)]
    return Gaussian(sigma=SIGMA)(AudioBatch.of(rows, RATE), draws=Draws(0))


def measure(repeats: int = 9, device: str = "cpu") -> dict[str, Speed]:
    """Forward alone, and forward and backward, for an estimated and for a known noise."""
    batch = noisy_speech()
    batch = batch.with_waveforms(batch.waveforms.clamp(-1.0, 1.0)).to(device)
    kinds = {"estimate": Asnr(), "known sigma": Asnr(noise="gaussian", sigma=SIGMA)}
    found = {}
    for name, asnr in kinds.items():
        found[f"{name}, forward"] = Speed(_median(lambda asnr=asnr: forward(asnr, batch), repeats))
        both = _median(lambda asnr=asnr: forward_and_backward(asnr, batch), repeats)
        found[f"{name}, forward and backward"] = Speed(both)
    return found


def forward(asnr: Asnr, batch: AudioBatch) -> float:
    """A number out of the result, so that a device has to finish."""
    with torch.no_grad():
        return asnr(batch, draws=Draws(0)).waveforms.sum().item()


def forward_and_backward(asnr: Asnr, batch: AudioBatch) -> float:
    leaf = batch.waveforms.clone().requires_grad_()
    asnr(batch.with_waveforms(leaf), draws=Draws(0)).waveforms.square().sum().backward()
    assert leaf.grad is not None
    return leaf.grad.sum().item()


def _median(run: Callable[[], float], repeats: int) -> float:
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print("## Speech enhancement\n")
    print(
        f"{CLIPS} clips of {SECONDS} s at {RATE} Hz, {torch.get_num_threads()} threads, {options.device}.\n"
    )
    print("| noise | seconds | times real time |\n|---|---:|---:|")
    for name, speed in measure(options.repeats, options.device).items():
        print(f"| {name} | {speed.seconds:.3f} | {speed.times_real_time:.0f} |")


if __name__ == "__main__":
    main()
