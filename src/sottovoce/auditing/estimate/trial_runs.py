"""Trying every attack of a plan on a clip or two, within some seconds: what it costs, and how much memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import final

import torch

from sottovoce.auditing.estimate.attack_cost import Cost, Stopwatch, Timed, unknown, wait
from sottovoce.auditing.estimate.pass_counter import Counted
from sottovoce.auditing.estimate.peak_memory import current_bytes, peak_bytes, reset_peak
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.run.fitting_clips import usable
from sottovoce.auditing.run.repeatability import CLIPS, Repeated, hear_twice
from sottovoce.auditing.run.run_cell import FAILURES, CellParts, explain, free_memory
from sottovoce.core.attack import decode
from sottovoce.core.draws import Draws
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged
from sottovoce.data.load import Clip, Corpus, collate
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.errors import SottovoceError, exits_are_errors

Key = tuple[str, str, str, str]
"""Defense, attack, attacker and goal: cells that differ in the budget alone cost the same."""
FULL_BATCH_SECONDS = 3.0
"""The most that a pass over a full batch may take; a slower model is tried with fewer clips."""
SHORTEST_SECONDS = 0.5
"""In less than that nothing is learned of an attack; rather the last of many are compared than tried."""
LOOKED_AT = 8
"""Clips that are loaded to find some that can be used."""
GAINS = (0.02, 1.5)
"""Seconds a clip in a full batch, as a share of those in a small one: what lies outside is noise."""


def key_of(cell: Cell) -> Key:
    return cell.defense, str(cell.attack), cell.attacker, str(cell.goal)


def by_key(works: Sequence[CellParts]) -> dict[Key, list[CellParts]]:
    found: dict[Key, list[CellParts]] = {}
    for work in works:
        found.setdefault(key_of(work.cell), []).append(work)
    return found


@final
@dataclass(frozen=True)
class Full:
    """A pass over a full batch. gain: seconds a clip there, as a share of those in a batch of two."""

    gain: float = 1.0
    memory_bytes: int = 0
    note: str = ""


@final
@dataclass(frozen=True)
class MeasuredCosts:
    """costs: of a clip. fits: of a clip that a universal attack is fitted on."""

    costs: dict[Key, Timed] = field(default_factory=dict)
    fits: dict[Key, Timed] = field(default_factory=dict)
    full: Full = field(default_factory=Full)


def find_clips(corpus: Corpus, target: Target, longest_seconds: float) -> list[Clip]:
    """A few clips that the target can hear, from all over the corpus."""
    places = [(2 * turn + 1) * len(corpus) // (2 * LOOKED_AT) for turn in range(LOOKED_AT)]
    found: list[Clip] = []
    for place in dict.fromkeys(places):
        try:
            clip = corpus.load(corpus.entries[place], target.sample_rate, longest_seconds)
        except SottovoceError:
            continue
        found += usable(target, [clip])[0]
    return found


def ask_twice(plan: Plan, target: Counted, clips: Sequence[Clip], device: str) -> tuple[Repeated, Cost]:
    """Whether the model repeats itself, as the run would ask, and what that takes."""
    before, began = target.counts.copy(), perf_counter()
    found = hear_twice(target, clips[:CLIPS], batch=plan.batch, device=device, seed=plan.seed)
    wait(device)
    counts = target.counts - before
    return found, Cost(counts.forward, counts.backward, perf_counter() - began)


def try_out(
    plan: Plan,
    works: Sequence[CellParts],
    target: Counted,
    clips: Sequence[Clip],
    device: str,
    seconds: float,
) -> MeasuredCosts:
    """The cost of every key of these works; those for which there is no time are compared with others.

    target: the model that they attack.
    """
    groups = by_key(works)
    if not groups:
        return MeasuredCosts()
    if not clips:
        return MeasuredCosts({key: unknown("no clip can be used") for key in groups})
    full = pass_full_batch(plan, works, target, clips, device)
    watch = Stopwatch(plan, target, clips, device, full.gain)
    _tried(lambda: watch.play(works[0]))  # the first sets metrics up, and is not counted
    found, end = MeasuredCosts(full=full), perf_counter() + seconds
    order = _in_order(groups)
    for place, key in enumerate(order):
        left = end - perf_counter()
        if left <= 0:
            break
        slot = max(SHORTEST_SECONDS, left / (len(order) - place))
        work = groups[key][len(groups[key]) // 2]
        if work.cell.universal:
            if not _is_shared(key, groups):
                found.fits[key] = _tried(partial(watch.fit, work, slot))
            found.costs[key] = _tried(partial(watch.play, work))
        else:
            found.costs[key] = _tried(partial(watch.attack, work, slot))
    for key in order:
        if key not in found.costs:
            found.costs[key] = compare(key, found.costs)
            if groups[key][0].cell.universal and not _is_shared(key, groups):
                found.fits[key] = compare(key, found.fits)
    return found


def _is_shared(key: Key, groups: Mapping[Key, Sequence[CellParts]]) -> bool:
    """Whether a transferred attack plays what was fitted for the bare model in a cell of its own."""
    return key[2] == "transfer" and (NO_DEFENSE, key[1], "plain", key[3]) in groups


def _tried(measure: Callable[[], Timed]) -> Timed:
    try:
        with exits_are_errors():
            return measure()
    except FAILURES as error:
        reason = explain(error)
    free_memory()
    return unknown(reason)


def _in_order(groups: Mapping[Key, Sequence[CellParts]]) -> list[Key]:
    """First what the rest can be compared with: every attack behind the first defense, and behind each
    other one attack of each form."""
    first = next(iter(groups))[0] if groups else ""
    seen: set[tuple[str, str]] = set()

    def rank(key: Key) -> int:
        form = key[0], key[2]
        known = form in seen
        seen.add(form)
        return 0 if key[0] == first else 2 if known else 1

    ranks = {key: rank(key) for key in groups}
    return sorted(groups, key=lambda key: ranks[key])


def compare(key: Key, costs: Mapping[Key, Timed]) -> Timed:
    """The cost of an attack behind a defense, from its cost behind another one and from what the defense
    makes of a third attack, which was measured behind both."""
    defense, attack, attacker, goal = key
    known = {place: timed.cost for place, timed in costs.items() if timed.how != "unknown"}
    bases = {place: cost for place, cost in known.items() if place[1] == attack and place[3] == goal}
    here = {place: cost for place, cost in known.items() if place[0] == defense and place[2] == attacker}
    for (other, *_), base in bases.items():
        for (_, third, _, aim), dear in here.items():
            cheap = [
                cost
                for place, cost in known.items()
                if (place[0], place[1], place[3]) == (other, third, aim) and other != defense
            ]
            if cheap:
                # One that knows nothing of the defense meets it when it is judged, and not at every step.
                change = _add if attacker == "transfer" else _scale
                return Timed(change(base, dear, cheap[0]), "by comparison")
    return unknown("there was no time to try it")


def _add(base: Cost, more: Cost, less: Cost) -> Cost:
    return Cost(
        base.forward + more.forward - less.forward,
        base.backward + more.backward - less.backward,
        base.seconds + max(0.0, more.seconds - less.seconds),
    )


def _scale(base: Cost, more: Cost, less: Cost) -> Cost:
    def ratio(one: float, two: float) -> float:
        return one / two if two > 0 else 1.0

    return Cost(
        base.forward * ratio(more.forward, less.forward),
        base.backward * ratio(more.backward, less.backward),
        base.seconds * ratio(more.seconds, less.seconds),
    )


def pass_full_batch(
    plan: Plan, works: Sequence[CellParts], target: Target, clips: Sequence[Clip], device: str
) -> Full:
    """One gradient on as many clips as the plan attacks at once: what it takes, and how much memory. Where
    nothing is attacked, or the target has no gradient, one pass forward."""
    rows = max((_rows(plan, work) for work in works), default=plan.batch)
    try:
        climb = not plan.clean and target.shows == "gradient"
        _pass_seconds(target, clips, len(clips), device, climb)  # the first pass sets things up
        few = _pass_seconds(target, clips, len(clips), device, climb) / len(clips)
        most = max(len(clips), min(plan.batch, int(FULL_BATCH_SECONDS / max(few, 1e-6))))
        before = current_bytes(device)
        reset_peak(device)
        many = _pass_seconds(target, clips, most, device, climb) / most
        peak = peak_bytes(device)
    except FAILURES as error:
        reason, crowded = explain(error), out_of_memory(error)
    else:
        low, high = GAINS
        gain = min(high, max(low, many / max(few, 1e-9)))
        return Full(gain, round(before + max(0, peak - before) * rows / most))
    free_memory()
    note = f"a batch of {plan.batch} does not fit into memory and will be split" if crowded else reason
    return Full(memory_bytes=peak_bytes(device), note=note)


def _rows(plan: Plan, work: CellParts) -> int:
    """Clips that its attack puts through the model at once."""
    if isinstance(work.through, Averaged):
        return max(plan.batch, min(work.through.at_once, work.through.passes * plan.batch))
    return plan.batch


@exits_are_errors()
def _pass_seconds(target: Target, clips: Sequence[Clip], count: int, device: str, climb: bool) -> float:
    """Seconds of one pass, with its gradient or without."""
    repeated = [replace(clips[place % len(clips)], id=f"{place}") for place in range(count)]
    batch, draws = collate(repeated).to(device), Draws(0)
    wait(device)
    began = perf_counter()
    labels = decode(target, batch, draws)
    if climb:
        wait(device)
        began = perf_counter()
        leaf = batch.waveforms.clone().requires_grad_()
        with torch.enable_grad():
            loss = target.loss(batch.with_waveforms(leaf), labels, draws=draws)
            torch.autograd.grad(loss.sum(), leaf, allow_unused=True)
    wait(device)
    return perf_counter() - began
