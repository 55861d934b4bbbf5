"""Probes: the strongest attack on each target once more, on a few clips, with more steps and more passes.

An attack that would do better if it tried harder says little of a defense, and neither does one whose
gradient is zero. The records of a plan cannot tell, because every cell has one setting. Probes are records
too, in a file of their own; `sottovoce.audit.sanity` reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sottovoce import registry
from sottovoce.audit.defense import NO_DEFENSE
from sottovoce.audit.fit import usable
from sottovoce.audit.parts import Part
from sottovoce.audit.plan import Cell, Plan
from sottovoce.audit.store import RunFolder
from sottovoce.audit.summary import LEADS, Outcomes, gather, lead_of
from sottovoce.audit.work import Measure, Runner, Work, assemble
from sottovoce.core.attack import Attack, Trial, climb
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged
from sottovoce.data.load import Clip, Corpus

Measures = dict[str, Measure]
HEARINGS = 32
"""Fresh passes of a random target over which the objective of a finished example is averaged."""
MORE = 2
"""How many times the steps, and how many times the passes."""
NOTHING_LEFT = 1.0
"""A leading figure from which on trying harder is of no use."""


def run_probes(
    plan: Plan,
    folder: RunFolder,
    corpus: Corpus,
    target: Target,
    device: str,
    tell: Callable[[str], None] = lambda note: None,
) -> None:
    """Probe every target of a plan whose records are complete, but for what was probed before."""
    if not plan.probe:
        return
    silent = plan.model_copy(update={"audio": "none"})
    done = {record.key for record in folder.probes()}
    outcomes = gather(folder.records())
    with folder.probe_writer() as writer:
        for cell, lead in choose_cells(plan, outcomes):
            clips = _load(corpus, target, spread(list(outcomes[cell.id].values(lead)), plan.probe), plan)
            # Where the attack leaves nothing to gain, its gradient is all there is to look at.
            harder = outcomes[cell.id].ratio(lead) < NOTHING_LEFT
            for work, measures in _works(plan, cell, target, harder):
                assert isinstance(work.attack, Attack)
                todo = [clip for clip in clips if (work.name, clip.id) not in done]
                if todo:
                    tell(f"probing {work.name}")
                    runner = Runner(silent, work, work.attack, measures, folder, device)
                    writer.write(runner.records(todo))


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


def spread(names: Sequence[str], count: int) -> list[str]:
    """At most `count` of the names, evenly over all of them: neighbours are often of one class."""
    if len(names) <= count:
        return list(names)
    return [names[place * len(names) // count] for place in range(count)]


def _load(corpus: Corpus, target: Target, names: Sequence[str], plan: Plan) -> list[Clip]:
    wanted = set(names)
    some = replace(corpus, entries=tuple(entry for entry in corpus if entry.id in wanted))
    return [
        clip for clips, _ in some.chunks(plan.batch, target.sample_rate) for clip in usable(target, clips)[0]
    ]


def _works(plan: Plan, cell: Cell, bare: Target, harder: bool) -> Iterator[tuple[Work, Measures]]:
    """The cell as it was, then with more steps and, where the target is random, with more passes."""
    work, steps = assemble(plan, cell, bare), steps_of(cell.attack)
    passes = plan.passes(work.target)
    known = [] if cell.defense == NO_DEFENSE else [bare]
    yield _changed(work, steps, passes), _measures(plan, work, [work.through, *known])
    if harder and steps is not None:
        yield _changed(work, MORE * steps, passes), _measures(plan, work)
    if harder and work.target.random:
        yield _changed(work, steps, MORE * passes), _measures(plan, work)


def _changed(work: Work, steps: int | None, passes: int) -> Work:
    part, words = work.cell.attack, [work.cell.id]
    facts = {
        "probe": work.cell.id,
        "defense": work.cell.defense,
        "random": "yes" if work.target.random else "no",
        "passes": str(passes),
    }
    if steps is not None:
        part = Part(part.name, {**part.settings, "steps": steps})
        facts["steps"] = str(steps)
        words.append(f"steps-{steps}")
    return replace(
        work,
        attack=part.build("attack"),
        through=Averaged(work.target, passes) if passes > 1 else work.target,
        name="_".join([*words, f"passes-{passes}"]),
        facts=facts,
    )


def steps_of(attack: Part) -> int | None:
    """How many steps an attack takes; None where it knows none."""
    found = {**registry.defaults("attack", attack.name), **attack.settings}.get("steps")
    return found if isinstance(found, int) else None


def _measures(plan: Plan, work: Work, slopes: Sequence[Target] = ()) -> Measures:
    """What is recorded of a probe: the figures that may lead, and the objective before and after.

    slopes: the target that the attack works on and the bare model, where the lengths of their gradients at
        the clean clip are wanted.
    """
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
        **{name: slope(known) for name, known in zip(("gradient", "bare-gradient"), slopes, strict=False)},
    }


def _parts(values: Tensor) -> Tensor:
    """`(batch, 2)`: each value with a weight of 1."""
    values = values.detach().double().cpu()
    return torch.stack([values, torch.ones_like(values)], dim=1)
