"""Certificates beside the bare model: what a noisy pass costs, and how long a clip takes.

    python benchmarks/certificates.py --device cuda       # prints a section for benchmarks/README.md

The bare pass is the model alone on a batch of the same size, from waveforms to class scores or token scores;
nothing is drawn, decoded or counted. A certificate's pass draws its noise, runs the model, reads what it says
and counts the event. Electing what is certified comes on top; it is in the time of the clip.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from sottovoce.targets.zoo.keyword_target import keyword

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import CtcFrames, Scores, Target
from sottovoce.data.embedded import embedded, strings
from sottovoce.data.load import Corpus
from sottovoce.defenses.certified_radius import Certificate, certify
from sottovoce.defenses.noisy_passes import Smoothed
from sottovoce.defenses.sampling_bounds import Count, Sampling
from sottovoce.targets.zoo.recogniser_targets import recogniser

RATE = 16_000
SIGMA = 0.01
Model = Literal["keyword", "recogniser"]
SECONDS: dict[Model, float] = {"keyword": 1.0, "recogniser": 5.0}
GOALS: dict[Model, tuple[int, float]] = {"keyword": (100_000, 20.0), "recogniser": (10_000, 60.0)}
"""Passes, and the seconds they may take on one H200."""


@dataclass(frozen=True)
class Cost:
    """Milliseconds a pass, and seconds for a clip with its election."""

    bare_ms: float
    pass_ms: float
    clip_seconds: float
    batch: int
    found: Certificate

    @property
    def ratio(self) -> float:
        return self.pass_ms / self.bare_ms


def speech(corpus: Corpus, seconds: float) -> AudioBatch:
    """Shipped clips one after the other, cut to a length."""
    samples: list[np.ndarray] = []
    for entry in list(corpus)[20:]:
        samples.append(np.asarray(corpus.load(entry, RATE).waveform))
        if sum(map(len, samples)) >= seconds * RATE:
            break
    return AudioBatch.of([np.concatenate(samples)[: round(seconds * RATE)]], RATE, ["clip"])


def measure(model: Model, device: str, *, passes: int, repeats: int = 3, batch: int | None = None) -> Cost:
    """The medians of some repeats, bare and certifying in turns."""
    target: Target = keyword(device) if model == "keyword" else recogniser(device)
    clip = speech(embedded() if model == "keyword" else strings(), SECONDS[model]).to(device)
    smoothed = Smoothed(target=target, sigma=SIGMA, batch=batch)
    rows = min(smoothed.rows(clip), passes)
    wer = None if model == "keyword" else 0.25
    turns = max(1, passes // rows)
    _, copies = next(clip.passes(rows, rows))
    sampling = Sampling(passes=passes)
    bare, counted, whole = [], [], []
    found = certify(smoothed, clip, Sampling(passes=2 * rows), wer=wer)
    for _ in range(repeats):
        bare.append(timed(lambda: run_bare(target, copies, turns), device) / (turns * rows))
        start = found.text, Count(sampling, SIGMA)
        spent = timed(lambda start=start: certify(smoothed, clip, sampling, wer=wer, resume=start), device)
        counted.append(spent / start[1].passes)
        whole.append(timed(lambda: certify(smoothed, clip, sampling, wer=wer), device))
    return Cost(
        bare_ms=1000 * float(np.median(bare)),
        pass_ms=1000 * float(np.median(counted)),
        clip_seconds=float(np.median(whole)),
        batch=rows,
        found=certify(smoothed, clip, sampling, wer=wer),
    )


def run_bare(target: Target, copies: AudioBatch, turns: int) -> None:
    with torch.no_grad():
        for _ in range(turns):
            if target.says == "class":
                target.capability(Scores).scores(copies, draws=Draws(0))
            else:
                target.capability(CtcFrames).log_probs(copies, draws=Draws(0))


def timed(work: Callable[[], object], device: str) -> float:
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch", type=int, help="noisy copies at once; default: what suits the device")
    parser.add_argument("--passes", type=int, help="default: 100,000 and 10,000; on a CPU 256")
    options = parser.parse_args()
    print("## Certificates\n")
    print(f"Noise of sigma {SIGMA} on {options.device}, at alpha 0.001; medians of {options.repeats}.\n")
    print("| model | clip | passes | a clip | goal | bare pass | certifying pass | ratio | batch | radius |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for model, (usual, goal) in GOALS.items():
        passes = options.passes or (256 if options.device == "cpu" else usual)
        cost = measure(model, options.device, passes=passes, repeats=options.repeats, batch=options.batch)
        radius = "abstains" if cost.found.radius is None else f"{cost.found.radius / SIGMA:.2f} sigma"
        wanted = f"{goal:.0f} s" if passes == usual else "–"
        row = [
            model,
            f"{SECONDS[model]:g} s",
            f"{cost.found.passes:,}",
            f"{cost.clip_seconds:.2f} s",
            wanted,
            f"{cost.bare_ms:.4f} ms",
            f"{cost.pass_ms:.4f} ms",
            f"**{cost.ratio:.2f}**",
            str(cost.batch),
            radius,
        ]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
