"""Sparsity over a corpus: a record a clip, defense and radius, written as found; a killed run goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import final

import torch
import yaml

from sottovoce import __version__
from sottovoce.attacks.carlini_wagner import Margin
from sottovoce.auditing.plan.cell import file_name
from sottovoce.auditing.plan.plan_file import PASSES
from sottovoce.auditing.run.driver import Advance
from sottovoce.auditing.run.fitting_clips import usable
from sottovoce.auditing.run.folder_lock import hold
from sottovoce.auditing.run.hide_paths import roots_of
from sottovoce.auditing.run.repeatability import CLIPS, LOOKED_AT, hear_twice
from sottovoce.auditing.run.run_cell import FAILURES, explain, free_memory
from sottovoce.auditing.run.run_folder import describe
from sottovoce.auditing.run.used_weights import digest_weights
from sottovoce.auditing.sparsity.heard_clips import HeardClips, Judge
from sottovoce.auditing.sparsity.search import Nearest, attack, find_nearest
from sottovoce.auditing.sparsity.sparsity_folder import Setting, SparseClip, SparsityFolder
from sottovoce.core.attack import decode
from sottovoce.core.batch import PASS, AudioBatch
from sottovoce.core.budget import Ball
from sottovoce.core.draws import Draws
from sottovoce.core.files.private_paths import hide_paths
from sottovoce.core.files.yaml_reader import read_yaml
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.core.quantisation import round_clean
from sottovoce.core.record import LOADING
from sottovoce.core.sphere import GrowingSets, draw_sets
from sottovoce.core.target import Scores, Target
from sottovoce.core.transform import Averaged
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.data.labels import Settled, open_settled
from sottovoce.data.load import Clip, Corpus, collate, spread
from sottovoce.defenses.certified_radius import Within
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import InputError, StoreError, exits_are_errors
from sottovoce.registry.part_text import Part
from sottovoce.targets.open_target import find_device, open_target

USUAL_WER = 0.5
HELD = 8
"""Fresh passes over each nearest perturbation of a random target, once the search is over."""
FEWEST_PASSES = 10
STEPS = 32768
"""Of the 16-bit grid, up to full swing."""
MOST_DIRECTIONS = 1000


@final
@dataclass(frozen=True, kw_only=True)
class SparsityPlan:
    """What sparsity is measured of, as plain data. Batch and device are no part of it.

    budgets: radii; every perturbation has this very length. directions: a clip.
    passes: with a gradient, for the attack that all directions share, and again for each of them.
    wer: of a recogniser, the WER from which on a transcript counts as wrong; None: 0.5.
    average: passes that a gradient is averaged over; None: 16 where the target is random.
    labels, longest: as of `sottovoce.auditing.plan.plan_file.Plan`.
    """

    model: str = "keyword"
    data: str = "embedded"
    limit: int | None = None
    defenses: tuple[str, ...] = (NO_DEFENSE,)
    goal: str = "evade"
    budgets: tuple[str, ...] = ("snr(db=15)", "snr(db=25)", "snr(db=35)", "snr(db=45)")
    directions: int = 4
    passes: int = 40
    wer: float | None = None
    average: int | None = None
    seed: int = 0
    labels: str = "refuse"
    longest: float = LONGEST_SECONDS

    def __post_init__(self) -> None:
        _check_range("directions", self.directions, 1, MOST_DIRECTIONS, "4 is usual")
        _check_range("passes", self.passes, FEWEST_PASSES, 100_000, "40 is usual")
        if self.average is not None:
            _check_range("average", self.average, 1, 100_000, "16 is usual")
        if self.wer is not None and not 0 < self.wer <= 1:
            raise InputError(f"expected --wer above 0, up to 1, got {self.wer}; 0.5 is usual.")
        if not self.longest > 0:
            raise InputError(f"expected --longest above 0 seconds, got {self.longest}; raise it.")
        if not self.budgets or not self.defenses:
            raise InputError(
                "expected a radius and a defense at least, got none; name some, or leave it out."
            )
        if len(set(map(self.cell_id, self.pairs))) < len(self.pairs):
            raise InputError("expected different defenses and radii, got the same twice; drop one.")
        self.build_goal()
        list(map(self.ball, self.budgets))
        list(map(Defense.parse, self.defenses))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each defense with each radius."""
        return [(defense, budget) for defense in self.defenses for budget in self.budgets]

    @staticmethod
    def ball(budget: str) -> Ball:
        found = Part.parse(budget).build("budget")
        if not isinstance(found, Ball):
            raise InputError(
                f"expected a radius for sparsity, such as snr(db=30), l2(eps=0.5) or linf(eps=0.002), got "
                f"{budget}, whose perturbations have no common length; name one of these."
            )
        return found

    def build_goal(self) -> Goal:
        goal: Goal = Part.parse(self.goal).build("goal")
        return goal

    @staticmethod
    def cell_id(pair: tuple[str, str]) -> str:
        defense, budget = pair
        words = [budget] if defense == NO_DEFENSE else [defense, budget]
        return "_".join(map(file_name, words))

    def settings(self) -> list[Setting]:
        return [
            Setting(
                cell=self.cell_id((defense, budget)),
                defense=defense,
                budget=budget,
                title=str(self.ball(budget)),
                norm=self.ball(budget).norm,
            )
            for defense, budget in self.pairs
        ]

    def resolved(self, target: Target) -> SparsityPlan:
        """With what the kind of model needs."""
        words = target.says == "words"
        if self.wer is not None and not words:
            raise InputError(
                f"expected --wer with a speech recogniser alone, got it with {self.model}, which says a "
                "class; drop it."
            )
        if words and self.wer is None and isinstance(self.build_goal(), Evade):
            return replace(self, wer=USUAL_WER)
        return self

    def to_yaml(self) -> str:
        content = asdict(self)
        content["defenses"], content["budgets"] = list(self.defenses), list(self.budgets)
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    @property
    def run_id(self) -> str:
        """A hash of the plan and the version of the code."""
        return sha256(f"{__version__}\n{self.to_yaml()}".encode()).hexdigest()[:10]


def read_sparsity_plan(folder: Path) -> SparsityPlan:
    """The plan that a folder of sparsity holds."""
    place = folder / SparsityFolder.plan_name
    content = dict(read_yaml(place, "a plan of sparsity", "budgets: [snr(db=30)]"))
    try:
        content |= {name: tuple(content[name]) for name in ("defenses", "budgets")}
        return SparsityPlan(**content)
    except (TypeError, KeyError):
        raise InputError(
            f"expected a plan of sparsity in {place}, got other entries; run it again."
        ) from None


def _check_range(name: str, value: int, low: int, high: int, usual: str) -> None:
    if not low <= value <= high:
        raise InputError(f"expected --{name} from {low} to {high:,}, got {value}; {usual}.")


@final
@dataclass(frozen=True)
class SparsityCell:
    """A setting at work. random: whether the target answers the same clip in different ways."""

    plan: SparsityPlan
    setting: Setting
    bare: Target
    heard: Target
    random: bool
    device: str

    def record(self, clips: Sequence[Clip]) -> list[SparseClip]:
        """One record a clip. Clips that break as a batch are halved until the one that does is alone."""
        if not clips:
            return []
        try:
            with exits_are_errors():
                return self._measured(clips)
        except StoreError:
            raise
        except FAILURES as error:
            reason, crowded = explain(error), out_of_memory(error)
        if crowded:
            free_memory()
        if len(clips) == 1:
            return [self.unfit(clips[0].id, clips[0].label, hide_paths(reason, roots_of(self.plan.data)))]
        half = len(clips) // 2
        return self.record(clips[:half]) + self.record(clips[half:])

    def unfit(self, clip: str, label: str, reason: str) -> SparseClip:
        return SparseClip(cell=self.setting.cell, clip=clip, status="failed", label=label, reason=reason)

    def _measured(self, clips: Sequence[Clip]) -> list[SparseClip]:
        batch = round_clean(collate(clips).to(self.device), 16)
        draws = Draws(self.plan.seed).turn("sparsity")
        said = decode(self.heard, batch, draws)
        goal = self.plan.build_goal().heard_by(self.bare)
        goal.check(self.bare)
        right = [self._right(goal, clip, text) for clip, text in zip(clips, said, strict=True)]
        applies = [goal.applies(text) for text in said]
        rows = [row for row in range(len(clips)) if right[row] is not False and applies[row]]
        found = self._search([clips[row] for row in rows], batch.select(rows), said, rows) if rows else []
        figures = dict(zip(rows, found, strict=True))
        return [
            SparseClip(
                cell=self.setting.cell,
                clip=clip.id,
                label=clip.label,
                said=said[row],
                right=right[row],
                loaded=hide_paths(clip.loaded, roots_of(self.plan.data)),
                seconds=len(clip.waveform) / clip.sample_rate,
                **(figures.get(row) or {"status": "ok"} if applies[row] else SAYS_IT),
            )
            for row, clip in enumerate(clips)
        ]

    def _right(self, goal: Goal, clip: Clip, text: str) -> bool | None:
        """Whether the clean clip is heard right; None where nothing tells, or where the goal does not ask."""
        if not isinstance(goal, Evade) or not clip.label.strip():
            return None
        if self.plan.wer is not None:
            return Within(self.bare, clip.label, self.plan.wer)(text)
        return goal.canonical(text) == goal.canonical(clip.label)

    def _search(
        self, clips: Sequence[Clip], batch: AudioBatch, said: Sequence[str], rows: Sequence[int]
    ) -> list[dict[str, object]]:
        """The figures of each clip, `clips` and `batch` being those rows of what was said."""
        references = [said[row] for row in rows]
        draws = Draws(self.plan.seed).turn("sparsity")
        shared = self._landscape(batch, clips, references, draws)
        start = attack(shared, self._sets(batch, draws), self.plan.passes)
        # A direction is a pass over the clip: it has a name, and so a stream, of its own.
        count = self.plan.directions
        places, copies = next(batch.passes(count, len(batch) * count))
        each = self._landscape(
            copies, [clips[place] for place in places], [references[place] for place in places], draws
        )
        sets = self._sets(copies, draws)
        found = find_nearest(each, sets, self.plan.passes, start.repeat(torch.tensor(places)))
        found = share_finds(found, sets, places)
        return [
            {**self._figures(each, sets, found, [at for at, place in enumerate(places) if place == row]),
             "passes": shared.gradients + count * each.gradients,
             "hearings": 1 + shared.hearings + count * each.hearings}
            for row in range(len(batch))
        ]  # fmt: skip

    def _sets(self, batch: AudioBatch, draws: Draws) -> GrowingSets:
        """A direction a row. A vertex lies on the 16-bit grid, as far out as the radius allows."""
        eps = self.plan.ball(self.setting.budget).radius(batch)
        if self.setting.norm == "linf":
            eps = (eps.double() * STEPS).floor() / STEPS
            if bool((eps <= 0).any()):
                row = int((eps <= 0).nonzero()[0])
                raise InputError(
                    f"clip {batch.ids[row].partition(PASS)[0]!r}: expected a radius of a 16-bit step "
                    f"(0.00003) or more, got less at {self.setting.title}; take a louder one."
                )
        return draw_sets(self.setting.norm, eps, batch, draws)

    def _landscape(
        self, batch: AudioBatch, clips: Sequence[Clip], references: Sequence[str], draws: Draws
    ) -> HeardClips:
        goal = self.plan.build_goal().heard_by(self.bare).bind(references)
        by_scores = self.heard.says == "class" and self.heard.offers(Scores) and not self.random
        passes = (self.plan.average or PASSES) if self.random else 1
        return HeardClips(
            clean=batch,
            goal=Margin(goal, references=goal.references, canonical=goal.canonical) if by_scores else goal,
            through=Averaged(self.heard, passes) if passes > 1 else self.heard,
            heard=self.heard,
            judge=self._judge(goal, clips),
            draws=draws,
            passes=passes,
            by_scores=by_scores,
            random=self.random,
        )

    def _judge(self, goal: Goal, clips: Sequence[Clip]) -> Judge:
        if self.plan.wer is None or not isinstance(goal, Evade):
            return lambda texts, rows: goal.select(rows).achieved(texts)
        truths = [clip.label.strip() or text for clip, text in zip(clips, goal.references, strict=True)]
        near = [Within(self.bare, truth, self.plan.wer) for truth in truths]
        return lambda texts, rows: [not near[row](text) for row, text in zip(rows, texts, strict=True)]

    def _figures(
        self, landscape: HeardClips, sets: GrowingSets, found: Nearest, rows: list[int]
    ) -> dict[str, object]:
        """What is recorded of a clip from the rows of its directions."""
        ball, clean = self.plan.ball(self.setting.budget), landscape.clean.select(rows[:1])
        known: dict[str, object] = {
            "status": "ok",
            "fooled": bool(found.fools[rows[0]]),
            "dimensions": int(clean.lengths[0]),
            "norm": ball.norm,
            "eps": float(ball.radius(clean)[0]),
            "at_once": int(found.at_once[rows].sum()),
        }
        if not known["fooled"]:
            return known
        sizes = found.size[rows].tolist()
        wanted = landscape.clean.waveforms[rows] + found.delta[rows]
        heard = landscape.sound(found.delta).waveforms[rows] - landscape.clean.waveforms[rows]
        reach = ball.size(heard) / ball.radius(clean).double()
        known |= {
            "sizes": tuple(sizes),
            "sparsity": sum(sizes) / len(sizes),
            "clipped": float((wanted.abs() > 1.0).sum() / (len(rows) * int(clean.lengths[0]))),
            "reach": float(reach.mean()),
        }
        if self.random:
            known["held"] = float(landscape.fooled_share(found.delta, rows, HELD, "held").mean())
        return known


SAYS_IT = {"status": "skipped", "reason": "already says it"}


def share_finds(found: Nearest, sets: GrowingSets, places: Sequence[int]) -> Nearest:
    """What works for one direction of a clip works for the others, as far away as it lies from them.

    So a clip has a size in every direction, or in none. places: the clip of each row.
    """
    size, delta = found.size.clone(), found.delta.clone()
    for row in range(len(places)):
        same = [other for other, place in enumerate(places) if place == places[row]]
        works = [other for other in same if bool(found.size[other].isfinite())]
        if bool(found.size[row].isfinite()) or not works:
            continue
        lent = delta.clone()
        for other in works:
            lent[row] = found.delta[other]
            away = sets.size(lent)[row]
            if away < size[row]:
                size[row], delta[row] = away, found.delta[other]
    return replace(found, size=size, delta=delta)


def run_sparsity(
    plan: SparsityPlan,
    out: Path,
    *,
    device: str = "auto",
    batch: int | None = None,
    target: Target | None = None,
    retry_failed: bool = False,
    begin: Callable[[int], None] = lambda searches: None,
    advance: Advance = lambda done, note: None,
) -> SparsityFolder:
    """Measure what is not yet recorded. A bad plan raises before any work; a bad clip is recorded as failed.

    batch: clips at once; default: 8, or 2 of a recogniser. target: the plan's model where it is open.
    retry_failed: whether what is recorded as failed is done again.
    begin: told how many searches there are, one a clip, defense and radius; advance: how many are done.
    """
    device = find_device(device)
    target = open_target(plan.model, device) if target is None else target
    plan = plan.resolved(target)
    plan.build_goal().check(target)
    size = batch if batch is not None else 2 if target.says == "words" else 8
    if size < 1:
        raise InputError(f"expected --batch of 1 clip or more, got {batch}; raise it.")
    settled = open_settled(plan.data, target, plan.labels)
    corpus = settled.corpus.limit(plan.limit) if plan.limit is not None else settled.corpus
    cells = _cells(plan, target, corpus, device, size)
    folder = SparsityFolder(out)
    with hold(folder.path):
        weights = digest_weights(target, plan.defenses)
        folder.prepare(plan.to_yaml(), describe(plan.run_id, device, corpus.note, weights=weights))
        done = {each.key for each in folder.records() if not (retry_failed and each.status == "failed")}
        with folder.writer() as writer:
            writer.write([each for each in _skipped(settled) if each.key not in done])
        begin(len(corpus) * len(cells))
        _measure(cells, corpus, folder, done, size, advance)
    return folder


def _cells(plan: SparsityPlan, target: Target, corpus: Corpus, device: str, batch: int) -> list[SparsityCell]:
    behind = {defense: Defense.parse(defense).around(target) for defense in plan.defenses}
    wavers = not _steady(plan, target, corpus, device, batch)
    found = []
    for setting in plan.settings():
        heard = behind[setting.defense]
        random = heard.random or not heard.repeats or wavers
        found.append(SparsityCell(plan, setting, target, heard, random, device))
    return found


def _steady(plan: SparsityPlan, target: Target, corpus: Corpus, device: str, batch: int) -> bool:
    """Whether the bare model answers the same clips with the same draws alike, also one that says so."""
    clips: list[Clip] = []
    some = replace(corpus, entries=tuple(spread(corpus.entries, LOOKED_AT)))
    for chunk in some.chunks(1, target.sample_rate, plan.longest):
        clips += usable(target, chunk.clips)[0]
        if len(clips) == CLIPS:
            break
    return hear_twice(target, clips, batch=batch, device=device, seed=plan.seed).steady


def _measure(
    cells: Sequence[SparsityCell],
    corpus: Corpus,
    folder: SparsityFolder,
    done: set[tuple[str, str]],
    size: int,
    advance: Advance,
) -> None:
    """Chunk by chunk through every setting, each recorded as it ends. Chunks are those of the whole corpus,
    so that a run that goes on has the same."""
    plan, target = cells[0].plan, cells[0].bare
    with folder.writer() as writer:
        for first in range(0, len(corpus), size):
            entries = corpus.entries[first : first + size]
            left = [
                (cell, {e.id for e in entries if (cell.setting.cell, e.id) not in done}) for cell in cells
            ]
            wanted = {name for _, names in left for name in names}
            advance(len(entries) * len(cells) - sum(len(names) for _, names in left), "on record")
            if not wanted:
                continue
            some = replace(corpus, entries=tuple(entry for entry in entries if entry.id in wanted))
            clips, failures = next(some.chunks(size, target.sample_rate, plan.longest))
            clips, refused = usable(target, clips)
            for cell, names in left:
                advance(0, f"{plan.model}: {cell.setting.title}")
                unfit = [
                    cell.unfit(item.id, item.label, hide_paths(item.reason, roots_of(plan.data)))
                    for item in [*failures, *refused]
                    if item.id in names
                ]
                writer.write([*unfit, *cell.record([clip for clip in clips if clip.id in names])])
                advance(len(names), f"{plan.model}: {cell.setting.title}")


def _skipped(settled: Settled) -> list[SparseClip]:
    """Clips that are left out because of their label."""
    reasons = settled.reasons()
    return [
        SparseClip(cell=LOADING, clip=entry.id, status="skipped", label=entry.label, reason=reasons[entry.id])
        for entry in settled.skipped
    ]
