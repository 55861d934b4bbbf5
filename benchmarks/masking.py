"""The masking threshold beside that of adversarial-robustness-toolbox, on one clip of ten seconds.

    python benchmarks/masking.py        # prints a section for benchmarks/README.md

Also how the two differ in decibels. ART's model takes every local maximum for a tone, looks up the Bark of a
masker's rank instead of its frequency when it thins them out, and has no noise maskers.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.data.embedded import embedded
from sottovoce.perception.masking.threshold import Masker, MaskingThreshold

RATE, SECONDS = 16000, 10
# Frames that begin before the clip: the other toolbox has none of them.
EARLY = 3


def speech() -> np.ndarray:
    """The shipped clips, one after the other."""
    corpus = embedded()
    clips = [corpus.load(entry, RATE).waveform for entry in list(corpus)[: 2 * SECONDS]]
    return np.concatenate([np.asarray(clip) for clip in clips])[: RATE * SECONDS].astype(np.float32)


def give_librosa() -> None:
    """ART asks librosa for one transform. Where that is not installed, torch's stands in; it is no slower."""

    def stft(clip: np.ndarray, *, n_fft: int, hop_length: int, window: np.ndarray, **_: object) -> np.ndarray:
        frame = torch.as_tensor(window, dtype=torch.float32)
        sound = torch.as_tensor(clip)
        found = torch.stft(sound, n_fft, hop_length, window=frame, center=False, return_complex=True)
        return found.numpy()

    try:
        import librosa  # noqa: F401
    except ImportError:
        stand_in = ModuleType("librosa")
        stand_in.core = SimpleNamespace(stft=stft)  # type: ignore[attr-defined]
        sys.modules["librosa"] = stand_in


def differences(ours: MaskingThreshold, theirs: np.ndarray) -> np.ndarray:
    """Ours less theirs in dB, over the cells of the frames that both have, from 20 Hz on."""
    shared = ours.db[0, :, EARLY : EARLY + theirs.shape[1]].numpy()
    return (shared - theirs)[3:]


def main() -> None:
    warnings.filterwarnings("ignore")
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    give_librosa()
    from art.attacks.evasion.imperceptible_asr.imperceptible_asr import PsychoacousticMasker

    clip = speech()
    batch = AudioBatch.of([clip], RATE).to(options.device)
    masker, other = Masker(RATE), PsychoacousticMasker()
    masker.threshold(batch)
    seconds: dict[str, list[float]] = {"sottovoce": [], "ART": []}
    for _ in range(options.repeats):
        start = time.perf_counter()
        for _ in range(10):
            masker.threshold(batch).power.sum().item()
        seconds["sottovoce"].append((time.perf_counter() - start) / 10)
        start = time.perf_counter()
        theirs, _ = other.calculate_threshold_and_psd_maximum(clip)
        seconds["ART"].append(time.perf_counter() - start)
    ratio = float(np.median(np.array(seconds["ART"]) / np.array(seconds["sottovoce"])))
    ours, slower = (float(np.median(seconds[side])) for side in ("sottovoce", "ART"))
    print("## Masking threshold\n")
    times = f"sottovoce {1000 * ours:.1f} ms, ART {slower:.2f} s"
    print(f"One clip of {SECONDS} s: {times}. **Ratio {ratio:.0f}.**\n")
    print("| sottovoce less ART, dB | median | 5 % | 95 % |\n|---|---:|---:|---:|")
    for spreading in ("iso", "two-slope"):
        found = Masker(RATE, spreading).threshold(batch.to("cpu"))
        low, middle, high = np.percentile(differences(found, theirs), [5, 50, 95])
        print(f"| spreading {spreading} | {middle:.1f} | {low:.1f} | {high:.1f} |")


if __name__ == "__main__":
    main()
