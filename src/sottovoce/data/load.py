"""From an audio file to a clip on the 16-bit grid, and from a list of files to chunks of clips."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.out_of_memory import out_of_memory
from sottovoce.data.audio_file import LONGEST_SECONDS, check_length, read_audio
from sottovoce.data.audio_file import Recording as Recording
from sottovoce.errors import InputError, SottovoceError

Item = TypeVar("Item")
_LONGEST_PLACE = 300
_STEPS = 32768
# Lossy decoders and float masters run a little over full scale; past 6 dB the file has another scale.
_LOUDEST_PEAK = 2.0


@final
@dataclass(frozen=True, eq=False)
class Clip:
    """One mono clip with its label, as `Corpus.load` and `load_clip` give it.

    waveform: `(time,)` float32 in [-1, 1), in steps of 1/32768.
    sample_rate: in Hz.
    label: the true class, or for a recogniser the true text.
    loaded: what was done while loading, such as "resampled from 44100 Hz; rounded to 16 bits".
    facts: what else is known, such as "speaker" and "language".

    >>> clip = sv.data.Clip("one", torch.zeros(16000), 16000, "silence", facts={"speaker": "ann"})
    >>> len(clip.waveform) / clip.sample_rate, clip.label  # seconds
    (1.0, 'silence')
    """

    id: str
    waveform: Tensor
    sample_rate: int
    label: str
    loaded: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


Source = Callable[[], Recording]


class BoundedSource(ABC):
    """A source that can tell how long a clip is before it decodes it."""

    @abstractmethod
    def read(self, longest_seconds: float) -> Recording:
        """The samples, or `InputError` where there would be more than so many seconds."""

    def __call__(self) -> Recording:
        return self.read(LONGEST_SECONDS)


@final
@dataclass(frozen=True)
class Entry:
    """A clip that is not loaded yet: a file, or `frames` samples of it from `start` on.

    path: of the audio file, or of the pack that `source` reads from.
    label: the true class, or for a recogniser the true text.
    start, frames: a piece of the file, in its own samples; None: to its end.
    facts: what else is known, such as "speaker" and "language".
    source: gives the samples where `path` is not an audio file.

    >>> from pathlib import Path
    >>> entry = sv.data.Entry("yes-1", Path("clips/yes-1.wav"), "yes", start=16000, frames=8000)
    >>> entry.id, entry.label, entry.frames
    ('yes-1', 'yes', 8000)
    """

    id: str
    path: Path
    label: str
    start: int = 0
    frames: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict, hash=False)
    source: Source | None = field(default=None, compare=False, repr=False)

    @property
    def place(self) -> str:
        """Where the samples are, for messages."""
        path = readable(str(self.path))
        place = path if self.source is None else f"{path}, clip {self.id!r}"
        half = _LONGEST_PLACE // 2
        return place if len(place) <= _LONGEST_PLACE else f"{place[:half]}...{place[-half:]}"

    def read(self, longest_seconds: float = LONGEST_SECONDS) -> Recording:
        """The samples, or `InputError` where there are more than so many seconds."""
        if self.source is None:
            return self._read_file(longest_seconds)
        if isinstance(self.source, BoundedSource):
            return self.source.read(longest_seconds)
        recording = self.source()
        check_length(self.place, len(recording.samples), recording.sample_rate, longest_seconds)
        return recording

    def _read_file(self, longest_seconds: float) -> Recording:
        if not self.path.is_file():
            got = "a folder" if self.path.is_dir() else "no such file"
            raise InputError(f"{self.place}: expected an audio file, got {got}; check the path.")
        return read_audio(self.path, self.place, self.start, self.frames, longest_seconds)


@final
@dataclass(frozen=True)
class Failure:
    """A clip that could not be loaded, and why."""

    id: str
    label: str
    reason: str


class Chunk(NamedTuple):
    """A few loaded clips, and the clips of the same part of the list that could not be loaded."""

    clips: list[Clip]
    failures: list[Failure]


@final
@dataclass(frozen=True)
class Corpus:
    """A named list of clips. Audio is read when it is asked for, and can be asked for again.

    entries: at least one, with ids that differ.
    note: what a reader of a report should know about the choice of clips.

    >>> corpus = sv.data.open_corpus("embedded").limit(12)  # as many of each word, while they last
    >>> len(corpus), corpus.labels[:2]
    (12, ('down', 'go'))
    >>> clip = corpus.load(corpus.entries[0], sample_rate=16000)
    >>> clip.sample_rate
    16000
    """

    name: str
    entries: tuple[Entry, ...]
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", _from_shared_folder(self.entries))
        if not self.entries:
            raise InputError(f"corpus {self.name!r}: expected at least one clip, got none; add audio files.")
        seen: dict[str, Entry] = {}
        for entry in self.entries:
            if not entry.id:
                raise InputError(
                    f"corpus {self.name!r}: expected an id for every clip, got an empty one for "
                    f"{entry.path}; fill in the id column."
                )
            twin = seen.setdefault(entry.id, entry)
            if twin is not entry:
                raise InputError(
                    f"corpus {self.name!r}: expected different ids, got {entry.id!r} for both {twin.path} "
                    f"and {entry.path}; rename one, or list them in a CSV with an id column."
                )

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def labels(self) -> tuple[str, ...]:
        """The different labels, sorted."""
        return tuple(sorted({entry.label for entry in self.entries}))

    def limit(self, count: int, seed: int = 0) -> Corpus:
        """At most `count` clips, as many of each label as of any other while they last, in the old order.

        Where labels are transcripts, which seldom come twice, as many of each speaker and language instead.
        A larger count adds clips and drops none.
        """
        if count < 1:
            raise InputError(f"corpus {self.name!r}: expected a limit of 1 clip or more, got {count}.")
        if count >= len(self):
            return self
        spoken = 2 * len(self.labels) > len(self) and all("speaker" in entry.facts for entry in self)
        groups = [_voice(entry) if spoken else entry.label for entry in self]
        kept = set(_take_turns(groups, Draws(seed).turn("limit"))[:count])
        over = "speakers" if spoken else "labels"
        note = f"{count} of {len(self)} clips, balanced over {over} (seed {seed})"
        return replace(
            self,
            entries=tuple(entry for place, entry in enumerate(self.entries) if place in kept),
            note=f"{self.note}; {note}" if self.note else note,
        )

    def load(self, entry: Entry, sample_rate: int, longest_seconds: float = LONGEST_SECONDS) -> Clip:
        return _load(entry, sample_rate, longest_seconds)

    def chunks(
        self, size: int, sample_rate: int, longest_seconds: float = LONGEST_SECONDS
    ) -> Iterator[Chunk]:
        """All clips, `size` entries at a time; a clip that cannot be loaded is a failure, not the end."""
        if size < 1:
            raise InputError(f"expected chunks of 1 clip or more, got {size}.")
        for first in range(0, len(self), size):
            chunk = Chunk([], [])
            for entry in self.entries[first : first + size]:
                try:
                    chunk.clips.append(self.load(entry, sample_rate, longest_seconds))
                except SottovoceError as error:
                    chunk.failures.append(Failure(entry.id, entry.label, str(error)))
            yield chunk


def readable(path: str) -> str:
    r"""A path as printable text: bytes that are not UTF-8 become \xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` of the items, evenly over all of them: neighbours are often of one class."""
    if len(items) <= count:
        return list(items)
    return [items[place * len(items) // count] for place in range(count)]


def collate(clips: Sequence[Clip]) -> AudioBatch:
    """Clips of one sample rate as a batch, padded with zeros.

    >>> short, long = (sv.data.Clip(str(n), torch.zeros(n), 16000, "silence") for n in (8000, 16000))
    >>> batch = sv.data.collate([short, long])
    >>> tuple(batch.waveforms.shape), batch.lengths.tolist()
    ((2, 16000), [8000, 16000])
    """
    rates = sorted({clip.sample_rate for clip in clips})
    if len(rates) != 1:
        raise InputError(
            f"expected clips of one sample rate, got {rates or 'no clips'}; "
            "load them all at the target's rate."
        )
    return AudioBatch.of([clip.waveform.numpy() for clip in clips], rates[0], [clip.id for clip in clips])


def load_clip(
    path: str | Path,
    sample_rate: int,
    *,
    id: str,
    label: str,
    start: int = 0,
    frames: int | None = None,
    longest_seconds: float = LONGEST_SECONDS,
) -> Clip:
    """An audio file, or a piece of it, as a mono clip at a sample rate, in 16-bit steps.

    path: WAV, FLAC, Ogg or MP3. Stereo is mixed down, other rates are resampled.
    sample_rate: in Hz, usually `target.sample_rate`.
    id, label: the clip's name in records, and its true class or text.
    start, frames: a piece, in samples of the file.
    longest_seconds: `InputError` for anything longer.

    >>> entry = sv.data.open_corpus("embedded").entries[0]  # any file will do
    >>> clip = sv.data.load_clip(entry.path, 8000, id="half", label=entry.label)
    >>> clip.sample_rate, clip.loaded.split(";")[0]
    (8000, 'resampled from 16000 Hz')
    """
    return _load(Entry(id, Path(path), label, start, frames), sample_rate, longest_seconds)


def _load(entry: Entry, sample_rate: int, longest_seconds: float) -> Clip:
    """The clip, or `SottovoceError`, whatever happens on the way: no clip ends a run."""
    if sample_rate <= 0:
        raise InputError(f"expected a sample rate above 0 Hz, got {sample_rate}; give samples per second.")
    try:
        return _convert(entry, entry.read(longest_seconds), sample_rate)
    except SottovoceError:
        raise
    # Codecs, file systems and others' sources may raise anything.
    except Exception as error:
        raise InputError(f"{entry.place}: {_explain(error)}") from error


def _explain(error: Exception) -> str:
    if out_of_memory(error):
        return "expected a clip that fits into memory, got one that does not; cut it into shorter clips."
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        return f"expected a file that can be read, got {reason!r}; check its path and permissions."
    reason = f"{type(error).__name__} ({error})" if str(error) else type(error).__name__
    return f"expected audio, got {reason} while it was read; convert or drop it."


def _convert(entry: Entry, recording: Recording, sample_rate: int) -> Clip:
    """A recording as a clip at a rate."""
    samples = recording.samples if recording.samples.ndim == 2 else recording.samples[:, None]
    done = list(recording.remarks)
    _check(entry.place, samples, recording.remarks)
    if samples.shape[1] > 1:
        done.append(f"mixed down from {samples.shape[1]} channels")
    mono = samples.mean(axis=1)
    if recording.sample_rate != sample_rate:
        done.append(f"resampled from {recording.sample_rate} Hz")
        mono = _resample(mono, recording.sample_rate, sample_rate)
        if not len(mono):
            raise InputError(
                f"{entry.place}: expected sound, got {len(samples)} samples, which leaves none at "
                f"{sample_rate} Hz; drop the file."
            )
    waveform = torch.from_numpy(_to_grid(mono, done))
    return Clip(entry.id, waveform, sample_rate, entry.label, "; ".join(done), entry.facts)


def _resample(mono: NDArray[np.float64], from_hz: int, to_hz: int) -> NDArray[np.float64]:
    # Imported here, as soundfile is below: clips from a pack at the right rate need neither.
    import soxr

    resampled: NDArray[np.float64] = soxr.resample(mono, from_hz, to_hz, quality="HQ")
    return resampled


def _check(place: str, samples: NDArray[np.float64], remarks: Sequence[str]) -> None:
    if not len(samples):
        said = f" ({'; '.join(remarks)})" if remarks else ""
        raise InputError(
            f"{place}: expected sound, got a file of zero length{said}; record it again or drop it."
        )
    if not np.isfinite(samples).all():
        bad = int((~np.isfinite(samples)).any(axis=1).sum())
        raise InputError(
            f"{place}: expected finite samples, got NaN or infinity in {bad} of {len(samples)}; "
            "repair or drop the file."
        )
    peak = float(np.abs(samples).max())
    if peak > _LOUDEST_PEAK:
        raise InputError(
            f"{place}: expected samples in [-1, 1], got a peak of {peak:.4g}; "
            "scale the file (divide by 32768 if it holds 16-bit numbers as floats)."
        )


def _to_grid(mono: NDArray[np.float64], done: list[str]) -> NDArray[np.float32]:
    """`(time,)` rounded to multiples of 1/32768; what that changed is added to `done`."""
    steps = mono * _STEPS
    rounded = np.rint(steps)
    kept = np.clip(rounded, -_STEPS, _STEPS - 1)
    clipped = int((kept != rounded).sum())
    if clipped:
        done.append(f"clipped {clipped} of {len(mono)} samples")
    if (rounded != steps).any():
        done.append("rounded to 16 bits")
    return (kept / _STEPS).astype(np.float32)


def _from_shared_folder(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Ids that are absolute paths count from the folder that they share: an id is handed on with results."""
    folders = [os.path.dirname(entry.id) for entry in entries if os.path.isabs(entry.id)]
    if not folders:
        return entries
    root = os.path.commonpath(folders)
    return tuple(
        replace(entry, id=Path(entry.id).relative_to(root).as_posix()) if os.path.isabs(entry.id) else entry
        for entry in entries
    )


def _voice(entry: Entry) -> str:
    """A speaker in one of their languages."""
    return f"{entry.facts['speaker']}/{entry.facts.get('language', '')}"


def _take_turns(groups: Sequence[str], draws: Draws) -> list[int]:
    """All places, ordered so that groups take turns; which clip of a group comes first is drawn."""
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    names = sorted(places)
    turns: list[tuple[int, int, int]] = []
    for rank, number in enumerate(draws.turn("labels").generator("order").permutation(len(names)).tolist()):
        own = places[names[number]]
        order = draws.generator(names[number]).permutation(len(own)).tolist()
        turns += [(turn, rank, own[index]) for turn, index in enumerate(order)]
    return [place for _, _, place in sorted(turns)]
