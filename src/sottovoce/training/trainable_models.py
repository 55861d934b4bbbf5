"""The models that can be trained or hardened, by name: a new one is a function and a line in `MODELS`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
from torch import nn

from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.families.ctc import Ctc
from sottovoce.targets.zoo import conformer, keyword_cnn, sound_cnn, speaker_cnn
from sottovoce.targets.zoo.classifier_targets import tell_sounds, tell_speakers
from sottovoce.targets.zoo.deepspeech2 import DeepSpeech2
from sottovoce.targets.zoo.log_mel import WINDOW
from sottovoce.targets.zoo.recogniser_targets import VOCABULARY, LetterCtc, spell_with
from sottovoce.training.checkpoint import load_weights
from sottovoce.training.learner import ClassLearner, Learner, LettersLearner, padded_to, with_lengths

SHIPPED, SCRATCH = "shipped", "scratch"
"""Which weights to begin with, besides those of a file."""


def build_learner(name: str, weights: str = SHIPPED, *, seed: int = 0) -> Learner:
    """A model by name, with the weights that come with sottovoce, of a file, or drawn at random."""
    if name not in MODELS:
        raise UnknownName("model to train", name, MODELS)
    # Initial weights draw from torch's own state, which is put back afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learner = MODELS[name](weights)
    if weights not in (SHIPPED, SCRATCH):
        load_weights(learner, Path(weights).expanduser())
    return learner


def _keyword(weights: str) -> Learner:
    def as_target(module: nn.Module) -> ModuleClassifier:
        return ModuleClassifier(
            module, keyword_cnn.CLASSES, keyword_cnn.SAMPLE_RATE, clip_samples=keyword_cnn.CLIP_SAMPLES
        )

    if weights == SCRATCH:
        raise InputError(
            "the keyword model cannot be trained from scratch here, because its inputs are standardised with "
            "its "
            "training clips; use `sottovoce train keyword`."
        )
    module = keyword_cnn.load() if weights == SHIPPED else None
    return ClassLearner(
        module or keyword_cnn.KeywordCnn(maps=keyword_cnn.maps_in(Path(weights).expanduser())),
        name="keyword",
        read=padded_to(keyword_cnn.CLIP_SAMPLES),
        as_target=as_target,
    )


def _recogniser(weights: str) -> Learner:
    def as_target(module: nn.Module) -> Ctc:
        return spell_with(cast(conformer.Conformer, module))

    module = conformer.load() if weights == SHIPPED else conformer.Conformer()
    return LettersLearner(module, VOCABULARY, name="recogniser", as_target=as_target)


def _deepspeech2(weights: str) -> Learner:
    def as_target(module: nn.Module) -> Ctc:
        return LetterCtc(module, frame_seconds=0.02, shortest=WINDOW)

    if weights == SHIPPED:
        raise InputError(
            "no weights of a Deep Speech 2 come with sottovoce; give --weights FILE, or --weights scratch."
        )
    return LettersLearner(DeepSpeech2(), VOCABULARY, name="deepspeech2", as_target=as_target)


def _speaker(weights: str) -> Learner:
    module = speaker_cnn.load() if weights == SHIPPED else speaker_cnn.SpeakerCnn()
    return ClassLearner(module, name="speaker", read=with_lengths, as_target=tell_speakers)


def _sound(weights: str) -> Learner:
    module = sound_cnn.load() if weights == SHIPPED else sound_cnn.SoundCnn()
    return ClassLearner(module, name="sound", read=with_lengths, as_target=tell_sounds)


MODELS: dict[str, Callable[[str], Learner]] = {
    "keyword": _keyword,
    "recogniser": _recogniser,
    "deepspeech2": _deepspeech2,
    "speaker": _speaker,
    "sound": _sound,
}
"""Functions from the weights asked for to a learner; those of a file are put in afterwards."""
