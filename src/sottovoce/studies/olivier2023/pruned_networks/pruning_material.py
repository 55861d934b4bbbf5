"""What study O3 is run on: words to prune keyword models with and to judge them by, and images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, final

from sottovoce.core.target import Target
from sottovoce.data.corpora import open_corpus
from sottovoce.data.images.image_set import STROKES, ImageSet, open_images
from sottovoce.data.labels import settle_labels
from sottovoce.data.load import Corpus
from sottovoce.data.speech_commands import speech_commands
from sottovoce.errors import InputError
from sottovoce.studies.olivier2023.pruned_networks.image_networks import Shape, image_clips
from sottovoce.training.sources import ClipsInMemory, hold_corpus

EMBEDDED = "embedded"
IMAGES = (STROKES, "mnist", "cifar10")
TAKES = {"train": "34", "valid": "5", "test": "12"}
"""Which takes of a shipped word, by the last letter of its id, are for what."""
VALID_SHARE = 0.2
"""Of the training images (section 3.6.2)."""


class Material(NamedTuple):
    """Clips to train on, to decide by, and to judge by."""

    train: ClipsInMemory
    valid: ClipsInMemory
    test: ClipsInMemory


@final
@dataclass(frozen=True)
class Images:
    """Images as clips, and their shape."""

    clips: Material
    shape: Shape
    classes: tuple[str, ...]


@final
@dataclass(frozen=True, kw_only=True)
class Amount:
    """How much of the study is run.

    words, pictures: at most so many to train on, to decide by and to judge by; None: all.
    networks: of images. pool: pixels of images of 28 or 32 each way that become one.
    steps: of attacks with a gradient. search: generations of the genetic search, and how large they are.
    passes: over a smoothed network, for its gradient. epochs: of images, plain and adversarial.
    tuning: times through the words, and through the images, after each round of pruning.
    """

    words: tuple[int | None, int | None, int | None]
    pictures: tuple[int | None, int | None, int | None]
    networks: tuple[str, ...]
    pool: int
    steps: int
    search: tuple[int, int]
    passes: int
    epochs: int
    adversarial_epochs: int
    adversary_steps: int
    tuning: tuple[int, int]

    def judging(self, count: int | None) -> Amount:
        """The same with so many clips and images to judge by, where a user says how many."""
        if count is None:
            return self
        return replace(self, words=(*self.words[:2], count), pictures=(*self.pictures[:2], count))

    def __str__(self) -> str:
        return (
            f"networks of images {', '.join(self.networks)}, {self.epochs} epochs; attacks of {self.steps} "
            f"steps, a genetic search of {self.search[0]} generations of {self.search[1]}"
        )


MINI = Amount(
    words=(1100, 275, 44),
    pictures=(4000, 800, 100),
    networks=("small",),
    pool=2,
    steps=30,
    search=(25, 8),
    passes=4,
    epochs=10,
    adversarial_epochs=8,
    adversary_steps=3,
    tuning=(5, 2),
)
FULL = Amount(
    words=(None, None, None),
    pictures=(None, None, 1000),
    networks=("vgg16", "alexnet"),
    pool=1,
    steps=100,
    search=(500, 20),
    passes=16,
    epochs=60,
    adversarial_epochs=60,
    adversary_steps=7,
    tuning=(5, 3),
)
AMOUNTS = {"mini": MINI, "full": FULL}


def split_data(text: str | None) -> tuple[str, str]:
    """Words and images, `WORDS@IMAGES`, of which either may be left out."""
    words, at, images = (text or EMBEDDED).partition("@")
    if not at and words.partition(":")[0] in IMAGES:
        words, images = EMBEDDED, words
    return words or EMBEDDED, images or STROKES


def open_words(
    text: str, target: Target, amount: Amount, seed: int, log: Callable[[str], None]
) -> tuple[Material, str]:
    """Clips of words, and what there is to say of them."""
    parts = []
    notes: dict[str, None] = {}
    for (use, corpus), count in zip(_corpora(text).items(), amount.words, strict=True):
        corpus = settle_labels(corpus, target, "skip").corpus
        if count is not None:
            corpus = corpus.limit(count, seed)
        notes[f"{use}: {corpus.note}" if corpus.note else use] = None
        parts.append(hold_corpus(corpus, target.sample_rate, log=log))
    return Material(*parts), "; ".join(notes)


def open_pictures(text: str, amount: Amount, seed: int) -> Images:
    """Images as clips; a fifth of the training images is kept to decide by."""
    whole, test = open_images(text, "train", seed=seed), open_images(text, "test", seed=seed)
    mixed = whole.limit(len(whole) - 1, seed)
    cut = round((1.0 - VALID_SHARE) * len(mixed))
    parts = (_some(mixed, 0, cut), _some(mixed, cut, len(mixed)), test)
    # Images that are small already are not made smaller.
    pool = amount.pool if min(whole.images.shape[2:]) > 16 else 1
    sets = [part.limit(count, seed) for part, count in zip(parts, amount.pictures, strict=True)]
    clips = [image_clips(one, pool, use) for one, use in zip(sets, ("train", "valid", "test"), strict=True)]
    channels, height, width = sets[0].pixels(pool).shape[1:]
    return Images(Material(*clips), (channels, height, width), whole.classes)


def _corpora(text: str) -> dict[str, Corpus]:
    name, _, where = text.partition(":")
    if text == EMBEDDED:
        whole = open_corpus(EMBEDDED)
        return {
            use: Corpus(f"{EMBEDDED}-{use}", tuple(one for one in whole if one.id[-1] in takes), whole.note)
            for use, takes in TAKES.items()
        }
    if name == "speechcommands" and where:
        return {use: speech_commands(where, use) for use in ("train", "valid", "test")}
    if name == "pack" and where and "#" not in where:
        return {use: open_corpus(f"{text}#{use}") for use in ("train", "valid", "test")}
    raise InputError(
        f"study O3 expected clips with splits to train on and to judge by, got --data {text!r}; give "
        "embedded, speechcommands:DIR or pack:FILE.npz, and images behind an @, such as "
        "speechcommands:DIR@cifar10:DIR."
    )


def _some(images: ImageSet, first: int, last: int) -> ImageSet:
    return ImageSet(
        name=images.name,
        images=images.images[first:last],
        labels=images.labels[first:last],
        classes=images.classes,
    )
