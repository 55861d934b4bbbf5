"""Running a claim again on some of its clips, to see whether it holds.

The rule. A claim says how rarely a target breaks, so it fails where the target breaks more often than that.
At every budget the strongest attacks of the claim's plan run again on clips drawn from those it lists.
- Clip by clip: of the clips with another outcome than claimed, those with a worse one are counted. If an
exact sign test is significant at 5 %, the claim does not hold. A clip that is judged here and has no outcome
in the claim counts as claimed to be unbroken.
- By rate: if an exact binomial test against the upper end of the claimed interval is significant at 5 %, the
claim does not hold.
- Clean clips: the same two tests, to both sides.
- A budget at which no clip could be judged is not checked, and then the claim does not hold either.
That the clips that a claim lists bear its figures is looked at when it is read (`find_mistakes`).
Fewer broken clips than claimed are no objection: the attacks that run again may be a part of those that ran.
With the same seed an attack finds the same perturbation again, so a true claim is rarely refuted.

A claim may come from anyone: nothing that it names is opened unless it comes with sottovoce
(`sottovoce.leaderboard.claims.strangers`), and the number of passes is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sottovoce.auditing.checks.flags import LEVEL, PairedOutcomes
from sottovoce.auditing.plan.plan_file import Cell, Plan, read_entries
from sottovoce.auditing.results.summary import Outcomes, gather
from sottovoce.auditing.results.worst_case import worst_of
from sottovoce.auditing.run.corpus_manifest import hash_manifest, take_manifest
from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.fitting_clips import MOST_CLIPS as FITTED
from sottovoce.auditing.run.fitting_clips import fitted_cell, fitting_set
from sottovoce.auditing.run.repeatability import LOOKED_AT
from sottovoce.auditing.run.tasks import AttackTask, FitTask, RepeatTask
from sottovoce.core.record import Record
from sottovoce.core.statistics import exact_binomial_p
from sottovoce.data.load import spread
from sottovoce.defenses.defense_text import Defense
from sottovoce.errors import InputError
from sottovoce.leaderboard.attacks_behind import budget_title, count_passes, votes
from sottovoce.leaderboard.claims.claim import Claim, Figure, Worst
from sottovoce.leaderboard.claims.claim_mistakes import attacks
from sottovoce.leaderboard.claims.strangers import find_openings, find_strange

MOST_PASSES = 2_000_000
"""Of the model in one check: minutes on the shipped keyword spotter, hours on larger models."""
JUDGED = 4
"""Looks at a clip that has been attacked: as it was, before rounding and as it is saved, and one to spare."""
METRICS = ("success", "wer", "clean-accuracy", "clean-wer")
Values = Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """One comparison.

    told: the figure in the claim, over all its clips. claimed, found: over those that ran again.
    worse, better: numbers of clips with a worse and a better outcome. p: the smaller one of the two tests.
    """

    what: str
    metric: str
    clips: int
    told: float
    claimed: float
    found: float
    worse: int
    better: int
    p: float

    @property
    def holds(self) -> bool:
        return not self.p <= LEVEL


@dataclass
class ClaimVerdict:
    """passes: of the model, about as many as were run.
    missing: figures that should have been compared, and no clip that ran could tell.
    unchecked: what a check of these clips cannot look at; it is taken on trust."""

    lines: list[Comparison] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    passes: int = 0
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def refuted(self) -> bool:
        return not all(line.holds for line in self.lines)

    @property
    def holds(self) -> bool:
        return bool(self.lines) and not self.missing and not self.refuted


def check_claim(
    claim: Claim,
    *,
    clips: int = 20,
    cells: int = 3,
    seed: int = 0,
    model: str | None = None,
    data: str | None = None,
    fit: str | None = None,
    trust: bool = False,
    most_passes: int = MOST_PASSES,
    device: str = "auto",
    bench: Executor | None = None,
    tell: Callable[[str], None] = lambda note: None,
) -> ClaimVerdict:
    """Run some clips of a claim again and compare.

    clips: how many, drawn by `seed`. cells: how many attacks at each budget, the strongest first; 0: all that
    the plan has. model, data, fit: as they are here; those of the claim are opened only where they come with
    sottovoce. trust: take parts of plugins. most_passes: of the model, by the settings of the attacks.
    """
    given = {
        key: value for key, value in (("model", model), ("data", data), ("fit", fit)) if value is not None
    }
    _refuse_strange(claim, given, trust)
    plan = claim.parsed_plan().model_copy(update={"audio": "none", "metrics": METRICS, **given})
    verdict = ClaimVerdict()
    sample = draw_clips(claim, clips, seed)
    chosen = choose_cells(claim, plan, cells)
    todo = [cell for found in chosen.values() for cell in found]
    verdict.cells = [cell.id for cell in todo]
    verdict.passes = _passes(plan, claim.defense, todo, len(sample))
    if verdict.passes > most_passes:
        raise InputError(
            f"claim {claim.id!r}: this check would take about {verdict.passes:,} passes of the model, more "
            "than "
            f"--most-passes {most_passes:,}; lower --clips or --cells, or give --most-passes "
            f"{verdict.passes}."
        )
    bench = Executor(device) if bench is None else bench
    _check_data(claim, plan, bench, verdict)
    outcomes = _run(plan, todo, sample, bench, verdict, tell)
    if not any(each.clips for each in outcomes.values()):
        why = f" ({verdict.notes[-1]})" if verdict.notes else ""
        raise InputError(f"none of {len(sample)} clips could be run{why}; check --data and --model.")
    verdict.lines += _clean_lines(claim, outcomes)
    if (claim.clean.wer or claim.clean.accuracy) and not verdict.lines:
        verdict.missing.append("clean")
    for worst in claim.worst:
        judged = [outcomes[cell.id] for cell in chosen[worst.budget] if cell.id in outcomes]
        lines = list(_lines(claim, worst, judged))
        verdict.lines += lines
        if claim.lead not in [line.metric for line in lines]:
            verdict.missing.append(budget_title(worst.budget))
    verdict.unchecked = list(_unchecked(claim, plan, verdict.cells))
    return verdict


def _unchecked(claim: Claim, plan: Plan, run: Sequence[str]) -> Iterator[str]:
    """What these clips cannot tell."""
    left = sum(attacks(claim, cell) and cell.id not in run for cell in plan.cells())
    if left:
        yield f"{left} of the plan's attacks (--cells 0 runs all)"
    if not claim.outcomes.complete:
        yield f"which {len(claim.outcomes.clips)} of its {claim.outcomes.of} clips it lists"
    if len(claim.seeds) > 1:
        yield f"seeds other than {claim.seeds[0]}"
    if claim.clean.wer or any(worst.wer for worst in claim.worst):
        yield "intervals of WER"
    if claim.unheard:
        yield "clips fooled unheard"
    if claim.certified:
        yield "certificates"
    yield "doubts"


def draw_clips(claim: Claim, count: int, seed: int) -> list[str]:
    """Some of the clips that a claim lists."""
    known = claim.outcomes.clips
    if not known:
        raise InputError(
            f"claim {claim.id!r}, field 'outcomes': expected clips to run again, got an empty list."
        )
    order = np.random.default_rng(seed).permutation(len(known))[:count]
    return [known[place] for place in sorted(order.tolist())]


def choose_cells(claim: Claim, plan: Plan, count: int) -> dict[str, list[Cell]]:
    """By budget: the attacks that the claim names, its strongest first; with 0, all that the plan has."""
    known = {cell.id: cell for cell in plan.cells()}
    if count:
        return {worst.budget: [known[rival.cell] for rival in worst.cells[:count]] for worst in claim.worst}
    return {
        worst.budget: [
            cell for cell in known.values() if attacks(claim, cell) and str(cell.budget) == worst.budget
        ]
        for worst in claim.worst
    }


def _refuse_strange(claim: Claim, given: Mapping[str, str], trust: bool) -> None:
    """Raise where checking would open something that a stranger named; nothing is built before."""
    for place, reason in find_strange(claim, trust=trust):
        raise InputError(f"claim {claim.id!r}, field {place!r}: {reason}; leave the claim out.")
    for place, reason in find_openings(read_entries(claim.plan), given=given, trust=trust):
        option = place.removeprefix("plan.")
        yours = "your copy of the model" if option == "model" else "your copy of the clips"
        raise InputError(f"claim {claim.id!r}, field {place!r}: {reason}; give --{option} with {yours}.")


def _passes(plan: Plan, defense: str, cells: Sequence[Cell], clips: int) -> int:
    """The passes of these cells on this many clips, and the clips that universal attacks are fitted on."""
    around = Defense.parse(defense)
    total = 0
    for cell in cells:
        one = count_passes(plan, around, cell.attack, cell.attacker)
        judged = clips * JUDGED * votes(around)
        total += judged + one * (FITTED if cell.universal else clips)
    return total


def _check_data(claim: Claim, plan: Plan, bench: Executor, verdict: ClaimVerdict) -> None:
    if claim.manifest and hash_manifest(take_manifest(bench.corpus(plan), plan.data)) != claim.manifest:
        verdict.notes.append("these clips are not those of the claim: their manifests differ")


def _run(
    plan: Plan,
    cells: Sequence[Cell],
    clips: Sequence[str],
    bench: Executor,
    verdict: ClaimVerdict,
    tell: Callable[[str], None],
) -> dict[str, Outcomes]:
    records: list[Record] = []
    held = frozenset[str]()
    # The claimed run treated a model that does not repeat itself as random; so does this one.
    repeated = bench.do(RepeatTask(plan, tuple(spread(clips, LOOKED_AT)))).repeated
    steady = repeated is None or repeated.steady
    if not steady:
        verdict.notes.append("the model answers the same clip in different ways: figures differ by chance")
    for number, cell in enumerate(cells, start=1):
        tell(f"about {verdict.passes:,} passes of the model; {number} of {len(cells)}: {cell.id}")
        fitted = None
        if cell.universal:
            fitted = bench.do(FitTask(plan, fitted_cell(cell).id, steady)).perturbation
            held = fitting_set(plan, bench.corpus(plan), bench.target(plan))[1]
        todo = [clip for clip in clips if not (cell.universal and clip in held)]
        for first in range(0, len(todo), plan.batch):
            task = AttackTask(plan, cell.id, tuple(todo[first : first + plan.batch]), fitted, steady=steady)
            records += bench.do(task).records
    failures = {record.clip: record.reason for record in records if record.status == "failed"}
    if failures:
        clip, reason = next(iter(failures.items()))
        verdict.notes.append(f"{len(failures)} clips failed, such as {clip}: {reason}")
    return gather(records)


def _clean_lines(claim: Claim, outcomes: Mapping[str, Outcomes]) -> Iterator[Comparison]:
    told = claim.clean.wer or claim.clean.accuracy
    metric = "clean-wer" if claim.clean.wer else "clean-accuracy"
    found: dict[str, list[float]] = {}
    for each in outcomes.values():
        found |= {clip: parts for clip, (_, parts, _) in each.by_clip(metric).items()}
    claimed = claim.outcomes.heard()
    both = [clip for clip in found if clip in claimed]
    if told is None or not both:
        return
    now = {clip: found[clip][0] for clip in both}
    then = {clip: float(claimed[clip]) for clip in both}
    weight = sum(found[clip][1] for clip in both)
    pairs = PairedOutcomes.of(now, then)
    ps = [exact_binomial_p(pairs.more, pairs.more + pairs.less)]
    if metric == "clean-accuracy":
        ps.append(_outside(sum(now.values()), len(both), told))
    worse, better = (pairs.more, pairs.less) if claim.clean.wer else (pairs.less, pairs.more)
    shares = sum(then.values()) / weight, sum(now.values()) / weight
    yield Comparison("clean", metric, len(both), told.value, *shares, worse, better, _smallest(ps))


def _lines(claim: Claim, worst: Worst, judged: Sequence[Outcomes]) -> Iterator[Comparison]:
    """At one budget: broken clips, and of transcripts the errors."""
    broken = {clip: parts[0] for clip, parts in worst_of(judged, "success").by_clip().items()}
    if worst.success is not None and broken:
        then = _of(claim.outcomes.broken(worst.budget), broken)
        ps = [PairedOutcomes.of(broken, then).p, _above(sum(broken.values()), len(broken), worst.success)]
        yield _line(
            budget_title(worst.budget), "success", worst.success, broken, then, len(broken), _smallest(ps)
        )
    parts = worst_of(judged, "wer").by_clip()
    if worst.wer is not None and parts:
        now = {clip: each[0] for clip, each in parts.items()}
        then = _of(claim.outcomes.wrong(worst.budget), parts)
        words = sum(each[1] for each in parts.values())
        yield _line(
            budget_title(worst.budget),
            "wer",
            worst.wer,
            now,
            then,
            words,
            _smallest([PairedOutcomes.of(now, then).p]),
        )


def _line(
    what: str, metric: str, told: Figure, now: Values, then: Values, weight: float, p: float
) -> Comparison:
    pairs = PairedOutcomes.of(now, then)
    shares = sum(then.values()) / weight, sum(now.values()) / weight
    return Comparison(what, metric, len(now), told.value, *shares, pairs.more, pairs.less, p)


def _above(count: float, n: int, told: Figure) -> float:
    """The chance of this count or more at the upper end of the claimed interval."""
    top = told.value if told.high is None else told.high
    return exact_binomial_p(round(count), n, p=min(top, 1.0), alternative="greater")


def _outside(count: float, n: int, told: Figure) -> float:
    """The chance of a count this far out at the nearer end of the claimed interval; 1 inside it."""
    low, high = (told.value if end is None else end for end in (told.low, told.high))
    if low <= count / n <= high:
        return 1.0
    if count / n < low:
        p = exact_binomial_p(round(count), n, p=min(low, 1.0), alternative="less")
    else:
        p = exact_binomial_p(round(count), n, p=min(high, 1.0), alternative="greater")
    return min(1.0, 2 * p)


def _of(claimed: Mapping[str, float], clips: Iterable[str]) -> dict[str, float]:
    return {clip: float(claimed.get(clip, 0)) for clip in clips}


def _smallest(ps: Sequence[float]) -> float:
    """NaN, where no clip differs, is no objection."""
    return min((p for p in ps if p == p), default=1.0)
