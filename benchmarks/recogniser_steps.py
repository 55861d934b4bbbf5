"""Gradient steps a second on recognisers, in single precision and under bfloat16 autocast.

    python benchmarks/recogniser_steps.py --whisper tiny.pt --device cuda

A step is one forward and backward pass of a batch of 16 clips of 10 seconds, as PGD takes it. The second
model has the size of wav2vec2-base and random weights, which cost the same.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch

from sottovoce.core.attack import climb
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import Target
from sottovoce.targets.adapters.huggingface_ctc import HuggingFaceCtc
from sottovoce.targets.adapters.whisper import load_whisper
from sottovoce.targets.families.ctc import Vocabulary
from sottovoce.targets.families.front_ends import RawWaveform

CLIPS, SECONDS, RATE = 16, 10, 16_000
TEXT = "the quick brown fox jumps over the lazy dog and runs away into the dark forest"


def wav2vec2_base(device: str) -> HuggingFaceCtc:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    letters = ("", *"abcdefghijklmnopqrstuvwxyz '")
    module = Wav2Vec2ForCTC(Wav2Vec2Config(vocab_size=len(letters), pad_token_id=0)).eval().to(device)
    front = RawWaveform(normalise=True)
    return HuggingFaceCtc(module.requires_grad_(False), front, Vocabulary(letters, case="lower"), RATE)


def steps_a_second(target: Target, device: str, half: bool, turns: int) -> float:
    source = torch.Generator().manual_seed(0)
    noise = 0.1 * torch.randn(CLIPS, SECONDS * RATE, generator=source)
    batch = AudioBatch.of(list(noise.clamp(-1, 1)), RATE).to(device)
    goal = Evade().bind([TEXT] * CLIPS)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16) if half else nullcontext():
            climb(target, batch, torch.zeros_like(batch.waveforms), goal, Draws(0))

    for _ in range(2):
        step()
    wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(turns):
        step()
    wait()
    return turns / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--whisper", required=True, help="a .pt file, a folder or a hub id")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=20)
    asked = parser.parse_args()
    rows = {}
    for half in (False, True):
        precision = "bfloat16" if half else "float32"
        whisper = load_whisper(asked.whisper, asked.device, language="en", autocast=half)
        rows[f"Whisper tiny, {precision}"] = steps_a_second(whisper, asked.device, False, asked.turns)
        base = wav2vec2_base(asked.device)
        rows[f"wav2vec2-base size, {precision}"] = steps_a_second(base, asked.device, half, asked.turns)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
