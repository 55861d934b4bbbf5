"""Readers against files written byte by byte, and the images that are made in code."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.data.images.image_set import ImageSet, open_images
from sottovoce.data.images.stroke_images import SIGNS, stroke_images
from sottovoce.errors import InputError, UnknownName

# Two images of 2 x 3 pixels, and their classes.
IMAGES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, *range(12)])
LABELS = bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 4])
SHARED = Path(os.environ.get("SOTTOVOCE_DATA", Path(__file__).parents[3] / "shared" / "data")) / "images"


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(IMAGES))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(LABELS)
    return tmp_path


def test_mnist(mnist: Path) -> None:
    found = open_images(f"mnist:{mnist}", "test")
    assert found.images.tolist() == [[[[0, 1, 2], [3, 4, 5]]], [[[6, 7, 8], [9, 10, 11]]]]
    assert found.labels.tolist() == [7, 4] and found.classes[7] == "7" and len(found) == 2


def test_files_that_are_wrong(mnist: Path) -> None:
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte or .*\.gz of MNIST in .*, got neither"):
        open_images(f"mnist:{mnist}", "train")
    labels = mnist / "t10k-labels-idx1-ubyte"
    labels.write_bytes(LABELS[:-1])
    with pytest.raises(InputError, match=r"expected 2 bytes after the head of .*labels.*, got 1"):
        open_images(f"mnist:{mnist}", "test")
    labels.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))
    with pytest.raises(InputError, match=r"expected 2 labels in .*, one an image, got 1"):
        open_images(f"mnist:{mnist}", "test")
    labels.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 11]))
    with pytest.raises(InputError, match=r"expected classes 0 to 9 in .*, got 11"):
        open_images(f"mnist:{mnist}", "test")
    images = mnist / "t10k-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(IMAGES)[:-9])
    with pytest.raises(InputError, match=r"expected a whole file at .*images.*\.gz"):
        open_images(f"mnist:{mnist}", "test")
    images.write_bytes(b"<html>")
    with pytest.raises(InputError, match="beginning with 00 00 08 03, got 3c 68 74 6d"):
        open_images(f"mnist:{mnist}", "test")
    with pytest.raises(InputError, match=r"expected a folder with MNIST, got .*nowhere, which is none"):
        open_images(f"mnist:{mnist / 'nowhere'}")


def test_names() -> None:
    with pytest.raises(UnknownName, match="unknown image set 'mnits': did you mean 'mnist'"):
        open_images("mnits:x")
    with pytest.raises(InputError, match="write cifar10:DIR"):
        open_images("cifar10")


def test_cifar10(tmp_path: Path) -> None:
    """Two records of a class and 3,072 bytes: all red 1, green 2, blue 3 save one pixel."""
    planes = np.repeat(np.array([1, 2, 3], dtype=np.uint8), 1024)
    other = planes.copy()
    other[1024 + 32] = 9  # green, second row, first column
    (tmp_path / "test_batch.bin").write_bytes(bytes([3, *planes, 5, *other]))
    found = open_images(f"cifar10:{tmp_path}", "test")
    assert found.images.shape == (2, 3, 32, 32) and found.labels.tolist() == [3, 5]
    assert found.images[0, :, 0, 0].tolist() == [1, 2, 3] and found.images[1, 1, 1, 0] == 9
    assert [found.classes[label] for label in found.labels.tolist()] == ["cat", "dog"]
    (tmp_path / "test_batch.bin").write_bytes(bytes(3074))
    with pytest.raises(InputError, match=r"images of 3,073 bytes in .*test_batch.bin.*, got 3,074 bytes"):
        open_images(f"cifar10:{tmp_path}", "test")
    (tmp_path / "data_batch_1").write_bytes(b"pickled")
    with pytest.raises(InputError, match=r"expected data_batch_1.bin .* download the binary version"):
        open_images(f"cifar10:{tmp_path}")


def test_cifar10_in_one_file(tmp_path: Path) -> None:
    images = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    images[0, 4, 5, 2] = 200
    np.savez(tmp_path / "cifar10_part.npz", test_images=images, test_labels=np.array([8], dtype=np.uint8))
    found = open_images(f"cifar10:{tmp_path}", "test")
    assert found.images[0, 2, 4, 5] == 200 and found.labels.tolist() == [8]
    with pytest.raises(InputError, match="expected train_images and train_labels"):
        open_images(f"cifar10:{tmp_path}")


def test_pixels_and_limits(mnist: Path) -> None:
    found = open_images(f"mnist:{mnist}", "test")
    assert float(found.pixels()[1, 0, 1, 2]) == pytest.approx(11 / 255)
    with pytest.raises(InputError, match="expected a divisor of 2 and 3 as pool, got 2"):
        found.pixels(2)
    strokes = stroke_images(each=4)
    assert torch.allclose(strokes.pixels(2)[0, 0, 0, 0], strokes.images[0, 0, :2, :2].float().mean() / 255)
    assert len(strokes.limit(7)) == 7 and len(strokes.limit(99)) == len(strokes.limit(None)) == 40
    assert torch.equal(strokes.limit(7, 1).labels, strokes.limit(7, 1).labels)


def test_strokes_are_the_same_every_time() -> None:
    few, many = stroke_images(each=2), stroke_images(each=5)
    assert torch.equal(few.images, many.images[:20]) and torch.equal(few.labels, many.labels[:20])
    assert torch.equal(few.labels.bincount(), torch.full((10,), 2)) and few.classes == tuple(SIGNS)
    assert not torch.equal(few.images, stroke_images(each=2, seed=1).images)
    assert not torch.equal(few.images, stroke_images("test", each=2).images)
    assert stroke_images(side=8, each=1).images.shape == (10, 1, 8, 8)
    with pytest.raises(InputError, match="at least 8 pixels"):
        stroke_images(side=7)


def test_strokes_lie_where_they_should() -> None:
    """Most ink of a bar is in the middle columns, of a dash in the middle rows; a box is empty inside."""
    pixels = stroke_images(each=100).pixels()
    mean = {sign: pixels[number::10].mean(dim=(0, 1)) for number, sign in enumerate(SIGNS)}
    assert mean["bar"][:, 5:9].sum() > 0.7 * mean["bar"].sum()
    assert mean["dash"][5:9].sum() > 0.7 * mean["dash"].sum()
    assert mean["box"][6:8, 6:8].mean() < 0.1 < 0.3 < mean["plus"][6:8, 6:8].mean()


def test_strokes_can_be_told_apart() -> None:
    """By least squares from the pixels: well above chance, and with something left to learn."""
    train, test = stroke_images(each=100), stroke_images("test", each=40)
    weights = torch.linalg.lstsq(_with_one(train), torch.eye(10)[train.labels], driver="gelsd").solution
    right = (_with_one(test) @ weights).argmax(dim=1) == test.labels
    assert 0.7 < right.float().mean() < 0.99


def _with_one(images: ImageSet) -> torch.Tensor:
    pixels = images.pixels().flatten(1)
    return torch.cat([pixels, torch.ones(len(pixels), 1)], dim=1)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the MNIST files, which are not part of the repository")
def test_the_real_files() -> None:
    """The published counts: 10,000 test images, of which 980 zeros and 1,135 ones; the first is a seven."""
    found = open_images(f"mnist:{SHARED}", "test")
    assert found.images.shape == (10_000, 1, 28, 28)
    assert found.labels.bincount()[:2].tolist() == [980, 1135] and found.labels[0] == 7
    assert len(open_images(f"cifar10:{SHARED}", "test")) == 1000
