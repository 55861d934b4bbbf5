"""One file that holds everything the keyword classifier is trained and tested on.

A pack is an `.npz` with four arrays of one length: `clips` int16 `(n, 16000)`, `labels` (names of classes),
`split` (train, valid or test) and `source` (where a clip comes from: real, silence, or a synthetic voice).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from sottovoce.errors import InputError
from sottovoce.targets.zoo.keyword_cnn import CLASSES, CLIP_SAMPLES, SAMPLE_RATE
from sottovoce.training.coloured_noise import coloured_noise

SPLITS = ("train", "valid", "test")
AUDIO_SUFFIXES = (".flac", ".ogg", ".wav")
SILENCE_CLIPS = {"train": 1_000, "valid": 50, "test": 80}


@dataclass(frozen=True, kw_only=True)
class KeywordPack:
    """Clips `(n, 16000)` int16 with the label, the split and the source of each."""

    clips: np.ndarray
    labels: np.ndarray
    split: np.ndarray
    source: np.ndarray

    def __post_init__(self) -> None:
        if self.clips.ndim != 2 or self.clips.shape[1] != CLIP_SAMPLES or self.clips.dtype != np.int16:
            raise InputError(
                f"a pack holds int16 clips (n, {CLIP_SAMPLES}), got {self.clips.dtype} {self.clips.shape}; "
                "make it again with tools/pack_keyword.py."
            )
        unknown = sorted(set(self.labels.tolist()) - set(CLASSES))
        if unknown:
            raise InputError(
                f"a pack's labels are {', '.join(CLASSES)}; got {', '.join(unknown)}: rename them."
            )

    def part(self, chosen: np.ndarray) -> KeywordPack:
        """The clips where the mask `(n,)` is true."""
        return KeywordPack(
            clips=self.clips[chosen],
            labels=self.labels[chosen],
            split=self.split[chosen],
            source=self.source[chosen],
        )

    def save(self, path: Path) -> None:
        np.savez_compressed(path, clips=self.clips, labels=self.labels, split=self.split, source=self.source)


def load_pack(path: Path) -> KeywordPack:
    """Read a pack; it is checked as it is made."""
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in ("clips", "labels", "split", "source")}
    except (OSError, KeyError, ValueError, BadZipFile) as problem:
        raise InputError(
            f"{path} is not a keyword pack ({problem}); make one with tools/pack_keyword.py."
        ) from problem
    return KeywordPack(**arrays)


def join(packs: Sequence[KeywordPack]) -> KeywordPack:
    """Several packs as one, in the order given."""
    return KeywordPack(
        clips=np.concatenate([pack.clips for pack in packs]),
        labels=np.concatenate([pack.labels for pack in packs]),
        split=np.concatenate([pack.split for pack in packs]),
        source=np.concatenate([pack.source for pack in packs]),
    )


def read_clip(path: Path) -> np.ndarray:
    """One recording as int16 `(16000,)`: cut, or padded with zeros at the end, to one second."""
    import soundfile

    samples, rate = soundfile.read(path, dtype="int16")
    if rate != SAMPLE_RATE or samples.ndim != 1:
        raise InputError(
            f"{path}: expected {SAMPLE_RATE} Hz mono, got {rate} Hz {samples.shape}; convert it."
        )
    clip = np.zeros(CLIP_SAMPLES, dtype=np.int16)
    clip[: len(samples)] = samples[:CLIP_SAMPLES]
    return clip


def list_recordings(folder: Path, split: str) -> Iterator[tuple[Path, str]]:
    """Files of `folder/split/WORD/` in a fixed order, each with its class; other words are `unknown`."""
    for path in sorted((folder / split).glob("*/*")):
        if path.suffix in AUDIO_SUFFIXES:
            word = path.parent.name
            yield path, word if word in CLASSES else "unknown"


def read_folder(folder: Path, *, splits: Sequence[str] = SPLITS) -> KeywordPack:
    """A folder in the shape of Speech Commands, `train|valid|test/WORD/*.flac`, as a pack."""
    found = [(path, label, split) for split in splits for path, label in list_recordings(folder, split)]
    if not found:
        raise InputError(
            f"{folder} has no {'|'.join(splits)}/WORD/*.flac, .ogg or .wav; name the folder above them."
        )
    return KeywordPack(
        clips=np.stack([read_clip(path) for path, _, _ in found]),
        labels=np.array([label for _, label, _ in found]),
        split=np.array([split for _, _, split in found]),
        source=np.full(len(found), "real"),
    )


def make_silence(count: int, split: str, *, seed: int) -> KeywordPack:
    """Quiet noise of every colour, 6 to 60 dB above one 16-bit step on average; each split has its seed."""
    generator = torch.Generator().manual_seed(seed * len(SPLITS) + SPLITS.index(split))
    slope_db = torch.rand(count, generator=generator) * 9.0 - 7.0
    level_db = torch.rand(count, 1, generator=generator) * 54.0 + 6.0
    noise = coloured_noise(slope_db, CLIP_SAMPLES, generator)
    noise = noise / noise.abs().mean(dim=1, keepdim=True) * 10.0 ** (level_db / 20.0)
    return KeywordPack(
        clips=noise.round().clamp(-32768, 32767).numpy().astype(np.int16),
        labels=np.full(count, "silence"),
        split=np.full(count, split),
        source=np.full(count, "silence"),
    )


def pack(folder: Path, out: Path, *, synthetic: Path | None = None, seed: int = 0) -> KeywordPack:
    """Write a folder of recordings, made silence and, if given, a synthetic training mix as one pack."""
    parts = [read_folder(folder)]
    parts += [make_silence(count, split, seed=seed) for split, count in SILENCE_CLIPS.items()]
    if synthetic is not None:
        parts.append(load_pack(synthetic))
    whole = join(parts)
    whole.save(out)
    return whole
