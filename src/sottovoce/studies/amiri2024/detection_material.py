"""What study A learns from and is judged on: utterances in memory, shared out by speaker."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields, replace
from hashlib import blake2b
from typing import final

import numpy as np

from sottovoce.core.draws import Draws
from sottovoce.data.clinical_corpora import clinical
from sottovoce.data.folds import (
    LEAST_FOLDS,
    Split,
    given_split,
    has_splits,
    most_folds,
    of_speakers,
    speaker_folds,
    speaker_labels,
)
from sottovoce.data.load import Clip, Corpus
from sottovoce.errors import InputError
from sottovoce.studies.amiri2024.job_plan import JobPlan
from sottovoce.targets.zoo.detector_networks import CLASSES, SAMPLE_RATE, SEGMENT
from sottovoce.training.detector.detector_material import Utterances, take
from sottovoce.training.sources import FULL_SCALE, ClipsInMemory, hold_clips

NOISE_SNR_DB = 15.0
"""Of the noise in Table 2; the smoothing noise lies as far below the median clip."""
CHUNK = 64


@final
@dataclass(frozen=True, eq=False)
class DetectionMaterial:
    """unused: why clips of the corpus are not among the utterances, by id."""

    utterances: Utterances
    splits: tuple[Split, ...]
    given: bool
    unused: dict[str, str]
    plan: JobPlan

    def train(self, fold: int) -> ClipsInMemory:
        return self._some(self.splits[fold].train, self.plan.train_clips)

    def valid(self, fold: int) -> ClipsInMemory:
        return self._some(self.splits[fold].valid, self.plan.train_clips)

    def test(self, fold: int) -> ClipsInMemory:
        return self._some(self.splits[fold].test, self.plan.test_clips)

    def speakers_of(self, clips: ClipsInMemory) -> list[str]:
        known = dict(zip(self.utterances.clips.ids, self.utterances.speakers, strict=True))
        return [known[name] for name in clips.ids]

    @property
    def labels(self) -> dict[str, str]:
        return dict(zip(self.utterances.speakers, self.utterances.clips.labels, strict=True))

    def sigma(self) -> float:
        """The deviation of noise at 15 dB below the clip of median level, with two digits."""
        clips = self.utterances.clips
        pieces = np.split(
            clips.samples.numpy().astype(np.float64) / FULL_SCALE, np.cumsum(clips.lengths)[:-1]
        )
        level = float(np.median([np.sqrt(np.mean(piece**2)) for piece in pieces]))
        return float(f"{level * 10 ** (-NOISE_SNR_DB / 20):.2g}")

    def digest(self) -> str:
        """Of ids, speakers, labels, splits and samples: the same in every process and on every machine."""
        clips = self.utterances.clips
        told = {
            "clips": [clips.ids, self.utterances.speakers, clips.labels, clips.lengths.tolist()],
            "splits": [[sorted(part) for part in astuple(split)] for split in self.splits],
        }
        found = blake2b(json.dumps(told).encode(), digest_size=16)
        found.update(clips.samples.numpy().astype("<i2", copy=False).data)
        return found.hexdigest()

    def _some(self, speakers: Iterable[str], most: int | None) -> ClipsInMemory:
        """The first clips of each speaker."""
        wanted, places = frozenset(speakers), []
        seen: defaultdict[str, int] = defaultdict(int)
        for place, name in enumerate(self.utterances.speakers):
            seen[name] += 1
            if name in wanted and (most is None or seen[name] <= most):
                places.append(place)
        return take(self.utterances.clips, places)


def open_material(corpus: Corpus, plan: JobPlan, seed: int, longest: int | None = None) -> DetectionMaterial:
    """Read a corpus whose clips name their speakers and are labelled control or pathological.

    There are fewer folds than the plan's where a label has fewer speakers. longest: samples of a clip that
    the encoder takes at the most.
    """
    corpus = clinical(corpus)
    labels = speaker_labels(corpus)
    _check_classes(labels, corpus.name)
    given = has_splits(corpus)
    kept = frozenset(labels) if given else choose_speakers(labels, plan.speakers, seed)
    some = replace(corpus, entries=tuple(of_speakers(corpus, kept)))
    splits = [given_split(some)] if given else []
    clips, unused = _read(some, plan, longest)
    heard = {clip.facts["speaker"]: clip.label for clip in clips}
    _check_classes(heard, corpus.name)
    if given:
        splits = [_heard_split(splits[0], heard)]
    else:
        usable = replace(some, entries=tuple(of_speakers(some, heard)))
        splits = speaker_folds(usable, min(plan.folds, max(most_folds(usable), LEAST_FOLDS)), seed)
    samples = [(clip.waveform.numpy() * FULL_SCALE).astype(np.int16) for clip in clips]
    held = hold_clips(samples, [one.label for one in clips], [one.id for one in clips], SAMPLE_RATE)
    utterances = Utterances(held, tuple(clip.facts["speaker"] for clip in clips))
    return DetectionMaterial(utterances, tuple(splits), given, unused, plan)


def choose_speakers(labels: Mapping[str, str], most: int | None, seed: int) -> frozenset[str]:
    """At most this many, half of each label while there are enough."""
    if most is None or len(labels) <= most:
        return frozenset(labels)
    draws = Draws(seed, ("pathology", "speakers"))
    turns = []
    for label in CLASSES:
        own = sorted(name for name, other in labels.items() if other == label)
        turns += [
            (turn, label, own[place])
            for turn, place in enumerate(draws.generator(label).permutation(len(own)))
        ]
    return frozenset(name for _, _, name in sorted(turns)[:most])


def _read(corpus: Corpus, plan: JobPlan, longest: int | None) -> tuple[list[Clip], dict[str, str]]:
    """Clips that can be used, cut to the plan's length, and why others cannot."""
    clips: list[Clip] = []
    unused: dict[str, str] = {}
    for found, failures in corpus.chunks(CHUNK, SAMPLE_RATE):
        unused.update({one.id: one.reason for one in failures})
        for clip in found:
            samples = len(clip.waveform)
            if samples < SEGMENT:
                unused[clip.id] = (
                    f"expected 500 ms or more, one segment, got {samples / SAMPLE_RATE * 1000:.0f} ms"
                )
            elif plan.seconds is None and longest is not None and samples > longest:
                unused[clip.id] = (
                    f"expected at most {longest / SAMPLE_RATE:g} s for the encoder, got "
                    f"{samples / SAMPLE_RATE:.1f} s"
                )
            else:
                cut = samples if plan.seconds is None else round(plan.seconds * SAMPLE_RATE)
                clips.append(replace(clip, waveform=clip.waveform[:cut]))
    if not clips:
        name, reason = next(iter(unused.items()))
        raise InputError(f"corpus {corpus.name!r}: expected clips to use, got none; {name}: {reason}")
    return clips, unused


def _check_classes(labels: Mapping[str, str], name: str) -> None:
    missing = [label for label in CLASSES if label not in labels.values()]
    if missing:
        raise InputError(
            f"corpus {name!r}: expected speakers of both {' and '.join(CLASSES)}, got no {missing[0]} one "
            "with clips that can be used; add some."
        )


def _heard_split(split: Split, heard: Mapping[str, str]) -> Split:
    """The given split without speakers whose every clip is unused; every part needs both labels."""
    left = Split(*(frozenset(part) & frozenset(heard) for part in astuple(split))).check()
    for part in fields(left):
        there = {heard[name] for name in getattr(left, part.name)}
        missing = [label for label in CLASSES if label not in there]
        if missing:
            raise InputError(
                f"expected speakers of both labels in the split {part.name}, got no {missing[0]} one; move "
                "some there."
            )
    return left
