"""Where a study of recognisers is at work: audit plans, run here or read back from where they were run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from sottovoce import __version__
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import Record
from sottovoce.core.target import Target
from sottovoce.defenses.defense_text import NO_DEFENSE, parts_of
from sottovoce.errors import InputError
from sottovoce.studies.ask import Ask, Plans
from sottovoce.studies.identify import name_of
from sottovoce.studies.olivier2023.attack_tables import SETUP, strange
from sottovoce.studies.olivier2023.defense_tables import SETUP as DEFENSE_SETUP
from sottovoce.studies.olivier2023.defense_tables import SIGMAS
from sottovoce.studies.olivier2023.runs.recogniser_plans import SMALL_WEIGHT, names_of, plans_of
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale
from sottovoce.targets.open_target import find_device, open_target

RUNS = "plans"
FEW_CLIPS = 30
FEW_DEFENSES = 3
SETUPS = {**SETUP, **DEFENSE_SETUP}
SHAPE = ("attacks", "goals", "budgets", "defenses", "average", "attackers")
"""Entries of a plan that make its scale, besides the clips."""


@final
@dataclass(frozen=True)
class RecogniserRun:
    """A plan that was run. records: by cell, those of clips that were attacked."""

    plan: Plan
    note: str
    records: Mapping[str, list[Record]]
    failures: Mapping[str, str]
    folder: Path

    def unfinished(self, name: str) -> str:
        """How many cells have all their clips, in words; "" where all have."""
        cells = self.plan.cells()
        done = sum(len(self.records.get(cell.id, [])) == self.clips for cell in cells)
        return f"{name} ({done} of {len(cells)} cells)" if 0 < done < len(cells) else ""

    @property
    def clips(self) -> int:
        """The most that any cell has."""
        return max((len(rows) for rows in self.records.values()), default=0)


@final
@dataclass(frozen=True)
class AsrSetup:
    """The runs of a study, by the names of its plans; one that was not run is not there."""

    study: str
    folder: Path
    runs: Mapping[str, RecogniserRun]

    @property
    def unused(self) -> dict[str, str]:
        return {clip: reason for run in self.runs.values() for clip, reason in run.failures.items()}

    @property
    def model(self) -> str:
        """Its name; several where a study holds models against each other, each once."""
        return self._named("model")

    @property
    def data(self) -> str:
        return self._named("data")

    @property
    def on_strings(self) -> bool:
        """Whether its deviations are those for the shipped strings."""
        return self._asked().on_strings

    def _asked(self) -> Ask:
        """The question at full scale to which these runs are the answer, as far as the runs themselves tell:
        the model and the data may be elsewhere."""
        plans = [run.plan for run in self.runs.values()]
        walls = [parts_of(text) for plan in plans for text in plan.defenses if text != NO_DEFENSE]
        deviations = {
            float(part.settings["sigma"]) for wall in walls for part in wall if "sigma" in part.settings
        }
        weights = {
            attack.settings.get("c") for plan in plans for attack in plan.attacks if attack.name == "cw-asr"
        }
        return Ask(
            scale="full",
            model=plans[0].model,
            data=plans[0].data,
            small=SMALL_WEIGHT in weights if weights else None,
            frames=any(part.name == "average" for wall in walls for part in wall) or None,
            strings=bool(deviations - set(SIGMAS)) if deviations else None,
            speakers=any(name_of(plan.model) == "speaker" for plan in plans) or None,
        )

    def cells(self, run: str, attack: str, defense: str = "") -> list[tuple[Cell, list[Record]]]:
        """An attack's cells in a run, with their records, behind one defense where that is named; none where
        it was not run."""
        if run not in self.runs:
            return []
        plan, records = self.runs[run].plan, self.runs[run].records
        return [
            (cell, records.get(cell.id, []))
            for cell in plan.cells()
            if cell.attack.name == attack and defense in ("", cell.defense)
        ]

    def records(
        self, run: str, attack: str, budget: str = "", goal: str = "", defense: str = ""
    ) -> list[Record]:
        """Those of one budget, such as `snr(db=35)`, of one goal and behind one defense, where named."""
        return [
            record
            for cell, rows in self.cells(run, attack, defense)
            if budget in ("", str(cell.budget)) and goal in ("", str(cell.goal))
            for record in rows
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self.data,
            "seed": int(self._one("seed")),
            "version": __version__,
            "plans": {name: run.plan.model_dump(mode="json") for name, run in self.runs.items()},
        }

    def scope(self, study: Study[Any]) -> list[str]:
        full, notes = self._full(), {run.note for run in self.runs.values() if run.note}
        odd = {
            what for run in self.runs.values() for what in strange(self.study, run.plan.model, run.plan.data)
        }
        others = " and ".join(what for what in ("model", "data") if what in odd)
        lines = [
            f"Model {self.model}, data {self.data}, seed {self._one('seed')}.",
            *(f"Data: {note}." for note in sorted(notes)),
            f"NOT the paper's {others}. The paper: {SETUPS[self.study]}."
            if others
            else f"The paper: {SETUPS[self.study]}. The clips are our choice.",
            *self._shortened(full),
        ]
        if any(run.plan.bits for run in self.runs.values()):
            lines.append("Examples are judged as saved, rounded to 16 bits; the paper uses floats.")
        counts = {name: run.clips for name, run in self.runs.items() if run.clips}
        lines.append(f"Clips: {', '.join(f'{name} {count}' for name, count in counts.items())}.")
        if counts and min(counts.values()) < FEW_CLIPS:
            lines.append(f"Only {min(counts.values())} clips in places: too few to generalise from.")
        absent = [name for name in full if name not in counts]
        torn = [told for name, run in self.runs.items() if (told := run.unfinished(name))]
        return (
            lines
            + ([f"Not run yet: {', '.join(absent)}."] if absent else [])
            + ([f"Not finished: {', '.join(torn)}."] if torn else [])
        )

    def _shortened(self, full: Plans) -> list[str]:
        """How the runs fall short of the full scale: those that do so in one way, in one line."""
        ways: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for name, run in self.runs.items():
            plan, whole = run.plan, full[name]
            if any(getattr(plan, part) != getattr(whole, part) for part in SHAPE):
                ways[_told(plan), _told(whole)].append(name)
        return [
            f"NOT the paper's scale. Here, {', '.join(names)}: {here}. Full: {there}."
            for (here, there), names in ways.items()
        ] or ["The attacks use the paper's settings, where it gives them."]

    def _full(self) -> Plans:
        """The plans of full scale for what was run: raises where no one question has all these runs as its
        answer, because they are of different models or data."""
        for model in dict.fromkeys(run.plan.model for run in self.runs.values()):
            for data in dict.fromkeys(run.plan.data for run in self.runs.values()):
                full = plans_of(self.study, replace(self._asked(), model=model, data=data))
                if all(name in full and _same(run.plan, full[name]) for name, run in self.runs.items()):
                    return full
        self._one("data")
        self._one("model")
        raise InputError(
            f"the runs of {self.model} on {self.data} have other plans than study {self.study}; run the "
            "study again "
            "in a new folder."
        )

    def _named(self, entry: str) -> str:
        return ", ".join(dict.fromkeys(str(getattr(run.plan, entry)) for run in self.runs.values()))

    def _one(self, entry: str) -> str:
        """What all plans have the same."""
        found = {str(getattr(run.plan, entry)) for run in self.runs.values()}
        if len(found) != 1:
            raise InputError(
                f"study {self.study} needs runs with the same {entry}, got {', '.join(sorted(found))}; make "
                "separate "
                "tables."
            )
        return found.pop()


def opener(
    study: str, *, model: str, data: str, fits: bool = False, one_model: bool = True
) -> Callable[..., AsrSetup]:
    """How a study opens its bench: it runs what is not yet recorded. model, data: the study's own.

    fits: whether one of its attacks is fitted on clips. one_model: whether a user may name another model;
        not where the study holds those of the zoo against each other.
    """

    def open_runs(choice: Choice, out: Path | None, device: str, tell: Tell) -> AsrSetup:
        choice.refuse(study, "attack", *([] if fits else ["fit"]), *([] if one_model else ["model"]))
        ask = Ask(
            scale="full" if find_scale(choice.scale).name == "full" else "mini",
            model=choice.model or model,
            data=choice.data or data,
            fit=choice.fit,
            clips=choice.clips,
            seed=choice.seed,
            batch=Ask.batch if choice.batch is None else choice.batch,
        )
        plans = plans_of(study, ask)
        folder = out or default_folder(study, ask.scale, [plan.run_id for plan in plans.values()])
        _run_all(plans, folder, device, tell)
        return read_runs(study, folder)

    return open_runs


def read_runs(study: str, folder: Path) -> AsrSetup:
    """A bench from run folders, wherever they were made: `folder/plans/NAME`, or `folder/NAME`."""
    names = names_of(study)
    places = [(folder / RUNS / name, folder / name) for name in names]
    found = {
        name: next((place for place in both if (place / "plan.yaml").exists()), None)
        for name, both in zip(names, places, strict=True)
    }
    runs = {name: _read(RunFolder(place)) for name, place in found.items() if place is not None}
    if not runs:
        raise InputError(
            f"{str(folder)!r} has no runs of {', '.join(names)}, which study {study} shows; name the folder "
            "that "
            "holds them."
        )
    return AsrSetup(study, folder, runs)


def _run_all(plans: Plans, folder: Path, device: str, tell: Tell) -> None:
    device = find_device(device)
    for plan in plans.values():
        plan.check()
    targets: dict[str, Target] = {}
    for place, (name, plan) in enumerate(plans.items()):
        bar = Bar(place / len(plans), 1 / len(plans), name, tell)
        if plan.model not in targets:
            tell(bar.before, f"opening {plan.model}")
            targets[plan.model] = open_target(plan.model, device)
        target = targets[plan.model]
        run_audit(
            plan, folder / RUNS / name, device=device, target=target, begin=bar.begin, advance=bar.advance
        )


@dataclass
class Bar:
    """The progress of one of several runs, as a share of all."""

    before: float
    share: float
    name: str
    tell: Tell
    total: int = 1
    done: int = 0

    def begin(self, trials: int) -> None:
        self.total = max(trials, 1)

    def advance(self, count: int, note: str) -> None:
        self.done += count
        self.tell(self.before + self.share * self.done / self.total, f"{self.name}: {note}")


def _read(folder: RunFolder) -> RecogniserRun:
    records: defaultdict[str, list[Record]] = defaultdict(list)
    failures = {}
    for record in folder.records():
        if record.status == "ok":
            records[record.cell].append(record)
        elif record.status == "failed":
            failures[record.clip] = record.reason
    note = str(folder.about().get("data_note", ""))
    return RecogniserRun(folder.plan(), note, records, failures, folder.path)


def _same(plan: Plan, other: Plan) -> bool:
    return (plan.model, plan.data) == (other.model, other.data)


def _told(plan: Plan) -> str:
    attacks = ", ".join(str(attack) for attack in plan.attacks)
    said = f"{attacks} at {', '.join(str(budget.build('budget')) for budget in plan.budgets)}"
    if plan.defenses == (NO_DEFENSE,):
        return said
    few = len(plan.defenses) <= FEW_DEFENSES
    return f"{said} behind {', '.join(plan.defenses) if few else f'{len(plan.defenses)} defenses'}"
