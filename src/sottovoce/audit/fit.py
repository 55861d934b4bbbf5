"""Clips for fitting universal attacks: kept apart from the clips they are judged on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sottovoce.audit.plan import Plan
from sottovoce.core.batch import AudioBatch
from sottovoce.core.target import Target, check_clips
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Clip, Corpus, Failure, collate
from sottovoce.errors import SottovoceError

MOST_CLIPS = 240


@dataclass(frozen=True)
class Batches:
    """A corpus as batches that can be gone through again and again, loaded anew each time."""

    corpus: Corpus
    target: Target
    size: int
    device: str

    def __iter__(self) -> Iterator[AudioBatch]:
        for clips, _ in self.corpus.chunks(self.size, self.target.sample_rate):
            heard, _ = usable(self.target, clips)
            if heard:
                yield collate(heard).to(self.device)


def fitting_set(plan: Plan, corpus: Corpus) -> tuple[Corpus, frozenset[str]]:
    """The clips to fit on, and which ids of the audited corpus are among them.

    Without clips of their own, universal attacks take every other clip of each class. They keep their clips
    in memory and go through them many times, so they get `MOST_CLIPS` at the most.
    """
    if plan.fit is not None:
        return open_corpus(plan.fit).limit(MOST_CLIPS, plan.seed), frozenset()
    seen: defaultdict[str, int] = defaultdict(int)
    taken = []
    for entry in corpus.entries:
        if seen[entry.label] % 2 == 0:
            taken.append(entry)
        seen[entry.label] += 1
    half = replace(corpus, entries=tuple(taken)).limit(MOST_CLIPS, plan.seed)
    return half, frozenset(entry.id for entry in half.entries)


def usable(target: Target, clips: Sequence[Clip]) -> tuple[list[Clip], list[Failure]]:
    """Clips that the target can hear and whose label it knows, and why each other is refused."""
    kept, refused = [], []
    for clip in clips:
        try:
            check_clips(target, collate([clip]))
            target.check_labels([clip.label])
            kept.append(clip)
        except SottovoceError as error:
            refused.append(Failure(clip.id, clip.label, str(error)))
    return kept, refused
