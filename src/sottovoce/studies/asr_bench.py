"""Where a study of recognisers is at work: audit plans, run here or read back from where they were run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sottovoce import __version__
from sottovoce.audit.plan import Cell, Plan
from sottovoce.audit.run import find_device, open_target, run_audit
from sottovoce.audit.store import RunFolder
from sottovoce.core.record import Record
from sottovoce.errors import InputError
from sottovoce.studies.asr_plans import Ask, Plans, plans_of
from sottovoce.studies.paper_o import SETUP, strange
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale

RUNS = "plans"
FEW_CLIPS = 30


@final
@dataclass(frozen=True)
class Run:
    """A plan that was run. records: by cell, those of clips that were attacked."""

    plan: Plan
    note: str
    records: Mapping[str, list[Record]]
    failures: Mapping[str, str]

    @property
    def clips(self) -> int:
        """The most that any cell has."""
        return max((len(rows) for rows in self.records.values()), default=0)


@final
@dataclass(frozen=True)
class AsrBench:
    """The runs of a study, by the names of its plans; one that was not run is not there."""

    study: str
    folder: Path
    runs: Mapping[str, Run]

    @property
    def unused(self) -> dict[str, str]:
        return {clip: reason for run in self.runs.values() for clip, reason in run.failures.items()}

    @property
    def model(self) -> str:
        return self._one("model")

    def cells(self, run: str, attack: str) -> list[tuple[Cell, list[Record]]]:
        """An attack's cells in a run, with their records; none where it was not run."""
        if run not in self.runs:
            return []
        plan, records = self.runs[run].plan, self.runs[run].records
        return [(cell, records.get(cell.id, [])) for cell in plan.cells() if cell.attack.name == attack]

    def records(self, run: str, attack: str, budget: str, goal: str = "") -> list[Record]:
        """Those of one budget, such as `snr(db=35)`, and of one goal where that is named."""
        return [
            record
            for cell, rows in self.cells(run, attack)
            if str(cell.budget) == budget and goal in ("", str(cell.goal))
            for record in rows
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "data": self._one("data"),
            "seed": int(self._one("seed")),
            "version": __version__,
            "plans": {name: run.plan.model_dump(mode="json") for name, run in self.runs.items()},
        }

    def scope(self, study: Study[Any]) -> list[str]:
        data, notes = self._one("data"), {run.note for run in self.runs.values() if run.note}
        others = " and ".join(strange(self.study, self.model, data))
        lines = [
            f"Model {self.model}, data {data}, seed {self._one('seed')}.",
            *(f"Data: {note}." for note in sorted(notes)),
            f"NOT the paper's {others}. The paper: {SETUP[self.study]}."
            if others
            else f"The paper: {SETUP[self.study]}. The choice of clips is our own.",
            *self._shortened(),
        ]
        if any(run.plan.bits for run in self.runs.values()):
            lines.append("Examples are judged as saved, rounded to 16 bits; the paper's are floats.")
        counts = {name: run.clips for name, run in self.runs.items() if run.clips}
        lines.append(f"Clips: {', '.join(f'{name} {count}' for name, count in counts.items())}.")
        if counts and min(counts.values()) < FEW_CLIPS:
            lines.append(
                f"As few as {min(counts.values())} clips to judge on: far too few to generalise from."
            )
        absent = [name for name in self._full() if name not in counts]
        return lines + ([f"Not run yet: {', '.join(absent)}."] if absent else [])

    def _shortened(self) -> list[str]:
        """How the runs fall short of the full scale, run by run."""
        lines = []
        for name, full in self._full().items():
            plan = self.runs[name].plan if name in self.runs else full
            same = all(getattr(plan, part) == getattr(full, part) for part in ("attacks", "goals", "budgets"))
            if not same:
                lines.append(f"NOT the paper's scale. Here, {name}: {_told(plan)}. Full: {_told(full)}.")
        return lines or ["The attacks have the paper's settings, where it gives them."]

    def _full(self) -> Plans:
        model, data = self.model, self._one("data")
        return plans_of(self.study, Ask(scale="full", model=model, data=data))

    def _one(self, entry: str) -> str:
        """What all plans have the same."""
        found = {str(getattr(run.plan, entry)) for run in self.runs.values()}
        if len(found) != 1:
            raise InputError(
                f"study {self.study} expected runs with one {entry}, got {', '.join(sorted(found))}; make a "
                "table of each."
            )
        return found.pop()


def opener(study: str, *, model: str, data: str, fits: bool = False) -> Callable[..., AsrBench]:
    """How a study opens its bench: it runs what is not yet recorded. model, data: the study's own.

    fits: whether one of its attacks is fitted on clips.
    """

    def open_runs(choice: Choice, out: Path | None, device: str, tell: Tell) -> AsrBench:
        choice.refuse(study, "attack", *([] if fits else ["fit"]))
        ask = Ask(
            scale="full" if find_scale(choice.scale).name == "full" else "mini",
            model=choice.model or model,
            data=choice.data or data,
            fit=choice.fit,
            clips=choice.clips,
            seed=choice.seed,
            **({} if choice.batch is None else {"batch": choice.batch}),
        )
        plans = plans_of(study, ask)
        folder = out or default_folder(study, ask.scale, [plan.run_id for plan in plans.values()])
        _run_all(plans, folder, device, tell)
        return read_runs(study, folder)

    return open_runs


def read_runs(study: str, folder: Path) -> AsrBench:
    """A bench from run folders, wherever they were made: `folder/plans/NAME`, or `folder/NAME`."""
    names = list(plans_of(study, Ask(scale="mini", model="", data="")))
    places = [(folder / RUNS / name, folder / name) for name in names]
    found = {
        name: next((place for place in both if (place / "plan.yaml").exists()), None)
        for name, both in zip(names, places, strict=True)
    }
    runs = {name: _read(RunFolder(place)) for name, place in found.items() if place is not None}
    if not runs:
        raise InputError(
            f"study {study} expected a folder with runs of {', '.join(names)}, got none in {str(folder)!r}; "
            "name the folder that holds them."
        )
    return AsrBench(study, folder, runs)


def _run_all(plans: Plans, folder: Path, device: str, tell: Tell) -> None:
    device = find_device(device)
    for plan in plans.values():
        plan.check()
    tell(0.0, "opening the model")
    target = open_target(next(iter(plans.values())).model, device)
    for place, (name, plan) in enumerate(plans.items()):
        bar = _Bar(place / len(plans), 1 / len(plans), name, tell)
        run_audit(
            plan, folder / RUNS / name, device=device, target=target, begin=bar.begin, advance=bar.advance
        )


@dataclass
class _Bar:
    """How far one of several runs is, told as a share of all."""

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


def _read(folder: RunFolder) -> Run:
    records: defaultdict[str, list[Record]] = defaultdict(list)
    failures = {}
    for record in folder.records():
        if record.status == "ok":
            records[record.cell].append(record)
        elif record.status == "failed":
            failures[record.clip] = record.reason
    return Run(folder.plan(), str(folder.about().get("data_note", "")), records, failures)


def _told(plan: Plan) -> str:
    attacks = ", ".join(str(attack) for attack in plan.attacks)
    return f"{attacks} at {', '.join(str(budget.build('budget')) for budget in plan.budgets)}"
