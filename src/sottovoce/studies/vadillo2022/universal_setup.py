"""Where a study is at work: a model, clips, a folder, and perturbations that are fitted once and kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final
from urllib.parse import quote

import torch

from sottovoce import registry
from sottovoce.auditing.run.fitting_clips import usable
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import Scores, Target
from sottovoce.core.universal_attack import Perturbation
from sottovoce.data.load import Corpus, Entry, collate
from sottovoce.errors import InputError, StoreError
from sottovoce.studies.study import FULL, Choice, Study, StudySetting, Tell, find_scale
from sottovoce.studies.vadillo2022.fitting_split import FittingSplit, check_data, open_material
from sottovoce.studies.vadillo2022.vadillo_tables import BOUND_L2, OVERSHOOT
from sottovoce.targets.open_target import find_device, open_target

BATCH_CLIPS = 32
PROBES = 4
# Scores on other machines differ in the last digits; other weights differ in the first.
PROBE_TOLERANCE = 1e-2


@final
@dataclass(frozen=True)
class UniversalSetup:
    """A setting made real. `unused` gathers why clips could not be used, by id."""

    setting: StudySetting
    target: Target
    material: FittingSplit
    folder: Path
    device: str
    tell: Tell
    unused: dict[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> list[str]:
        """The classes that have clips, in the order of the model."""
        return list(self.material.valid)

    @property
    def draws(self) -> Draws:
        return Draws(self.setting.seed)

    def facts(self) -> dict[str, Any]:
        return self.setting.to_json()

    def scope(self, study: Study[Any]) -> list[str]:
        setting, scale = self.setting, self.setting.scale
        lines = [
            f"Model {setting.model}, data {setting.data}, attack {setting.attack}, seed {setting.seed}, "
            f"scale {scale.name}.",
            f"Data: {self.material.note}.",
        ]
        if not study.fits:
            return lines
        if scale == FULL:
            lines.append(f"The paper's scale: {scale}; the model and the clips are our choice.")
        else:
            lines.append(f"NOT the paper's scale. Here: {scale}. Paper: {FULL}.")
        smallest = min(len(pool) for pool in self.material.fit.values())
        if smallest <= scale.fit_clips and scale.sets > 1:
            lines.append(
                f"Some classes have at most {smallest} clips to fit on, so their {scale.sets} training sets "
                "hold the "
                "same clips in different orders."
            )
        judged = min(len(self.material.valid_set(label)) for label in self.classes)
        if judged < 30:
            lines.append(f"Only {judged} clips per class in places: too few to generalise from.")
        return lines

    def load(self, entries: Sequence[Entry]) -> list[AudioBatch]:
        """Clips in batches; those that the model cannot hear are left out and noted."""
        batches = []
        for clips, failures in Corpus("study", tuple(entries)).chunks(BATCH_CLIPS, self.target.sample_rate):
            kept, refused = usable(self.target, clips)
            self.unused.update({item.id: item.reason for item in [*failures, *refused]})
            if kept:
                batches.append(collate(kept).to(self.device))
        if not batches:
            raise InputError(
                f"none of {len(entries)} clips can be used with this model ({self.unused[entries[0].id]}); "
                "give other "
                "clips with --data."
            )
        return batches

    def valid(self, label: str) -> list[AudioBatch]:
        return self.load(self.material.valid_set(label))

    def perturbations(self) -> dict[str, list[Perturbation]]:
        """Those of each class, one a training set, fitted where the folder does not hold them yet."""
        sets = self.setting.scale.sets
        jobs = [(label, number) for label in self.classes for number in range(sets)]
        found: dict[str, list[Perturbation]] = {label: [] for label in self.classes}
        for place, (label, number) in enumerate(jobs):
            path = self.folder / "perturbations" / f"{quote(label, safe='')}-{number + 1}.safetensors"
            if not path.exists():
                _keep(self._fit(label, number, place / len(jobs), 1 / len(jobs)), path)
            found[label].append(Perturbation.load(path))
        return found

    def _fit(self, label: str, number: int, before: float, share: float) -> Perturbation:
        scale = self.setting.scale
        clips = self.load(self.material.fit_set(label, number))
        turns = scale.epochs * sum(len(batch) for batch in clips)

        def tell(epoch: int, seen: int, fooled: float) -> None:
            done = (epoch * turns / scale.epochs + seen) / turns
            note = f"fitting {label} {number + 1}/{scale.sets}, epoch {epoch + 1}: {fooled:.0%} fooled"
            self.tell(before + share * done, note)

        tell(0, 0, 0.0)
        attack = registry.build(
            "universal",
            self.setting.attack,
            {"epochs": scale.epochs, "deepfool_steps": scale.deepfool_steps, "overshoot": OVERSHOOT},
        )
        draws = self.draws.turn("fit", number)
        found: Perturbation = attack.fit(
            self.target, clips, Evade(), L2(BOUND_L2), draws=draws, progress=tell
        )
        return found


def open_bench(setting: StudySetting, folder: Path, *, device: str = "auto", tell: Tell) -> UniversalSetup:
    """A bench in a folder that is new, or was made for the same setting and the same model."""
    check_data(setting)
    registry.find("universal", setting.attack)
    device = find_device(device)
    target = open_target(setting.model, device)
    material = open_material(setting, target.capability(Scores).classes, folder / "silence")
    bench = UniversalSetup(setting, target, material, folder, device, tell)
    _prepare(folder, setting.to_json(), _probe(bench))
    return bench


def open_choice(choice: Choice, out: Path | None, device: str, tell: Tell) -> UniversalSetup:
    """The bench of a study of universal perturbations."""
    choice.refuse("V", "fit", "clips", "batch")
    own = StudySetting()
    setting = StudySetting(
        scale=find_scale(choice.scale),
        data=choice.data or own.data,
        model=choice.model or own.model,
        attack=choice.attack or own.attack,
        seed=choice.seed,
    )
    return open_bench(setting, out or setting.folder, device=device, tell=tell)


def best(perturbations: Sequence[Perturbation]) -> int:
    """The place of the one that fools most of its own training set, as written when it was fitted."""
    shares = [_share_fooled(one) for one in perturbations]
    return shares.index(max(shares))


def _share_fooled(perturbation: Perturbation) -> float:
    facts = json.loads(perturbation.made_by)
    return float(facts["fooled"]) / float(facts["clips"])


def _probe(bench: UniversalSetup) -> list[list[float]]:
    """What the model says to a few clips: tells whether it is still the one that a folder was made with."""
    entries = [bench.material.valid_set(label)[0] for label in bench.classes[:PROBES]]
    scorer = bench.target.capability(Scores)
    with torch.no_grad():
        rows = [scorer.scores(batch, draws=bench.draws.turn("probe")) for batch in bench.load(entries)]
    found: list[list[float]] = torch.cat(rows).double().cpu().tolist()
    return found


def _prepare(folder: Path, setting: dict[str, Any], probe: list[list[float]]) -> None:
    path = folder / "setting.json"
    try:
        if path.exists():
            _compare(folder, json.loads(path.read_text(encoding="utf-8")), setting, probe)
            return
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"setting": setting, "probe": probe}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder} ({error.strerror}); choose another folder with --out."
        ) from None


def _compare(folder: Path, kept: dict[str, Any], setting: dict[str, Any], probe: list[list[float]]) -> None:
    old = kept["setting"]
    changed = [key for key in setting if old.get(key) != json.loads(json.dumps(setting[key]))]
    if changed:
        raise InputError(
            f"{folder} holds a study with another {', '.join(changed)}; choose a new folder with --out, or "
            "delete "
            "this one."
        )
    then, now = torch.tensor(kept["probe"]), torch.tensor(probe)
    if then.shape != now.shape or not torch.allclose(then, now, rtol=PROBE_TOLERANCE, atol=PROBE_TOLERANCE):
        raise InputError(
            f"{folder} was made with a model that gives other scores, so its perturbations do not fit this "
            "one; "
            "choose a new folder with --out, or delete this one."
        )


def _keep(perturbation: Perturbation, path: Path) -> None:
    """Save under another name first: a run that is stopped leaves no half file behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    perturbation.save(unfinished)
    unfinished.replace(path)
