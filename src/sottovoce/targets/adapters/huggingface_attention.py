"""Recognisers of the transformers library with an encoder and a decoder: Speech2Text and Moonshine.

Whisper has a module of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import check_scores
from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.adapters.huggingface_hub import (
    check_kind,
    fetch,
    fetch_model,
    import_transformers,
    source_of,
)
from sottovoce.targets.adapters.unpadded_layers import inside, receptive_field, windows, without_padding
from sottovoce.targets.families.attention import Attention
from sottovoce.targets.families.front_ends import (
    KALDI_HOP,
    KALDI_WINDOW,
    FrontEnd,
    KaldiNormalised,
    RawWaveform,
)
from sottovoce.targets.families.label_spelling import case_of, spell

MOONSHINE_KERNELS = (127, 7, 3)
MOONSHINE_STRIDES = (64, 3, 2)


@dataclass(frozen=True)
class EncoderInput:
    """The input of an encoder.

    mask: an attention mask; None: all of the input counts.
    padded_layers: layers that the padding must be kept out of, with the frames of each clip.
    """

    values: Tensor
    mask: Tensor | None = None
    padded_layers: Sequence[tuple[nn.Module, Tensor]] = ()


class HuggingFaceAttention(Attention):
    """An encoder and a decoder behind a front end; a subclass says what the encoder gets.

    start: the tokens that the decoder is given before it writes.
    end: the token that ends a text.
    places: the most tokens that the decoder can hold, `start` included.
    """

    def __init__(
        self,
        module: Any,
        front: Any,
        tokenizer: Any,
        sample_rate: int,
        *,
        start: Sequence[int],
        end: int,
        places: int,
        beams: int = 1,
    ) -> None:
        self.module = module
        self.front = front
        self.tokenizer = tokenizer
        self.sample_rate = sample_rate
        self.start = tuple(start)
        self.end = end
        self.places = places
        self.longest_text = places - len(self.start)
        self.beams = beams
        written = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
        self._case = case_of(written)
        self._spelt_before: dict[str, list[int]] = {}

    @abstractmethod
    def hear(self, batch: AudioBatch) -> EncoderInput:
        """The encoder's input, differentiable to `batch.waveforms`."""

    @final
    def tokens_of(self, label: str) -> list[int]:
        if label not in self._spelt_before:
            self._spelt_before[label] = self._spell(label)
        return self._spelt_before[label]

    @final
    def forced_scores(self, batch: AudioBatch, tokens: Tensor, *, draws: Draws) -> Tensor:
        start = tokens.new_tensor(self.start).expand(len(tokens), -1)
        given = torch.cat([start, tokens[:, :-1]], dim=1)
        heard = self.hear(batch)
        with without_padding(heard.padded_layers):
            output = self.module(
                heard.values, attention_mask=heard.mask, decoder_input_ids=given, use_cache=False
            )
        scores: Tensor = output.logits[:, len(self.start) - 1 :]
        return scores

    @final
    def transcribe(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        heard, module = self.hear(batch), cast(Any, self.module)
        options = {} if heard.mask is None else {"attention_mask": heard.mask}
        with without_padding(heard.padded_layers):
            tokens = module.generate(
                heard.values,
                num_beams=self.beams,
                do_sample=False,
                max_length=self.places,
                logits_processor=[_Readable(batch.ids)],
                **options,
            )
        return [text.strip() for text in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]

    def _spell(self, label: str) -> list[int]:
        tokens = spell(
            label,
            lambda text: self.tokenizer(text, add_special_tokens=False).input_ids,
            lambda tokens: self.tokenizer.decode(tokens, skip_special_tokens=True),
            case=self._case,
            unknown=self.tokenizer.unk_token_id,
            canonical=self.canonical,
        )
        return [*tokens, self.end]


@final
@dataclass(frozen=True)
class _Readable:
    """Refuses scores without a best token at every step of the library's search. ids: of the clips."""

    ids: tuple[str, ...]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        # The beams of a clip are adjacent rows.
        return check_scores(scores.view(len(self.ids), -1, scores.shape[-1]), self.ids).view_as(scores)


@final
class SpeechToText(HuggingFaceAttention):
    """Speech2Text (Wang et al. 2020): Kaldi's log-mel energies into convolutions and a transformer."""

    @property
    def shortest(self) -> int:
        return int(self.front.shortest)

    @property
    def longest(self) -> int:
        # The library would enlarge its table of positions, and so change the model.
        config: Any = self.module.config
        steps = config.max_source_positions - max(0, config.pad_token_id - 1)
        return int(KALDI_WINDOW + KALDI_HOP * (steps * 2**config.num_conv_layers) - 1)

    def hear(self, batch: AudioBatch) -> EncoderInput:
        features = self.front(batch.waveforms, batch.lengths)
        if not batch.ragged:
            return EncoderInput(features)
        counts = self.front.frames(batch.lengths)
        mask, padded_layers = inside(counts, features.shape[1]).long(), []
        model: Any = self.module.model
        for layer in model.encoder.conv.conv_layers:
            # Kernels are odd, the padding is half of them and the stride two.
            counts = (counts - 1).div(2, rounding_mode="floor") + 1
            padded_layers.append((layer, counts))
        return EncoderInput(features, mask, padded_layers)


@final
class Moonshine(HuggingFaceAttention):
    """Moonshine (Jeffries et al. 2024): the waveform itself into convolutions and a transformer."""

    @property
    def shortest(self) -> int:
        return receptive_field(MOONSHINE_KERNELS, MOONSHINE_STRIDES)

    def hear(self, batch: AudioBatch) -> EncoderInput:
        waveforms = self.front(batch.waveforms, batch.lengths)
        if not batch.ragged:
            return EncoderInput(waveforms)
        first = frames = windows(batch.lengths, MOONSHINE_KERNELS[0], MOONSHINE_STRIDES[0])
        for kernel, stride in zip(MOONSHINE_KERNELS[1:], MOONSHINE_STRIDES[1:], strict=True):
            frames = windows(frames, kernel, stride)
        # The model thins a mask of samples by its stride, which counts the frames that the padding makes with
        # a clip's end; this mask thins to the frames wholly inside.
        mask = inside((frames - 1) * prod(MOONSHINE_STRIDES) + 1, waveforms.shape[1])
        model: Any = self.module.model
        return EncoderInput(waveforms, mask.long(), [(model.encoder.groupnorm, first)])


ATTENTION: dict[str, type[HuggingFaceAttention]] = {
    "Speech2TextForConditionalGeneration": SpeechToText,
    "MoonshineForConditionalGeneration": Moonshine,
}


def load_attention(model: str, device: str = "cpu", beams: int = 1) -> HuggingFaceAttention:
    """Speech2Text or Moonshine from a folder with its model and processor, or from the hub by its id.

    beams: 1 for the likeliest token at every place, more for the library's beam search.
    """
    library = import_transformers()
    source = source_of(model)
    extractor = fetch(model, "feature extractor", library.AutoFeatureExtractor, source)
    check_kind(model, "feature extractor", extractor, tuple(_FRONT_ENDS))
    front = _FRONT_ENDS[type(extractor).__name__](model, extractor)
    tokenizer = _tokenizer(model, library, source)
    module = fetch_model(model, "recogniser", library.AutoModelForSpeechSeq2Seq, source, "speech recognition")
    check_kind(model, "recogniser", module, tuple(ATTENTION))
    settings, config = module.generation_config, module.config
    ends = settings.eos_token_id
    forced = settings.forced_bos_token_id
    return ATTENTION[type(module).__name__](
        module.to(device),
        front.to(device),
        tokenizer,
        extractor.sampling_rate,
        start=[settings.decoder_start_token_id, *([] if forced is None else [forced])],
        end=ends[0] if isinstance(ends, list) else ends,
        places=min(_positions(config), settings.max_length or _positions(config)),
        beams=beams,
    )


def _positions(config: Any) -> int:
    """The most tokens that a decoder can hold."""
    known = config.to_dict()
    if "max_target_positions" not in known:
        return int(known["max_position_embeddings"])
    # Positions are counted from the padding token on; the library's table has room for one of at most 1.
    return int(known["max_target_positions"] - max(0, known["pad_token_id"] - 1))


def _tokenizer(model: str, library: Any, source: str) -> Any:
    try:
        return fetch(model, "tokenizer", library.AutoTokenizer, source)
    except ImportError as error:
        raise MissingExtra(
            f"the tokenizer of {model!r} needs a package that is not installed ({error}); pip install "
            "sentencepiece."
        ) from None


def _raw(model: str, extractor: Any) -> RawWaveform:
    return RawWaveform(normalise=bool(extractor.do_normalize))


def _kaldi(model: str, extractor: Any) -> KaldiNormalised:
    if extractor.dither or extractor.padding_value or extractor.sampling_rate != 16_000:
        raise InputError(
            "expected a Speech2TextFeatureExtractor at 16000 Hz without dither that pads with zeros, got "
            f"{extractor.sampling_rate} Hz, dither {extractor.dither} and padding {extractor.padding_value} "
            f"in {model!r}; set them in its preprocessor_config.json."
        )
    normal = extractor.do_ceptral_normalize
    return KaldiNormalised(
        bands=extractor.num_mel_bins,
        centre=normal and extractor.normalize_means,
        scale=normal and extractor.normalize_vars,
    )


_FRONT_ENDS: dict[str, Callable[[str, Any], FrontEnd]] = {
    "Speech2TextFeatureExtractor": _kaldi,
    "Wav2Vec2FeatureExtractor": _raw,
}
