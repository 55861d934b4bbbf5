"""Readers of MNIST (IDX files) and CIFAR-10 (binary batches), gzipped or not, from any folder."""

from __future__ import annotations

import gzip
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sottovoce.data.images.image_set import ImageSet, Split
from sottovoce.errors import InputError

Bytes = NDArray[np.uint8]
GZIP = b"\x1f\x8b"
IDX_BYTES = 0x08
"""What an IDX file says where its numbers are unsigned bytes."""
DIGITS = tuple("0123456789")
PARTS = {"train": "train", "test": "t10k"}
CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of an image of CIFAR-10: its class, then red, green and blue."""


def read_mnist(folder: Path, split: Split) -> ImageSet:
    """From `train-images-idx3-ubyte` and so on, as on MNIST's own page."""
    part = PARTS[split]
    images = _idx(_found(folder, "MNIST", [f"{part}-images-idx3-ubyte", f"{part}-images.idx3-ubyte"]), 3)
    path = _found(folder, "MNIST", [f"{part}-labels-idx1-ubyte", f"{part}-labels.idx1-ubyte"])
    labels = _idx(path, 1)
    if len(images) != len(labels):
        raise InputError(f"expected {len(images):,} labels in {path}, one an image, got {len(labels):,}.")
    return _image_set(f"mnist-{split}", images[:, None], labels, DIGITS, path)


def read_cifar10(folder: Path, split: Split) -> ImageSet:
    """From `data_batch_1.bin` and so on, as in CIFAR-10's binary version, or from one `cifar10*.npz`.

    Such a file has train_images and test_images `(n, 32, 32, 3)`, train_labels and test_labels.
    """
    below = folder / "cifar-10-batches-bin"
    folder = below if below.is_dir() else folder
    packed = sorted(folder.glob("cifar10*.npz")) if folder.is_dir() else []
    if packed:
        images, labels = _npz(packed[0], split)
        return _image_set(f"cifar10-{split}", images, labels, CIFAR_CLASSES, packed[0])
    paths = [_found(folder, "CIFAR-10", [f"{name}.bin"], other=name) for name in BATCHES[split]]
    rows = np.concatenate([_records(path) for path in paths])
    images = rows[:, 1:].reshape(-1, 3, SIDE, SIDE)
    return _image_set(f"cifar10-{split}", images, rows[:, 0], CIFAR_CLASSES, paths[0])


def _found(folder: Path, corpus: str, names: Sequence[str], other: str | None = None) -> Path:
    """The first of these files that is there, as it is or gzipped.

    other: the name in a version that is not read, because Python's pickles can run anything.
    """
    if not folder.is_dir():
        raise InputError(f"expected a folder with {corpus}, got {folder}, which is none.")
    for path in [folder / f"{name}{end}" for name in names for end in ("", ".gz")]:
        if path.is_file():
            return path
    hint = (
        f"; {other} is of the version for Python: download the binary version."
        if other and (folder / other).exists()
        else "."
    )
    raise InputError(f"expected {names[0]} or {names[0]}.gz of {corpus} in {folder}, got neither{hint}")


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP) else content
    except (OSError, EOFError) as error:
        raise InputError(f"expected a whole file at {path}, got: {error}; download it again.") from None


def _idx(path: Path, dimensions: int) -> Bytes:
    """An IDX file of bytes: two zeros, the type, how many dimensions, their sizes, the numbers."""
    content = _content(path)
    wanted = bytes([0, 0, IDX_BYTES, dimensions])
    head = 4 + 4 * dimensions
    if content[:4] != wanted or len(content) < head:
        raise InputError(
            f"expected an IDX file of bytes in {dimensions} dimensions at {path}, beginning with "
            f"{wanted.hex(' ')}, got {content[:4].hex(' ') or 'nothing'}; download it again."
        )
    sizes = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) - head != np.prod(sizes, dtype=np.int64):
        raise InputError(
            f"expected {np.prod(sizes, dtype=np.int64):,} bytes after the head of {path}, got "
            f"{len(content) - head:,}; download it again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(sizes)


def _records(path: Path) -> Bytes:
    content = np.frombuffer(_content(path), dtype=np.uint8)
    if not len(content) or len(content) % RECORD:
        raise InputError(
            f"expected images of {RECORD:,} bytes in {path}, a class and 3 x {SIDE} x {SIDE} pixels, got "
            f"{len(content):,} bytes; download the binary version again."
        )
    return content.reshape(-1, RECORD)


def _npz(path: Path, split: Split) -> tuple[Bytes, Bytes]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"expected {split}_images and {split}_labels in {path}, got: {error}.") from None
    shape = (len(labels), SIDE, SIDE, 3)
    if images.shape != shape or images.dtype != np.uint8:
        raise InputError(
            f"expected {split}_images of 8 bits and shape {shape} in {path}, got {images.dtype} and "
            f"{images.shape}."
        )
    return images.transpose(0, 3, 1, 2), labels


def _image_set(name: str, images: Bytes, labels: Bytes, classes: tuple[str, ...], path: Path) -> ImageSet:
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
        raise InputError(f"expected classes 0 to {len(classes) - 1} in {path}, got {labels.max()}.")
    return ImageSet(
        name=name,
        images=torch.from_numpy(np.array(images)),
        labels=torch.from_numpy(labels.astype(np.int64)),
        classes=classes,
    )
