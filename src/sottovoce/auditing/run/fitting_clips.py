"""Clips for fitting universal attacks: kept apart from the clips they are judged on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.run.run_cell import CellParts, tell
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target, check_clips
from sottovoce.core.universal_attack import Perturbation, UniversalAttack
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.data.labels import open_settled
from sottovoce.data.load import Clip, Corpus, Failure, collate
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.errors import InputError, exits_are_errors

MOST_CLIPS = 240


@dataclass(frozen=True)
class Batches:
    """A corpus as batches that can be iterated repeatedly, loaded again each time."""

    corpus: Corpus
    target: Target
    size: int
    device: str
    longest_seconds: float = LONGEST_SECONDS

    def __iter__(self) -> Iterator[AudioBatch]:
        for clips, _ in self.corpus.chunks(self.size, self.target.sample_rate, self.longest_seconds):
            heard, _ = usable(self.target, clips)
            if heard:
                yield collate(heard).to(self.device)


def fitting_set(plan: Plan, corpus: Corpus, target: Target) -> tuple[Corpus, frozenset[str]]:
    """The clips to fit on, and which ids of the audited corpus are among them.

    Without clips of their own, universal attacks take every other clip of each class. They keep their clips
    in memory and go through them many times, so they get `MOST_CLIPS` at the most.
    """
    if plan.fit is not None:
        clips = open_settled(plan.fit, target, plan.labels).corpus
        return clips.limit(MOST_CLIPS, plan.seed), frozenset()
    seen: defaultdict[str, int] = defaultdict(int)
    taken = []
    shared = Counter(entry.label for entry in corpus.entries)
    for entry in corpus.entries:
        # Transcripts are no classes: those that come once are counted together.
        group = entry.label if shared[entry.label] > 1 else ""
        if seen[group] % 2 == 0:
            taken.append(entry)
        seen[group] += 1
    half = replace(corpus, entries=tuple(taken)).limit(MOST_CLIPS, plan.seed)
    return half, frozenset(entry.id for entry in half.entries)


def fitted_cell(cell: Cell) -> Cell:
    """The cell whose perturbation is played: one that knows no defense is fitted on the bare model, once."""
    if cell.attacker != "transfer":
        return cell
    return replace(cell, defense=NO_DEFENSE, attacker="plain")


def fit_perturbation(
    plan: Plan, work: CellParts, corpus: Corpus, target: Target, device: str
) -> Perturbation:
    """The perturbation of a universal cell. target: the bare one."""
    if not isinstance(work.attack, UniversalAttack):
        raise InputError(f"cell {work.name!r}: expected a universal attack to fit, got one on single clips.")
    clips, _ = fitting_set(plan, corpus, target)
    batches = Batches(clips, work.through, plan.batch, device, plan.longest)
    return work.attack.fit(work.through, batches, work.goal, work.budget, draws=Draws(plan.seed))


def usable(target: Target, clips: Sequence[Clip]) -> tuple[list[Clip], list[Failure]]:
    """Clips that the target can hear and whose class it knows, and why each other is refused.

    What a recogniser should have written is never asked of it, so it need not be able to spell that.
    """
    kept, refused = [], []
    for clip in clips:
        try:
            with exits_are_errors():
                check_clips(target, collate([clip]))
                if target.says == "class":
                    target.check_labels([clip.label])
            kept.append(clip)
        # Someone's own target may raise anything over a label.
        except Exception as error:
            refused.append(Failure(clip.id, clip.label, tell(error)))
    return kept, refused
