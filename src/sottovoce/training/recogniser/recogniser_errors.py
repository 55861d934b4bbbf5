"""What a recogniser is judged by: clips with light noise, and the errors in what it makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from sottovoce.core.statistics import Interval, ratio_bootstrap
from sottovoce.targets.adapters.unpadded_layers import inside
from sottovoce.targets.families.ctc import greedy_tokens
from sottovoce.targets.zoo.conformer import BLANK, Conformer
from sottovoce.targets.zoo.recogniser_targets import VOCABULARY
from sottovoce.training.coloured_noise import coloured_noise, uniform
from sottovoce.training.recogniser.word_strings import ItemBank, Style, draw_plan, read_out, render, rms

EVALUATION_SEED = 20_201_025
EVALUATION_SNR_DB = (20.0, 40.0)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Word and character errors of some clips over their words and characters, with 95 % intervals (bootstrap
    over clips)."""

    clips: int
    wer: Interval
    cer: Interval


@dataclass(frozen=True)
class JudgedClips:
    """Clips to be judged by: waveforms `(clips, time)`, lengths `(clips,)` and texts."""

    waveforms: Tensor
    lengths: Tensor
    texts: tuple[str, ...]


def add_noise(
    waveforms: Tensor,
    lengths: Tensor,
    snr_db: tuple[float, float],
    generator: torch.Generator,
    share: float = 1.0,
) -> Tensor:
    """Coloured noise on a share of the rows `(rows, time)`, none past their ends."""
    rows = len(waveforms)
    noise = coloured_noise(uniform(rows, (-6.0, 1.0), generator), waveforms.shape[1], generator)
    level = rms(waveforms, lengths) * 10.0 ** (-uniform(rows, snr_db, generator) / 20.0)
    noisy = uniform(rows, (0.0, 1.0), generator) < share
    return waveforms + noise * (level * noisy).unsqueeze(1) * inside(lengths, waveforms.shape[1])


def listen(bank: ItemBank, *, strings: int = 0, seed: int = EVALUATION_SEED) -> JudgedClips:
    """Clips to judge by: random strings of a bank, or its sentences in order; light noise on both.

    The bank's device is the CPU, so that a seed gives the same clips everywhere.
    """
    plan = read_out(bank, bank.sentences)
    if strings:
        plan = draw_plan(bank, np.random.default_rng(seed), Style(), strings=strings)
    waveforms, lengths = render(bank, plan)
    heard = add_noise(waveforms, lengths, EVALUATION_SNR_DB, torch.Generator().manual_seed(seed))
    return JudgedClips(heard.clamp(-1.0, 1.0), lengths, plan.texts)


@torch.no_grad()
def transcribe(model: Conformer, heard: JudgedClips, *, rows: int = 50) -> list[str]:
    """What the model makes of each clip, letter by likeliest letter."""
    device = model.output.weight.device
    texts: list[str] = []
    for waveforms, lengths in zip(heard.waveforms.split(rows), heard.lengths.split(rows), strict=True):
        width = int(lengths.max())
        log_probs, frames = model(waveforms[:, :width].to(device), lengths.to(device))
        texts += [VOCABULARY.decode(tokens) for tokens in greedy_tokens(log_probs, frames, BLANK)]
    return texts


def judge(model: Conformer, heard: JudgedClips) -> Rates:
    """Word and character error rates; the model is in evaluation mode."""
    pairs = list(zip(transcribe(model, heard), heard.texts, strict=True))
    words = [(Levenshtein.distance(said.split(), meant.split()), len(meant.split())) for said, meant in pairs]
    letters = [(Levenshtein.distance(said, meant), len(meant)) for said, meant in pairs]
    return Rates(clips=len(pairs), wer=ratio_bootstrap(words), cer=ratio_bootstrap(letters))
