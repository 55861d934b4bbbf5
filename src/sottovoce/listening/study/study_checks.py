"""Checks of a study and its clips before anybody listens: each mistake is one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sottovoce.errors import InputError, UnknownName
from sottovoce.listening.study.blocks import (
    AbxBlock,
    Block,
    ClipPair,
    MushraBlock,
    NamingBlock,
    PairBlock,
    Rack,
    extras,
    keys_of,
)
from sottovoce.listening.study.sound_keys import HIDDEN, anchor_condition
from sottovoce.listening.study.study_file import ListeningStudy
from sottovoce.listening.study.test_sounds import STOP

LEVELS = ("low", "medium", "high")
EXPERIMENTS, NAMED, COMPARED, SUBJECTS = 9, 12, 6, 2
"""Of Vadillo and Santana (2020), Table 3: experiments, clips of part 1, trials of part 2, listeners each."""
SHORTEST_SECONDS = 0.05


class FileShape(NamedTuple):
    """Of a file: samples and samples per second."""

    samples: int
    sample_rate: int


def check_study(study: ListeningStudy) -> None:
    """Refuse a study that could not be run to its end, or whose sound would give answers away."""
    _check_names(study)
    shapes = {key: _measure(study, key) for key in played_keys(study)}
    for number, block in enumerate(study.blocks):
        place = f"block {number + 1} ({block.test})"
        _check_labels(study, block, place)
        _check_sides(study, block, place)
        _check_shapes(study, block, place, shapes)
    _check_sets(study)
    if study.preset == "v6":
        check_v6(study)


def played_keys(study: ListeningStudy) -> list[str]:
    """The clips that anybody hears, in sorted order."""
    used = {key for block in study.blocks for key in block_keys(study, block)}
    return sorted(used | {test.clip for test in study.attention})


def block_keys(study: ListeningStudy, block: Block) -> list[str]:
    """The clips that a block plays, each once, references included."""
    keys = [key for item in [*block.all_items(), *extras(block)] for key in keys_of(item)]
    if isinstance(block, AbxBlock):
        keys += [reference for key in keys if (reference := study.clips[key].reference) is not None]
    return list(dict.fromkeys(keys))


def _check_names(study: ListeningStudy) -> None:
    """Every clip that is named is there."""
    named = [
        (f"clip {key!r}", clip.reference) for key, clip in study.clips.items() if clip.reference is not None
    ]
    named += [("attention", test.clip) for test in study.attention]
    for number, block in enumerate(study.blocks, start=1):
        for item in [*block.all_items(), *extras(block)]:
            named += [(f"block {number} ({block.test})", key) for key in keys_of(item)]
    for place, key in named:
        if key not in study.clips:
            raise InputError(f"{place}: {UnknownName('clip', key, study.clips)}")
    for key, clip in study.clips.items():
        if clip.reference == key:
            raise InputError(f"clip {key!r}: it is its own reference; name another clip, or leave it out.")
    questions = Counter(question.name for question in study.questionnaire)
    for name, times in questions.items():
        if times > 1:
            raise InputError(f"questionnaire: expected every name once, got {name!r} twice; rename one.")
    for question in study.questionnaire:
        if (question.kind == "choice") != bool(question.choices):
            raise InputError(
                f"question {question.name!r}: kind: choice needs choices, and other kinds have none; got "
                f"{len(question.choices)} with kind: {question.kind}."
            )


def _check_labels(study: ListeningStudy, block: Block, place: str) -> None:
    """Every right answer can be given, and everything that is compared has something to be compared with."""
    items = [*block.all_items(), *extras(block)]
    if isinstance(block, NamingBlock):
        for key in items:
            label = study.clips[key].label
            if label not in block.choices:
                raise InputError(
                    f"{place}: expected the label of every clip among the choices, got {label!r} of clip "
                    f"{key!r}; add it to the choices, or give the clip another label."
                )
    if isinstance(block, AbxBlock):
        for key in items:
            if study.clips[key].reference is None:
                raise InputError(
                    f"{place}: expected clips with a reference, got {key!r} without; add `reference: ID`."
                )


def _check_sides(study: ListeningStudy, block: Block, place: str) -> None:
    """Clips that are compared differ, and each has a row of its own in the results."""
    for item in [*block.all_items(), *extras(block)]:
        if isinstance(item, ClipPair) and item.a == item.b:
            raise InputError(f"{place}: expected two clips in a pair, got {item.a!r} twice; change one.")
        if isinstance(item, Rack):
            _check_rack(study, item, place)
    if isinstance(block, MushraBlock):
        twice = [hz for hz, times in Counter(block.anchors_hz).items() if times > 1]
        if twice:
            raise InputError(f"{place}: expected every anchor once, got {twice[0]} Hz twice; drop one.")


def _check_rack(study: ListeningStudy, rack: Rack, place: str) -> None:
    # Answers of all blocks are pooled by condition.
    blocks = [block for block in study.blocks if isinstance(block, MushraBlock)]
    reserved = {HIDDEN, *(anchor_condition(hz) for block in blocks for hz in block.anchors_hz)}
    place = f"{place}, reference {rack.reference!r}"
    seen: dict[str, str] = {}
    for key in rack.clips:
        condition = study.clips[key].condition.strip()
        if key == rack.reference:
            raise InputError(f"{place}: the reference joins by itself; leave it out of the clips.")
        if key in seen.values():
            raise InputError(f"{place}: expected every clip once, got {key!r} twice; drop one.")
        if not condition:
            raise InputError(
                f"{place}: expected clips with a condition to be reported by, got {key!r} without; add "
                "`condition: NAME`."
            )
        if condition in reserved:
            raise InputError(
                f"{place}: {', '.join(sorted(reserved))} are added automatically, so no clip may have such a "
                f"condition, got {condition!r} of clip {key!r}; rename it."
            )
        if condition in seen:
            raise InputError(
                f"{place}: expected every condition once, got {condition!r} of {seen[condition]!r} and of "
                f"{key!r}; rename one, or split the item."
            )
        seen[condition] = key


def _groups(study: ListeningStudy, block: Block) -> Iterator[list[str]]:
    """Clips of a block that are compared on a screen."""
    for item in [*block.all_items(), *extras(block)]:
        keys = keys_of(item)
        if isinstance(block, AbxBlock):
            keys.append(str(study.clips[keys[0]].reference))
        yield keys


def _check_shapes(study: ListeningStudy, block: Block, place: str, shapes: Mapping[str, FileShape]) -> None:
    for first, *others in [] if isinstance(block, PairBlock) else _groups(study, block):
        for other in others:
            # Rates first: at two rates the same sound has two lengths.
            for place_of, unit in ((1, "Hz"), (0, "samples")):
                one, two = shapes[first][place_of], shapes[other][place_of]
                if one != two:
                    raise InputError(
                        f"{place}: clips to compare must have the same length and rate, got {one} {unit} of "
                        f"{first!r} and {two} of {other!r}; cut or resample one of them."
                    )
    rates = {shapes[key].sample_rate: key for key in block_keys(study, block)}
    if len(rates) > 1:
        (one, first), (two, other) = list(rates.items())[:2]
        raise InputError(
            f"{place}: expected one sample rate in a block, got {one} Hz of {first!r} and {two} of "
            f"{other!r}; resample one of them."
        )
    rate = next(iter(rates))
    if isinstance(block, MushraBlock):
        for hz in block.anchors_hz:
            if 2 * STOP * hz > rate:
                raise InputError(
                    f"{place}: expected anchors of at most {int(rate / 2 / STOP)} Hz for clips at "
                    f"{rate} Hz, got {hz}; leave it out, for example `anchors_hz: [3500]`."
                )


def _check_sets(study: ListeningStudy) -> None:
    """A listener gets the set of the same number of every block: so its name must be the same."""
    named = [list(block.sets) for block in study.blocks if block.sets]
    for names in named[1:]:
        if names != named[0]:
            raise InputError(
                f"blocks: expected the same sets in the same order in all blocks that have some, got "
                f"{', '.join(named[0])} and {', '.join(names)}; rename or reorder them."
            )


def check_v6(study: ListeningStudy) -> None:
    """Nine experiments, three of each level: 12 clips to name, then 6 ABX trials, for two listeners each."""
    tests = [block.test for block in study.blocks]
    if tests != ["naming", "abx"]:
        raise _unlike("a naming block and then an abx block", ", ".join(tests))
    levels = Counter[str]()
    for block, wanted in zip(study.blocks, (NAMED, COMPARED), strict=True):
        if len(block.sets) != EXPERIMENTS:
            raise _unlike(f"{EXPERIMENTS} sets in the {block.test} block", str(len(block.sets)))
        for name, items in block.sets.items():
            if len(items) != wanted:
                raise _unlike(f"{wanted} clips in set {name!r} of the {block.test} block", str(len(items)))
    for name in study.blocks[0].sets:
        found = {study.clips[key].level for block in study.blocks for key in _clip_items(block.sets[name])}
        if len(found) != 1 or not found <= set(LEVELS):
            raise _unlike(f"clips of one level ({', '.join(LEVELS)}) in set {name!r}", _some(found))
        levels.update(found)
    if set(levels.values()) != {EXPERIMENTS // len(LEVELS)}:
        raise _unlike("three sets of each level", ", ".join(f"{levels[name]} {name}" for name in LEVELS))
    if study.seats % (EXPERIMENTS * SUBJECTS):
        raise _unlike(f"seats in multiples of {EXPERIMENTS * SUBJECTS}", str(study.seats))


def _clip_items(items: Any) -> list[str]:
    return [item for item in items if isinstance(item, str)]


def _unlike(expected: str, got: str) -> InputError:
    return InputError(f"preset v6: expected {expected}, got {got}; change it, or leave `preset` out.")


def _some(values: set[str]) -> str:
    return ", ".join(repr(value) for value in sorted(values))


def _measure(study: ListeningStudy, key: str) -> FileShape:
    import soundfile

    path = Path(study.clips[key].path)
    try:
        there, got = path.is_file(), "a folder" if path.is_dir() else "no such file"
    except OSError as error:
        there, got = False, str(error.strerror)
    if not there:
        raise InputError(f"clip {key!r}: expected an audio file at {path}, got {got}; check the path.")
    try:
        found = soundfile.info(path)
    except soundfile.SoundFileError as error:
        reason = str(error).rpartition(": ")[2].rstrip(".")
        raise InputError(
            f"clip {key!r}: expected audio that libsndfile reads (WAV, FLAC, Ogg, MP3), got {path}, which it "
            f"rejects ({reason}); convert or drop it."
        ) from None
    if found.frames < SHORTEST_SECONDS * found.samplerate:
        raise InputError(
            f"clip {key!r}: expected {SHORTEST_SECONDS} s of sound or more, got {found.frames} samples; drop "
            "it."
        )
    return FileShape(int(found.frames), int(found.samplerate))
