"""Before a run: its cells, how many passes, how long and how much memory they take, and what is recorded.

Times come from the code that a run executes, measured on a clip or two in some seconds: read them to a factor
of two.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch

from sottovoce.auditing.estimate.attack_cost import NOTHING, Cost, Timed
from sottovoce.auditing.estimate.pass_counter import Counted
from sottovoce.auditing.estimate.trial_runs import (
    MeasuredCosts,
    ask_twice,
    by_key,
    find_clips,
    key_of,
    try_out,
)
from sottovoce.auditing.estimate.unfit_cells import Unfit, assemble_all, suggest
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.run.fitting_clips import fitting_set
from sottovoce.auditing.run.run_cell import CellParts
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import EVERY, LOADING
from sottovoce.core.target import Target
from sottovoce.core.transform import Unsteady
from sottovoce.data.labels import open_settled
from sottovoce.data.load import Corpus

__all__ = ["EstimateLine", "Recorded", "RunEstimate", "Unfit", "estimate", "seconds_each", "suggest"]

TRIED_CLIPS = 2
PROBE_SECONDS, ALL_SECONDS, LEAST_SECONDS = 20.0, 30.0, 2.0
"""How long the attacks of a plan are tried; those of several plans in all; and of each at the least."""
ALL = 10**9
MORE_PROBES = {False: 1 + 2, True: 1 + 2 + 2}
"""What a sanity probe takes, in runs of its cell: once as it was, with twice the steps, and where the target
is random with twice the passes."""

PAID = (
    "every pass forward is a request to the service, less those for sounds that it has heard; none was sent "
    "to find this out, so passes are the most that there can be, but for requests that fail and are tried "
    "again, and times leave out what the service takes"
)
WAVERS = (
    "the model answers the same clip in different ways, so it is treated as random: gradients are averaged, "
    "and examples judged over several passes"
)


@final
@dataclass(frozen=True)
class Recorded:
    """What a run's folder holds of a cell or of several: trials that are done, and those that failed."""

    done: int = 0
    failed: int = 0


@final
@dataclass(frozen=True)
class EstimateLine:
    """All cells of one attack behind one defense for one goal: they differ in the budget alone.

    trials: clips times cells. todo: those without a record. cost: of one clip in one cell. fit: of one cell,
    of a universal attack.
    """

    defense: str
    attack: str
    attacker: str
    goal: str
    cells: int
    trials: int
    recorded: Recorded
    todo: int
    cost: Timed
    fit: Timed | None = None

    @property
    def total(self) -> Cost:
        """Of what is still to do."""
        fits = self.fit.cost.times(self.cells) if self.fit is not None and self.todo else NOTHING
        return self.cost.cost.times(self.todo) + fits

    @property
    def known(self) -> bool:
        return "unknown" not in (self.cost.how, self.fit.how if self.fit is not None else "measured")


@final
@dataclass(frozen=True)
class RunEstimate:
    """One run as it would be.

    probes: the sanity probes at its end, at the most. twice: clips that are decoded twice before it, to see
    whether the model repeats itself. memory_bytes: of one worker. notes: what else a reader
    should know. error: why nothing of it will run, where that is so.
    """

    name: str
    model: str
    data: str
    seed: int
    clips: int = 0
    lines: tuple[EstimateLine, ...] = ()
    probes: Cost = NOTHING
    twice: Cost = NOTHING
    unfit: tuple[Unfit, ...] = ()
    memory_bytes: int = 0
    device: str = "cpu"
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def cells(self) -> int:
        return sum(line.cells for line in self.lines)

    @property
    def trials(self) -> int:
        return sum(line.trials for line in self.lines)

    @property
    def todo(self) -> int:
        return sum(line.todo for line in self.lines)

    @property
    def recorded(self) -> Recorded:
        return Recorded(
            sum(line.recorded.done for line in self.lines), sum(line.recorded.failed for line in self.lines)
        )

    @property
    def total(self) -> Cost:
        """Of what is still to do, probes included, and the clips that are decoded twice."""
        return sum((line.total for line in self.lines), self.probes + self.twice if self.todo else NOTHING)

    @property
    def known(self) -> bool:
        """Whether the total covers everything."""
        return not self.error and all(line.known for line in self.lines)

    def to_json(self, workers: int = 1) -> dict[str, Any]:
        total, recorded = self.total, self.recorded
        return {
            "run": self.name,
            "model": self.model,
            "data": self.data,
            "seed": self.seed,
            "clips": self.clips,
            "cells": self.cells,
            "trials": self.trials,
            "done": recorded.done,
            "failed": recorded.failed,
            "todo": self.todo,
            "forward": math.ceil(total.forward),
            "backward": math.ceil(total.backward),
            "seconds": round(total.seconds / workers, 1),
            "complete": self.known,
            "memory_bytes": self.memory_bytes,
            "device": self.device,
            "attacks": [_line_to_json(line) for line in self.lines],
            "will_not_run": [
                {"cells": list(item.cells), "reason": item.reason, "exclude": item.exclude}
                for item in self.unfit
            ],
            "notes": list(self.notes),
            "error": self.error,
        }


def _line_to_json(line: EstimateLine) -> dict[str, Any]:
    return {
        "defense": line.defense,
        "attack": line.attack,
        "attacker": line.attacker,
        "goal": line.goal,
        "cells": line.cells,
        "trials": line.trials,
        "done": line.recorded.done,
        "failed": line.recorded.failed,
        "todo": line.todo,
        "forward": math.ceil(line.total.forward),
        "backward": math.ceil(line.total.backward),
        "seconds": round(line.total.seconds, 2),
        "known": line.cost.how,
    }


def seconds_each(plans: Collection[Plan]) -> float:
    """How long the attacks of each of several plans are tried."""
    different = len({costs_like(plan) for plan in plans})
    return max(LEAST_SECONDS, min(PROBE_SECONDS, ALL_SECONDS / max(different, 1)))


def estimate(
    name: str,
    plan: Plan,
    target: Target,
    out: Path,
    *,
    device: str,
    workers: int = 1,
    retry_failed: bool = False,
    seconds: float = PROBE_SECONDS,
    tried: dict[str, MeasuredCosts] | None = None,
) -> RunEstimate:
    """What a plan would take, measured in about this many seconds.

    out: the folder that its run would go to. workers: how many share the cores of this machine.
    tried: what was found for other plans, by `costs_like`; what is found for this one is added.
    """
    settled = open_settled(plan.data, target, plan.labels)
    corpus = settled.corpus.limit(plan.limit) if plan.limit else settled.corpus
    clips = find_clips(corpus, target, plan.longest)
    counted = Counted(target, labels={clip.id: clip.label for clip in clips} if target.paid else None)
    recorded, notes = _recorded(plan, out)
    known = RunFolder(out).repeated() if recorded else None
    repeated, twice = ask_twice(plan, counted, clips, device) if known is None else (known, NOTHING)
    works, unfit = assemble_all(plan, counted if repeated.steady else Unsteady(counted))
    plays = _plays(plan, works, corpus, recorded, retry_failed)
    wanted = [work for work in works if plays[work.cell.id].todo]
    shared = {} if tried is None else tried
    found = shared.get(costs_like(plan), MeasuredCosts())
    if not found.costs.keys() >= by_key(wanted).keys():
        some = clips[:: max(1, len(clips) // TRIED_CLIPS)][:TRIED_CLIPS]
        with _threads(workers):
            found = try_out(plan, wanted, counted, some, device, seconds)
        shared[costs_like(plan)] = found
    lines = _lines(plan, works, plays, found, corpus)
    notes += [found.full.note] if found.full.note else []
    notes += [] if repeated.steady else [WAVERS]
    notes += [corpus.note] if settled.skipped else []
    notes += [PAID] if target.paid else []
    return RunEstimate(
        name=name,
        model=plan.model,
        data=plan.data,
        seed=plan.seed,
        clips=len(corpus),
        lines=tuple(lines),
        probes=_probes(plan, wanted, found, len(corpus)),
        twice=twice,
        unfit=tuple(unfit),
        memory_bytes=found.full.memory_bytes,
        device=device,
        notes=tuple(notes),
    )


def costs_like(plan: Plan) -> str:
    """What plans have in common that differ in the seed alone: they cost the same."""
    return plan.model_copy(update={"seed": 0}).to_yaml()


def _recorded(plan: Plan, out: Path) -> tuple[dict[str, Recorded], list[str]]:
    """What the folder holds, by cell; and what is to be said of it."""
    folder = RunFolder(out)
    if not (out / "plan.yaml").exists():
        return {}, []
    if folder.plan() != plan:
        return {}, [f"{out} holds another plan, so the run will be refused: choose another folder with --out"]
    counts: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for (cell, clip), status in folder.keys().items():
        # A cell that could not be put together has one record for all its clips.
        counts[cell][status == "failed"] += ALL if clip == EVERY else 1
    return {cell: Recorded(found[False], found[True]) for cell, found in counts.items()}, []


@contextmanager
def _threads(workers: int) -> Iterator[None]:
    """As many threads as each of several workers would have."""
    before = torch.get_num_threads()
    if workers > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@final
@dataclass(frozen=True)
class Play:
    """A cell with what is on record of it."""

    trials: int
    recorded: Recorded
    todo: int


def _plays(
    plan: Plan,
    works: Sequence[CellParts],
    corpus: Corpus,
    recorded: Mapping[str, Recorded],
    retry_failed: bool,
) -> dict[str, Play]:
    """How much of every cell there is to do. Universal attacks are not judged on what they are fitted on."""
    universal = any(work.cell.universal for work in works)
    held = fitting_set(plan, corpus, works[0].target)[1] if universal else frozenset[str]()
    lost, plays = recorded.get(LOADING, Recorded()).failed, {}
    for work in works:
        trials = len(corpus) - (len(held) if work.cell.universal else 0)
        known = recorded.get(work.cell.id, Recorded())
        broken = min(trials - known.done, known.failed + lost)
        todo = trials - known.done - (0 if retry_failed else broken)
        plays[work.cell.id] = Play(trials, Recorded(known.done, broken), todo)
    return plays


def _lines(
    plan: Plan, works: Sequence[CellParts], plays: Mapping[str, Play], found: MeasuredCosts, corpus: Corpus
) -> Iterator[EstimateLine]:
    for key, members in by_key(works).items():
        mine = [plays[work.cell.id] for work in members]
        fit = found.fits.get(key)
        if fit is not None:
            clips = len(fitting_set(plan, corpus, members[0].target)[0])
            fit = replace(fit, cost=fit.cost.times(clips))
        yield EstimateLine(
            *key,
            cells=len(members),
            trials=sum(play.trials for play in mine),
            recorded=Recorded(
                sum(play.recorded.done for play in mine), sum(play.recorded.failed for play in mine)
            ),
            todo=sum(play.todo for play in mine),
            cost=found.costs.get(key, Timed(NOTHING, "measured")),
            fit=fit,
        )


def _probes(plan: Plan, works: Sequence[CellParts], found: MeasuredCosts, clips: int) -> Cost:
    """The sanity probes at the end, if they take the dearest attack of each defense and goal."""
    dearest: dict[tuple[str, str], tuple[Cost, bool]] = {}
    for work in works:
        cell = work.cell
        if cell.sees == "gradient" and cell.attacker != "transfer" and not cell.universal:
            cost, place = found.costs[key_of(cell)].cost, (cell.defense, str(cell.goal))
            if place not in dearest or cost.seconds > dearest[place][0].seconds:
                dearest[place] = cost, work.target.random
    count = min(plan.probe, clips)
    runs = [cost.times(count * MORE_PROBES[random]) for cost, random in dearest.values()]
    return sum(runs, NOTHING)
