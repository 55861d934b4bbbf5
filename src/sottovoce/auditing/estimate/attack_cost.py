"""What attacks cost, measured: each on a clip or two, with as many of its steps as the time allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Literal, final

import torch

from sottovoce import registry
from sottovoce.auditing.estimate.pass_counter import Counted
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.run.run_cell import CellParts, CellRunner, Measure, find_metrics
from sottovoce.core.attack import Attack
from sottovoce.core.draws import Draws
from sottovoce.core.universal_attack import Perturbation, UniversalAttack
from sottovoce.data.load import Clip, collate
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part, attack_kind

How = Literal["measured", "fewer steps", "by comparison", "unknown"]
"""How a cost is known. fewer steps: measured with fewer steps and extrapolated linearly. by comparison:
scaled by what this defense adds to the cost of another attack."""
Act = Callable[[], None]
Once = Callable[[Attack | UniversalAttack], "Cost"]
STEPS = ("steps", "masking_steps", "epochs")
"""Settings in which the cost of an attack is a straight line."""
PATIENCE_SECONDS = 5.0
"""How long a first try may take for there to be a second, with twice the steps."""


@final
@dataclass(frozen=True)
class Cost:
    """Of one clip: passes forward and back, and seconds."""

    forward: float
    backward: float
    seconds: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.forward + other.forward, self.backward + other.backward, self.seconds + other.seconds
        )

    def times(self, factor: float) -> Cost:
        return Cost(factor * self.forward, factor * self.backward, factor * self.seconds)


def draw_out(first: Cost, taken: int, last: Cost, steps: int, fixed_seconds: float, gain: float) -> Cost:
    """The cost of `steps` steps, from the cost of one and of those `taken`.

    Passes are counted, and lie on a line. Seconds are not so sure: what a step takes is a share of all but
    fixed_seconds, which are those of a clip that is judged, measured and saved without an attack.
    gain: what a full batch makes of the seconds of a step; the fixed ones go clip by clip.
    """

    def line(one: float, many: float) -> float:
        return many * steps / taken if taken == 1 else one + (many - one) * (steps - 1) / (taken - 1)

    fixed = min(fixed_seconds, last.seconds)
    return Cost(
        line(first.forward, last.forward),
        line(first.backward, last.backward),
        fixed + gain * (last.seconds - fixed) * steps / taken,
    )


NOTHING = Cost(0.0, 0.0, 0.0)


@final
@dataclass(frozen=True)
class Timed:
    """A cost and how it is known. reason: why it is not, where it is not."""

    cost: Cost
    how: How
    reason: str = ""


def unknown(reason: str) -> Timed:
    return Timed(NOTHING, "unknown", reason)


@final
@dataclass(frozen=True)
class Stopwatch:
    """Measures the cost of cells on some clips. target: the model that they attack.

    gain: seconds of a pass for a clip in a full batch, as a share of those on these clips.
    """

    plan: Plan
    target: Counted
    clips: Sequence[Clip]
    device: str
    gain: float = 1.0

    def attack(self, work: CellParts, seconds: float) -> Timed:
        """The cost of a cell on single clips, measured in about this many seconds."""
        fixed = self.play(work).cost.seconds
        return self._grow(work.cell.attack, seconds, fixed, lambda attack: self._run(work, attack))

    def play(self, work: CellParts) -> Timed:
        """A perturbation that is there already: what an attack costs beyond finding one."""
        found = Perturbation(torch.full((1,), 2.0**-10), self.target.sample_rate)
        return Timed(self._run(work, found), "measured")

    def _run(self, work: CellParts, attack: Attack | UniversalAttack) -> Cost:
        clips = [clip for clip in self.clips if _applies(work, clip)]
        if not clips:
            raise InputError("the goal does not apply to the clips that were tried")
        assert isinstance(attack, Attack)
        runner = CellRunner(self.plan, work, attack, self._measures, self.device)
        return self._taken(lambda: _succeed(runner, clips), len(clips))

    def fit(self, work: CellParts, seconds: float) -> Timed:
        """A universal attack fitted: the cost of one clip among those that it is fitted on."""
        batches = [collate(self.clips).to(self.device)]

        def once(attack: Attack | UniversalAttack) -> Cost:
            assert isinstance(attack, UniversalAttack)

            def fit() -> None:
                attack.fit(work.through, batches, work.goal, work.budget, draws=Draws(self.plan.seed))

            return self._taken(fit, len(self.clips))

        return self._grow(work.cell.attack, seconds, 0.0, once)

    def _grow(self, part: Part, seconds: float, fixed_seconds: float, once: Once) -> Timed:
        """With twice the steps again and again, until all are taken, or no more are needed, or time is up."""
        kind, full = attack_kind(part.name), steps_of(part)
        end = perf_counter() + seconds
        if not full:
            return Timed(once(part.build(kind)), "measured")
        most, taken = max(full.values()), 1
        first = last = None
        while True:
            began = perf_counter()
            now = once(_with(part, full, min(1.0, taken / most)).build(kind))
            first = first or now
            spent, now_at = perf_counter() - began, perf_counter()
            # Some find what they look for before their steps are over.
            if taken >= most or (last is not None and now.forward <= last.forward):
                return Timed(now, "measured")
            # The next try may run over: where the attack stops by itself it shows there, and costs nothing.
            late = now_at > end if last is not None else spent > PATIENCE_SECONDS
            if late:
                cost = draw_out(first, taken, now, most, fixed_seconds, self.gain)
                return Timed(cost, "fewer steps")
            last, taken = now, 2 * taken

    def _taken(self, act: Act, clips: int) -> Cost:
        before = self.target.counts.copy()
        wait(self.device)
        began = perf_counter()
        act()
        wait(self.device)
        seconds, counts = perf_counter() - began, self.target.counts - before
        return Cost(counts.forward, counts.backward, seconds).times(1 / clips)

    @cached_property
    def _measures(self) -> dict[str, Measure]:
        return {each.name: each.measure for each in find_metrics(self.plan, self.target.says)}


def steps_of(part: Part) -> dict[str, int]:
    """The settings of an attack that count its steps, as they are."""
    known = {**registry.defaults(attack_kind(part.name), part.name), **part.settings}
    return {name: known[name] for name in STEPS if isinstance(known.get(name), int)}


def _with(part: Part, full: Mapping[str, int], share: float) -> Part:
    """The same attack with a share of its steps, of every kind one at least."""
    fewer = {name: max(1, round(share * steps)) for name, steps in full.items()}
    return Part(part.name, {**part.settings, **fewer})


def _applies(work: CellParts, clip: Clip) -> bool:
    about = clip.facts.get("language", "") if work.goal.about == "language" else clip.label
    return work.goal.applies(about)


def _succeed(runner: CellRunner, clips: Sequence[Clip]) -> None:
    records, _ = runner.run(clips)
    for record in records:
        if record.status == "failed":
            raise InputError(record.reason)


def wait(device: str) -> None:
    """For what a GPU has still to do."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device == "mps":
        torch.mps.synchronize()
