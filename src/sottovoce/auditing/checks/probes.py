"""Probes: the strongest attack on each target once more, on a few clips, with more steps and more passes.

An attack that would do better with more steps says little about a defense, and neither does one whose
gradient is zero. The records of a plan cannot show this, because every cell has one setting. Probes are
records too, in a file of their own; `sottovoce.auditing.checks.sanity` reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sottovoce import registry
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results.summary import LEADS, Outcomes, gather, lead_of
from sottovoce.auditing.run.run_cell import CellParts, Measure
from sottovoce.auditing.run.tasks import ProbeTask
from sottovoce.core.attack import Trial, climb
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.record import Key, Record
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged
from sottovoce.data.load import spread
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.registry.part_text import Part

Measures = dict[str, Measure]
HEARINGS = 32
"""Fresh passes of a random target over which the objective of a finished example is averaged."""
MORE = 2
"""How many times the steps, and how many times the passes."""
NOTHING_LEFT = 1.0
"""A leading figure from which on trying harder is of no use."""


def probe_tasks(
    plan: Plan,
    records: Iterable[Record],
    done: Container[Key],
    work_of: Callable[[str], CellParts],
    order: Sequence[str],
) -> Iterator[ProbeTask]:
    """What is left to probe of a plan whose records are complete: the strongest attack on each target.

    done: the keys of probes on record. work_of: a cell with its parts built, by its id.
    order: all clips in the order of the corpus, since records come in any.
    """
    if not plan.probe:
        return
    outcomes, ranks = gather(records), {clip: rank for rank, clip in enumerate(order)}
    for cell, lead in choose_cells(plan, outcomes):
        known = sorted(outcomes[cell.id].values(lead), key=ranks.__getitem__)
        clips = spread(known, plan.probe)
        # Where the attack leaves nothing to gain, its gradient is all there is to look at.
        harder = outcomes[cell.id].ratio(lead) < NOTHING_LEFT
        for steps, passes in _settings(plan, work_of(cell.id), harder):
            name = _name(cell, steps, passes)
            todo = [clip for clip in clips if (name, clip) not in done]
            slopes = (steps, passes) == (steps_of(cell.attack), plan.passes(work_of(cell.id).target))
            for first in range(0, len(todo), plan.batch):
                some = tuple(todo[first : first + plan.batch])
                yield ProbeTask(plan, cell.id, some, name, steps, passes, slopes)


def choose_cells(plan: Plan, outcomes: Mapping[str, Outcomes]) -> list[tuple[Cell, str]]:
    """For every defense and goal the cell to probe, and the metric that leads there.

    It is the strongest attack through the defense that has steps, at the budget where it is nearest to half
    of the clips: that is where more of them could fall.
    """
    worded = any("wer" in found.parts for found in outcomes.values())
    groups: defaultdict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in plan.cells():
        white = cell.sees == "gradient" and cell.attacker != "transfer" and not cell.universal
        if white and cell.id in outcomes and outcomes[cell.id].values(lead_of(cell, worded)):
            groups[cell.defense, str(cell.goal)].append(cell)
    return [
        (_choose(cells, outcomes, lead), lead)
        for cells in groups.values()
        for lead in [lead_of(cells[0], worded)]
    ]


def _choose(cells: Sequence[Cell], outcomes: Mapping[str, Outcomes], lead: str) -> Cell:
    cells = [cell for cell in cells if steps_of(cell.attack) is not None] or cells
    strongest: dict[str, tuple[float, Cell]] = {}
    for cell in cells:
        value = outcomes[cell.id].ratio(lead)
        if str(cell.budget) not in strongest or value > strongest[str(cell.budget)][0]:
            strongest[str(cell.budget)] = value, cell

    def rank(found: tuple[float, Cell]) -> tuple[float, float, float]:
        """Nearest to half; of equals the one with more to gain, then the louder one."""
        value, cell = found
        return abs(min(value, 1.0) - 0.5), value, outcomes[cell.id].ratio("snr")

    return min(strongest.values(), key=rank)[1]


def _settings(plan: Plan, work: CellParts, harder: bool) -> Iterator[tuple[int | None, int]]:
    """Steps and passes: as they were, then more steps and, where the target is random, more passes."""
    steps, passes = steps_of(work.cell.attack), plan.passes(work.target)
    yield steps, passes
    if harder and steps is not None:
        yield MORE * steps, passes
    if harder and work.target.random:
        yield steps, MORE * passes


def _name(cell: Cell, steps: int | None, passes: int) -> str:
    words = [cell.id] if steps is None else [cell.id, f"steps-{steps}"]
    return "_".join([*words, f"passes-{passes}"])


def probe_work(work: CellParts, task: ProbeTask) -> CellParts:
    """A cell with the steps and the passes of a probe."""
    part = work.cell.attack
    facts = {
        "probe": work.cell.id,
        "defense": work.cell.defense,
        "random": "yes" if work.target.random else "no",
        "passes": str(task.passes),
    }
    if task.steps is not None:
        part = Part(part.name, {**part.settings, "steps": task.steps})
        facts["steps"] = str(task.steps)
    return replace(
        work,
        attack=part.build("attack"),
        through=Averaged(work.target, task.passes) if task.passes > 1 else work.target,
        name=task.name,
        facts=facts,
    )


def steps_of(attack: Part) -> int | None:
    """How many steps an attack takes; None where it knows none."""
    found = {**registry.defaults("attack", attack.name), **attack.settings}.get("steps")
    return found if isinstance(found, int) else None


def probe_measures(plan: Plan, work: CellParts, bare: Target, slopes: bool) -> Measures:
    """What is recorded of a probe: the figures that may lead, and the objective before and after.

    slopes: whether the lengths of gradients at the clean clip are wanted too, of the target that the attack
        works on and, behind a defense, of the bare model.
    """
    followed = [work.through, *([] if work.cell.defense == NO_DEFENSE else [bare])] if slopes else []
    draws, target, goal = Draws(plan.seed).turn("probe"), work.target, work.goal
    fair = Averaged(target, HEARINGS) if target.random else target
    metrics = [registry.find("metric", name)() for name in LEADS]
    measures: Measures = {each.name: each.measure for each in metrics if each.says in (None, target.says)}

    def objective(trial: Trial, batch: AudioBatch) -> Tensor:
        with torch.no_grad():
            return _parts(goal.bind(trial.references).objective(fair, batch, draws=draws))

    def slope(known: Target) -> Measure:
        def measure(trial: Trial) -> Tensor:
            start = torch.zeros_like(trial.clean.waveforms)
            _, gradient = climb(known, trial.clean, start, goal.bind(trial.references), draws)
            return _parts(torch.linalg.vector_norm(gradient.double(), dim=1))

        return measure

    return {
        **measures,
        "objective": lambda trial: objective(trial, trial.adversarial),
        "clean-objective": lambda trial: objective(trial, trial.clean),
        **{name: slope(known) for name, known in zip(("gradient", "bare-gradient"), followed, strict=False)},
    }


def _parts(values: Tensor) -> Tensor:
    """`(batch, 2)`: each value with a weight of 1."""
    values = values.detach().double().cpu()
    return torch.stack([values, torch.ones_like(values)], dim=1)
