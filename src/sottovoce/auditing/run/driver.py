"""Running a plan: every clip through every cell, one record each.

The driver makes tasks, an engine has them done, and the driver alone writes what comes back: first the
sounds, then the lines that name them. So a kill at any moment loses only the tasks in progress.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import final
from uuid import uuid4

from sottovoce.auditing.checks.probes import probe_tasks
from sottovoce.auditing.engines.engine import Engine, InlineEngine
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.remote.remote_folder import settle
from sottovoce.auditing.results.csv_tables import write_tables
from sottovoce.auditing.run.corpus_manifest import hash_manifest, take_manifest
from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.fitting_clips import fitted_cell, fitting_set
from sottovoce.auditing.run.folder_lock import hold
from sottovoce.auditing.run.hide_paths import roots_of, without_paths
from sottovoce.auditing.run.repeatability import LOOKED_AT, Repeated
from sottovoce.auditing.run.run_cell import failed, skipped, tell
from sottovoce.auditing.run.run_folder import RunFolder, describe
from sottovoce.auditing.run.stop_signal import stopping
from sottovoce.auditing.run.tasks import (
    AttackTask,
    FinishedTask,
    FitTask,
    LostTask,
    ProbeTask,
    RepeatTask,
    Task,
    Unopened,
    halves,
)
from sottovoce.auditing.run.used_weights import digest_plan
from sottovoce.core.files.answer_store import ANSWERS, AskedService
from sottovoce.core.record import EVERY, LOADING, Key, RecordWriter, Status
from sottovoce.core.target import Target
from sottovoce.data.load import Corpus, spread
from sottovoce.errors import InputError, Stopped
from sottovoce.targets.open_target import find_device, open_target

__all__ = ["LOADING", "Advance", "find_device", "open_target", "run_audit"]

Advance = Callable[[int, str], None]
"""Called with the number of finished trials, and what is in progress."""


def run_audit(
    plan: Plan,
    out: Path,
    *,
    device: str = "auto",
    target: Target | None = None,
    engine: Engine | None = None,
    bench: Executor | None = None,
    retry_failed: bool = False,
    keep_going: bool = False,
    answers: Path | None = None,
    max_requests: int | None = None,
    begin: Callable[[int], None] = lambda trials: None,
    advance: Advance = lambda done, note: None,
) -> RunFolder:
    """Run what is not yet recorded. A bad plan raises before any work; a bad clip is recorded as failed.

    target: the plan's model where it is open already.
    engine: who does the work; None: this process, on `device`. It stays open.
    bench: what this process keeps open between runs, where the engine works elsewhere.
    retry_failed: whether what is recorded as failed is done again.
    keep_going: whether a model that cannot be opened and a cell that cannot be put together are recorded as
        failed, one record a cell, and the rest runs. What has begun is refused instead: it can be gone on
        with once the model, or the clips, are back.
    answers: the file for the answers of a model behind an address; None: one in the run's folder.
    max_requests: the most requests that such a model is sent, those of earlier times included.
    begin: called with the number of trials, once the model and the clips are open.

    SIGINT and SIGTERM stop it after the tasks in progress: `Stopped`. A second SIGINT does not wait.
    """
    if engine is None:
        with InlineEngine(device) as own:
            return run_audit(
                plan, out, target=target, engine=own, retry_failed=retry_failed, keep_going=keep_going,
                answers=answers, max_requests=max_requests, begin=begin, advance=advance,
            )  # fmt: skip
    folder = RunFolder(out)
    folder.check(plan)
    # An engine elsewhere has devices of its own: here the target is only looked at.
    bench = engine.bench or bench or Executor("cpu")
    if target is not None:
        bench.offer(plan.model, target)
    with hold(folder.path), stopping(lambda note: advance(0, note)) as stop:
        service = AskedService(answers or folder.path / ANSWERS, max_requests)
        Driver(plan, folder, engine, bench, stop, advance, retry_failed, keep_going, service).run(begin)
        write_tables(plan, folder)
    return folder


@final
class Driver:
    """One plan on its way into one folder, which nobody else writes to."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        engine: Engine,
        bench: Executor,
        stop: Callable[[], bool],
        advance: Advance,
        retry_failed: bool,
        keep_going: bool,
        service: AskedService,
    ) -> None:
        self.plan, self.folder, self.engine, self.bench = plan, folder, engine, bench
        self.stop, self.advance = stop, advance
        self.retry_failed, self.keep_going = retry_failed, keep_going
        self.service = service
        self.id, self.steady, self.answers = uuid4().hex, True, ""
        self.cells = plan.cells()
        keys = folder.keys()
        self.begun = {
            cell
            for (cell, clip), status in keys.items()
            if clip != EVERY and (cell, status) != (LOADING, "skipped")
        }
        self.unread = {clip for cell, clip in keys if cell == LOADING}
        self.done = self._on_record(keys)

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """What paths in records count from."""
        return roots_of(self.plan.data, self.plan.fit)

    def run(self, begin: Callable[[int], None]) -> None:
        try:
            self._run(begin)
        finally:
            if self.answers:
                self.folder.keep_requests(self.service.sent(self.plan.run_id))

    def _run(self, begin: Callable[[int], None]) -> None:
        self.cells = [cell for cell in self.cells if (cell.id, EVERY) not in self.done]
        broken = self._open() if self.cells else {}
        with self.folder.writer() as writer:
            self._drop(broken, writer)
            if not self.cells:
                return
            corpus = self.bench.corpus(self.plan)
            self._skip(writer)
            begin(len(corpus) * len(self.cells))
            try:
                perturbations, fit_ids = self._fit(corpus, writer)
                tasks = self._attacks(corpus, perturbations, fit_ids)
                self._finish(tasks, writer, self.done)
            except Unopened as error:
                if not self.keep_going or self.begun:
                    raise
                self._drop({cell.id: str(error) for cell in self.cells}, writer)
        if self.plan.probe and self.cells:
            self._probe()

    def _open(self) -> dict[str, str]:
        """Open what the plan names and make the folder. Cells that cannot be put together, and why."""
        plan, bench, broken = self.plan, self.bench, dict[str, str]()
        bench.treat(plan, steady=True)
        try:
            self.engine.offer(plan.model, bench.target(plan))
            corpus = bench.corpus(plan)
            repeated = self._hear_twice(corpus)
        except Stopped:
            raise
        # Someone's own model may raise anything.
        except Exception as error:
            if not self.keep_going:
                raise
            if self.begun:
                raise InputError(tell(error)) from error
            self.folder.prepare(plan, describe(plan.run_id, self.engine.device))
            return {cell.id: tell(error) for cell in self.cells}
        self.steady = repeated.steady
        bench.treat(plan, steady=self.steady)
        unfit = self._refuse_fit(corpus)
        for cell in self.cells:
            try:
                bench.work(plan, cell.id)
                if cell.universal and unfit is not None:
                    raise unfit
            except Exception as error:
                if not self.keep_going:
                    raise
                broken[cell.id] = tell(error)
        manifest = take_manifest(corpus, plan.data)
        remark = self.folder.check_corpus(corpus, manifest, began=bool(self.begun), unread=self.unread)
        about = describe(
            plan.run_id,
            self.engine.device,
            corpus.note,
            workers=self.engine.workers,
            corpus=hash_manifest(manifest),
            weights=digest_plan(plan, bench.target(plan), bench.metrics(plan)),
        )
        self.folder.prepare(plan, about)
        self.folder.keep_repeated(repeated)
        if bench.target(plan).paid:
            self.answers = self.service.limit()
        if remark:
            self.advance(0, remark)
        return broken

    def _hear_twice(self, corpus: Corpus) -> Repeated:
        """Whether the model answers the same clips alike: as it was when the run began, or asked now."""
        known = self.folder.repeated()
        if known is not None and (known.clips or known.said):
            return known
        if self.bench.target(self.plan).paid:
            return Repeated(asked=False)
        some = tuple(spread([entry.id for entry in corpus], LOOKED_AT))
        found = (done.repeated for done in self._drive([RepeatTask(self.plan, some)]))
        return sum((each for each in found if each is not None), Repeated())

    def _refuse_fit(self, corpus: Corpus) -> Exception | None:
        """Why nothing can be fitted, before anything is attacked: clips that are gone, or labels."""
        if self.plan.fit is None or not any(cell.universal for cell in self.cells):
            return None
        try:
            fitting_set(self.plan, corpus, self.bench.target(self.plan))
        except Exception as error:
            return error
        return None

    def _skip(self, writer: RecordWriter) -> None:
        """Record which clips are left out because of their label."""
        settled = self.bench.settled(self.plan)
        reasons = settled.reasons()
        fresh = [entry for entry in settled.skipped if (LOADING, entry.id) not in self.done]
        writer.write([skipped(entry.id, entry.label, reasons[entry.id]) for entry in fresh])

    def _fit(self, corpus: Corpus, writer: RecordWriter) -> tuple[dict[str, bytes], frozenset[str]]:
        """The perturbations of universal cells, by the cell, and the clips that they were fitted on."""
        universal = [cell for cell in self.cells if cell.universal]
        if not universal:
            return {}, frozenset()
        _, fit_ids = fitting_set(self.plan, corpus, self.bench.target(self.plan))
        judged = [entry.id for entry in corpus if entry.id not in fit_ids]
        wanted = [cell for cell in universal if self._todo(cell, judged)]
        paths = {cell.id: self.folder.perturbation_path(fitted_cell(cell).id) for cell in wanted}
        missing = dict.fromkeys(fitted_cell(cell).id for cell in wanted if not paths[cell.id].exists())
        tasks = (self._note(FitTask(self.plan, cell), f"fitting {cell}") for cell in missing)
        for done in self._drive(tasks):
            assert isinstance(done.task, FitTask)
            if done.perturbation is not None:
                self.folder.save_perturbation(
                    done.perturbation, self.folder.perturbation_path(done.task.cell)
                )
                continue
            if not self.keep_going:
                raise InputError(done.reason)
            lost = [cell.id for cell in wanted if fitted_cell(cell).id == done.task.cell]
            self._drop(dict.fromkeys(lost, done.reason), writer)
        return {cell: path.read_bytes() for cell, path in paths.items() if path.exists()}, fit_ids

    def _attacks(
        self, corpus: Corpus, perturbations: dict[str, bytes], fit_ids: frozenset[str]
    ) -> Iterator[Task]:
        """Chunk by chunk through every cell, so that a worker can keep the clips that it has loaded."""
        size, ids = self.plan.batch, [entry.id for entry in corpus]
        for first in range(0, len(ids), size):
            chunk = ids[first : first + size]
            for cell in self.cells:
                judged = [clip for clip in chunk if clip not in fit_ids] if cell.universal else chunk
                todo = self._todo(cell, judged)
                if len(todo) < len(chunk):
                    self.advance(len(chunk) - len(todo), cell.id)
                if todo:
                    yield AttackTask(self.plan, cell.id, todo, perturbations.get(cell.id), self.id)

    def _probe(self) -> None:
        """The strongest attacks again, once everything is on record."""
        done = self._on_record(self.folder.probe_keys())
        order = [entry.id for entry in self.bench.corpus(self.plan)]
        tasks = probe_tasks(
            self.plan, self.folder.records(), done, lambda cell: self.bench.work(self.plan, cell), order
        )
        with self.folder.probe_writer() as writer:
            self._finish((self._note(task, f"probing {task.name}") for task in tasks), writer, done)

    def _finish(self, tasks: Iterable[Task], writer: RecordWriter, on_record: dict[Key, Status]) -> None:
        """Have tasks done and write their results."""
        for done in self._drive(tasks):
            for sound in done.sounds:
                self.folder.save_sound(sound)
            fresh = [
                without_paths(record, self.roots) for record in done.records if record.key not in on_record
            ]
            writer.write(fresh)
            settle(self.folder.path)
            on_record.update({record.key: record.status for record in fresh})
            self.begun |= {record.cell for record in fresh}
            if isinstance(done.task, AttackTask):
                self.advance(len(done.task.clips), done.task.cell)

    def _drive(self, tasks: Iterable[Task]) -> Iterator[FinishedTask]:
        """The results of tasks. A lost task is handed out again, in halves while it has more than one
        clip."""
        again: deque[Task] = deque()
        alone: set[tuple[str, tuple[str, ...]]] = set()
        waiting = iter(tasks)

        def feed() -> Iterator[Task]:
            while (task := again.popleft() if again else next(waiting, None)) is not None:
                yield replace(task, steady=self.steady, answers=self.answers)

        while True:
            for outcome in self.engine.run(feed(), self.stop):
                if isinstance(outcome, FinishedTask):
                    yield outcome
                    continue
                task = outcome.task
                clips = () if isinstance(task, FitTask) else task.clips
                if not isinstance(task, FitTask) and len(clips) > 1:
                    again.extend(halves(task))
                elif (_name(task), clips) not in alone:
                    alone.add((_name(task), clips))
                    again.append(task)
                else:
                    yield _given_up(outcome, self._label)
            if self.stop() and next(feed(), None) is not None:
                raise Stopped(
                    f"stopped as requested; finished trials are in {self.folder.path}: run the same command "
                    "again to continue."
                )
            if not again:
                return

    def _todo(self, cell: Cell, clips: Sequence[str]) -> tuple[str, ...]:
        done = self.done
        return tuple(clip for clip in clips if (cell.id, clip) not in done and (LOADING, clip) not in done)

    def _on_record(self, keys: dict[Key, Status]) -> dict[Key, Status]:
        """What is not done again."""
        if not self.retry_failed:
            return keys
        return {key: status for key, status in keys.items() if status != "failed"}

    def _drop(self, broken: dict[str, str], writer: RecordWriter) -> None:
        """Record why cells cannot be run, and run the others."""
        for cell, reason in broken.items():
            if cell in self.begun:
                raise InputError(reason)
        whole = [failed(cell, EVERY, "", reason) for cell, reason in broken.items()]
        writer.write([without_paths(record, self.roots) for record in whole])
        self.cells = [cell for cell in self.cells if cell.id not in broken]

    def _label(self, clip: str) -> str:
        return next((entry.label for entry in self.bench.corpus(self.plan) if entry.id == clip), "")

    def _note(self, task: Task, note: str) -> Task:
        self.advance(0, note)
        return task


def _given_up(lost: LostTask, label: Callable[[str], str]) -> FinishedTask:
    """What is recorded of a task that nobody survives."""
    reason = f"the worker died on it twice ({lost.reason}); out of memory?"
    task = lost.task
    if isinstance(task, FitTask):
        return FinishedTask(task, reason=f"cell {task.cell!r}: {reason}")
    return FinishedTask(task, tuple(failed(_name(task), clip, label(clip), reason) for clip in task.clips))


def _name(task: Task) -> str:
    """The cell that its records name."""
    return task.name if isinstance(task, ProbeTask) else task.cell
