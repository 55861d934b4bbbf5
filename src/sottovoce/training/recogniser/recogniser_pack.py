"""The folder that holds everything the embedded recogniser is trained and tested on.

A pack is a few `part-N.npz` files. Its items are single spoken words, which training concatenates at random
in each batch, and whole sentences read by synthetic voices. Training items travel as 8-bit mu-law, the others
as they are; both as differences, which deflate to about two thirds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from sottovoce.errors import InputError
from sottovoce.training.keyword.keyword_pack import SPLITS, list_recordings, read_clip

MU = 255.0
STEPS = 127
FULL_SCALE = 32768.0
PART_BYTES = 60 * 2**20
BEFORE_SAMPLES, AFTER_SAMPLES = 960, 1_440
"""What is kept around a word, 60 and 90 ms: a final stop is a silence and a faint burst."""


@dataclass(frozen=True, kw_only=True)
class RecogniserPack:
    """Items of different lengths in one row: item `i` is the next `lengths[i]` of `samples`.

    samples: int16 `(all,)` at 16 kHz. lengths: int64 `(n,)`. texts, split, kind, source: `(n,)` strings; a
    kind is `word` or `sentence`, a source the speaker or the voice.
    """

    samples: np.ndarray
    lengths: np.ndarray
    texts: np.ndarray
    split: np.ndarray
    kind: np.ndarray
    source: np.ndarray

    def __post_init__(self) -> None:
        if self.samples.dtype != np.int16 or int(self.lengths.sum()) != len(self.samples):
            raise InputError(
                f"a pack holds int16 samples, as many as its lengths add up to ({int(self.lengths.sum())}), "
                f"got {self.samples.dtype} {self.samples.shape}; make it again with tools/pack_recogniser.py."
            )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> np.ndarray:
        """Where each item begins in `samples`, `(n,)`."""
        found: np.ndarray = np.cumsum(self.lengths) - self.lengths
        return found

    def item(self, place: int) -> np.ndarray:
        start = int(self.starts[place])
        return self.samples[start : start + int(self.lengths[place])]

    def part(self, chosen: np.ndarray) -> RecogniserPack:
        """The items at the places, or where the mask is true, in that order."""
        places = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        starts = self.starts
        rows = [self.samples[starts[place] : starts[place] + self.lengths[place]] for place in places]
        return RecogniserPack(
            samples=np.concatenate([np.zeros(0, np.int16), *rows]),
            lengths=self.lengths[places],
            texts=self.texts[places],
            split=self.split[places],
            kind=self.kind[places],
            source=self.source[places],
        )


def of_items(items: Sequence[np.ndarray], **columns: Sequence[str]) -> RecogniserPack:
    """A pack of waveforms, each int16 `(time,)`, and its columns of strings."""
    return RecogniserPack(
        samples=np.concatenate([np.zeros(0, np.int16), *items]),
        lengths=np.array([len(item) for item in items], dtype=np.int64),
        **{name: np.array(column, dtype=str) for name, column in columns.items()},
    )


def join(packs: Sequence[RecogniserPack]) -> RecogniserPack:
    """Several packs as one, in the order given."""
    names = ("samples", "lengths", "texts", "split", "kind", "source")
    return RecogniserPack(**{name: np.concatenate([getattr(pack, name) for pack in packs]) for name in names})


def to_mu_law(samples: np.ndarray) -> np.ndarray:
    """int16 to int8: 127 steps either side of zero, finer near it (ITU-T G.711's curve, not its segments)."""
    level = samples / FULL_SCALE
    curve: np.ndarray = np.sign(level) * np.log1p(MU * np.abs(level)) / np.log1p(MU)
    return np.round(curve * STEPS).astype(np.int8)


def from_mu_law(codes: np.ndarray) -> np.ndarray:
    """int8 back to int16, within a sixtieth of each level or a step near zero."""
    every = np.arange(-128, 128)
    level = np.sign(every) * np.expm1(np.abs(every) / STEPS * np.log1p(MU)) / MU
    table = np.clip(np.round(level * FULL_SCALE), -32768, 32767).astype(np.int16)
    samples: np.ndarray = table[codes.astype(np.int64) + 128]
    return samples


def _differences(values: np.ndarray) -> np.ndarray:
    """Each value less the one before it, around the end of its type."""
    return np.diff(values, prepend=values.dtype.type(0))


def _sums(differences: np.ndarray) -> np.ndarray:
    return np.cumsum(differences, dtype=differences.dtype)


def save_part(pack: RecogniserPack, path: Path, *, lossless: bool) -> None:
    """One part; of 16-bit differences the low and the high bytes lie apart, for they deflate better so."""
    columns = {name: getattr(pack, name) for name in ("lengths", "texts", "split", "kind", "source")}
    if lossless:
        pairs = _differences(pack.samples).astype("<i2").view(np.uint8).reshape(-1, 2)
        np.savez_compressed(path, low=pairs[:, 0], high=pairs[:, 1], **columns)
    else:
        np.savez_compressed(path, codes=_differences(to_mu_law(pack.samples)), **columns)
    if path.stat().st_size > PART_BYTES:
        raise InputError(
            f"expected parts of at most {PART_BYTES} bytes, got {path.stat().st_size} in {path}; ask for "
            "more parts or fewer sentences."
        )


def load_part(path: Path) -> RecogniserPack:
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
            columns = {name: arrays[name] for name in ("lengths", "texts", "split", "kind", "source")}
    except (OSError, KeyError, ValueError, BadZipFile) as problem:
        raise InputError(
            f"{path} is not part of a recogniser pack ({problem}); make one with tools/pack_recogniser.py."
        ) from problem
    if "codes" in arrays:
        samples = from_mu_law(_sums(arrays["codes"]))
    else:
        pairs = np.stack([arrays["low"], arrays["high"]], axis=1)
        samples = _sums(np.ascontiguousarray(pairs).view("<i2")[:, 0].astype(np.int16))
    return RecogniserPack(samples=samples, **columns)


def save_pack(pack: RecogniserPack, folder: Path, *, parts: int, seed: int = 0) -> list[Path]:
    """Validation and test items in part 0; training items, shuffled, in as many parts as are left."""
    if parts < 2:
        raise InputError(f"expected at least 2 parts, got {parts}; one is for what training must not see.")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{number}.npz" for number in range(parts)]
    save_part(pack.part(pack.split != "train"), paths[0], lossless=True)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(pack.split == "train"))
    for path, places in zip(paths[1:], np.array_split(order, parts - 1), strict=True):
        save_part(pack.part(places), path, lossless=False)
    return paths


def load_pack(folder: Path) -> RecogniserPack:
    """All parts of a folder as one pack."""
    paths = sorted(folder.glob("part-*.npz"))
    if not paths:
        raise InputError(f"{folder} has no files part-N.npz; make them with tools/pack_recogniser.py.")
    return join([load_part(path) for path in paths])


def trim(samples: np.ndarray) -> np.ndarray:
    """The word in a recording `(time,)`: from where it grows loud until it is no longer, and a little more.

    Loud is 24 dB under the loudest 25 ms, or 10 dB over the quiet of a noisy recording if that is more, but
    never less than 10 dB under the loudest.
    """
    power = np.convolve(samples.astype(np.float64) ** 2, np.full(400, 1 / 400), mode="same")
    loudest, quiet = power.max(), np.percentile(power, 10)
    heard = np.flatnonzero(power >= max(10**-2.4 * loudest, min(10.0 * quiet, 0.1 * loudest)))
    return samples[max(heard[0] - BEFORE_SAMPLES, 0) : heard[-1] + 1 + AFTER_SAMPLES]


def read_words(folder: Path) -> RecogniserPack:
    """A folder in the shape of Speech Commands, `train|valid|test/WORD/SPEAKER_TAKE.flac`, words trimmed."""
    found = [(split, path) for split in SPLITS for path, _ in list_recordings(folder, split)]
    if not found:
        raise InputError(
            f"{folder} has no {'|'.join(SPLITS)}/WORD/*.flac, .ogg or .wav; name the folder above them."
        )
    return of_items(
        [trim(read_clip(path)) for _, path in found],
        texts=[path.parent.name for _, path in found],
        split=[split for split, _ in found],
        kind=["word"] * len(found),
        source=[path.stem.split("_")[0] for _, path in found],
    )
