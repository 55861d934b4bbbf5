"""Pack strings of recorded commands by speakers whom the recogniser never heard, to judge its defenses.

    python tools/pack_strings.py recogniser-pack/ strings.npz --strings 100 --words 4 6

The folder is what tools/pack_recogniser.py made; its test words are put together as in the recogniser's own
test, with light noise and a peak of 0.9. The pack is a corpus: `--data pack:strings.npz`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from sottovoce.data.load import Clip
from sottovoce.data.pack import save_pack
from sottovoce.training.recogniser.recogniser_errors import EVALUATION_SNR_DB, add_noise
from sottovoce.training.recogniser.recogniser_pack import load_pack
from sottovoce.training.recogniser.word_strings import SAMPLE_RATE, ItemBank, Style, draw_plan, render

PEAK = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--strings", type=int, default=100)
    parser.add_argument("--words", type=int, nargs=2, default=(4, 6), metavar=("FEWEST", "MOST"))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    data = load_pack(asked.folder)
    bank = ItemBank(data.part(data.split == "test"))
    style = Style(words=tuple(asked.words))
    plan = draw_plan(bank, np.random.default_rng(asked.seed), style, strings=asked.strings)
    waveforms, lengths = render(bank, plan)
    noise = torch.Generator().manual_seed(asked.seed)
    heard = add_noise(waveforms, lengths, EVALUATION_SNR_DB, noise)
    heard = heard * (PEAK / heard.abs().amax(dim=1, keepdim=True))
    steps = (heard * 32768).round().clamp(-32768, 32767) / 32768
    clips = [
        Clip(f"string-{row:03d}", steps[row, : int(lengths[row])], SAMPLE_RATE, plan.texts[row])
        for row in range(asked.strings)
    ]
    save_pack(asked.out, clips, "test")


if __name__ == "__main__":
    main()
