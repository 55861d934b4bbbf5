"""The zoo's classifiers of speakers and sounds as targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import evaluating
from sottovoce.targets.families.classifier import Classifier, check_classes
from sottovoce.targets.zoo import sound_cnn, speaker_cnn
from sottovoce.targets.zoo.shipped_weights import PLAIN
from sottovoce.targets.zoo.spectrogram import SAMPLE_RATE


@final
class MaskedClassifier(Classifier):
    """A module from waveforms `(batch, time)` and lengths to scores `(batch, classes)`; padding is not heard.

    shortest, longest: samples that a clip may have. clips: the corpus it is audited on.
    """

    sample_rate = SAMPLE_RATE

    def __init__(
        self,
        module: nn.Module,
        classes: Sequence[str],
        *,
        shortest: int,
        longest: int | None = None,
        clips: str = "embedded",
    ) -> None:
        check_classes(classes)
        self.module = module
        self.classes = tuple(classes)
        self.clips = clips
        self._shortest = shortest
        self._longest = longest

    @property
    def shortest(self) -> int:
        return self._shortest

    @property
    def longest(self) -> int | None:
        return self._longest

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with evaluating(self.module):
            scores: Tensor = self.module(batch.waveforms, batch.lengths)
        return scores


def tell_speakers(module: nn.Module) -> MaskedClassifier:
    """A `SpeakerCnn` as a target."""
    return MaskedClassifier(module, speaker_cnn.CLASSES, shortest=speaker_cnn.SHORTEST, clips="audiomnist")


def tell_sounds(module: nn.Module) -> MaskedClassifier:
    """A `SoundCnn` as a target."""
    return MaskedClassifier(
        module,
        sound_cnn.CLASSES,
        shortest=sound_cnn.SHORTEST,
        longest=sound_cnn.LONGEST,
        clips="sounds",
    )


def speaker(device: str = "cpu", variant: str = PLAIN, weights: str | None = None) -> MaskedClassifier:
    """Which of forty people of AudioMNIST speaks, at 16 kHz; its clips are not shipped: audiomnist:DIR.

    variant: how it was trained: plain, lowpass, biquad, gaussian, mad or adversarial.
    weights: path of another file.
    """
    return tell_speakers(speaker_cnn.load(device, Path(weights) if weights else None, variant))


def sound(device: str = "cpu", variant: str = PLAIN, weights: str | None = None) -> MaskedClassifier:
    """Which of ten everyday sounds is heard, in up to five seconds at 16 kHz.

    variant: how it was trained: plain, gaussian or mad.
    weights: path of another file.
    """
    return tell_sounds(sound_cnn.load(device, Path(weights) if weights else None, variant))
