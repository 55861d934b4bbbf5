"""Running a plan: every clip through every cell, one record each, nothing lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

import torch

from sottovoce import registry
from sottovoce.audit.defense import Defense
from sottovoce.audit.fit import Batches, fitting_set, open_clips, usable
from sottovoce.audit.parts import Part
from sottovoce.audit.plan import Cell, Plan, attack_kind
from sottovoce.audit.store import RunFolder, describe
from sottovoce.core.attack import Attack, Trial
from sottovoce.core.budget import Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.metric import Metric
from sottovoce.core.record import Record
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged
from sottovoce.core.universal import Perturbation, UniversalAttack
from sottovoce.data.load import Clip, Corpus, collate
from sottovoce.errors import InputError, SottovoceError, StoreError
from sottovoce.metrics.parts import intensity_level

Advance = Callable[[int, str], None]
"""Told how many trials were finished, and what is under way."""
LOADING = "load"
"""The cell of a clip that could not be used in any."""


@dataclass(frozen=True)
class Work:
    """A cell with its parts built."""

    cell: Cell
    target: Target
    attack: Attack | UniversalAttack
    goal: Goal
    budget: Budget


def run_audit(
    plan: Plan,
    out: Path,
    *,
    device: str = "auto",
    target: Target | None = None,
    begin: Callable[[int], None] = lambda trials: None,
    advance: Advance = lambda done, note: None,
) -> RunFolder:
    """Run what is not yet recorded. A bad plan raises before any work; a bad clip is recorded as failed.

    target: the plan's model where it is open already.
    begin: told how many trials there will be, once the model and the clips are open.
    """
    device = find_device(device)
    target = open_target(plan.model, device) if target is None else target
    corpus = open_clips(plan.data, target)
    corpus = corpus.limit(plan.limit, plan.seed) if plan.limit else corpus
    begin(len(corpus) * len(plan.cells()))
    metrics = [metric for metric in _metrics(plan) if metric.says in (None, target.says)]
    works = [_assemble(plan, cell, target) for cell in plan.cells()]
    folder = RunFolder(out)
    folder.prepare(plan, describe(plan, device, corpus.note))
    done = {record.key for record in folder.records()}
    with folder.writer() as writer:
        fitted = [(work, *_ready(plan, work, corpus, folder, device, advance)) for work in works]
        for clips, failures in corpus.chunks(plan.batch, target.sample_rate):
            failed = [_failed(LOADING, item.id, item.label, item.reason) for item in failures]
            clips, refused = usable(target, clips)
            unfit = [_failed(LOADING, item.id, item.label, item.reason) for item in refused]
            writer.write([record for record in [*failed, *unfit] if record.key not in done])
            advance(len(failed + unfit) * len(works), "loading")
            for work, attack, held_out in fitted:
                todo = [clip for clip in clips if (work.cell.id, clip.id) not in done and held_out(clip.id)]
                runner = Runner(plan, work, attack, metrics, folder, device)
                writer.write(runner.records(todo))
                advance(len(clips), work.cell.id)
    return folder


@dataclass(frozen=True)
class Runner:
    """One cell at work on some clips."""

    plan: Plan
    work: Work
    attack: Attack
    metrics: Sequence[Metric]
    folder: RunFolder
    device: str

    def records(self, clips: Sequence[Clip]) -> list[Record]:
        """One record a clip. A batch that fails is halved until the clip that breaks it stands alone."""
        goal = self.work.goal
        about = {
            clip.id: clip.facts.get("language", "") if goal.about == "language" else clip.label
            for clip in clips
        }
        wanted = [clip for clip in clips if goal.applies(about[clip.id])]
        skipped = [
            Record(
                cell=self.work.cell.id,
                clip=clip.id,
                status="skipped",
                label=clip.label,
                reason="already says it",
            )
            for clip in clips
            if clip not in wanted
        ]
        return skipped + self._attacked(wanted)

    def _attacked(self, clips: Sequence[Clip]) -> list[Record]:
        if not clips:
            return []
        try:
            trial = self.attack(
                self.work.target,
                collate(clips).to(self.device),
                self.work.goal,
                self.work.budget,
                draws=Draws(self.plan.seed),
                labels=tuple(clip.label for clip in clips),
                facts=tuple(clip.facts for clip in clips),
                bits=self.plan.bits,
            )
            return self._judged(trial, clips)
        except StoreError:
            raise
        except (SottovoceError, RuntimeError, ArithmeticError, ValueError) as error:
            if len(clips) == 1:
                return [_failed(self.work.cell.id, clips[0].id, clips[0].label, str(error))]
            half = len(clips) // 2
            return self._attacked(clips[:half]) + self._attacked(clips[half:])

    def _judged(self, trial: Trial, clips: Sequence[Clip]) -> list[Record]:
        parts = {metric.name: metric.measure(trial).tolist() for metric in self.metrics}
        levels = intensity_level(trial.clean.waveforms, trial.clean.lengths)
        return [
            Record(
                cell=self.work.cell.id,
                clip=clip.id,
                status="ok",
                label=clip.label,
                clean_text=trial.clean_texts[row],
                adversarial_text=trial.adversarial_texts[row],
                achieved=trial.achieved[row],
                achieved_unrounded=trial.achieved_unrounded[row],
                seconds=len(clip.waveform) / clip.sample_rate,
                sample_rate=clip.sample_rate,
                loaded=clip.loaded,
                facts={"intensity": levels[row], **clip.facts, **_heard(trial, row)},
                parts={name: rows[row] for name, rows in parts.items()},
                audio=self._save(trial, row, clip.id),
            )
            for row, clip in enumerate(clips)
        ]

    def _save(self, trial: Trial, row: int, clip: str) -> dict[str, str]:
        if self.plan.audio == "none":
            return {}
        rate, bits = trial.clean.sample_rate, self.plan.bits
        return {
            "clean": self.folder.save_audio("clean", clip, trial.clean.clip(row), rate, bits),
            "adversarial": self.folder.save_audio(
                self.work.cell.id, clip, trial.adversarial.clip(row), rate, bits
            ),
        }


def _heard(trial: Trial, row: int) -> dict[str, str]:
    """The languages that were detected in a clip before and after, where the target tells them."""
    if trial.languages is None:
        return {}
    before, after = trial.languages
    return {"heard_before": before[row], "heard_after": after[row]}


def open_target(spec: str, device: str) -> Target:
    """A target from `name`, `name:argument` such as `huggingface:FOLDER`, or `name(setting=value, ...)`."""
    if spec.endswith(")"):
        part = Part.parse(spec)
        made: Target = registry.build("target", part.name, {**part.settings, "device": device})
        return made
    name, _, argument = spec.partition(":")
    maker = registry.find("target", name)
    words = [argument] if argument else []
    try:
        signature(maker).bind(*words, device=device)
    except TypeError:
        wanted = [word for word in signature(maker).parameters if word != "device"]
        usage = ":".join([name, *(word.upper() for word in wanted[:1])])
        raise InputError(f"expected a model like {usage}, got {spec!r}; write it that way.") from None
    target: Target = maker(*words, device=device)
    return target


def _metrics(plan: Plan) -> list[Metric]:
    return [registry.find("metric", name)() for name in plan.metrics or registry.names("metric")]


def find_device(name: str = "auto") -> str:
    """The fastest device there is, or the one asked for."""
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _assemble(plan: Plan, cell: Cell, target: Target) -> Work:
    heard = Defense.parse(cell.defense).around(target)
    heard = Averaged(heard, plan.average) if plan.average > 1 else heard
    attack = cell.attack.build(attack_kind(cell.attack.name))
    goal = cell.goal.build("goal").heard_by(target)
    work = Work(cell, heard, attack, goal, cell.budget.build("budget"))
    if isinstance(attack, Attack):
        attack.check(heard, goal, work.budget)
    for kind in (*attack.needs, *goal.needs):
        heard.power(kind)
    goal.check(target)
    return work


def _ready(
    plan: Plan, work: Work, corpus: Corpus, folder: RunFolder, device: str, advance: Advance
) -> tuple[Attack, Callable[[str], bool]]:
    """The attack of a cell, and which clips it may be judged on: those it was not fitted on."""
    if isinstance(work.attack, Attack):
        return work.attack, lambda clip: True
    fit_corpus, fit_ids = fitting_set(plan, corpus, work.target)
    path = folder.perturbation_path(work.cell.id)
    if not path.exists():
        advance(0, f"fitting {work.cell.id}")
        batches = Batches(fit_corpus, work.target, plan.batch, device)
        found = work.attack.fit(work.target, batches, work.goal, work.budget, draws=Draws(plan.seed))
        folder.save_perturbation(found, path)
    return Perturbation.load(path), lambda clip: clip not in fit_ids


def _failed(cell: str, clip: str, label: str, reason: str) -> Record:
    return Record(cell=cell, clip=clip, status="failed", label=label, reason=reason)
