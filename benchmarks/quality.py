"""Quality metrics: fwSSNR and cepstral distance beside a loop over frames, and PESQ on one core and on all.

python benchmarks/quality.py           # prints a section for benchmarks/perception.md
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.core.processes import count_cores
from sottovoce.data.embedded import embedded
from sottovoce.metrics.pesq_workers import score_pairs
from sottovoce.metrics.segmental import segmental

RATE, SECONDS, CLIPS = 16000, 10, 64
SNR_DB = 20.0
LOOPED = 2  # clips for the loop over frames, which takes its time

CENTRES = [
    50,
    120,
    190,
    260,
    330,
    400,
    470,
    540,
    617.372,
    703.378,
    798.717,
    904.128,
    1020.38,
    1148.3,
    1288.72,
]
CENTRES += [1442.54, 1610.7, 1794.16, 1993.93, 2211.08, 2446.71, 2701.97, 2978.04, 3276.17, 3597.63]
WIDTHS = [70] * 7 + [77.3724, 86.0056, 95.3398, 105.411, 116.256, 127.914, 140.423, 153.823, 168.154, 183.457]
WIDTHS += [199.776, 217.153, 235.631, 255.255, 276.072, 298.126, 321.465, 346.136]

Samples = NDArray[np.float64]


def speech() -> tuple[Samples, Samples]:
    """The shipped clips one after the other, each row from another place on, clean and in white noise."""
    corpus = embedded()
    clips = np.concatenate([corpus.load(entry, RATE).waveform for entry in corpus]).astype(np.float64)
    clean = np.stack([np.roll(clips, -place * RATE // 2)[: RATE * SECONDS] for place in range(CLIPS)])
    noise = np.random.default_rng(0).standard_normal(clean.shape)
    gain = np.sqrt(np.mean(clean**2, axis=1) / np.mean(noise**2, axis=1) / 10 ** (SNR_DB / 10))
    return clean, np.clip(clean + gain[:, None] * noise, -1.0, 1.0)


def batched(clean: Samples, changed: Samples) -> tuple[Samples, Samples]:
    lengths = torch.full((len(clean),), clean.shape[1])
    found = segmental(torch.from_numpy(clean), torch.from_numpy(changed), lengths, sample_rate=RATE)
    return found.fwssnr_db.numpy(), found.cd.numpy()


def looped(clean: Samples, changed: Samples) -> tuple[Samples, Samples]:
    """The same two figures as one would write them down: one clip and one frame after the other."""
    size, order = round(0.03 * RATE), 16
    step, points = size // 4, 2 ** math.ceil(math.log2(2 * size))
    window = 0.5 * (1 - np.cos(2 * np.pi * np.arange(1, size + 1) / (size + 1)))
    filters = critical_bands(points)
    snrs, distances = [], []
    for one, other in zip(clean, changed, strict=True):
        snr, distance = [], []
        for start in range(0, len(one) - size + 1, step):
            pair = [clip[start : start + size] * window for clip in (one, other)]
            snr.append(frame_snr(pair, filters, points))
            cepstra = [cepstrum(predict(frame, order)) for frame in pair]
            apart = 10 * math.sqrt(2) / math.log(10) * np.linalg.norm(cepstra[0] - cepstra[1])
            distance.append(min(10.0, apart))
        snrs.append(np.mean(snr))
        distances.append(np.mean(np.sort(distance)[: round(0.95 * len(distance))]))
    return np.array(snrs), np.array(distances)


def critical_bands(points: int) -> Samples:
    bins = np.arange(points // 2)
    filters = np.zeros((len(CENTRES), len(bins)))
    for row, (centre, width) in enumerate(zip(CENTRES, WIDTHS, strict=True)):
        place, spread = math.floor(centre * points / RATE), width * points / RATE
        filters[row] = np.exp(-11 * ((bins - place) / spread) ** 2) * WIDTHS[0] / width
    return np.where(filters > math.exp(-30 / (2 * 2.303)), filters, 0.0)


def frame_snr(pair: list[Samples], filters: Samples, points: int) -> float:
    bands = []
    for frame in pair:
        spectrum = np.abs(np.fft.rfft(frame, points))[:-1]
        bands.append(filters @ (spectrum / spectrum.sum()))
    noise = np.maximum((bands[0] - bands[1]) ** 2, np.finfo(float).eps)
    weight = bands[0] ** 0.2
    snr = np.sum(weight * 10 * np.log10(bands[0] ** 2 / noise)) / np.sum(weight)
    return float(np.clip(snr, -10, 35))


def predict(frame: Samples, order: int) -> Samples:
    lags = np.array([frame[: len(frame) - lag] @ frame[lag:] for lag in range(order + 1)])
    found, error = np.array([1.0]), lags[0]
    for place in range(1, order + 1):
        reflection = -(found @ lags[place:0:-1]) / error
        longer = np.append(found, 0.0)
        found = longer + reflection * longer[::-1]
        error *= 1 - reflection**2
    return found


def cepstrum(found: Samples) -> Samples:
    values = np.zeros(len(found))
    for place in range(1, len(found)):
        known = np.arange(1, place)
        values[place] = -found[place] - np.sum(known * values[1:place] * found[place - 1 : 0 : -1]) / place
    return values[1:]


def compare_loops(clean: Samples, changed: Samples, repeats: int) -> None:
    whole = batched(clean, changed)
    for ours, theirs in zip(whole, looped(clean[:LOOPED], changed[:LOOPED]), strict=True):
        np.testing.assert_allclose(ours[:LOOPED], theirs, rtol=1e-6)
    ratios, speeds = [], []
    for _ in range(repeats):  # in turns, so that a busy machine slows both
        slow = seconds(lambda: looped(clean[:LOOPED], changed[:LOOPED])) / LOOPED
        fast = seconds(lambda: batched(clean, changed)) / CLIPS
        ratios.append(slow / fast)
        speeds.append((SECONDS / slow, SECONDS / fast))
    slow, fast = np.median(speeds, axis=0)
    print(f"fwSSNR and cepstral distance of {CLIPS} clips of {SECONDS} s at {RATE} Hz in one batch, beside a")
    print(f"loop over frames in numpy (timed on {LOOPED} of the clips; same figures to a millionth).\n")
    print("| | times real time |\n|---|---:|")
    print(f"| loop over frames | {slow:,.0f} |\n| batched | {fast:,.0f} |\n")
    print(f"**Ratio {np.median(ratios):.1f}** (median of {repeats} turns).\n")


def compare_workers(clean: Samples, changed: Samples, repeats: int) -> None:
    pairs = list(zip(clean[:16].astype(np.float32), changed[:16].astype(np.float32), strict=True))
    cores = count_cores()
    counts = sorted({1, cores})
    for count in counts:
        score_pairs(pairs[:count], RATE, "wb", workers=count)  # workers start
    taken = {count: [] for count in counts}
    for _ in range(repeats):
        for count in counts:
            taken[count].append(seconds(lambda count=count: score_pairs(pairs, RATE, "wb", workers=count)))
    print(f"PESQ (wide band) of {len(pairs)} clips of {SECONDS} s, in processes of its own.\n")
    print("| workers | seconds | times real time |\n|---:|---:|---:|")
    for count in counts:
        median = float(np.median(taken[count]))
        print(f"| {count} | {median:.2f} | {len(pairs) * SECONDS / median:.0f} |")
    ratio = np.median(np.array(taken[1]) / np.array(taken[cores]))
    print(f"\n**{cores} workers are {ratio:.2f} times as fast as one.**")


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    clean, changed = speech()
    print("## Quality metrics\n")
    print(f"{os.cpu_count()} cores, torch on {torch.get_num_threads()} threads, numpy on one, no GPU.\n")
    compare_loops(clean, changed, repeats)
    compare_workers(clean, changed, repeats)


if __name__ == "__main__":
    main()
