"""Pairs for an A/B listening test: which of two systems sounds better, their names hidden.

A folder gets `audio/ID.wav`, all equally loud, `pairs.csv` for whoever runs the test, who learns nothing from
it but which files to play, and `key.csv`, which says what they are and is to be opened after the answers.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.draws import Draws
from sottovoce.errors import StoreError
from sottovoce.studies.manocha2020.denoiser_setup import NOISY, SAMPLE_RATE, DenoiserSetup

LOUDNESS_LUFS = -27.0
PAIR_COLUMNS = ("pair", "reference", "a", "b")
KEY_COLUMNS = ("pair", "clip", "snr_db", "noise", "a_system", "b_system")
_LOUDEST = 0.98

Samples = NDArray[np.float64]


def export_pairs(bench: DenoiserSetup, ours: str, rivals: Sequence[str], folder: Path) -> int:
    """One pair of every mixture and rival, which of them is `a` at random; returns how many."""
    draws = Draws(bench.seed).turn("pairs")
    pairs, keys = [], []
    try:
        (folder / "audio").mkdir(parents=True, exist_ok=True)
        for row, one in enumerate(bench.mixed):
            sounds = {"clean": bench.clean.clip(row).double().numpy()}
            sounds |= {name: bench.heard[name].clip(row).double().numpy() for name in (ours, *rivals)}
            names = {system: _hide(draws, one.id, system) for system in sounds}
            for system, sound in level(sounds).items():
                _write(folder / "audio" / f"{names[system]}.wav", sound)
            for rival in rivals:
                pair = _hide(draws, one.id, f"{ours} {rival}")
                two = [ours, rival]
                if draws.turn("order").generator(pair).random() < 0.5:
                    two.reverse()
                pairs.append((pair, names["clean"], *(names[system] for system in two)))
                keys.append((pair, one.clip, f"{one.snr_db:g}", one.noise, *two))
        # Names are drawn, so their order says nothing.
        _table(folder / "pairs.csv", PAIR_COLUMNS, sorted(pairs))
        _table(folder / "key.csv", KEY_COLUMNS, sorted(keys))
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error}; choose another folder with --out.") from None
    return len(pairs)


def level(sounds: Mapping[str, Samples]) -> dict[str, Samples]:
    """Versions of one clip at one loudness, turned down together where a peak would not fit."""
    even = {name: sound * 10 ** ((LOUDNESS_LUFS - loudness(sound)) / 20) for name, sound in sounds.items()}
    peak = max(float(np.abs(sound).max()) for sound in even.values())
    return {name: sound * min(1.0, _LOUDEST / peak) for name, sound in even.items()} if peak else even


def loudness(sound: Samples) -> float:
    """Integrated loudness in LUFS; of what is too short or too soft for that, the RMS level."""
    import pyloudnorm

    found = -np.inf
    if len(sound) >= 0.4 * SAMPLE_RATE:
        with np.errstate(all="ignore"):
            found = float(pyloudnorm.Meter(SAMPLE_RATE).integrated_loudness(sound))
    if np.isfinite(found):
        return found
    power = float(np.mean(sound**2))
    return 10 * np.log10(power) if power > 0 else LOUDNESS_LUFS


def rivals_of(ours: str, bench: DenoiserSetup) -> list[str]:
    """All other systems that were run."""
    return [name for name in bench.heard if name not in (ours, NOISY)]


def _hide(draws: Draws, clip: str, what: str) -> str:
    return f"{draws.turn(what).key(clip, 8):016x}"


def _write(path: Path, sound: Samples) -> None:
    import soundfile

    soundfile.write(path, sound, SAMPLE_RATE, subtype="PCM_16")


def _table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
