"""Models of the transformers library as targets, with a gradient down to the waveform.

Audio classifiers are here; recognisers have modules of their own. The published feature extractors leave
torch and cut the gradient, so their work is done again by `sottovoce.targets.families.front_ends`. Three
kinds cover every audio classifier of the library but Wav2Vec2-BERT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.targets.adapters.huggingface_attention import ATTENTION, load_attention
from sottovoce.targets.adapters.huggingface_ctc import load_ctc
from sottovoce.targets.adapters.huggingface_hub import (
    check_kind,
    fetch,
    fetch_model,
    import_transformers,
    running,
    source_of,
)
from sottovoce.targets.adapters.unpadded_layers import receptive_field
from sottovoce.targets.families.classifier import Classifier, by_length, check_classes
from sottovoce.targets.families.front_ends import FrontEnd, KaldiFilterbank, RawWaveform, WhisperLogMel
from sottovoce.targets.families.recogniser import Recogniser, check_beams

WHISPER = "WhisperForConditionalGeneration"


@final
class HuggingFaceClassifier(Classifier):
    """A front end and an audio classifier behind it; `load_classifier` makes one.

    A clip of a model that would hear padding never shares a run with a longer one. So an attention mask,
    which some feature extractors give, would be all ones and change nothing: the model gets none.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        front: FrontEnd,
        classes: Sequence[str],
        sample_rate: int,
        *,
        shortest: int = 1,
    ) -> None:
        check_classes(classes)
        self.module = module
        self.front = front
        self.classes = tuple(classes)
        self.sample_rate = sample_rate
        self._shortest = max(shortest, front.shortest, sample_rate // 50)

    @property
    def shortest(self) -> int:
        return self._shortest

    @property
    def longest(self) -> int | None:
        return self.front.longest

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with running(self.module):
            features = self.front(batch.waveforms, batch.lengths)
            return self._run(features) if self.front.fixed else by_length(batch, features, self._run)

    def _run(self, features: Tensor) -> Tensor:
        scores: Tensor = self.module(features).logits
        return scores


def load_huggingface(
    model: str, device: str = "cpu", beams: int = 1, language: str | None = None
) -> Classifier | Recogniser:
    """A model of the transformers library, from a folder written by `save_pretrained` or the hub by its id.

    Its configuration says whether it is a classifier or a recogniser.

    model: the folder or the hub id.
    beams: of recognisers: 1 for the most likely token at each step, more for a search over texts.
    language: that Whisper is to write; None: the one it detects.
    """
    library = import_transformers()
    config = fetch(model, "configuration", library.AutoConfig, source_of(model))
    kind = (config.architectures or ["no architecture"])[0]
    check_beams(beams)
    if language is not None and kind != WHISPER:
        raise InputError(f"language: only a {WHISPER} takes one, got one for {kind}; leave it out.")
    if kind == WHISPER:
        from sottovoce.targets.adapters.whisper import load_whisper

        return load_whisper(model, device=device, language=language, beams=beams)
    if kind in ATTENTION:
        return load_attention(model, device=device, beams=beams)
    if kind.endswith("ForCTC"):
        return load_ctc(model, device=device, beams=beams)
    if not kind.endswith("ForSequenceClassification"):
        raise InputError(
            f"expected a model of kind ...ForSequenceClassification, ...ForCTC, {WHISPER} or "
            f"{' or '.join(ATTENTION)}, got {kind} in {model!r}; choose a checkpoint that was fine-tuned to "
            "classify or to recognise."
        )
    if beams != 1:
        raise InputError(f"beams: a classifier takes none, got {beams} for {kind}; leave it out.")
    return load_classifier(model, device=device)


def load_classifier(model: str, device: str = "cpu") -> HuggingFaceClassifier:
    """An audio classifier from a folder written by `save_pretrained`, or from the hub by its id.

    The model runs in single precision whatever it was saved in, and code that comes with it never runs.
    """
    library = import_transformers()
    source = source_of(model)
    extractor = fetch(model, "feature extractor", library.AutoFeatureExtractor, source)
    front = _front_end(model, extractor)
    module = fetch_model(
        model, "audio classifier", library.AutoModelForAudioClassification, source, "audio classification"
    )
    _check_input(model, module, front)
    labels = module.config.id2label
    return HuggingFaceClassifier(
        module.to(device),
        front.to(device),
        [str(labels[place]) for place in range(len(labels))],
        extractor.sampling_rate,
        shortest=_shortest(module.config) if isinstance(front, RawWaveform) else 1,
    )


def _front_end(model: str, extractor: Any) -> FrontEnd:
    check_kind(model, "feature extractor", extractor, tuple(_FRONT_ENDS))
    return _FRONT_ENDS[type(extractor).__name__](model, extractor)


def _raw(model: str, extractor: Any) -> FrontEnd:
    return RawWaveform(normalise=bool(extractor.do_normalize))


def _kaldi(model: str, extractor: Any) -> FrontEnd:
    if extractor.sampling_rate != 16_000:
        raise InputError(
            f"expected an ASTFeatureExtractor at 16000 Hz, got {extractor.sampling_rate} Hz in {model!r}; "
            "choose a model for 16000 Hz."
        )
    # Gong et al. 2021 want a deviation of one half, so the published extractor divides by twice the data's.
    scale = {"mean": extractor.mean, "spread": 2.0 * extractor.std} if extractor.do_normalize else {}
    return KaldiFilterbank(bands=extractor.num_mel_bins, frames=extractor.max_length, **scale)


def whisper_front(model: str, extractor: Any) -> FrontEnd:
    """The front end of a Whisper encoder, as its feature extractor describes it."""
    if extractor.dither or extractor.padding_value:
        raise InputError(
            f"expected a WhisperFeatureExtractor without dither that pads with zeros, got dither "
            f"{extractor.dither} and padding {extractor.padding_value} in {model!r}; set both to 0 in its "
            "preprocessor_config.json."
        )
    return WhisperLogMel(
        bands=extractor.feature_size,
        seconds=extractor.chunk_length,
        sample_rate=extractor.sampling_rate,
        fft_samples=extractor.n_fft,
        hop_samples=extractor.hop_length,
    )


_FRONT_ENDS: dict[str, Callable[[str, Any], FrontEnd]] = {
    "Wav2Vec2FeatureExtractor": _raw,
    "ASTFeatureExtractor": _kaldi,
    "WhisperFeatureExtractor": whisper_front,
}


def _check_input(model: str, module: Any, front: FrontEnd) -> None:
    wanted = "input_features" if isinstance(front, WhisperLogMel) else "input_values"
    if module.main_input_name != wanted:
        raise InputError(
            f"expected a model that takes {wanted}, as its feature extractor says, got "
            f"{type(module).__name__} in {model!r}; give the folder of a model with its own extractor."
        )


def _shortest(config: Any) -> int:
    """The fewest samples that give a model of raw waveforms one step to think about."""
    # SEW and SEW-D average `squeeze_factor` steps into one.
    steps = config.to_dict().get("squeeze_factor", 1)
    return receptive_field(config.conv_kernel, config.conv_stride, steps)
