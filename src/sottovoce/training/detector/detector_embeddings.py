"""Training a detector on the embeddings of a frozen encoder, which are computed once and kept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import final
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, StoreError
from sottovoce.targets.adapters.speech_encoders import Encoder
from sottovoce.targets.zoo.detector_networks import CLASSES, EmbeddingHead
from sottovoce.training.detector.detector_material import Held
from sottovoce.training.detector.train_detector import (
    FOR_EMBEDDINGS,
    DetectorRecipe,
    Tell,
    TrainedDetector,
    fit,
    seeded,
)
from sottovoce.training.sources import ClipsInMemory

AT_ONCE = 8
Rows = dict[str, NDArray[np.float32]]


@final
@dataclass(frozen=True, eq=False)
class Embeddings:
    """The mean frame of each clip, `(clips, width)` float32, and its label."""

    vectors: NDArray[np.float32]
    labels: tuple[str, ...]
    ids: tuple[str, ...]

    def of(self, ids: Iterable[str]) -> Embeddings:
        """Those of some clips, in order."""
        wanted = set(ids)
        places = [place for place, name in enumerate(self.ids) if name in wanted]
        if not places:
            raise InputError("expected embeddings of the clips asked for, got none; check their ids.")
        labels, names = (tuple(column[place] for place in places) for column in (self.labels, self.ids))
        return Embeddings(self.vectors[places], labels, names)


@final
@dataclass(frozen=True)
class EmbeddingCache:
    """A folder with one `.npz` for each encoder and layer: embeddings under the clips' ids and sounds.

    A clip that has its id but other samples is another clip, and so are those of an encoder whose weights
    have changed.
    """

    folder: Path

    def path(self, encoder: Encoder, layer: int) -> Path:
        return self.folder / f"{encoder.fingerprint()}-{layer}.npz"

    def read(self, path: Path) -> Rows:
        if not path.exists():
            return {}
        try:
            with np.load(path, allow_pickle=False) as file:
                return dict(zip(file["keys"].tolist(), file["vectors"], strict=True))
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise StoreError(
                f"{path}: expected kept embeddings, got something else ({error}); delete the file."
            ) from None

    def write(self, path: Path, rows: Rows) -> None:
        """In one move, so that a kill leaves the old file or the new one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, keys=np.array(list(rows), dtype=str), vectors=np.stack(list(rows.values())))
        part.replace(path)


def embed(
    encoder: Encoder, layer: int, clips: ClipsInMemory, cache: EmbeddingCache | None = None
) -> Embeddings:
    """The embeddings of all clips, from the cache where it has them, on the encoder's device."""
    encoder.check_layer(layer)
    _check_clips(encoder, clips)
    path = cache.path(encoder, layer) if cache else None
    known = cache.read(path) if cache and path else {}
    keys = _keys(clips)
    missing = [place for place, key in enumerate(keys) if key not in known]
    device = next(encoder.module.parameters()).device
    # Clips of like length together: there is less padding to run.
    missing.sort(key=lambda place: int(clips.lengths[place]))
    for first in range(0, len(missing), AT_ONCE):
        places = missing[first : first + AT_ONCE]
        with torch.no_grad():
            vectors = encoder.embed(clips.batch(places).batch.to(device), layer).cpu().numpy()
        known.update({keys[place]: row for place, row in zip(places, vectors, strict=True)})
    if cache and path and missing:
        cache.write(path, known)
    return Embeddings(np.stack([known[key] for key in keys]), clips.labels, clips.ids)


def train_embeddings(
    train: Embeddings,
    valid: Embeddings,
    *,
    seed: int = 0,
    device: str = "cpu",
    recipe: DetectorRecipe = FOR_EMBEDDINGS,
    tell: Tell | None = None,
) -> TrainedDetector[EmbeddingHead]:
    """An `EmbeddingHead`; the embeddings of `valid` must be of other speakers."""
    with seeded(seed, device):
        module = EmbeddingHead(train.vectors.shape[1]).to(device)
        lessons = [_lessons(one, device) for one in (train, valid)]
        return fit(module, *lessons, recipe=recipe, draws=Draws(seed).turn("detector"), tell=tell)


def _lessons(embeddings: Embeddings, device: str) -> Held:
    strange = sorted(set(embeddings.labels) - set(CLASSES))
    if strange:
        raise InputError(f"expected labels {' and '.join(CLASSES)}, got {strange[0]!r}; rename it.")
    wanted = torch.tensor([CLASSES.index(label) for label in embeddings.labels], device=device)
    inputs: Tensor = torch.from_numpy(embeddings.vectors).to(device)
    return Held(inputs, wanted, lambda module, rows: module(rows))


def _keys(clips: ClipsInMemory) -> list[str]:
    samples = clips.samples.cpu().numpy()
    ends = np.cumsum(clips.lengths)
    digests = [
        blake2b(samples[end - length : end].tobytes(), digest_size=8).hexdigest()
        for end, length in zip(ends, clips.lengths, strict=True)
    ]
    return [f"{name} {digest}" for name, digest in zip(clips.ids, digests, strict=True)]


def _check_clips(encoder: Encoder, clips: ClipsInMemory) -> None:
    if clips.sample_rate != encoder.sample_rate:
        raise InputError(
            f"expected clips at {encoder.sample_rate} Hz for {encoder.name}, got {clips.sample_rate} Hz; "
            "load them at that rate."
        )
    longest = encoder.longest or int(clips.lengths.max())
    for place in (int(clips.lengths.argmin()), int(clips.lengths.argmax())):
        if not encoder.shortest <= int(clips.lengths[place]) <= longest:
            raise InputError(
                f"clip {clips.ids[place]!r}: expected {encoder.shortest} to {longest} samples for "
                f"{encoder.name}, got {int(clips.lengths[place])}; cut it or drop it."
            )
