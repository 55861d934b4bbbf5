"""Audio classifiers of the transformers library as targets, with a gradient down to the waveform.

The published feature extractors leave torch and cut the gradient, so their work is done again by
`sottovoce.targets.features`. Three kinds cover every audio classifier of the library but Wav2Vec2-BERT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import evaluating
from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.classifier import Classifier, by_length, check_classes
from sottovoce.targets.features import FrontEnd, KaldiFilterbank, RawWaveform, WhisperLogMel


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
        with evaluating(self.module):
            features = self.front(batch.waveforms, batch.lengths)
            return self._run(features) if self.front.fixed else by_length(batch, features, self._run)

    def _run(self, features: Tensor) -> Tensor:
        scores: Tensor = self.module(features).logits
        return scores


def load_classifier(model: str, device: str = "cpu") -> HuggingFaceClassifier:
    """An audio classifier from a folder written by `save_pretrained`, or from the hub by its id.

    The model runs in single precision whatever it was saved in, and code that comes with it never runs.
    """
    library = _import_transformers()
    source = _source(model)
    extractor = _fetch(model, "feature extractor", library.AutoFeatureExtractor, source)
    front = _front_end(model, extractor)
    # Half precision, which some checkpoints are saved in, would round small perturbations away.
    options = {"dtype": torch.float32, "output_loading_info": True}
    module, facts = _fetch(
        model, "audio classifier", library.AutoModelForAudioClassification, source, **options
    )
    _check_weights(model, facts["missing_keys"])
    _check_input(model, module, front)
    labels = module.config.id2label
    return HuggingFaceClassifier(
        module.to(device).requires_grad_(False),
        front.to(device),
        [str(labels[place]) for place in range(len(labels))],
        extractor.sampling_rate,
        shortest=_receptive_field(module.config) if isinstance(front, RawWaveform) else 1,
    )


def _import_transformers() -> Any:
    try:
        return import_module("transformers")
    except ImportError:
        raise MissingExtra(
            "expected the transformers library for Hugging Face models, got none; "
            'run pip install "sottovoce[huggingface]".'
        ) from None


def _source(model: str) -> str:
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    if not (folder / "config.json").is_file():
        raise InputError(
            f"expected a model folder with a config.json, got {model!r}; write it with save_pretrained, of "
            "the model and of its feature extractor."
        )
    return str(folder)


def _fetch(model: str, what: str, kind: Any, source: str, **options: Any) -> Any:
    try:
        return kind.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        # The library's advice runs to a paragraph; its first sentence says what happened.
        reason = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise InputError(
            f"expected a local folder or a Hugging Face hub id with the {what} of a model, got {model!r} "
            f"({reason}); check the name, and without a network give the folder of a downloaded model."
        ) from error


def _front_end(model: str, extractor: Any) -> FrontEnd:
    kind = type(extractor).__name__
    if kind not in _FRONT_ENDS:
        raise InputError(
            f"expected a feature extractor of kind {', '.join(_FRONT_ENDS)}, got {kind} in {model!r}; "
            "choose a model with one of them, or wrap its differentiable pipeline in a ModuleClassifier."
        )
    return _FRONT_ENDS[kind](model, extractor)


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


def _whisper(model: str, extractor: Any) -> FrontEnd:
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
    "WhisperFeatureExtractor": _whisper,
}


def _check_weights(model: str, missing: Iterable[str]) -> None:
    """The library fills absent weights with random numbers: an audit of those would mean nothing."""
    # The embedding of masked frames serves training alone, and many checkpoints leave it out.
    absent = sorted(name for name in missing if not name.endswith("masked_spec_embed"))
    if absent:
        named = ", ".join(absent[:3]) + (", ..." if len(absent) > 3 else "")
        raise InputError(
            f"expected a trained audio classifier, got {model!r} without weights for {named}; choose a "
            "checkpoint that was fine-tuned for audio classification."
        )


def _check_input(model: str, module: Any, front: FrontEnd) -> None:
    wanted = "input_features" if isinstance(front, WhisperLogMel) else "input_values"
    if module.main_input_name != wanted:
        raise InputError(
            f"expected a model that takes {wanted}, as its feature extractor says, got "
            f"{type(module).__name__} in {model!r}; give the folder of a model with its own extractor."
        )


def _receptive_field(config: Any) -> int:
    """The fewest samples that give a model of raw waveforms one step to think about."""
    # SEW and SEW-D average `squeeze_factor` steps into one.
    steps = config.to_dict().get("squeeze_factor", 1)
    layers = list(zip(config.conv_kernel, config.conv_stride, strict=True))
    for kernel, stride in reversed(layers):
        steps = (steps - 1) * stride + kernel
    return int(steps)
