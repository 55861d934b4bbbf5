"""The sanity pass: what makes the figures of a run doubtful, found in its plan, records and probes alone.

Most of it is the folklore of broken defenses (Athalye, Carlini and Wagner 2018, "Obfuscated gradients give a
false sense of security"; Carlini et al. 2019, "On evaluating adversarial robustness"; Tramer et al. 2020, "On
adaptive attacks to adversarial example defenses"), put as questions that can be answered by counting. Nothing
is corrected for the number of comparisons: of twenty between equals about one is flagged by chance, which
costs a second look, where a doubt that is missed costs the claim.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sottovoce.auditing.checks.attack_effort import (
    Tried,
    ask_for_gradients,
    ask_for_more,
    ask_for_probes,
    ask_for_steps,
    climbs,
    read_probes,
    with_steps,
)
from sottovoce.auditing.checks.flags import LEVEL, Flag, PairedOutcomes, SanityCheck
from sottovoce.auditing.checks.probes import steps_of
from sottovoce.auditing.plan.plan_file import PASSES, Cell, Plan
from sottovoce.auditing.results.clean_decisions import LEADS as CLEAN
from sottovoce.auditing.results.heard_curve import OPINIONS
from sottovoce.auditing.results.summary import CellSummary, ComparableCells, Summary
from sottovoce.auditing.run.repeatability import JUDGED, Repeated
from sottovoce.core.record import EVERY, Record
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense

GRADIENT = "check that every part of the defense passes on a useful gradient (StraightThrough)"
AGREED = (0.25, 0.75)
"""Two ears disagree strongly where one says less than the first and the other more than the second."""
DISAGREED = 0.25
"""On how many of the clips, as a share, before it is a doubt."""
FEW_CLIPS = 30
"""Below this a 95 % interval of a rate can be wider than a third of the scale."""


def examine(
    plan: Plan, summary: Summary, probes: Iterable[Record] = (), repeated: Repeated | None = None
) -> list[SanityCheck]:
    """Every check that applies to this run, with its result.

    repeated: the outcome of decoding clips twice before the run began, where that was done.
    """
    tried, unfinished = read_probes(probes), _unfinished(plan, summary)
    if plan.clean:
        asked = [_repeats(repeated), unfinished, _failures(summary), _sizes(summary)]
        return [check for check in asked if check is not None]
    steady = repeated is None or repeated.steady
    checks = [
        _repeats(repeated),
        _attackers(plan),
        _averaging(plan, tried, steady),
        _adaptive(plan, summary, steady),
        _black_box(summary),
        ask_for_steps(summary),
        None if unfinished else ask_for_probes(plan, tried, summary),
        ask_for_more("steps", tried, summary),
        ask_for_more("passes", tried, summary),
        ask_for_gradients(tried),
        unfinished,
        _failures(summary),
        _rounding(plan, summary) if steady or plan.bits is None else None,
        _noise(summary),
        _sizes(summary),
        _ears(summary),
    ]
    return [check for check in checks if check is not None]


def _repeats(repeated: Repeated | None) -> SanityCheck | None:
    """A model that answers the same clips in two ways, and does not say so."""
    if repeated is not None and not repeated.asked:
        advice = "send the service a few clips several times, and compare its answers"
        return SanityCheck("unasked", 0, [Flag("unasked", "", {}, advice)])
    if repeated is None or not (repeated.clips or repeated.said):
        return None
    evidence = {**repeated.to_json(), "judged_over": JUDGED}
    advice = (
        "turn off dropout, random crops or state that is kept between calls (evaluation mode leaves "
        "F.dropout(training=True) on), or take the random numbers from `draws` and set random = True"
    )
    flags = [] if repeated.steady else [Flag("repeats", "", evidence, advice)]
    return SanityCheck("repeats", repeated.clips, flags)


def _attackers(plan: Plan) -> SanityCheck | None:
    """A defended target that has not met all three attackers."""
    cells = [cell for cell in plan.cells() if cell.defense != NO_DEFENSE]
    met: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for cell in cells:
        met[cell.defense, cell.budget_title].add(cell.attacker)
    flags = []
    advice = {
        "adaptive": "add an attack that follows gradients, such as --attacks pgd, and --attackers adaptive",
        "transfer": "add --attackers adaptive,transfer,black-box",
        "black-box": "add --attackers adaptive,transfer,black-box, and a budget to search, such as --snr 30",
    }
    for defense in dict.fromkeys(cell.defense for cell in cells):
        for attacker, words in advice.items():
            budgets = [
                at for (behind, at), names in met.items() if behind == defense and attacker not in names
            ]
            if budgets:
                evidence = {"defense": defense, "attacker": attacker, "budgets": budgets}
                flags.append(Flag("attackers", "", evidence, words))
    return SanityCheck("attackers", len(met), flags) if cells else None


def _averaging(plan: Plan, tried: list[Tried], steady: bool) -> SanityCheck | None:
    """A random target whose gradients are those of one pass."""
    random = [defense for defense in plan.every_defense if not steady or _is_random(defense)]
    random += [item.defense for item in tried if item.random and item.defense not in random]
    if not random:
        return None
    passes = plan.average
    flags = [
        Flag(
            "averaging", "", {"defense": defense, "passes": passes}, "leave --average out, or raise it to 16"
        )
        for defense in random
        if passes == 1 and _is_climbed(plan, defense)
    ]
    return SanityCheck("averaging", len(random), flags)


def _is_random(defense: str) -> bool:
    return any(transform.random for transform in Defense.parse(defense).transforms)


def _is_climbed(plan: Plan, defense: str) -> bool:
    """Whether an attack follows gradients of the target behind this defense."""
    return any(cell.defense == defense and climbs(cell) for cell in plan.cells())


def _adaptive(plan: Plan, summary: Summary, steady: bool) -> SanityCheck | None:
    """An attack that knows the defense and does worse than one that does not: its gradients mislead it."""
    pairs = [
        (group, item, twin)
        for group in summary.groups
        for item in group.attacks
        for twin in group.attacks
        if (item.cell.attacker, twin.cell.attacker) == ("adaptive", "transfer")
        and item.cell.attack == twin.cell.attack
    ]
    flags = []
    for group, item, twin in pairs:
        evidence = _stronger(twin, item, group, summary)
        if evidence is not None:
            flags.append(Flag("adaptive", item.cell.id, evidence, _try_harder(plan, item.cell, steady)))
    return SanityCheck("adaptive", len(pairs), flags) if pairs else None


def _try_harder(plan: Plan, cell: Cell, steady: bool) -> str:
    steps = None if cell.universal else steps_of(cell.attack)
    tries = [f"--attacks '{with_steps(cell.attack, 4 * steps)}'"] if steps else []
    if not steady or _is_random(cell.defense):
        tries.append(f"--average {4 * (plan.average or PASSES)}")
    return GRADIENT + (f", then try {' and '.join(tries)}" if tries else "")


def _black_box(summary: Summary) -> SanityCheck | None:
    """A search by scores that does better than gradients of the same target: they are masked.

    What was found on the bare model has no gradient of the defense in it, so it is left out here.
    """
    asked, flags = 0, []
    for group in summary.groups:
        white = _best(group, [item for item in group.attacks if climbs(item.cell)])
        black = _best(group, [item for item in group.attacks if item.cell.sees != "gradient"])
        if white is None or black is None:
            continue
        asked += 1
        evidence = _stronger(black, white, group, summary)
        if evidence is not None:
            advice = f"{GRADIENT}; use the black-box figure until another is higher"
            flags.append(Flag("black-box", white.cell.id, evidence, advice))
    return SanityCheck("black-box", asked, flags) if asked else None


def _best(group: ComparableCells, items: list[CellSummary]) -> CellSummary | None:
    return max(items, key=lambda item: item.estimates[group.lead].value, default=None)


def _stronger(
    one: CellSummary, other: CellSummary, group: ComparableCells, summary: Summary
) -> dict[str, Any] | None:
    """Figures that say that an attack beats another clip by clip; None where they do not."""
    pairs = _pair(one, other, group, summary)
    values = [item.estimates[group.lead].value for item in (one, other)]
    if not values[0] > values[1] or not pairs.p <= LEVEL:
        return None
    return {
        "metric": group.lead,
        "stronger": one.cell.id,
        "stronger_value": values[0],
        "weaker_value": values[1],
        "clips": pairs.clips,
        "worse_under_stronger": pairs.more,
        "worse_under_weaker": pairs.less,
        "p": pairs.p,
    }


def _pair(one: CellSummary, other: CellSummary, group: ComparableCells, summary: Summary) -> PairedOutcomes:
    return PairedOutcomes.of(*(summary.outcomes[item.cell.id].values(group.lead) for item in (one, other)))


def _unfinished(plan: Plan, summary: Summary) -> SanityCheck | None:
    done = {item.cell.id for item in summary.cells}
    missing = [cell.id for cell in plan.cells() if cell.id not in done]
    advice = "run the same command again"
    flags = [Flag("unfinished", cell, {}, advice) for cell in missing]
    return SanityCheck("unfinished", len(plan.cells()), flags) if flags else None


def _failures(summary: Summary) -> SanityCheck:
    """Clips that have no figures, and cells that could not be put together with this target at all."""
    clips = [record for record in summary.failures if record.clip != EVERY]
    flags = []
    if clips:
        advice = "repair or remove these clips, and run the same command again with --retry-failed"
        flags.append(Flag("failures", "", {"failures": len(clips), "reason": clips[0].reason}, advice))
    for record in summary.failures:
        if record.clip == EVERY:
            advice = "fix what the reason names and add --retry-failed, or leave the cell out with 'exclude'"
            flags.append(Flag("failures", record.cell, {"failures": 1, "reason": record.reason}, advice))
    return SanityCheck("failures", len(summary.cells), flags)


def _rounding(plan: Plan, summary: Summary) -> SanityCheck:
    if plan.bits is None:
        return SanityCheck("floats", 1, [Flag("floats", "", {}, "run again with bits: 16")])
    advice = "report the rate of the rounded files, or allow a louder budget"
    flags = [
        Flag("rounding", item.cell.id, {"lost": item.lost_by_rounding, "clips": item.clips}, advice)
        for item in summary.cells
        if item.lost_by_rounding
    ]
    return SanityCheck("rounding", len(summary.cells), flags)


def _noise(summary: Summary) -> SanityCheck | None:
    """Attacks that do no better than white noise of their level, on the same clips."""
    pairs = [
        (item, noise, group)
        for group in summary.groups
        if (noise := group.noise) is not None
        for item in group.attacks
    ]
    if not pairs:
        attacked = any(item.attacks for item in summary.cells)
        lone = Flag("no-noise", "", {}, "add noise to --attacks")
        return SanityCheck("no-noise", 1, [lone]) if attacked else None
    advice = "try a stronger attack, a louder budget or more clips"
    flags = [
        Flag("noise", item.cell.id, _beside(item, noise, group, summary), advice)
        for item, noise, group in pairs
        if _stronger(item, noise, group, summary) is None
    ]
    return SanityCheck("noise", len(pairs), flags)


def _beside(
    item: CellSummary, noise: CellSummary, group: ComparableCells, summary: Summary
) -> dict[str, Any]:
    pairs = _pair(item, noise, group, summary)
    return {
        "metric": group.lead,
        "value": item.estimates[group.lead].value,
        "noise": noise.cell.id,
        "noise_value": noise.estimates[group.lead].value,
        "clips": pairs.clips,
        "worse_under_attack": pairs.more,
        "worse_under_noise": pairs.less,
        "p": pairs.p,
    }


def _sizes(summary: Summary) -> SanityCheck | None:
    counts = [
        item.estimates[name].n
        for item in summary.cells
        for name in (CLEAN if item.cell.clean else ("success",))
        if name in item.estimates
    ]
    if not counts or min(counts) >= FEW_CLIPS:
        return None
    advice = f"run again with --limit {FEW_CLIPS} or more"
    return SanityCheck("few-clips", len(counts), [Flag("few-clips", "", {"clips": min(counts)}, advice)])


def _ears(summary: Summary) -> SanityCheck | None:
    """Cells in which the learned ear and the masking model disagree strongly on many clips.

    An attack whose budget is an ear can fool that ear as well as its target; two ears that work in different
    ways are harder to fool together. White noise fools no ear, so its cells are not checked.
    """
    asked, flags = 0, []
    for item in summary.cells:
        if item.cell.attack.name == "noise":
            continue
        opinions = [summary.outcomes[item.cell.id].values(name) for name in OPINIONS]
        pairs = [(opinions[0][clip], opinions[1][clip]) for clip in opinions[0].keys() & opinions[1].keys()]
        if not pairs:
            continue
        asked += 1
        low, high = AGREED
        deaf = sum(learned < low and masking > high for learned, masking in pairs)
        keen = sum(masking < low and learned > high for learned, masking in pairs)
        if deaf + keen >= DISAGREED * len(pairs):
            evidence = {"clips": len(pairs), "learned_deaf": deaf, "masking_deaf": keen}
            flags.append(Flag("ears", item.cell.id, evidence, "listen to the examples of these cells"))
    return SanityCheck("ears", asked, flags) if asked else None
