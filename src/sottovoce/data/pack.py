"""Many clips in one `.npz` file, which NumPy alone can read: for training, and without an audio library.

Arrays of a pack of n clips: `samples` int16 (all clips end to end), `lengths` int64 `(n,)` in samples,
`sample_rate` int, and strings `(n,)`: `ids`, `labels`, `split` ("train", "valid", "test" or ""), `speakers`
and, if wanted, `languages` ("" where unknown) and `voices` (of speakers who share one).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sottovoce.data.load import Clip, Corpus, Entry, Recording
from sottovoce.errors import InputError, UnknownName

SPLITS = ("train", "valid", "test")
SUFFIX = ".npz"
FULL_SCALE = 32768
_OPTIONAL = {"languages": "language", "voices": "voice"}
_FACTS = {"speakers": "speaker", **_OPTIONAL}
_TEXTS = ("ids", "labels", "split", "speakers")
_NEEDED = ("samples", "lengths", "sample_rate", *_TEXTS)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Pack:
    """The arrays of a pack, in memory; see the module for what each holds. Facts left out are unknown."""

    samples: NDArray[np.int16]
    lengths: NDArray[np.int64]
    ids: NDArray[np.str_]
    labels: NDArray[np.str_]
    split: NDArray[np.str_]
    speakers: NDArray[np.str_]
    languages: NDArray[np.str_] = None  # type: ignore[assignment]
    voices: NDArray[np.str_] = None  # type: ignore[assignment]
    sample_rate: int

    def __post_init__(self) -> None:
        for name in _OPTIONAL:
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.full(len(self), ""))
        if self.samples.dtype != np.int16 or self.samples.ndim != 1:
            raise InputError(
                f"expected samples as int16 (time,), got {self.samples.dtype} {self.samples.shape}; round "
                "them to 16 bits and join the clips end to end."
            )
        for name in ("lengths", *_TEXTS, *_OPTIONAL):
            column = getattr(self, name)
            if column.shape != (len(self),) or column.dtype.kind != ("i" if name == "lengths" else "U"):
                kind = "whole numbers" if name == "lengths" else "strings"
                raise InputError(
                    f"expected {name} to be {len(self)} {kind}, got {column.dtype} {column.shape}; give each "
                    "clip one value in every column."
                )
        if (self.lengths < 1).any() or self.lengths.sum() != len(self.samples):
            raise InputError(
                f"expected lengths of 1 or more that add up to {len(self.samples)} samples, got "
                f"{int(self.lengths.sum())} in all and {int(self.lengths.min(initial=0))} at least; "
                "drop empty clips."
            )
        strange = sorted(set(self.split.tolist()) - {*SPLITS, ""})
        if strange:
            raise InputError(f"expected splits {', '.join(SPLITS)} or none, got {strange[0]!r}; rename it.")

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each clip begins in `samples`, `(n,)`."""
        return np.cumsum(self.lengths) - self.lengths

    def clip(self, place: int) -> NDArray[np.int16]:
        """The samples of one clip, int16 `(time,)`."""
        start = int(self.starts[place])
        return self.samples[start : start + int(self.lengths[place])]

    def recording(self, place: int) -> Recording:
        return Recording(self.clip(place) / FULL_SCALE, self.sample_rate)

    def entry(self, path: Path, place: int) -> Entry:
        facts = {**_FACTS, "split": "split"}
        columns = {fact: str(getattr(self, column)[place]) for column, fact in facts.items()}
        return Entry(
            str(self.ids[place]),
            path,
            str(self.labels[place]),
            int(self.starts[place]),
            int(self.lengths[place]),
            {fact: value for fact, value in columns.items() if value},
            partial(self.recording, place),
        )


def pack(file: str) -> Corpus:
    """A pack as a corpus: `FILE.npz`, or `FILE.npz#test` for one split of it."""
    path, split = _split_of(file)
    whole = load_pack(path)
    if not split:
        return Corpus(path.stem, tuple(whole.entry(path, place) for place in range(len(whole))))
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    places = np.flatnonzero(whole.split == split).tolist()
    if not places:
        there = ", ".join(sorted(set(whole.split.tolist()) - {""})) or "no splits"
        raise InputError(f"{path}: expected clips of the split {split!r}, got {there}; name one of those.")
    return Corpus(f"{path.stem}-{split}", tuple(whole.entry(path, place) for place in places))


def load_pack(path: str | Path) -> Pack:
    """A pack from its file, checked."""
    path = Path(path).expanduser()
    if not os.path.isfile(path):
        raise InputError(f"{path}: expected a pack ({SUFFIX}), got no such file; check the path.")
    try:
        with np.load(path) as file:
            arrays: dict[str, Any] = {name: file[name] for name in file.files}
    except MemoryError as error:
        raise InputError(
            f"{path}: expected a pack that fits into memory, got one that does not ({error}); make smaller "
            "packs."
        ) from error
    except (OSError, ValueError, TypeError, AttributeError, EOFError, BadZipFile) as error:
        raise InputError(
            f"{path}: expected a pack ({SUFFIX}), got another kind of file; make one with save_pack."
        ) from error
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        raise InputError(
            f"{path}: expected the arrays {', '.join(_NEEDED)}, got no {', '.join(missing)}; make the pack "
            "with save_pack."
        )
    columns = {name: arrays[name] for name in _NEEDED if name != "sample_rate"}
    columns |= {name: arrays[name] for name in _OPTIONAL if name in arrays}
    rate = arrays["sample_rate"]
    if rate.shape != () or rate.dtype.kind not in "iu" or rate < 1:
        raise InputError(
            f"{path}: expected a sample rate of 1 Hz or more, got {rate.tolist()!r}; make the pack with "
            "save_pack."
        )
    try:
        return Pack(**columns, sample_rate=int(rate))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def save_pack(path: str | Path, clips: Sequence[Clip], splits: Sequence[str] | str = "") -> Pack:
    """Write clips of one sample rate, in 16-bit steps, as a pack.

    path: of the file, which ends in .npz.
    splits: one of each clip, or one of all: "train", "valid", "test" or "".

    >>> pack = sv.data.save_pack("clips.npz", [sv.data.Clip("one", torch.zeros(800), 16000, "silence")])
    >>> len(sv.data.open_corpus("pack:clips.npz"))
    1
    """
    path = Path(path).expanduser()
    rates = sorted({clip.sample_rate for clip in clips})
    if len(rates) != 1:
        raise InputError(
            f"{path}: expected clips of one sample rate, got {rates or 'no clips'}; load all at one rate."
        )
    each = [splits] * len(clips) if isinstance(splits, str) else list(splits)
    if len({clip.id for clip in clips}) != len(clips):
        raise InputError(f"{path}: expected different ids, got some twice; rename those clips.")
    if path.suffix != SUFFIX:
        raise InputError(f"{path}: expected a name that ends in {SUFFIX}, got {path.name!r}; rename it.")
    facts = {
        column: np.array([clip.facts.get(fact, "") for clip in clips], dtype=str)
        for column, fact in _FACTS.items()
    }
    made = Pack(
        samples=np.concatenate([_to_int16(clip) for clip in clips]),
        lengths=np.array([len(clip.waveform) for clip in clips], dtype=np.int64),
        ids=np.array([clip.id for clip in clips], dtype=str),
        labels=np.array([clip.label for clip in clips], dtype=str),
        split=np.array(each, dtype=str),
        **facts,
        sample_rate=rates[0],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{item.name: getattr(made, item.name) for item in fields(made)})
    return made


def _to_int16(clip: Clip) -> NDArray[np.int16]:
    steps = clip.waveform.numpy().astype(np.float64) * FULL_SCALE
    samples = np.clip(steps, -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    if (samples != steps).any():
        raise InputError(
            f"clip {clip.id!r}: expected samples on the 16-bit grid, got others; round them first."
        )
    return samples


def _split_of(file: str) -> tuple[Path, str]:
    name, mark, split = file.rpartition("#")
    if mark and name.endswith(SUFFIX):
        return Path(name).expanduser(), split
    return Path(file).expanduser(), ""
