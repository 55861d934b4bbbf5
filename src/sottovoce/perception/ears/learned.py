"""A distance learned from "same or different?", with a calibrated P(different).

The weights that come with sottovoce were trained on answers of a simulated listener, not of people; see
`weights/learned.md`. `sottovoce metric train` makes others from the answers of a listening test.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.files.weight_files import note_file
from sottovoce.core.resampling import resample_clips
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.ears.ear import Ear, check_pair
from sottovoce.perception.ears.learned_network import SAMPLE_RATE, LearnedNetwork, load_network

Variant = Literal["scratch", "fin", "lin", "pre"]
VARIANTS: tuple[Variant, ...] = ("pre", "lin", "fin", "scratch")
FOLDER = Path(__file__).parent / "weights"
LOWEST_RATE = 8_000
OWN = "SOTTOVOCE_EAR_WEIGHTS"
"""Environment variable: path of the user's own weights, for every command that uses the learned ear."""


@final
@dataclass(frozen=True, kw_only=True)
class Learned(Ear):
    """The learned ear: at a distance of 1, one just noticeable difference, half of all listeners notice.

    variant: which of the shipped weights: "scratch" (all trained on answers), "fin" (features of sound
        classifiers, trained further), "lin" (those features as they are, only their weights trained) or "pre"
        (those features, only their JND trained).
    weights: path of a file of your own, from `sottovoce metric train`, instead; the environment variable
        SOTTOVOCE_EAR_WEIGHTS names one for the whole command.

    The shipped weights were trained on simulated answers, not on people's. Clips of any length, at 8 kHz or
    more; they are resampled to 16 kHz, so nothing above 8 kHz is heard.

    >>> ear, clips = sv.ears.Learned(), sv.testing.example_clips(16000)
    >>> ear.distance(clips, clips).tolist()
    [0.0, 0.0, 0.0, 0.0]
    >>> round(float(ear.probability(torch.tensor(1.0))), 3)
    0.5
    """

    name: ClassVar[str] = "learned"
    title: ClassVar[str] = "learned distance"

    variant: Variant = "scratch"
    weights: str | None = None

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise UnknownName("variant", self.variant, VARIANTS)
        if not self.path.is_file():
            raise InputError(
                f"{self.path}: expected weights of the learned ear, got no such file; train some with "
                "`sottovoce metric train ANSWERS`, or use the ear auditory or masking, which need none."
            )
        note_file(self.path)

    @property
    def path(self) -> Path:
        own = self.weights or os.environ.get(OWN)
        if own:
            return Path(own).expanduser()
        return FOLDER / f"learned-{self.variant}.safetensors"

    @property
    def facts(self) -> dict[str, str]:
        """What is known of the weights, such as `listeners`: "simulated" or "people"."""
        return self._loaded[1]

    @cached_property
    def _loaded(self) -> tuple[LearnedNetwork, dict[str, str]]:
        return _load(self.path, self.path.stat().st_mtime_ns, torch.device("cpu"), torch.float32)

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> Tensor:
        check_pair(clean, changed)
        if clean.sample_rate < LOWEST_RATE:
            raise InputError(
                f"the learned ear needs clips at {LOWEST_RATE} Hz or more, got {clean.sample_rate} Hz."
            )
        pair = torch.cat([clean.waveforms, changed.waveforms])
        lengths = clean.lengths.to(pair.device).repeat(2)
        sounds, lengths = resample_clips(pair, lengths, clean.sample_rate, SAMPLE_RATE)
        one, two = sounds.chunk(2)
        found: Tensor = self._network(pair)(one, two, lengths[: len(clean)])
        return found

    def probability(self, distance: Tensor) -> Tensor:
        return self._network(distance).probability(distance)

    def _network(self, like: Tensor) -> LearnedNetwork:
        if like.device.type == "cpu" and like.dtype == torch.float32:
            return self._loaded[0]
        return _load(self.path, self.path.stat().st_mtime_ns, like.device, like.dtype)[0]


@lru_cache(maxsize=16)
def _load(
    path: Path, changed_ns: int, device: torch.device, dtype: torch.dtype
) -> tuple[LearnedNetwork, dict[str, str]]:
    """`changed_ns`: when the file was changed last; a new one is read anew."""
    network, facts = load_network(path)
    return network.to(device, dtype), facts
