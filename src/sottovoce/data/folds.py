"""Speakers divided into training, validation and test, so that none is in two of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import final

from sottovoce.core.draws import Draws
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError, UnknownName

SPLITS = ("train", "valid", "test")
VOICE = "voice"
"""The fact that names the voice of speakers who share one, such as both of a pair in a proxy."""
LEAST_FOLDS = 3
"""One fold for testing, one for validation, the rest for training."""


@final
@dataclass(frozen=True)
class Split:
    """The speakers of each part."""

    train: frozenset[str]
    valid: frozenset[str]
    test: frozenset[str]

    def check(self) -> Split:
        """Return itself, or raise an error that names a speaker in two parts, or a part without speakers."""
        for one, other in combinations(fields(self), 2):
            both = getattr(self, one.name) & getattr(self, other.name)
            if both:
                raise InputError(
                    f"expected each speaker in one split, got {min(both)!r} in {one.name} and {other.name}; "
                    "move all clips of a speaker into one split."
                )
        for part in fields(self):
            if not getattr(self, part.name):
                raise InputError(
                    f"expected speakers in train, valid and test, got none in {part.name}; add some."
                )
        return self

    def part_of(self, speaker: str) -> str:
        """The part that a speaker is in."""
        for part in fields(self):
            if speaker in getattr(self, part.name):
                return part.name
        raise UnknownName("speaker", speaker, self.train | self.valid | self.test)


def speaker_folds(data: Corpus | Mapping[str, str], folds: int = 10, seed: int = 0) -> list[Split]:
    """Splits in which each speaker is in the test once; the fold after it is for validation.

    data: a corpus whose clips name their speakers, or the label of each speaker. Speakers whom a corpus says
    to share a voice stay together. Every fold has as many speakers of a label as any other, give or take one
    voice.
    """
    labels, units = _units(data)
    groups: dict[str, list[list[str]]] = defaultdict(list)
    for unit in units:
        groups["+".join(sorted(labels[speaker] for speaker in unit))].append(unit)
    _check_folds(_counts(labels, units), folds)
    parts: list[set[str]] = [set() for _ in range(folds)]
    place = 0
    for label, same in sorted(groups.items()):
        # Going on where the last label stopped, folds differ by one voice in size at most.
        for number in Draws(seed, ("folds",)).generator(label).permutation(len(same)).tolist():
            parts[place % folds].update(same[number])
            place += 1
    return [
        Split(
            frozenset(labels) - parts[test] - parts[(test + 1) % folds],
            frozenset(parts[(test + 1) % folds]),
            frozenset(parts[test]),
        ).check()
        for test in range(folds)
    ]


def most_folds(data: Corpus | Mapping[str, str]) -> int:
    """The most that `speaker_folds` can make: each tests a voice of the rarest label or more."""
    return min(_counts(*_units(data)).values())


def given_split(corpus: Corpus) -> Split:
    """The split that the facts of the clips say: train, valid or test."""
    speaker_labels(corpus)
    parts: dict[str, set[str]] = {name: set() for name in SPLITS}
    for entry in corpus:
        name = entry.facts.get("split", "")
        if not name:
            raise InputError(
                f"clip {entry.id!r}: expected a split, because other clips have one, got none; name a split "
                "for all clips, or for none."
            )
        if name not in parts:
            raise UnknownName("split", name, SPLITS)
        parts[name].add(entry.facts["speaker"])
    split = Split(*(frozenset(parts[name]) for name in SPLITS)).check()
    heard: dict[str, str] = {}
    for speaker, voice in _voices(corpus).items():
        part = split.part_of(speaker)
        if heard.setdefault(voice, part) != part:
            raise InputError(
                f"expected each voice in one split, got {voice!r} in {heard[voice]} and {part}; move all "
                "speakers of a voice into one split."
            )
    return split


def has_splits(corpus: Corpus) -> bool:
    """Whether any clip says which split it belongs to."""
    return any(entry.facts.get("split") for entry in corpus)


def of_speakers(corpus: Corpus, speakers: Iterable[str]) -> list[Entry]:
    """The clips of some speakers, in the order of the corpus."""
    wanted = frozenset(speakers)
    return [entry for entry in corpus if entry.facts.get("speaker") in wanted]


def speaker_labels(corpus: Corpus) -> dict[str, str]:
    """The label of each speaker: a speaker is one thing or the other in all clips."""
    found: dict[str, str] = {}
    for speaker, entry in _spoken(corpus):
        label = found.setdefault(speaker, entry.label)
        if label != entry.label:
            raise InputError(
                f"corpus {corpus.name!r}: expected one label for each speaker, got {label!r} and "
                f"{entry.label!r} for {speaker!r} (clip {entry.id!r}); correct the labels or the speakers."
            )
    return found


def _voices(corpus: Corpus) -> dict[str, str]:
    """The voice of each speaker who is said to share one."""
    return {entry.facts["speaker"]: entry.facts[VOICE] for entry in corpus if entry.facts.get(VOICE)}


def _spoken(corpus: Corpus) -> Iterator[tuple[str, Entry]]:
    for entry in corpus:
        speaker = entry.facts.get("speaker", "")
        if not speaker:
            raise InputError(
                f"corpus {corpus.name!r}, clip {entry.id!r}: expected a speaker, got none; add a column "
                "speaker, because clips of one speaker must not be in two splits."
            )
        yield speaker, entry


def _units(data: Corpus | Mapping[str, str]) -> tuple[Mapping[str, str], list[list[str]]]:
    """The label of each speaker, and the speakers by voice."""
    labels, voices = (speaker_labels(data), _voices(data)) if isinstance(data, Corpus) else (data, {})
    units: dict[str, list[str]] = defaultdict(list)
    for speaker in sorted(labels):
        units[voices.get(speaker, speaker)].append(speaker)
    return labels, list(units.values())


def _counts(labels: Mapping[str, str], units: Iterable[Sequence[str]]) -> Counter[str]:
    """Voices of each label."""
    return Counter(label for unit in units for label in {labels[speaker] for speaker in unit})


def _check_folds(counts: Counter[str], folds: int) -> None:
    if folds < LEAST_FOLDS:
        raise InputError(
            f"folds: expected {LEAST_FOLDS} or more, got {folds}; one is for testing, one for validation, "
            "the rest for training."
        )
    if len(counts) < 2:
        raise InputError(
            f"expected speakers of two labels or more, got {', '.join(counts) or 'none'}; a detector needs "
            "both."
        )
    rare = min(sorted(counts), key=lambda label: counts[label])
    if folds > counts[rare]:
        raise InputError(
            f"expected {folds} speakers or more of each label for {folds} folds, got {counts[rare]} of "
            f"{rare!r}; {'ask for fewer folds' if folds > LEAST_FOLDS else 'add speakers'}."
        )
