"""Rows: all claims about one target, defense, goal and set of clips, put together clip by clip.

A target is only as robust as it is under everything that was tried on it. Two runs with different attacks
test the same target, and the run with the weaker attacks must not rank above the other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

import numpy as np

from sottovoce.auditing.checks.flags import STRENGTH
from sottovoce.auditing.plan.plan_file import Attacker, read_entries
from sottovoce.auditing.results.summary import Outcomes
from sottovoce.auditing.results.worst_case import WorstByMetric, worst_of
from sottovoce.defenses.defense_text import Defense
from sottovoce.leaderboard.attacks_behind import budget_title, canonical, count_passes
from sottovoce.leaderboard.claims import claim as to
from sottovoce.leaderboard.claims.claim import Claim, Figure, Kind, Share, as_figure
from sottovoce.leaderboard.claims.make_claims import mean_figure
from sottovoce.leaderboard.claims.strangers import comes_along
from sottovoce.registry.part_text import Part

Clips = Mapping[str, Mapping[str, WorstByMetric]]
"""The outcome of every clip, by budget and metric."""
Trusted = Literal["unheard", "certified", "doubts"]


@dataclass(frozen=True)
class Link:
    title: str
    path: str

    @property
    def address(self) -> str:
        return quote(self.path, safe="/")


@dataclass(frozen=True)
class ClaimEntry:
    """A claim and where to read more of it.

    trusted: what is shown as someone claims it: nothing here can check it.
    clips: by seed; empty where no more than a sample of the clips is known.
    """

    claim: Claim
    links: list[Link] = field(default_factory=list)
    trusted: frozenset[Trusted] = frozenset()
    clips: Mapping[int, Clips] = field(default_factory=dict)

    @property
    def submitted(self) -> bool:
        return bool(self.trusted)


@dataclass(frozen=True)
class Try:
    """One attack behind a figure. passes: of the model, on one clip. value: its own leading figure."""

    attack: str
    attacker: Attacker
    passes: int
    value: float


@dataclass(frozen=True)
class BoardRow:
    """claim: the figures as they are shown. behind: the attacks by budget, the strongest first.
    sample: whether it could not be put together with others of its kind, for want of clips."""

    claim: Claim
    entries: tuple[ClaimEntry, ...]
    behind: Mapping[str, tuple[Try, ...]]
    trusted: frozenset[Trusted]
    sample: bool = False

    @property
    def mean(self) -> float:
        """The mean worst case over the budgets."""
        return mean_worst(self.claim)


def mean_worst(claim: Claim) -> float:
    found = [figure.value for worst in claim.worst if (figure := claim.figure(worst)) is not None]
    return sum(found) / len(found)


def clips_of(claim: Claim) -> dict[int, Clips]:
    """What a claim lists, where it lists every clip; of its first seed."""
    table = claim.outcomes
    if not table.complete:
        return {}
    words = dict(zip(table.clips, table.words or (), strict=False))
    found: dict[str, dict[str, WorstByMetric]] = {}
    for worst in claim.worst:
        broken = {clip: (float(it), 1.0) for clip, it in table.broken(worst.budget).items()}
        wrong = {
            clip: (float(it), float(count))
            for clip, it in table.wrong(worst.budget).items()
            if (count := words.get(clip)) is not None
        }
        parts = {"success": broken, "wer": wrong}
        found[worst.budget] = {name: _worst(name, rows) for name, rows in parts.items() if rows}
    return {claim.seeds[0]: found}


def _worst(metric: str, parts: Mapping[str, tuple[float, float]]) -> WorstByMetric:
    return WorstByMetric(metric, list(parts), np.array(list(parts.values())), [""] * len(parts))


Subject = tuple[object, ...]


def clips_key(claim: Claim) -> Subject:
    """The same for claims on the same clips: by the manifest where it is known, and by the names."""
    table = claim.outcomes
    names = tuple(sorted(table.clips)) if table.complete else ()
    return claim.manifest or claim.data, table.of, names


def ground_key(claim: Claim) -> Subject:
    """What figures must share to mean the same: the version that made them, the goal, the grid, the clips."""
    bits = read_entries(claim.plan).bits
    version = claim.versions.get("sottovoce", "")
    return version, claim.lead, canonical("goal", claim.goal), bits, clips_key(claim)


def merge_rows(entries: Iterable[ClaimEntry]) -> list[BoardRow]:
    """One row a target, defense, goal and set of clips, in the order in which they come."""
    groups: dict[Subject, list[ClaimEntry]] = {}
    for entry in entries:
        claim = entry.claim
        # What comes with sottovoce is the same everywhere; other names mean what their owner has there.
        whose = "" if comes_along(claim.target) else claim.who
        key = claim.target, whose, "".join(claim.defense.split()), ground_key(claim)
        groups.setdefault(key, []).append(entry)
    rows = []
    for members in groups.values():
        known = [entry for entry in members if entry.clips or len(members) == 1]
        if known:
            rows.append(_row(known))
        rows += [_row([entry], sample=True) for entry in members if entry not in known]
    return rows


def _row(entries: Sequence[ClaimEntry], *, sample: bool = False) -> BoardRow:
    first, claims = entries[0].claim, [entry.claim for entry in entries]
    budgets: dict[str, list[tuple[ClaimEntry, to.Worst]]] = {}
    for entry in entries:
        for worst in entry.claim.worst:
            budgets.setdefault(canonical("budget", worst.budget), []).append((entry, worst))
    found = [(_together(members), _behind(members)) for members in budgets.values()]
    unheard, certified = max(entries, key=_unheard), max(entries, key=_certified)
    shown = first.model_copy(
        update={
            "worst": tuple(worst for worst, _ in found),
            "failed": max(claim.failed for claim in claims),
            "trials": sum(claim.trials for claim in claims),
            "unheard": unheard.claim.unheard,
            "certified": certified.claim.certified,
            "doubts": _doubts(claims),
        }
    )
    taken = {"unheard": unheard.trusted, "certified": certified.trusted}
    doubts = frozenset[Trusted]().union(*(entry.trusted & {"doubts"} for entry in entries))
    trusted = doubts.union(*(known & {name} for name, known in taken.items()))
    return BoardRow(shown, tuple(entries), {worst.budget: tries for worst, tries in found}, trusted, sample)


def _unheard(entry: ClaimEntry) -> float:
    return -1.0 if entry.claim.unheard is None else entry.claim.unheard.share.value


def _certified(entry: ClaimEntry) -> float:
    return -1.0 if entry.claim.certified is None else entry.claim.certified.share.value


def _doubts(claims: Sequence[Claim]) -> tuple[to.Doubt, ...]:
    """Each kind once. Doubts about the strength of attacks are taken from the claim with the highest figures:
    weaker attacks on a target raise no doubt about stronger ones."""
    hardest = max(claims, key=mean_worst)
    found = {
        doubt.kind: doubt
        for claim in reversed(claims)
        for doubt in claim.doubts
        if claim is hardest or doubt.kind not in STRENGTH
    }
    return tuple(found.values())


def _together(members: Sequence[tuple[ClaimEntry, to.Worst]]) -> to.Worst:
    """One budget: each clip under the attack of any run that harmed it most.

    Over the seeds that all runs have, each by itself; where they share none, the first seeds count as one.
    """
    first = members[0][1]
    named = first.model_copy(update={"title": budget_title(first.budget)})
    if len(members) == 1:
        return named
    shared = [seed for seed in members[0][0].clips if all(seed in entry.clips for entry, _ in members)]
    turns = (
        [[entry.clips[seed][worst.budget] for entry, worst in members] for seed in shared]
        if shared
        else [[next(iter(entry.clips.values()))[worst.budget] for entry, worst in members]]
    )
    rivals = {(rival.attack, rival.attacker): rival for _, worst in members for rival in worst.cells}
    return named.model_copy(
        update={
            "success": _over(turns, "success", Share),
            "wer": _over(turns, "wer", Figure),
            "cells": tuple(sorted(rivals.values(), key=lambda rival: -rival.value)),
        }
    )


def _over(
    turns: Sequence[Sequence[Mapping[str, WorstByMetric]]], metric: str, kind: type[Kind]
) -> Kind | None:
    """The figure of every turn, and their mean; None where one has no value."""
    figures = [as_figure(_highest(turn, metric).estimate(), kind) for turn in turns]
    return figures[0] if len(figures) == 1 else mean_figure(figures, kind)


def _highest(found: Sequence[Mapping[str, WorstByMetric]], metric: str) -> WorstByMetric:
    known = [each[metric] for each in found if metric in each]
    return worst_of(
        (
            Outcomes(parts={metric: array("d", each.rows.ravel())}, clips=each.clips, speakers=each.speakers)
            for each in known
        ),
        metric,
    )


def _behind(members: Sequence[tuple[ClaimEntry, to.Worst]]) -> tuple[Try, ...]:
    """Each attack once; of two with the same settings the one that did more harm."""
    found: dict[tuple[str, str], Try] = {}
    for entry, worst in members:
        plan, defense = read_entries(entry.claim.plan), Defense.parse(entry.claim.defense)
        for rival in worst.cells:
            passes = count_passes(plan, defense, Part.parse(rival.attack), rival.attacker)
            key = canonical("attack", rival.attack), rival.attacker
            if key not in found or rival.value > found[key].value:
                found[key] = Try(rival.attack, rival.attacker, passes, rival.value)
    return tuple(sorted(found.values(), key=lambda each: (-each.value, -each.passes)))
