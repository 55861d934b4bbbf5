"""One cell at work: its parts put together, and some clips through it, one record each."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sottovoce import registry
from sottovoce.attacks.white_noise import Nothing
from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results import clean_decisions as clean
from sottovoce.auditing.run.audio_files import encode, sound_path
from sottovoce.auditing.run.repeatability import JUDGED
from sottovoce.auditing.run.tasks import Sound
from sottovoce.core.attack import Attack, Trial, listen
from sottovoce.core.budget import Budget, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.metric import Metric, lend
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.core.record import LOADING, Record, Role
from sottovoce.core.target import Says, Sight, Target, require_sight
from sottovoce.core.transform import Averaged
from sottovoce.core.universal_attack import UniversalAttack
from sottovoce.core.vote import Passes, Voted
from sottovoce.data.load import Clip, collate
from sottovoce.defenses.defense_text import Defense
from sottovoce.defenses.votes import Majority
from sottovoce.errors import SottovoceError, Stopped, exits_are_errors
from sottovoce.metrics.vocal_parts import intensity_level
from sottovoce.registry.part_text import attack_kind

Measure = Callable[[Trial], Tensor]
Reasons = Callable[[Trial, Tensor], dict[str, str]]
Outcome = tuple[list[Record], list[Sound]]
FAILURES = (Exception,)
"""What a clip or a fit may end in: whatever someone's own model, attack or metric raises. `exits_are_errors`
makes errors of their exits first."""
HEARINGS = 4
"""Passes of a random target over which a search by scores ranks a perturbation. With one the luckiest draw
wins; as many as a gradient takes would cost more than they tell, for every member of a population pays."""

AGREED = "agreed"
"""The fact that says how many further passes over an example say what was judged."""


@dataclass
class Room:
    """How many clips of a cell fit at once. fits: the most that did; crowded: whether more did not."""

    fits: int = 1
    crowded: bool = False


@dataclass(frozen=True)
class CellParts:
    """A cell with its parts built.

    target: what is attacked: the model behind its defense.
    judge: what the examples are judged on: the target, or most of its passes where it does not repeat itself.
    through: what the attack works on: the target with its gradients averaged, or the bare model.
    name: what its records call the cell.
    facts: what its records say of it.
    room: what was learnt of the memory it takes.
    """

    cell: Cell
    target: Target
    judge: Target
    through: Target
    attack: Attack | UniversalAttack
    goal: Goal
    budget: Budget
    name: str
    facts: Mapping[str, str] = field(default_factory=dict)
    room: Room = field(default_factory=Room, compare=False)


@exits_are_errors()
def assemble(plan: Plan, cell: Cell, target: Target) -> CellParts:
    """The parts of a cell around a bare target; raises where they do not go together."""
    heard = Defense.parse(cell.defense).around(target)
    if cell.clean:
        # Nothing asks for a goal and a budget where nothing is attacked: any will do.
        judge, goal = judging(heard, plan.batch), Evade().heard_by(target)
        return CellParts(cell, heard, judge, heard, Nothing(), goal, Snr(0.0), cell.id)
    attack = cell.attack.build(attack_kind(cell.attack.name))
    goal = cell.goal.build("goal").heard_by(target)
    known = target if cell.attacker == "transfer" else heard
    through = seen_through(known, heard, cell.sees, plan.passes(known))
    budget = cell.budget.build("budget")
    work = CellParts(cell, heard, judging(heard, plan.batch), through, attack, goal, budget, cell.id)
    if isinstance(attack, Attack):
        attack.check(through, goal, budget)
    else:
        require_sight(attack, attack.sees, through)
    for kind in (*attack.needs, *goal.needs):
        through.capability(kind)
    goal.check(target)
    return work


def judging(heard: Target, batch: int) -> Target:
    """The target that judges examples. Draws lead a random target back to the same pass; where that is not
    possible, the majority of several passes counts, and the mean of their scores."""
    if heard.repeats:
        return heard
    return Averaged(Voted(heard, Majority(passes=JUDGED), batch), JUDGED, batch)


def seen_through(known: Target, heard: Target, sees: Sight, passes: int) -> Target:
    """What an attacker works on. known: the target that it knows; heard: the one that is attacked."""
    if sees in ("decisions", "nothing"):
        return heard.known
    if sees == "scores":
        passes = min(passes, HEARINGS)
    return Averaged(known.known, passes) if passes > 1 else known.known


@dataclass(frozen=True)
class CellRunner:
    """One cell at work on some clips.

    measures: what is recorded of a trial, `(batch, 2)` parts by name.
    reasons: why a clip has no such parts, by the same names, for those that say so.
    sent: clips whose clean sound the run has already.
    """

    plan: Plan
    work: CellParts
    attack: Attack
    measures: Mapping[str, Measure]
    device: str
    reasons: Mapping[str, Reasons] = field(default_factory=dict)
    sent: AbstractSet[str] = frozenset()

    def run(self, clips: Sequence[Clip]) -> Outcome:
        """One record per clip. A batch that fails is halved until the clip that breaks it is by itself."""
        goal = self.work.goal
        about = {
            clip.id: clip.facts.get("language", "") if goal.about == "language" else clip.label
            for clip in clips
        }
        wanted = [clip for clip in clips if goal.applies(about[clip.id])]
        skipped = [
            Record(
                cell=self.work.name,
                clip=clip.id,
                status="skipped",
                label=clip.label,
                reason="already says it",
            )
            for clip in clips
            if clip not in wanted
        ]
        room = self.work.room
        records, sounds = self._attacked(wanted, room.fits if room.crowded else len(wanted))
        return skipped + records, sounds

    def _attacked(self, clips: Sequence[Clip], most: int) -> Outcome:
        """most: clips that are tried at once; more are halved untried."""
        if not clips:
            return [], []
        if len(clips) <= most:
            try:
                with exits_are_errors():
                    found = self._judged(self._tried(clips), clips)
                self.work.room.fits = max(self.work.room.fits, len(clips))
                return found
            except Stopped:
                raise
            except FAILURES as error:
                reason, crowded = explain(error), out_of_memory(error)
            # Out here the error is gone, and with it the tensors that its frames held.
            if crowded:
                self.work.room.crowded = True
                free_memory()
            if len(clips) == 1:
                return [failed(self.work.name, clips[0].id, clips[0].label, reason)], []
        half = len(clips) // 2
        first, second = self._attacked(clips[:half], most), self._attacked(clips[half:], most)
        return first[0] + second[0], first[1] + second[1]

    def _tried(self, clips: Sequence[Clip]) -> Trial:
        work, batch, draws = self.work, collate(clips).to(self.device), Draws(self.plan.seed)
        labels, facts = tuple(clip.label for clip in clips), tuple(clip.facts for clip in clips)
        if work.cell.clean:
            return listen(work.judge, batch, draws=draws, labels=labels, facts=facts, bits=self.plan.bits)
        return self.attack(
            work.judge,
            batch,
            work.goal,
            work.budget,
            draws=draws,
            labels=labels,
            facts=facts,
            bits=self.plan.bits,
            through=work.through,
        )

    def _judged(self, trial: Trial, clips: Sequence[Clip]) -> Outcome:
        shown = lend(trial)
        parts = {name: measure(shown()) for name, measure in self.measures.items()}
        figures = {name: rows.tolist() for name, rows in parts.items()}
        unscored = {name: why(shown(), parts[name]) for name, why in self.reasons.items()}
        levels = intensity_level(trial.clean.waveforms, trial.clean.lengths)
        untouched = self.work.cell.clean
        steady, agreed = self.work.target.repeats, self._agreed(trial)
        sounds: list[Sound] = []
        records = [
            Record(
                cell=self.work.name,
                clip=clip.id,
                status="ok",
                label=clip.label,
                clean_text=trial.clean_texts[row],
                adversarial_text="" if untouched else trial.adversarial_texts[row],
                achieved=None if untouched else trial.achieved[row],
                # Two votes of a random model differ by chance as well as by rounding.
                achieved_unrounded=trial.achieved_unrounded[row] if steady and not untouched else None,
                judged_by="" if untouched else trial.judged_by[row],
                seconds=len(clip.waveform) / clip.sample_rate,
                sample_rate=clip.sample_rate,
                loaded=clip.loaded,
                facts={
                    "intensity": levels[row],
                    **clip.facts,
                    **_heard(trial, row, untouched),
                    **agreed[row],
                    **self.work.facts,
                },
                parts={name: rows[row] for name, rows in figures.items()},
                unscored={name: whys[clip.id] for name, whys in unscored.items() if clip.id in whys},
                audio=self._keep(trial, row, clip.id, sounds),
            ).checked()
            for row, clip in enumerate(clips)
        ]
        return records, sounds

    def _agreed(self, trial: Trial) -> list[dict[str, str]]:
        """How many further passes over each example say what was judged, where passes differ."""
        if self.work.target.repeats:
            return [{}] * len(trial.adversarial)
        draws = Draws(self.plan.seed).turn("agreed")
        passes = Passes(self.work.target, trial.adversarial, draws, JUDGED, self.plan.batch)
        with torch.no_grad():
            said = zip(passes.texts(), trial.adversarial_texts, strict=True)
        same = [
            sum(trial.canonical(text) == trial.canonical(judged) for text in texts) for texts, judged in said
        ]
        return [{AGREED: f"{count} of {JUDGED}"} for count in same]

    def _keep(self, trial: Trial, row: int, clip: str, sounds: list[Sound]) -> dict[Role, str]:
        """Where the files of a clip belong; those that the run has not yet are added to `sounds`."""
        if self.plan.audio == "none" or self.work.cell.clean:
            return {}
        rate, bits = trial.clean.sample_rate, self.plan.bits
        places: dict[Role, str] = {
            "clean": sound_path("clean", clip, bits),
            "adversarial": sound_path(self.work.name, clip, bits),
        }
        if clip not in self.sent:
            sounds.append((places["clean"], encode(trial.clean.clip(row), rate, bits)))
        sounds.append((places["adversarial"], encode(trial.adversarial.clip(row), rate, bits)))
        return places


def free_memory() -> None:
    """Give back what is cached, before a smaller batch is tried."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def explain(error: BaseException) -> str:
    """The reason that a record gives."""
    if not out_of_memory(error):
        return tell(error)
    detail = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"out of memory, even as a batch of one ({detail}); use a larger device or drop the clip."


def tell(error: BaseException) -> str:
    """An error in words. Those of sottovoce say all in their message, others not what they are."""
    text = str(error)
    if isinstance(error, SottovoceError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _heard(trial: Trial, row: int, untouched: bool) -> dict[str, str]:
    """The languages that were detected in a clip before and after, where the target tells them."""
    if trial.languages is None:
        return {}
    before, after = trial.languages
    return {"heard_before": before[row], **({} if untouched else {"heard_after": after[row]})}


def find_metrics(plan: Plan, says: Says) -> list[Metric]:
    """What a plan measures on a kind of model. The clean figure that every summary shows is always there."""
    names = dict.fromkeys([*(plan.metrics or registry.names("metric")), *clean.LEADS])
    found: list[Metric] = [registry.find("metric", name)() for name in names]
    return [
        each
        for each in found
        if each.says in (None, says)
        and (each.before or not plan.clean)
        and (plan.metrics or each.measured == "always")
    ]


def failed(cell: str, clip: str, label: str, reason: str) -> Record:
    return Record(cell=cell, clip=clip, status="failed", label=label, reason=reason)


def skipped(clip: str, label: str, reason: str) -> Record:
    """A clip that is not tried in any cell."""
    return Record(cell=LOADING, clip=clip, status="skipped", label=label, reason=reason)
