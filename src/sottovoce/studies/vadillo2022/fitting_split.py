"""Which clips a perturbation is fitted on, and which it is judged on: never the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import soundfile

from sottovoce.core.draws import Draws
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Entry
from sottovoce.data.speech_commands import speech_commands
from sottovoce.errors import InputError
from sottovoce.studies.study import StudySetting
from sottovoce.targets.zoo.keyword_cnn import SAMPLE_RATE
from sottovoce.training.keyword.keyword_pack import SILENCE_CLIPS, make_silence

SPEECH_COMMANDS = "speechcommands"
FIT_SHARE = 0.6
"""Of each class, where the data has no splits of its own."""
SILENCE = "silence"

Pools = Mapping[str, tuple[Entry, ...]]


@final
@dataclass(frozen=True)
class FittingSplit:
    """Clips by class: `fit` to draw training sets from, `valid` to judge on. `note` is shown on pages."""

    note: str
    fit: Pools
    valid: Pools
    setting: StudySetting

    def fit_set(self, label: str, number: int) -> list[Entry]:
        """The training set of one perturbation: sets are drawn apart, so that they overlap by chance."""
        return _draw(self.fit[label], self._draws("set", number), label, self.setting.scale.fit_clips)

    def valid_set(self, label: str) -> list[Entry]:
        return _draw(self.valid[label], self._draws("valid"), label, self.setting.scale.valid_clips)

    def _draws(self, *turn: str | int) -> Draws:
        return Draws(self.setting.seed).turn("study", *turn)


def check_data(setting: StudySetting) -> None:
    """Refuse the full scale on data that cannot carry it, before anything is loaded."""
    name, _, path = setting.data.partition(":")
    if setting.scale.name == "full" and (name != SPEECH_COMMANDS or not path):
        raise InputError(
            f"--scale full needs 1,000 training clips per class, so --data {SPEECH_COMMANDS}:DIR, got "
            f"{setting.data!r}; give that corpus, or --scale mini."
        )


def open_material(setting: StudySetting, classes: Iterable[str], made: Path) -> FittingSplit:
    """The clips of a setting, for these classes. Silence that it lacks is made, in the folder `made`."""
    name, _, path = setting.data.partition(":")
    if name == SPEECH_COMMANDS:
        train, valid = (speech_commands(path, split, setting.seed) for split in ("train", "valid"))
        fit, judged = _by_label(train.entries), _by_label(valid.entries)
        note = f"fitted on the train split, judged on the valid split; {valid.note}"
    else:
        corpus = open_corpus(setting.data)
        fit, judged = _shared_out(_by_label(corpus.entries), Draws(setting.seed).turn("study", "split"))
        note = f"of each class {FIT_SHARE:.0%} to fit on and the others to judge on; {corpus.note}"
    classes = list(classes)
    if SILENCE in classes and SILENCE not in judged and name == SPEECH_COMMANDS:
        fit[SILENCE], judged[SILENCE] = (_made(split, setting.seed, made) for split in ("train", "valid"))
        note += f"; silence: {len(fit[SILENCE])} and {len(judged[SILENCE])} clips of made noise"
    kept = [label for label in classes if fit.get(label) and judged.get(label)]
    if not kept:
        raise InputError(
            f"data {setting.data!r}: expected at least two clips of a class of the model "
            f"({', '.join(classes)}), got {', '.join(sorted(fit)) or 'none'}; give clips with such labels."
        )
    absent = [label for label in classes if label not in kept]
    note += f"; without clips: {', '.join(absent)}" if absent else ""
    pick = {label: fit[label] for label in kept}
    return FittingSplit(note.strip("; "), pick, {label: judged[label] for label in kept}, setting)


def open_test(setting: StudySetting, classes: Iterable[str], made: Path) -> tuple[Pools, str]:
    """Clips to score the model itself on, by class, with a note: the test split where the data has one."""
    name = setting.data.partition(":")[0]
    corpus = open_corpus(setting.data)
    pools, note = _by_label(corpus.entries), "all clips of the data"
    if name == SPEECH_COMMANDS:
        note = "the whole test split"
        if SILENCE not in pools:
            pools[SILENCE] = _made("test", setting.seed, made)
            note += f"; {SILENCE}: {len(pools[SILENCE])} clips of made noise"
    return {label: pools[label] for label in classes if label in pools}, note


def _draw(pool: tuple[Entry, ...], draws: Draws, label: str, count: int | None) -> list[Entry]:
    order = draws.generator(label).permutation(len(pool))[:count]
    return [pool[place] for place in sorted(order.tolist())]


def _by_label(entries: Iterable[Entry]) -> dict[str, tuple[Entry, ...]]:
    pools: dict[str, list[Entry]] = {}
    for entry in entries:
        pools.setdefault(entry.label, []).append(entry)
    return {label: tuple(pool) for label, pool in pools.items()}


def _shared_out(pools: Pools, draws: Draws) -> tuple[dict[str, tuple[Entry, ...]], ...]:
    fit, judged = {}, {}
    for label, pool in pools.items():
        mixed = [pool[place] for place in draws.generator(label).permutation(len(pool)).tolist()]
        cut = round(FIT_SHARE * len(pool))
        fit[label], judged[label] = tuple(mixed[:cut]), tuple(mixed[cut:])
    return fit, judged


def _made(split: str, seed: int, folder: Path) -> tuple[Entry, ...]:
    """Quiet noise of many colours and levels, as the shipped model was trained to take for silence."""
    count = SILENCE_CLIPS[split]
    entries = [
        Entry(f"{SILENCE}/{split}-{number:04d}", folder / f"{split}-{number:04d}.wav", SILENCE)
        for number in range(count)
    ]
    if not all(entry.path.exists() for entry in entries):
        folder.mkdir(parents=True, exist_ok=True)
        for entry, samples in zip(entries, make_silence(count, split, seed=seed).clips, strict=True):
            soundfile.write(entry.path, np.asarray(samples), SAMPLE_RATE, subtype="PCM_16")
    return tuple(entries)
