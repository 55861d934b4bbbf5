"""Examples of an earlier run, tried again: on another model, or behind a defense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.record import TRIALS, Record, latest, read_records
from sottovoce.core.target import Sight, Target
from sottovoce.data.load import load_clip
from sottovoce.errors import InputError


@final
@dataclass(frozen=True, kw_only=True)
class Replay(Attack):
    """The saved examples of a run, as they are: what fools one model may fool another.

    Nothing is searched and nothing is asked. A clip without an example fails. The clips are those of the run:
    `run:FOLDER`. Examples of a run on another grid than 16 bits are rounded to that.

    run: the folder of the run. cell: the id of the cell whose examples these are.

    >>> made = sv.audit("keyword", attacks="pgd(steps=20)", snr=20, limit=2, probe=0, out="made")
    >>> attack = sv.attacks.Replay(run="made", cell="pgd-steps-20_evade_snr-db-20")
    >>> sv.attack("keyword", sv.open_data("run:made", model="keyword"), attack, budget="snr(db=20)").achieved
    (True, True)
    """

    name: ClassVar[str] = "replay"

    run: str
    cell: str

    sees: ClassVar[Sight] = "decisions"

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return saved_perturbations(self.run, self.cell, clean)


@final
@dataclass(frozen=True, kw_only=True)
class ReplayNoise(Attack):
    """White noise as loud as each saved example of a run: what examples must beat that are tried again.

    run: the folder of the run. cell: the id of the cell whose examples are matched.

    >>> made = sv.audit("keyword", attacks="pgd(steps=20)", snr=20, limit=2, probe=0, out="made")
    >>> attack = sv.attacks.ReplayNoise(run="made", cell="pgd-steps-20_evade_snr-db-20")
    >>> sv.attack("keyword", sv.open_data("run:made", model="keyword"), attack, budget="snr(db=20)").achieved
    (False, False)
    """

    name: ClassVar[str] = "replay-noise"

    run: str
    cell: str

    sees: ClassVar[Sight] = "nothing"

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        found, noise = saved_perturbations(self.run, self.cell, clean), draws.normal(clean)
        loud, quiet = (each.square().sum(dim=1).sqrt() for each in (found, noise))
        return within(clean, noise * (loud / quiet.clamp_min(1e-12))[:, None])


def saved_perturbations(run: str, cell: str, clean: AudioBatch) -> Tensor:
    """What a run added to these clips in a cell, `(batch, time)`."""
    folder = Path(run).expanduser()
    places, found = saved_examples(folder, cell), torch.zeros_like(clean.waveforms)
    for row, (name, length) in enumerate(zip(clean.ids, clean.lengths.tolist(), strict=True)):
        if name not in places:
            raise InputError(f"{folder}: cell {cell!r} has no saved example of clip {name!r}.")
        example = load_clip(folder / places[name], clean.sample_rate, id=name, label="").waveform
        if len(example) != length:
            raise InputError(
                f"{folder}: expected an example of clip {name!r} with {length} samples, as the clip has, got "
                f"{len(example)}; take the clips of the run with --data run:{run}."
            )
        found[row, :length] = example.to(found) - clean.waveforms[row, :length]
    return found


def saved_examples(folder: Path, cell: str) -> Mapping[str, str]:
    """Where the examples of a cell lie, counted from the folder, by the ids of their clips."""
    file = folder / TRIALS
    if not file.is_file():
        raise InputError(f"{folder}: expected the folder of a run, got none; check the path.")
    found = _by_cell(file, file.stat().st_mtime_ns)
    if cell not in found:
        known = ", ".join(sorted(found)) or "none"
        raise InputError(
            f"{folder}: expected saved examples of cell {cell!r}, got none; cells that have some: {known}."
        )
    return found[cell]


@lru_cache(maxsize=4)
def _by_cell(file: Path, changed_ns: int) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for record in latest(read_records(file)):
        if is_example(record):
            found.setdefault(record.cell, {})[record.clip] = record.audio["adversarial"]
    return found


def is_example(record: Record) -> bool:
    """Whether a record has an example that can be tried again."""
    return record.status == "ok" and {"clean", "adversarial"} <= record.audio.keys()
