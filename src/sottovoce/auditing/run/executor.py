"""What a process keeps open while it does tasks: the target, the corpus, the cells and the last clips."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from sottovoce.auditing.checks.probes import probe_measures, probe_work
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.run.fitting_clips import fit_perturbation, fitted_cell, usable
from sottovoce.auditing.run.repeatability import CLIPS, hear_twice
from sottovoce.auditing.run.run_cell import (
    FAILURES,
    CellParts,
    CellRunner,
    assemble,
    explain,
    failed,
    find_metrics,
)
from sottovoce.auditing.run.tasks import AttackTask, FinishedTask, FitTask, ProbeTask, RepeatTask, Task
from sottovoce.core.attack import Attack
from sottovoce.core.files.answer_store import keeping_answers
from sottovoce.core.metric import Metric
from sottovoce.core.record import LOADING, Record
from sottovoce.core.target import Target
from sottovoce.core.transform import Unsteady
from sottovoce.core.universal_attack import Perturbation
from sottovoce.data.labels import Settled, open_clips, settle_labels
from sottovoce.data.load import Clip, Corpus, Entry, Failure
from sottovoce.errors import InputError, Stopped, exits_are_errors
from sottovoce.targets.open_target import find_device, open_target


@dataclass
class PlanState:
    """What is open of one plan. Nothing is, until it is asked for.

    cells: by id, those that universal attacks are fitted in among them. works: the cells with their parts
    built. clips: those of the last task, or why one cannot be used. fitted: perturbations and their files.
    """

    plan: Plan
    settled: Settled | None = None
    corpus: Corpus | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)
    works: dict[str, CellParts] = field(default_factory=dict)
    metrics: list[Metric] | None = None
    clips: dict[str, Clip | Failure] = field(default_factory=dict)
    fitted: dict[str, tuple[bytes, Perturbation]] = field(default_factory=dict)


@final
class Executor:
    """Does tasks one after the other. It keeps what the next one is likely to need, of one plan at a time.

    device: where its targets are opened.
    """

    def __init__(self, device: str = "auto") -> None:
        self.device = find_device(device)
        self._target: tuple[str, Target] | None = None
        self._corpus: tuple[str, Corpus] | None = None
        self._page: PlanState | None = None
        self._run, self._sent = "", set[str]()
        self._unsteady = ""

    def offer(self, model: str, target: Target) -> None:
        """A target that is open already, for plans with this `model`."""
        self._target, self._page = (model, target), None

    def clear(self) -> None:
        """Close everything."""
        self._target = self._corpus = self._page = None

    def treat(self, plan: Plan, *, steady: bool) -> None:
        """Treat the plan's model as deterministic, or as random."""
        if steady == (self._unsteady == plan.model):
            self._unsteady, self._page = "" if steady else plan.model, None

    def target(self, plan: Plan) -> Target:
        """The bare target of a plan; one that does not repeat itself counts as random."""
        if self._target is None or self._target[0] != plan.model:
            # First close the last one: two may not fit on the device.
            self._target = self._page = None
            self._target = plan.model, open_target(plan.model, self.device)
        bare = self._target[1]
        return bare if bare.repeats and self._unsteady != plan.model else Unsteady(bare)

    def corpus(self, plan: Plan) -> Corpus:
        """The clips of a plan."""
        page = self._face(plan)
        if page.corpus is None:
            whole = self.settled(plan).corpus
            # The same for every seed of a plan: seeds are compared clip by clip.
            page.corpus = whole.limit(plan.limit) if plan.limit else whole
        return page.corpus

    def settled(self, plan: Plan) -> Settled:
        """All clips of a plan whose label the model knows, and those that are skipped; or why none is run."""
        page = self._face(plan)
        if page.settled is None:
            page.settled = settle_labels(self._whole(plan), self.target(plan), plan.labels)
        return page.settled

    def work(self, plan: Plan, cell: str) -> CellParts:
        """A cell with its parts built, by its id; raises where they do not go together."""
        page = self._face(plan)
        if cell not in page.works:
            page.works[cell] = assemble(plan, _find(page, cell), self.target(plan))
        return page.works[cell]

    @exits_are_errors()
    def do(self, task: Task) -> FinishedTask:
        """The task done. A clip that fails is a record that says so; a bad plan raises."""
        self.treat(task.plan, steady=task.steady)
        with keeping_answers(Path(task.answers), task.plan.run_id) if task.answers else nullcontext():
            if isinstance(task, RepeatTask):
                return self._repeat(task)
            if isinstance(task, FitTask):
                return self._fit(task)
            return self._attack(task) if isinstance(task, AttackTask) else self._probe(task)

    def _repeat(self, task: RepeatTask) -> FinishedTask:
        plan, clips = task.plan, list[Clip]()
        for name in task.clips:
            clips += self._load(plan, (name,))[0]
            if len(clips) == CLIPS:
                break
        target = self.target(plan)
        found = hear_twice(target, clips, batch=plan.batch, device=self.device, seed=plan.seed)
        return FinishedTask(task, repeated=found)

    def _fit(self, task: FitTask) -> FinishedTask:
        work, corpus = self.work(task.plan, task.cell), self.corpus(task.plan)
        try:
            with exits_are_errors():
                found = fit_perturbation(task.plan, work, corpus, self.target(task.plan), self.device)
        except Stopped:
            raise
        except FAILURES as error:
            return FinishedTask(task, reason=explain(error))
        with TemporaryDirectory() as place:
            found.save(Path(place, "found"))
            return FinishedTask(task, perturbation=Path(place, "found").read_bytes())

    def _attack(self, task: AttackTask) -> FinishedTask:
        if task.run != self._run:
            self._run, self._sent = task.run, set()
        clips, unused = self._load(task.plan, task.clips)
        work = self.work(task.plan, task.cell)
        metrics = self.metrics(task.plan)
        runner = CellRunner(
            task.plan,
            work,
            self._ready(task, work),
            {each.name: each.measure for each in metrics},
            self.device,
            {each.name: each.reasons for each in metrics},
            self._sent,
        )
        records, sounds = runner.run(clips)
        self._sent |= {record.clip for record in records if record.audio}
        return FinishedTask(task, tuple(unused + records), tuple(sounds))

    def _probe(self, task: ProbeTask) -> FinishedTask:
        plan = task.plan.model_copy(update={"audio": "none"})
        clips, _ = self._load(task.plan, task.clips)
        base = self.work(task.plan, task.cell)
        work = probe_work(base, task)
        assert isinstance(work.attack, Attack)
        measures = probe_measures(plan, base, self.target(task.plan), task.slopes)
        records, _ = CellRunner(plan, work, work.attack, measures, self.device).run(clips)
        return FinishedTask(task, tuple(records))

    def _ready(self, task: AttackTask, work: CellParts) -> Attack:
        """The attack of a cell: a universal one as it was fitted."""
        if isinstance(work.attack, Attack):
            return work.attack
        if task.perturbation is None:
            raise InputError(f"cell {task.cell!r}: expected its perturbation, got none; fit it first.")
        fitted = self._face(task.plan).fitted
        known = fitted.get(task.cell)
        if known is None or known[0] != task.perturbation:
            with TemporaryDirectory() as place:
                Path(place, "found").write_bytes(task.perturbation)
                known = task.perturbation, Perturbation.load(Path(place, "found"))
            fitted[task.cell] = known
        return known[1]

    def _load(self, plan: Plan, ids: tuple[str, ...]) -> tuple[list[Clip], list[Record]]:
        """Clips in the order asked for, and a record of each that cannot be used. The last ones are kept:
        the next task is likely to ask for them in another cell."""
        page = self._face(plan)
        if not page.clips.keys() >= set(ids):
            target, entries = self.target(plan), self._entries(plan)
            missing = [name for name in ids if name not in entries]
            if missing:
                raise InputError(
                    f"expected the clip {missing[0]!r} in {plan.data!r}, got a corpus without it; give every "
                    "worker the same clips."
                )
            page.clips = {}
            some = replace(self._whole(plan), entries=tuple(entries[name] for name in ids))
            for chunk in some.chunks(len(ids), target.sample_rate, plan.longest):
                kept, refused = usable(target, chunk.clips)
                page.clips |= {clip.id: clip for clip in kept}
                page.clips |= {each.id: each for each in [*chunk.failures, *refused]}
        found = [page.clips[name] for name in ids]
        unused = [
            failed(LOADING, item.id, item.label, item.reason) for item in found if isinstance(item, Failure)
        ]
        return [item for item in found if isinstance(item, Clip)], unused

    def _entries(self, plan: Plan) -> Mapping[str, Entry]:
        page = self._face(plan)
        page.entries = page.entries or {entry.id: entry for entry in self.settled(plan).corpus}
        return page.entries

    def _whole(self, plan: Plan) -> Corpus:
        """The corpus of a plan without its limit; the same for every plan that names it."""
        target = self.target(plan)
        name = f"{plan.data}\n{target.clips}"
        if self._corpus is None or self._corpus[0] != name:
            self._corpus = name, open_clips(plan.data, target)
        return self._corpus[1]

    def metrics(self, plan: Plan) -> list[Metric]:
        """What is measured of every trial of a plan."""
        page = self._face(plan)
        if page.metrics is None:
            page.metrics = find_metrics(plan, self.target(plan).says)
        return page.metrics

    def _face(self, plan: Plan) -> PlanState:
        """Cached state of this plan; evicts the state of any other plan."""
        page = self._page
        if page is None or (page.plan is not plan and page.plan != plan):
            self._page = None
            self.target(plan)
            page = self._page = PlanState(plan)
        return page


def _find(page: PlanState, cell: str) -> Cell:
    if not page.cells:
        known = page.plan.cells()
        fitted = [fitted_cell(each) for each in known if each.universal]
        page.cells = {each.id: each for each in [*fitted, *known]}
    return page.cells[cell]
