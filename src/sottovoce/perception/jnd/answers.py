"""What listeners answered when asked "same or different?", in one folder for people and simulations alike.

`answers.jsonl` holds one JSON object a line, the fields of `SameDifferentAnswer`. The clips that its ids name
are in `clips.npz` (see data/pack.py) or are files `audio/ID.flac` or `audio/ID.wav`, all of one sample rate.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.record import RecordWriter, read_lines
from sottovoce.data.load import Clip, load_clip
from sottovoce.data.pack import FULL_SCALE, Pack, load_pack, save_pack
from sottovoce.errors import InputError

LINES, CLIPS, AUDIO = "answers.jsonl", "clips.npz", "audio"
SUFFIXES = (".flac", ".wav")
HELD_OUT = 0.1
Split = Literal["train", "valid", "test"]


@final
@dataclass(frozen=True, kw_only=True)
class SameDifferentAnswer:
    """One comparison.

    listener: who answered, in one session; `simulated` says that it was not a person.
    reference, changed: ids of the two clips; the same id where a clip was played against itself.
    different: the answer. sentinel: whether the right answer is known, so that it tests the listener.
    direction, strength: how `changed` was made, as far as known: a direction in text, and 0 to 100 along it.
    dither: whether both were played with noise of one 16-bit step, which the clips here are without.
    """

    listener: str
    simulated: bool
    reference: str
    changed: str
    different: bool
    strength: float | None = None
    direction: str = ""
    sentinel: bool = False
    dither: bool = False
    task: str = "same-different"

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "strength":
                if value is not None and not _is_strength(value):
                    raise ValueError(f"strength: expected a number from 0 to 100, or null, got {value!r}")
            elif type(value) is not (wanted := bool if item.type == "bool" else str):
                kind = "true or false" if wanted is bool else "text"
                raise ValueError(f"{item.name}: expected {kind}, got {value!r}")
        if self.task != "same-different":
            raise ValueError(f"task: expected 'same-different', got {self.task!r}")

    @property
    def right(self) -> bool:
        """Whether a sentinel was answered as anybody who listens would."""
        return self.different == (self.changed != self.reference)

    def to_line(self) -> str:
        content = asdict(self)
        if not self.dither:
            del content["dither"]
        return json.dumps(content, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_line(cls, line: str | bytes) -> SameDifferentAnswer:
        content = json.loads(line)
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in content.items() if name in known})


class AnswerSummary(NamedTuple):
    """What an answers folder holds, in numbers. same, different: answers other than sentinels."""

    listeners: int
    simulated: int
    answers: int
    sentinels: int
    wrong_sentinels: int
    same: int
    different: int
    references: int
    pairs: int

    def __str__(self) -> str:
        return (
            f"{self.answers:,} answers of {self.listeners:,} listeners ({_who(self)}): {self.same:,} same, "
            f"{self.different:,} different, {self.sentinels:,} sentinels of which {self.wrong_sentinels:,} "
            f"wrong; {self.references:,} references, {self.pairs:,} pairs of clips"
        )


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """An answers folder in memory. `pack` holds every clip that an answer names."""

    answers: tuple[SameDifferentAnswer, ...]
    pack: Pack

    def __post_init__(self) -> None:
        for answer in self.answers:
            for name in (answer.reference, answer.changed):
                if name not in self.places:
                    raise InputError(
                        f"expected every clip that an answer names, got no clip {name!r} (listener "
                        f"{answer.listener!r}); add it to {CLIPS} or {AUDIO}/, or drop the answer."
                    )
            first, second = (self.length(name) for name in (answer.reference, answer.changed))
            if first != second:
                raise InputError(
                    f"clips {answer.reference!r} and {answer.changed!r}: expected one length, got {first} "
                    f"and {second} samples; align and cut them first."
                )

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def sample_rate(self) -> int:
        return self.pack.sample_rate

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each clip in the pack, by id."""
        return {name: place for place, name in enumerate(self.pack.ids.tolist())}

    def length(self, name: str) -> int:
        """Of a clip, in samples."""
        return int(self.pack.lengths[self.places[name]])

    def clip(self, name: str) -> NDArray[np.float32]:
        """One clip, `(time,)` float32 in [-1, 1)."""
        return self.pack.clip(self.places[name]).astype(np.float32) / np.float32(FULL_SCALE)

    def batch(self, rows: Sequence[int]) -> tuple[AudioBatch, AudioBatch, torch.Tensor]:
        """References, changed clips and answers `(batch,)` bool of some comparisons, by their places."""
        some = [self.answers[row] for row in rows]
        ids = [f"{row}" for row in rows]
        pairs = [
            AudioBatch.of([self.clip(name) for name in names], self.sample_rate, ids)
            for names in ([one.reference for one in some], [one.changed for one in some])
        ]
        return pairs[0], pairs[1], torch.tensor([one.different for one in some])

    @cached_property
    def splits(self) -> dict[str, Split]:
        """The split of each reference: the pack's own, else drawn, all of a speaker's clips into one."""
        names = sorted({answer.reference for answer in self.answers})
        speakers = {name: str(self.pack.speakers[self.places[name]]) or name for name in names}
        drawn = split_speakers(speakers.values())
        own: dict[str, Any] = {name: str(self.pack.split[self.places[name]]) for name in names}
        return {name: own[name] or drawn[speakers[name]] for name in names}

    def rows(self, split: Split) -> list[int]:
        """Places of the answers whose reference is of a split."""
        return [row for row, one in enumerate(self.answers) if self.splits[one.reference] == split]

    def attentive(self) -> Answers:
        """The answers of listeners who got every sentinel right: one wrong one discards all of theirs."""
        absent = {one.listener for one in self.answers if one.sentinel and not one.right}
        return replace(self, answers=tuple(one for one in self.answers if one.listener not in absent))

    def for_training(self) -> Answers:
        """What a metric can learn from: attentive listeners, both answers; raises where that is nothing."""
        kept = self.attentive()
        if not kept.answers:
            raise InputError(
                f"expected answers of attentive listeners, got none among {len(self):,}: every listener "
                "answered a sentinel (a catch trial) wrongly; collect more, or check how the sentinels "
                "sound."
            )
        given = Counter(one.different for one in kept.answers if not one.sentinel)
        if not given[True] or not given[False]:
            only = "different" if given[True] else "same" if given[False] else "a sentinel"
            cure = {"different": "weaker", "same": "stronger"}.get(only, "other")
            raise InputError(
                f"expected answers of both kinds, got {len(kept):,} that are all {only!r}: nothing can be "
                f"learned from them; collect answers on {cure} changes."
            )
        return kept

    def summary(self) -> AnswerSummary:
        asked = [one for one in self.answers if not one.sentinel]
        tests = [one for one in self.answers if one.sentinel]
        return AnswerSummary(
            listeners=len({one.listener for one in self.answers}),
            simulated=len({one.listener for one in self.answers if one.simulated}),
            answers=len(self),
            sentinels=len(tests),
            wrong_sentinels=sum(not one.right for one in tests),
            same=sum(not one.different for one in asked),
            different=sum(one.different for one in asked),
            references=len({one.reference for one in self.answers}),
            pairs=len({(one.reference, one.changed) for one in self.answers}),
        )


def read_answers(folder: str | Path) -> Answers:
    """An answers folder. Raises where a line, or a clip that one names, cannot be used."""
    root = Path(folder).expanduser()
    if not (root / LINES).is_file():
        raise InputError(
            f"{root}: expected an answers folder with {LINES}, got none; name the folder that a listening "
            "test or a simulation wrote."
        )
    answers = tuple(read_lines(root / LINES, SameDifferentAnswer.from_line, "same-different answer"))
    if not answers:
        raise InputError(
            f"{root / LINES}: expected one answer a line, got an empty file; collect some first."
        )
    names = sorted({name for one in answers for name in (one.reference, one.changed)})
    clips = load_pack(root / CLIPS) if (root / CLIPS).is_file() else _load_files(root / AUDIO, names)
    try:
        return Answers(answers, clips)
    except InputError as error:
        raise InputError(f"{root}: {error}") from None


def write_answers(
    folder: str | Path,
    answers: Iterable[SameDifferentAnswer],
    clips: Sequence[Clip],
    splits: Sequence[str] | str = "",
) -> Answers:
    """Write a new answers folder, clips first; refuses one that has answers already.

    splits: of each clip, or of all; see `save_pack`. The facts of a clip may name its speaker.
    """
    root = Path(folder).expanduser()
    if (root / LINES).exists():
        raise InputError(
            f"{root}: expected a folder without {LINES}, got one that has it; choose another folder."
        )
    made = Answers(tuple(answers), save_pack(root / CLIPS, clips, splits))
    with answer_writer(root) as writer:
        writer.write(made.answers)
    return made


def answer_writer(folder: str | Path) -> RecordWriter:
    """Appends answers to a folder one at a time, each safe once `write` returns: for a listening test."""
    root = Path(folder).expanduser()
    root.mkdir(parents=True, exist_ok=True)
    return RecordWriter(root / LINES)


def split_speakers(speakers: Iterable[str]) -> dict[str, Split]:
    """Splits of all speakers: a tenth each to valid and test, one at least where there are three or more."""
    draws = Draws(0).turn("split")
    names = sorted(set(speakers), key=draws.key)
    few = max(1, round(HELD_OUT * len(names))) if len(names) > 2 else 0
    return {
        name: "valid" if place < few else "test" if place < 2 * few else "train"
        for place, name in enumerate(names)
    }


def _load_files(folder: Path, names: Sequence[str]) -> Pack:
    """Clips from files, at the rate of the first."""
    import soundfile

    paths = [_find_file(folder, name) for name in names]
    try:
        rates = {path: int(soundfile.info(path).samplerate) for path in paths}
    except soundfile.SoundFileError as error:
        raise InputError(
            f"{folder}: expected audio that libsndfile reads (WAV, FLAC), got a file it rejects ({error}); "
            "convert or drop it."
        ) from error
    strange = next((path for path in paths if rates[path] != rates[paths[0]]), None)
    if strange is not None:
        raise InputError(
            f"{strange}: expected {rates[paths[0]]} Hz as of {paths[0].name}, got {rates[strange]}; resample "
            "one of them."
        )
    clips = [load_clip(path, rates[path], id=name, label="") for path, name in zip(paths, names, strict=True)]
    samples = [np.rint(clip.waveform.numpy() * FULL_SCALE).astype(np.int16) for clip in clips]
    blank = np.full(len(clips), "")
    return Pack(
        samples=np.concatenate(samples),
        lengths=np.array([len(one) for one in samples], dtype=np.int64),
        ids=np.array(names, dtype=str),
        labels=blank,
        split=blank,
        speakers=blank,
        sample_rate=rates[paths[0]],
    )


def _find_file(folder: Path, name: str) -> Path:
    for suffix in SUFFIXES:
        path = folder / f"{name}{suffix}"
        # An id from a file may not lead out of the folder.
        if path.resolve().is_relative_to(folder.resolve()) and path.is_file():
            return path
    raise InputError(
        f"{folder.parent}: expected {CLIPS}, or {AUDIO}/{name}.flac or .wav, got neither; add the clip, or "
        "drop its answers."
    )


def _is_strength(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= 100


def _who(summary: AnswerSummary) -> str:
    if not summary.simulated:
        return "people"
    return "all simulated" if summary.simulated == summary.listeners else f"{summary.simulated:,} simulated"
