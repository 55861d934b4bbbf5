"""Where the study of sparsity is at work: its plans, and what stands beside them, run here or read back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import torch

from sottovoce import __version__
from sottovoce.attacks.apgd import Apgd
from sottovoce.attacks.carlini_wagner import CarliniWagner
from sottovoce.auditing.run.fitting_clips import open_settled, usable
from sottovoce.auditing.sparsity.sparsity_folder import SparseClip, SparsityFolder, SparsityRow, tabulate
from sottovoce.auditing.sparsity.sparsity_run import SparsityPlan, read_sparsity_plan, run_sparsity
from sottovoce.core.attack import Attack
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import Target
from sottovoce.data.load import collate
from sottovoce.errors import InputError
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.runs.recogniser_setup import RUNS, Bar
from sottovoce.studies.olivier2023.sparsity.sparsity_plans import VARIANTS, names_of_sparsity, o4
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale
from sottovoce.targets.open_target import find_device, open_target

QUIET_DB = 45
"""Where a hardened model is asked which clips it still gets right."""
SMALLEST = CarliniWagner(steps=40, binary_search=4)
STRONG = Apgd(steps=40)
AT_ONCE = 16
EXTRAS, SECONDS = "extras.json", "seconds.json"
Told = dict[str, dict[str, float | bool | None]]


@final
@dataclass(frozen=True)
class SparsityOutcome:
    """A plan that was run, with its records and its table, by the text of the budget."""

    plan: SparsityPlan
    records: list[SparseClip]

    def row(self, budget: str) -> SparsityRow | None:
        """What the clips amount to at a radius; None where that was not run."""
        for row in tabulate(self.plan.settings(), self.records):
            if row.setting.budget == budget and row.clips + row.wrong:
                return row
        return None

    def rows(self) -> list[SparsityRow]:
        return tabulate(self.plan.settings(), self.records)

    def clips(self, budget: str) -> dict[str, SparseClip]:
        """The records at a radius, by clip."""
        cells = {setting.cell for setting in self.plan.settings() if setting.budget == budget}
        return {record.clip: record for record in self.records if record.cell in cells}


@final
@dataclass(frozen=True)
class SparsitySetup:
    """The runs of the study by the names of its plans; one that was not run is not there.

    extras: by the name of a part (`distance-MODEL`, `hardened-MODEL`) and the clip: the least distance that
        fools in L2, None where none was found; or whether a hardened model is right, clean and attacked.
    """

    folder: Path
    runs: Mapping[str, SparsityOutcome]
    extras: Mapping[str, Told]
    seconds: float | None

    @property
    def unused(self) -> dict[str, str]:
        return {
            record.clip: record.reason
            for run in self.runs.values()
            for record in run.records
            if record.status == "failed"
        }

    def facts(self) -> dict[str, Any]:
        plan = next(iter(self.runs.values())).plan
        return {
            "version": __version__,
            "data": plan.data,
            "seed": plan.seed,
            "model": "keyword and its hardened variants",
            "scale": self.scale,
            "plans": {name: asdict(run.plan) for name, run in self.runs.items()},
        }

    @property
    def scale(self) -> str:
        plain = self.runs.get("radius-plain") or next(iter(self.runs.values()))
        return "mini" if len(plain.plan.budgets) <= 5 else "full"

    def scope(self, study: Study[Any]) -> list[str]:
        plan = next(iter(self.runs.values())).plan
        counts = [len(run.clips(run.plan.budgets[0])) for run in self.runs.values()]
        lines = [
            f"The shipped keyword model and its hardened variants, data {plan.data}, seed {plan.seed}, "
            f"{plan.directions} directions a clip, {plan.passes} passes for the shared attack and as many "
            "for each direction.",
            f"{min(counts)} to {max(counts)} clips a row; the thesis: CIFAR-10, ResNets, 1,000 images, 100 "
            "directions, and a bisection of 10 attacks of 20 passes each.",
            "Perturbations are judged as a listener gets them: cut to [-1, 1] and rounded to 16 bits.",
        ]
        absent = [name for name in names_of_sparsity() if name not in self.runs]
        return lines + ([f"Not run: {', '.join(absent)}."] if absent else [])


def open_sparsity(choice: Choice, out: Path | None, device: str, tell: Tell) -> SparsitySetup:
    """Run what is not yet recorded."""
    choice.refuse("O4", "attack", "fit", "model")
    scale = "full" if find_scale(choice.scale).name == "full" else "mini"
    ask = Ask(
        scale="full" if scale == "full" else "mini",
        model="",
        data=choice.data or "embedded",
        clips=choice.clips,
        seed=choice.seed,
    )
    plans = o4(ask)
    folder = out or default_folder("O4", ask.scale, [plan.run_id for plan in plans.values()])
    device = find_device(device)
    works = [*plans, *(f"distance-{name}" for name in ("plain", "pgd"))]
    works += [f"hardened-{name}" for name in VARIANTS if name != "plain"]
    for place, name in enumerate(works):
        bar = Bar(place / len(works), 1 / len(works), name, tell)
        with _timed(folder, name):
            if name in plans:
                run_sparsity(
                    plans[name], folder / RUNS / name, device=device, batch=choice.batch, begin=bar.begin,
                    advance=bar.advance,
                )  # fmt: skip
            else:
                bar.advance(0, "beside it")
                _make_extra(
                    folder, name, plans["plain"] if "distance" in name else plans["all-clips"], device
                )
    return read_sparsity(folder)


def read_sparsity(folder: Path) -> SparsitySetup:
    """A bench from folders of sparsity, wherever they were made: `folder/plans/NAME`, `folder/NAME`."""
    runs = {}
    for name in names_of_sparsity():
        for place in (folder / RUNS / name, folder / name):
            if (place / "sparsity.yaml").exists() and name not in runs:
                runs[name] = SparsityOutcome(read_sparsity_plan(place), list(SparsityFolder(place).records()))
    if not runs:
        raise InputError(
            f"study O4 expected a folder with sparsity of {', '.join(names_of_sparsity())}, got none in "
            f"{str(folder)!r}; name the folder that holds them."
        )
    spent = _read(folder / SECONDS)
    return SparsitySetup(folder, runs, _read(folder / EXTRAS), sum(spent.values()) if spent else None)


def _make_extra(folder: Path, name: str, plan: SparsityPlan, device: str) -> None:
    """Add a part to the file of extras, unless it is there."""
    known = _read(folder / EXTRAS)
    if name in known:
        return
    kind, _, model = name.partition("-")
    target = open_target(VARIANTS[model], device)
    make = _distances if kind == "distance" else _hardened
    known[name] = make(plan, target, device)
    _write(folder / EXTRAS, known)


def _distances(plan: SparsityPlan, target: Target, device: str) -> Told:
    """The least L2 distance at which a clip that is right is fooled, by an attack that looks for it."""
    found = _attacked(plan, target, device, SMALLEST, Snr(0.0))
    return {
        clip: {"distance": length if fooled else None}
        for clip, (right, fooled, length) in found.items()
        if right
    }


def _hardened(plan: SparsityPlan, target: Target, device: str) -> Told:
    """Which clips a model gets right, clean and under a strong attack."""
    found = _attacked(plan, target, device, STRONG, Snr(float(QUIET_DB)))
    return {
        clip: {"clean": right, "attacked": right and not fooled} for clip, (right, fooled, _) in found.items()
    }


def _attacked(
    plan: SparsityPlan, target: Target, device: str, attack: Attack, budget: Snr
) -> dict[str, tuple[bool, bool, float]]:
    """Of each clip whether it is right, whether it was fooled, and the length of what was added."""
    corpus = open_settled(plan.data, target, plan.labels).corpus
    corpus = corpus.limit(plan.limit) if plan.limit is not None else corpus
    found = {}
    for chunk in corpus.chunks(AT_ONCE, target.sample_rate, plan.longest):
        clips, _ = usable(target, chunk.clips)
        if not clips:
            continue
        trial = attack(target, collate(clips).to(device), Evade(), budget, draws=Draws(plan.seed))
        lengths = torch.linalg.vector_norm(trial.delta.double(), dim=1).tolist()
        for row, clip in enumerate(clips):
            found[clip.id] = trial.clean_texts[row] == clip.label, trial.achieved[row], lengths[row]
    return found


class _timed:
    """Adds the seconds that a part took to those on record."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self.name = folder / SECONDS, name

    def __enter__(self) -> None:
        self.start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        spent = _read(self.path)
        took = time.monotonic() - self.start
        # What is found on record and read again takes next to nothing.
        if self.name not in spent or took > 1.0:
            spent[self.name] = round(spent.get(self.name, 0.0) + took, 1)
            _write(self.path, spent)


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.with_suffix(".part")
    torn.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    torn.replace(path)
