"""Running a plan: every clip through every cell, one record each, nothing lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path

import torch

from sottovoce import registry
from sottovoce.audit.defense import NO_DEFENSE
from sottovoce.audit.fit import Batches, fitting_set, open_clips, usable
from sottovoce.audit.parts import Part
from sottovoce.audit.plan import Cell, Plan
from sottovoce.audit.probe import run_probes
from sottovoce.audit.store import RunFolder, describe
from sottovoce.audit.work import Runner, Work, assemble, failed
from sottovoce.core.attack import Attack
from sottovoce.core.draws import Draws
from sottovoce.core.metric import Metric
from sottovoce.core.target import Target
from sottovoce.core.universal import Perturbation
from sottovoce.data.load import Corpus, Failure
from sottovoce.errors import InputError

Advance = Callable[[int, str], None]
"""Told how many trials were finished, and what is under way."""
LOADING = "load"
"""The cell of a clip that could not be used in any."""


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
    metrics = [each for each in _metrics(plan) if each.says in (None, target.says)]
    measures = {each.name: each.measure for each in metrics}
    reasons = {each.name: each.reasons for each in metrics}
    works = [assemble(plan, cell, target) for cell in plan.cells()]
    folder = RunFolder(out)
    folder.prepare(plan, describe(plan.run_id, device, corpus.note))
    done = {record.key for record in folder.records()}
    with folder.writer() as writer:
        fitted = [(work, *_ready(plan, work, corpus, folder, device, advance)) for work in works]
        for clips, failures in corpus.chunks(plan.batch, target.sample_rate):
            clips, refused = usable(target, clips)
            unused: list[Failure] = [*failures, *refused]
            lost = [failed(LOADING, item.id, item.label, item.reason) for item in unused]
            writer.write([record for record in lost if record.key not in done])
            advance(len(lost) * len(works), "loading")
            for work, attack, held_out in fitted:
                todo = [clip for clip in clips if (work.cell.id, clip.id) not in done and held_out(clip.id)]
                runner = Runner(plan, work, attack, measures, folder, device, reasons)
                writer.write(runner.records(todo))
                advance(len(clips), work.cell.id)
    run_probes(plan, folder, corpus, target, device, lambda note: advance(0, note))
    return folder


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
    found = [registry.find("metric", name)() for name in plan.metrics or registry.names("metric")]
    return [each for each in found if plan.metrics or each.measured == "always"]


def find_device(name: str = "auto") -> str:
    """The fastest device there is, or the one asked for."""
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _ready(
    plan: Plan, work: Work, corpus: Corpus, folder: RunFolder, device: str, advance: Advance
) -> tuple[Attack, Callable[[str], bool]]:
    """The attack of a cell, and which clips it may be judged on: those it was not fitted on."""
    if isinstance(work.attack, Attack):
        return work.attack, lambda clip: True
    fit_corpus, fit_ids = fitting_set(plan, corpus, work.through)
    path = folder.perturbation_path(_fitted(work.cell).id)
    if not path.exists():
        advance(0, f"fitting {work.cell.id}")
        batches = Batches(fit_corpus, work.through, plan.batch, device)
        found = work.attack.fit(work.through, batches, work.goal, work.budget, draws=Draws(plan.seed))
        folder.save_perturbation(found, path)
    return Perturbation.load(path), lambda clip: clip not in fit_ids


def _fitted(cell: Cell) -> Cell:
    """The cell whose perturbation is played: one that knows no defense is fitted on the bare model, once."""
    if cell.attacker != "transfer":
        return cell
    return replace(cell, defense=NO_DEFENSE, attacker="plain")
