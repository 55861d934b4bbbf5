"""Whether the attacks tried hard enough (by probes), and whether they had a gradient to follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sottovoce.auditing.checks.flags import LEVEL, Flag, PairedOutcomes, SanityCheck
from sottovoce.auditing.checks.probes import NOTHING_LEFT, steps_of
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results.summary import ComparableCells, Outcomes, Summary, gather
from sottovoce.core.record import Record
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.registry.part_text import Part

REPLAY = "replay"
"""Tries examples again that were found before."""
FEWEST = 5
"""With fewer clips that differ no sign test reaches `LEVEL`."""
LEAST_RISE = 0.05
"""How much more steps must add to the objective, as a share of what the attack had gained."""
TINY = 1e-5
"""A gradient shorter than this share of the bare model's counts as zero."""


@dataclass(frozen=True)
class Tried:
    """A probed cell as it was, and under each other setting."""

    cell: str
    defense: str
    random: bool
    base: Outcomes
    harder: dict[str, Outcomes]
    """"steps" and "passes", where the cell was tried with more of them."""


def read_probes(probes: Iterable[Record]) -> list[Tried]:
    groups: defaultdict[str, list[Outcomes]] = defaultdict(list)
    for outcomes in gather(probes).values():
        if outcomes.clips:
            groups[outcomes.facts["probe"]].append(outcomes)
    return [_order(cell, members) for cell, members in groups.items()]


def _order(cell: str, members: list[Outcomes]) -> Tried:
    base = min(members, key=lambda each: (_setting(each, "steps"), _setting(each, "passes")))
    harder = {
        name: each
        for name in ("steps", "passes")
        for each in members
        if _setting(each, name) > _setting(base, name)
    }
    return Tried(cell, base.facts["defense"], base.facts["random"] == "yes", base, harder)


def _setting(outcomes: Outcomes, name: str) -> int:
    return int(outcomes.facts.get(name, 0))


def climbs(cell: Cell) -> bool:
    """Whether its attack follows gradients of the very target that it is judged on."""
    return cell.sees == "gradient" and cell.attacker != "transfer"


def _held(summary: Summary) -> dict[tuple[str, str], list[ComparableCells]]:
    """By defense and goal, what did not break on every clip: there the strength of the attacks matters."""
    found: defaultdict[tuple[str, str], list[ComparableCells]] = defaultdict(list)
    for group in summary.groups:
        if group.strongest is not None and group.strongest.per_clip[group.lead].value < NOTHING_LEFT:
            found[group.defense, str(group.goal)].append(group)
    return found


def ask_for_steps(summary: Summary) -> SanityCheck | None:
    """Targets that no attack of more than one step has met."""
    held, flags = _held(summary), []
    for (defense, goal), groups in held.items():
        budgets = [group.budget_title for group in groups if not _takes_steps(group)]
        if budgets:
            evidence = {"defense": defense, "goal": goal, "budgets": budgets}
            advice = "add an attack of many steps, such as --attacks pgd"
            flags.append(Flag("one-step", "", evidence, advice))
    return SanityCheck("one-step", len(held), flags) if flags else None


def _takes_steps(group: ComparableCells) -> bool:
    """Whether an attack that climbs takes more than one step; where none climbs, any attack. What was found
    before and is tried again takes none."""
    cells = [item.cell for item in group.attacks]
    cells = [cell for cell in cells if climbs(cell)] or cells
    return any(
        cell.universal or cell.attack.name == REPLAY or (steps_of(cell.attack) or 1) > 1 for cell in cells
    )


def ask_for_probes(plan: Plan, tried: list[Tried], summary: Summary) -> SanityCheck | None:
    """Attacks that were not probed with more steps. Only of a finished run: probes come last."""
    probed: dict[str, int] = {}
    for item in tried:
        if "steps" in item.harder:
            objectives = (item.harder["steps"].values("objective"), item.base.values("objective"))
            probed[item.cell] = PairedOutcomes.of(*objectives).clips
    asked, flags = 0, []
    for (defense, goal), groups in _held(summary).items():
        items = [item for group in groups for item in group.attacks if _can_be_probed(item.cell)]
        if not items:
            continue
        asked += 1
        known = [cell for cell in plan.cells() if (cell.defense, str(cell.goal)) == (defense, goal)]
        clips = max((probed.get(cell.id, 0) for cell in known), default=0)
        if clips < FEWEST:
            judged = max(item.estimates[group.lead].n for group in groups for item in group.attacks)
            evidence = {"defense": defense, "goal": goal, "clips": clips}
            flags.append(Flag("unprobed", "", evidence, _try_probes(plan, judged)))
    return SanityCheck("unprobed", asked, flags) if flags else None


def _can_be_probed(cell: Cell) -> bool:
    return climbs(cell) and not cell.universal and steps_of(cell.attack) is not None


def _try_probes(plan: Plan, judged: int) -> str:
    if plan.probe < FEWEST:
        return f"run again with --probe {Plan.model_fields['probe'].default}"
    if judged < FEWEST:
        return f"run again with --limit {FEWEST} or more"
    return "run the same command again: its probes are not finished"


def ask_for_more(
    kind: Literal["steps", "passes"], tried: list[Tried], summary: Summary
) -> SanityCheck | None:
    """More steps, or more passes to average over, that still help.

    More must fall, and the objective must rise: on most clips (a sign test), and by a fair share of what the
    attack had gained. A few clips that fall or hold by chance are not enough, nor are the last decimals of an
    objective that more steps can only raise.
    """
    leads = {item.cell.id: group.lead for group in summary.groups for item in group.cells}
    asked, flags = 0, []
    for item in tried:
        if kind not in item.harder or item.cell not in leads:
            continue
        lead, base, more = leads[item.cell], item.base, item.harder[kind]
        pairs = PairedOutcomes.of(more.values("objective"), base.values("objective"))
        if pairs.clips < FEWEST:
            continue
        asked += 1
        rise = more.ratio("objective") - base.ratio("objective")
        gained = base.ratio("objective") - base.ratio("clean-objective")
        higher = more.ratio(lead) > base.ratio(lead)
        if higher and pairs.p <= LEVEL and rise > LEAST_RISE * max(gained, 0.0):
            evidence = {
                "metric": lead,
                kind: [_setting(base, kind), _setting(more, kind)],
                "values": [base.ratio(lead), more.ratio(lead)],
                "objective": [base.ratio("objective"), more.ratio("objective")],
                "clips": pairs.clips,
                "rose": pairs.more,
                "fell": pairs.less,
                "p": pairs.p,
            }
            flags.append(Flag(kind, item.cell, evidence, _more(kind, item.cell, base, summary)))
    return SanityCheck(kind, asked, flags) if asked else None


def _more(kind: str, cell: str, base: Outcomes, summary: Summary) -> str:
    if kind == "passes":
        return f"run again with --average {4 * _setting(base, kind)}"
    attack = next(item.cell.attack for item in summary.cells if item.cell.id == cell)
    return f"run again with --attacks '{with_steps(attack, 4 * _setting(base, kind))}'"


def ask_for_gradients(tried: list[Tried]) -> SanityCheck | None:
    """Clips on which the gradient that the attack follows is zero, or nearly."""
    flags = []
    for item in tried:
        slopes, bare = item.base.values("gradient"), item.base.values("bare-gradient")
        zero = sum(slope == 0.0 for slope in slopes.values())
        tiny = sum(0.0 < slope < TINY * bare.get(clip, 0.0) for clip, slope in slopes.items())
        if zero or tiny:
            evidence = {"zero": zero, "tiny": tiny, "clips": len(slopes), "defense": item.defense}
            advice = (
                "give every part of the defense a gradient (StraightThrough for rounding and codecs); until "
                "then use the transferred and the black-box figures"
                if item.defense != NO_DEFENSE
                else "look for an operation without a gradient in the model, or for scores that overflow"
            )
            flags.append(Flag("gradients", item.cell, evidence, advice))
    return SanityCheck("gradients", len(tried), flags) if tried else None


def with_steps(attack: Part, steps: int) -> Part:
    """The same attack with another number of steps."""
    return Part(attack.name, {**attack.settings, "steps": steps})
