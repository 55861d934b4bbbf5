"""From a run to its claims: one for each defense and goal, seeds of one plan merged."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np

from sottovoce.auditing.checks.flags import Flag, SanityCheck
from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.plan.plan_file import Plan, read_entries
from sottovoce.auditing.results.clean_decisions import CleanDecisions, Parts
from sottovoce.auditing.results.heard_curve import FEW, opinion_of, worst_curve
from sottovoce.auditing.results.summary import ComparableCells
from sottovoce.auditing.results.worst_case import WorstByMetric
from sottovoce.auditing.run.hide_paths import roots_of
from sottovoce.core.files.private_paths import hide_all, hide_paths
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims import claim as to
from sottovoce.leaderboard.claims.claim import Claim, Figure, Kind, Share, as_figure
from sottovoce.leaderboard.claims.claim_mistakes import MOST_CLIPS
from sottovoce.leaderboard.run_reading import RunReading, find_worst
from sottovoce.report.doubts import word_checks
from sottovoce.report.heard_section import describe_ear
from sottovoce.targets.open_target import is_object

STEPS = 50
"""Steps of P(heard) to which a curve is kept."""
MOST_ITEMS = 6
LONGEST_TABLE = 150_000
"""Bytes of the list of clips; what else is in a claim fits in the rest."""
UNTOLD = ("seed", "batch", "audio", "gpu_share")
"""Entries of a plan that do not make another claim."""


def make_claims(reading: RunReading) -> list[Claim]:
    """Every defense and goal of a run that has an attack with a value."""
    return [claim for claim, _ in claims_and_clips(reading)]


def claims_and_clips(reading: RunReading) -> list[tuple[Claim, dict[str, dict[str, WorstByMetric]]]]:
    """The claims of a run, each with the outcome of every clip by budget and metric: a claim lists some."""
    if is_object(reading.plan.model):
        raise InputError(
            f"{reading.folder.path}: expected a model that others can open, got {reading.plan.model}, an "
            "object of a Python program; audit it by a text such as python:MODULE:FUNCTION."
        )
    about = reading.folder.about()
    checks = examine(reading.plan, reading.summary, reading.folder.probes(), reading.folder.repeated())
    groups: defaultdict[tuple[str, str], list[ComparableCells]] = defaultdict(list)
    for group in reading.summary.groups:
        if group.strongest is not None:
            groups[group.defense, str(group.goal)].append(group)
    rows = []
    for (defense, goal), found in groups.items():
        worst = {str(group.budget): find_worst(group, reading.summary.outcomes) for group in found}
        rows.append((_claim(reading, about, defense, goal, found, worst, checks), worst))
    return rows


def _claim(
    reading: RunReading,
    about: Mapping[str, Any],
    defense: str,
    goal: str,
    groups: Sequence[ComparableCells],
    worst: Mapping[str, Mapping[str, WorstByMetric]],
    checks: Sequence[SanityCheck],
) -> Claim:
    plan, clean = reading.plan, reading.clean.get(defense, CleanDecisions())
    cells = [item for group in groups for item in group.cells]
    return Claim(
        id=name_claim(plan, defense, goal),
        target=plan.model,
        defense=defense,
        goal=goal,
        data=plan.data,
        manifest=str(about.get("corpus") or ""),
        lead=groups[0].lead,
        clips=len(clean.speakers),
        failed=len(reading.failed),
        trials=sum(item.clips + item.failed + item.skipped for item in cells),
        seeds=(plan.seed,),
        clean=to.Clean(
            accuracy=as_figure(clean.estimate("clean-accuracy"), Share),
            wer=as_figure(clean.estimate("clean-wer"), Figure),
        ),
        worst=tuple(_worst(group) for group in groups),
        unheard=_unheard(reading, groups),
        doubts=_doubts(reading, checks, defense, {item.cell.id for item in cells}),
        outcomes=_table(clean, worst),
        plan=plan.model_dump(mode="json"),
        versions={name: str(each) for name, each in about.get("versions", {}).items()},
        run=str(about.get("run", "")),
        started=str(about.get("started", "")),
    )


def name_claim(plan: Plan, defense: str, goal: str) -> str:
    """The same for all seeds of a plan."""
    entries = {
        key: value
        for key, value in plan.model_dump(mode="json", exclude_defaults=True).items()
        if key not in UNTOLD
    }
    text = json.dumps([entries, defense, goal], sort_keys=True)
    words = [hide_paths(text) for text in (plan.model, defense) if text != NO_DEFENSE]
    slugs = (re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-.")[-40:].lstrip("-.") for word in words)
    return "_".join([*slugs, sha256(text.encode()).hexdigest()[:8]])


def without_paths(claim: Claim) -> Claim:
    """A claim as it is published: without paths of the machine that it was made on, also in the plan."""
    roots = roots_of(claim.plan.get("data"), claim.plan.get("fit"))
    content = claim.model_dump(mode="json", by_alias=True)
    told = hide_all(content, roots)
    if told == content:
        return claim
    # A cell is called by its parts, paths in them too.
    plans = [read_entries(each["plan"]) for each in (content, told)]
    names = {one.id: other.id for one, other in zip(*(plan.cells() for plan in plans), strict=True)}
    for worst in told["worst"]:
        for rival in worst["cells"]:
            rival["cell"] = names[rival["cell"]]
    return Claim.model_validate(told)


def _worst(group: ComparableCells) -> to.Worst:
    assert group.strongest is not None
    ranked = sorted(group.attacks, key=lambda item: (-item.estimates[group.lead].value, -item.snr_db))
    found = group.strongest.per_clip
    return to.Worst(
        budget=str(group.budget),
        title=group.budget_title,
        success=as_figure(found.get("success"), Share),
        wer=as_figure(found.get("wer"), Figure),
        cells=tuple(
            to.Rival(
                cell=item.cell.id,
                attack=str(item.cell.attack),
                attacker=item.cell.attacker,
                value=item.estimates[group.lead].value,
            )
            for item in ranked
        ),
    )


def _unheard(reading: RunReading, groups: Sequence[ComparableCells]) -> to.Unheard | None:
    metric = opinion_of(reading.summary)
    if metric is None:
        return None
    curve = worst_curve(reading.summary, [item for group in groups for item in group.cells], metric)
    share = as_figure(curve.below(FEW), Share)
    if share is None:
        return None
    points = np.searchsorted(curve.heard, np.linspace(0, 1, STEPS + 1), side="right") / curve.clips
    kept = tuple(round(point, 4) for point in points.tolist())
    return to.Unheard(metric=metric, ear=_ear(metric), below=FEW, share=share, curve=kept)


@cache
def _ear(metric: str) -> str:
    return describe_ear(metric)


def _doubts(
    reading: RunReading, checks: Iterable[SanityCheck], defense: str, cells: set[str]
) -> tuple[to.Doubt, ...]:
    """Those about this defense, or about the whole run."""

    def concerns(flag: Flag) -> bool:
        return flag.cell in cells if flag.cell else flag.evidence.get("defense", defense) == defense

    own = [
        SanityCheck(each.kind, each.asked, [flag for flag in each.flags if concerns(flag)]) for each in checks
    ]
    raised = [check for check in own if check.flags]
    return tuple(
        to.Doubt(kind=check.kind, title=doubt.title, text=doubt.text, items=tuple(doubt.items[:MOST_ITEMS]))
        for check, doubt in zip(raised, word_checks(reading.plan, reading.summary, raised), strict=True)
    )


def _table(clean: CleanDecisions, worst: Mapping[str, Mapping[str, WorstByMetric]]) -> to.Table:
    """All clips, or as many as a claim has room for, drawn blindly."""
    clips = list(clean.speakers)
    by_budget = {name: {key: each.by_clip() for key, each in found.items()} for name, found in worst.items()}
    count = min(len(clips), MOST_CLIPS)
    while True:
        picked = np.sort(np.random.default_rng(0).permutation(len(clips))[:count]).tolist()
        table = _rows([clips[place] for place in picked], len(clips), clean, by_budget)
        if count <= 1 or len(table.model_dump_json()) <= LONGEST_TABLE:
            return table
        count //= 2


def _rows(
    clips: Sequence[str],
    of: int,
    clean: CleanDecisions,
    worst: Mapping[str, Mapping[str, Mapping[str, Parts]]],
) -> to.Table:
    worded = clean.parts.get("clean-wer", {})
    heard = worded or clean.parts.get("clean-accuracy", {})
    errors = {name: found["wer"] for name, found in worst.items() if "wer" in found}
    # A run that measured no clean WER knows the words of its references all the same.
    spoken = {clip: parts for found in errors.values() for clip, parts in found.items()} | worded
    return to.Table(
        of=of,
        clips=tuple(clips),
        clean=tuple(_whole(heard.get(clip), 0) for clip in clips),
        words=tuple(_whole(spoken.get(clip), 1) for clip in clips) if spoken else None,
        success={
            name: "".join(_letter(found["success"].get(clip)) for clip in clips)
            for name, found in worst.items()
            if "success" in found
        },
        errors={name: tuple(_whole(found.get(clip), 0) for clip in clips) for name, found in errors.items()},
    )


def _whole(parts: Parts | None, place: int) -> int | None:
    return None if parts is None or parts[place] != parts[place] else round(parts[place])


def _letter(parts: Parts | None) -> str:
    found = _whole(parts, 0)
    return "-" if found is None else str(found)


def merge_seeds(claims: Sequence[Claim]) -> tuple[Claim, list[str]]:
    """Claims of one plan but for the seed as one: means, and ranges over seeds. A seed counts once.

    Also says which runs were left out.
    """
    first = claims[0]
    seeds: dict[int, Claim] = {}
    notes = []
    for each in claims:
        if each.seeds[0] in seeds:
            notes.append(f"{each.id}: seed {each.seeds[0]} came twice; run {each.run or '?'} is left out")
        else:
            seeds[each.seeds[0]] = each
    if len(seeds) == 1:
        return first, notes
    found = list(seeds.values())
    budgets = [{worst.budget: worst for worst in each.worst} for each in found]
    shared = [worst for worst in first.worst if all(worst.budget in known for known in budgets)]
    doubts = {doubt.kind: doubt for each in reversed(found) for doubt in each.doubts}
    merged = first.model_copy(
        update={
            "seeds": tuple(seeds),
            "failed": max(each.failed for each in found),
            "trials": sum(each.trials for each in found),
            "clean": to.Clean(
                accuracy=mean_figure([each.clean.accuracy for each in found], Share),
                wer=mean_figure([each.clean.wer for each in found], Figure),
            ),
            "worst": tuple(_merged(worst, [known[worst.budget] for known in budgets]) for worst in shared),
            "unheard": _merge_unheard(found),
            "doubts": tuple(doubts.values()),
        }
    )
    return merged, notes


def _merged(first: to.Worst, found: Sequence[to.Worst]) -> to.Worst:
    return first.model_copy(
        update={
            "success": mean_figure([each.success for each in found], Share),
            "wer": mean_figure([each.wer for each in found], Figure),
        }
    )


def _merge_unheard(found: Sequence[Claim]) -> to.Unheard | None:
    known = [each.unheard for each in found if each.unheard is not None]
    if len(known) < len(found) or len({each.metric for each in known}) > 1:
        return None
    share = mean_figure([each.share for each in known], Share)
    curve = tuple(np.mean([each.curve for each in known], axis=0).round(4).tolist())
    return known[0].model_copy(update={"share": share, "curve": curve})


def mean_figure(figures: Sequence[Figure | None], kind: type[Kind]) -> Kind | None:
    """The mean over seeds, with an interval that spans those of all; None where one has no value."""
    known = [each for each in figures if each is not None]
    if len(known) < len(figures):
        return None
    values = [each.value for each in known]
    ends = [(each.low, each.high) for each in known if each.low is not None and each.high is not None]
    whole = len(ends) == len(known)
    mean = float(np.mean(values))
    return kind(
        value=mean,
        low=min(low for low, _ in ends) if whole else None,
        high=max(high for _, high in ends) if whole else None,
        n=min(each.n for each in known),
        method=known[0].method,
        seeds=tuple(values),
    )
