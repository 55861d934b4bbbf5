"""What denoisers are trained on: pieces of real speech in noise that is synthesised.

Noises are made by recipes, so that nobody's recording is in the weights. Speech comes from a pack, split by
speaker as the learned ear's answers are: whom the ear was tested on, no denoiser was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.draws import Draws
from sottovoce.core.processes import count_cores, in_order, workers
from sottovoce.data import sound_recipes as recipes
from sottovoce.data.pack import FULL_SCALE, Pack
from sottovoce.data.synthetic_sounds import synthesise
from sottovoce.errors import InputError
from sottovoce.perception.degradations.added_noise import make_noise
from sottovoce.perception.jnd.answers import split_speakers

SAMPLE_RATE = 16_000
NOISE_SECONDS = 4.0
KINDS = ("white", "pink", "applause", "room")
COLOURED = "coloured"
# Steady noises of any colour are what is around speech most often.
TIMES = {COLOURED: 6}
_LOUDEST = 0.9


class Mixture(NamedTuple):
    """Clean and noisy pieces, both `(batch, time)`."""

    clean: Tensor
    noisy: Tensor


@final
@dataclass(frozen=True)
class NoiseBank:
    """Clips end to end on a device, in 16 bits. levels: the RMS of each, `(n,)`, re. full scale."""

    samples: Tensor
    starts: Tensor
    lengths: Tensor
    levels: Tensor

    @classmethod
    def of(cls, clips: Sequence[NDArray[np.int16]], device: torch.device) -> NoiseBank:
        if not clips:
            raise InputError("expected clips to train on, got none; give a pack with more speakers.")
        lengths = np.array([len(clip) for clip in clips], dtype=np.int64)
        levels = [float(np.sqrt(np.mean(clip.astype(np.float64) ** 2))) / FULL_SCALE for clip in clips]
        return cls(
            torch.from_numpy(np.concatenate(clips)).to(device),
            torch.from_numpy(np.cumsum(lengths) - lengths).to(device),
            torch.from_numpy(lengths).to(device),
            torch.tensor(levels, dtype=torch.float32, device=device).clamp_min(1e-6),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    def cut(self, chances: Tensor, samples: int) -> Tensor:
        """Pieces `(batch, samples)` whose clip has an RMS of 1; zeros behind clips that are shorter.

        chances: `(batch, 2)` in [0, 1): of the clip, a second of which is drawn as often as one of any other,
        and of the place in it.
        """
        ends = self.lengths.cumsum(dim=0)
        places = torch.searchsorted(ends, (chances[:, 0] * ends[-1]).long(), right=True)
        own = self.lengths[places]
        offsets = (chances[:, 1] * (own - samples + 1).clamp_min(1)).long()
        steps = torch.arange(samples, device=chances.device) + offsets[:, None]
        taken = self.samples[(self.starts[places, None] + steps).clamp_max(len(self.samples) - 1)]
        pieces = taken.float() / (FULL_SCALE * self.levels[places, None])
        return pieces.masked_fill(steps >= own[:, None], 0.0)


@final
@dataclass(frozen=True)
class Mixer:
    """Speech in noise. snr_db: of whole clips, lowest and highest. level_db: of speech, re. full scale."""

    speech: NoiseBank
    noise: NoiseBank
    snr_db: tuple[float, float] = (-2.5, 20.0)
    level_db: tuple[float, float] = (-35.0, -20.0)

    def mix(self, count: int, samples: int, source: np.random.Generator) -> Mixture:
        chances = torch.from_numpy(source.random((9, count))).to(self.speech.samples.device)
        clean = self.speech.cut(chances[0:2].T, samples)
        noise = self.noise.cut(chances[2:4].T, samples)
        other = self.noise.cut(chances[4:6].T, samples)
        # Every third piece has two noises at once.
        both = (chances[8] < 1 / 3).float()[:, None].to(noise)
        noise = (noise + both * other) / (1.0 + both).sqrt()
        snr = self.snr_db[0] + (self.snr_db[1] - self.snr_db[0]) * chances[6]
        level = self.level_db[0] + (self.level_db[1] - self.level_db[0]) * chances[7]
        gain = (10.0 ** (level / 20.0)).float()[:, None]
        under = (10.0 ** (-snr / 20.0)).float()[:, None]
        return Mixture(gain * clean, gain * (clean + under * noise))


@final
@dataclass(frozen=True)
class DenoiserMaterial:
    """Mixers of training and of validation, which share neither speakers nor noises."""

    train: Mixer
    valid: Mixer
    speakers: dict[str, list[str]]

    @property
    def device(self) -> torch.device:
        return self.train.speech.samples.device


def make_material(
    pack: Pack, noises: dict[str, list[NDArray[np.int16]]], device: torch.device | str = "cpu"
) -> DenoiserMaterial:
    """noises: clips of "train" and of "valid", as `make_noises` gives them."""
    if pack.sample_rate != SAMPLE_RATE:
        raise InputError(f"expected a pack at {SAMPLE_RATE} Hz, got {pack.sample_rate}; pack it again.")
    if not all(pack.speakers.tolist()):
        raise InputError("the pack does not name the speakers of its clips; pack a corpus that does.")
    splits = split_speakers(pack.speakers.tolist())
    place = torch.device(device)
    mixers = {}
    for split in ("train", "valid"):
        rows = [row for row, name in enumerate(pack.speakers.tolist()) if splits[name] == split]
        mixers[split] = Mixer(
            NoiseBank.of([pack.clip(row) for row in rows], place), NoiseBank.of(noises[split], place)
        )
    speakers = {
        split: sorted(name for name, own in splits.items() if own == split)
        for split in ("train", "valid", "test")
    }
    return DenoiserMaterial(mixers["train"], mixers["valid"], speakers)


def make_noises(each: int, split: str, processes: int | None = None) -> list[NDArray[np.int16]]:
    """`each` noises of every kind, and more of steady ones, 2 to 4 s; each split has its own ids."""
    names = [
        (kind, f"denoiser/{split}/{kind}-{number:03d}")
        for kind in (*KINDS, *recipes.RECIPES, COLOURED)
        for number in range(each * TIMES.get(kind, 1))
    ]
    count = processes or count_cores()
    some = [names[start : start + 8] for start in range(0, len(names), 8)]
    with workers(count) as submit:
        made = in_order(submit, ((None, partial(_make_some, part)) for part in some), 2 * count)
        return [noise for _, noises in made for noise in noises]


def _make_some(names: Sequence[tuple[str, str]]) -> list[NDArray[np.int16]]:
    return [make_one(name) for name in names]


def make_one(name: tuple[str, str]) -> NDArray[np.int16]:
    """The noise of a kind and an id, int16 `(time,)`."""
    kind, id = name
    if kind in recipes.RECIPES:
        sound = synthesise(id, kind)
    else:
        samples, draws = int(NOISE_SECONDS * SAMPLE_RATE), Draws(0).turn("denoiser", kind)
        if kind == COLOURED:
            sound = _coloured(draws.generator(id), samples)
        else:
            made = make_noise(kind, None, draws.key(id), samples, SAMPLE_RATE)
            sound = made.numpy().astype(np.float64)
    found: NDArray[np.int16] = np.rint(
        sound * (_LOUDEST * (FULL_SCALE - 1) / float(np.abs(sound).max()))
    ).astype(np.int16)
    return found


def _coloured(source: np.random.Generator, samples: int) -> NDArray[np.float64]:
    """Steady noise of a tilt and a band of its own, with resonances, some of it swelling, some with hum."""
    sound = recipes.noise(
        source, samples, source.uniform(-9.0, 3.0), source.uniform(20, 300), source.uniform(1_500, 8_000)
    )
    for _ in range(source.integers(0, 4)):
        low = float(np.exp(source.uniform(np.log(100), np.log(5_000))))
        band = recipes.noise(source, samples, 0.0, low, min(low * source.uniform(1.1, 3.0), 7_900))
        sound = sound + source.uniform(0.1, 1.0) * band
    if source.random() < 0.3:
        pitch = np.full(samples, source.uniform(45, 400))
        count = int(source.integers(1, 12))
        hum = recipes.tones(pitch, source.lognormal(0, 0.6, count), source.uniform(0, 6.28, count))
        sound = sound + source.uniform(0.05, 0.5) * hum
    if source.random() < 0.5:
        sound = sound * 10 ** (
            source.uniform(0.05, 0.3) * recipes.drift(source, samples, source.uniform(0.1, 2))
        )
    return sound


def fixed_set(mixer: Mixer, count: int, samples: int, seed: int, at_once: int) -> Iterable[Mixture]:
    """The same mixtures whenever it is asked for, a few at a time."""
    for first in range(0, count, at_once):
        source = Draws(seed).turn("fixed", first).generator("mixtures")
        yield mixer.mix(min(at_once, count - first), samples, source)
