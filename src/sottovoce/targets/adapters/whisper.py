"""Whisper (Radford et al. 2022) as a target: every size, of English alone or multilingual."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Capability, Languages, best_places, evaluating
from sottovoce.errors import InputError, MissingCapability, UnknownName
from sottovoce.targets.adapters.huggingface_classifier import whisper_front
from sottovoce.targets.adapters.huggingface_hub import check_weights, fetch, import_transformers, source_of
from sottovoce.targets.adapters.whisper_checkpoint import FIRST_MULTILINGUAL, load_checkpoint, read_dims
from sottovoce.targets.families.attention import Attention
from sottovoce.targets.families.beam_search import CachedWriter, search
from sottovoce.targets.families.front_ends import WhisperLogMel
from sottovoce.targets.families.recogniser import check_beams

HUB_IDS = {
    size: f"openai/whisper-{size}"
    for size in (
        *("tiny", "tiny.en", "base", "base.en", "small", "small.en", "medium", "medium.en"),
        *("large", "large-v2", "large-v3", "large-v3-turbo"),
    )
}
"""Short names of the models that OpenAI published on the hub."""
_STATES_A_SECOND = 50
_SIZES = {
    (4, 4, 384): "tiny",
    (6, 6, 512): "base",
    (12, 12, 768): "small",
    (24, 24, 1024): "medium",
    (32, 32, 1280): "large",
    (32, 4, 1280): "large-v3-turbo",
}
"""Layers of the encoder and of the decoder, and their width (Radford et al. 2022, Table 1)."""


@final
@dataclass(frozen=True)
class Spelling:
    """A tokenizer of the tokenizers library, and Whisper's control tokens in it.

    controls: tokens that write no text.
    languages: codes such as "en" and their tokens; none for a model of English alone.
    """

    tokenizer: Any
    start: int
    end: int
    transcribe: int
    no_timestamps: int
    controls: frozenset[int]
    languages: dict[str, int]

    @classmethod
    def of(cls, model: str, tokenizer: Any, *, multilingual: bool) -> Self:
        """model: the name the user gave, for the error."""
        names = ("startoftranscript", "endoftext", "transcribe", "notimestamps")
        places = [tokenizer.token_to_id(f"<|{name}|>") for name in names]
        if None in places:
            raise InputError(
                f"expected Whisper's tokenizer with the model, got none or another one in {model!r}; save "
                "the processor, which contains it, into the same folder."
            )
        controls = frozenset([*tokenizer.get_added_tokens_decoder(), *places])
        found = {}
        if multilingual:
            codes = [re.fullmatch(r"<\|([a-z]{2,3})\|>", token) for token in tokenizer.get_vocab()]
            found = {code[1]: tokenizer.token_to_id(code[0]) for code in codes if code}
        start, end, transcribe, no_timestamps = places
        languages = dict(sorted(found.items(), key=lambda pair: pair[1]))
        return cls(tokenizer, start, end, transcribe, no_timestamps, controls, languages)

    def spell(self, text: str) -> list[int]:
        """Tokens of a text as the decoder writes it: after a space, and with the end."""
        text = text.strip()
        tokens = self.tokenizer.encode(f" {text}", add_special_tokens=False).ids if text else []
        if not self.controls.isdisjoint(tokens):
            raise InputError(
                f"expected a text of words, got {text!r}, which contains a control token of Whisper; leave "
                "it out."
            )
        return [*tokens, self.end]

    def read(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode([token for token in tokens if token not in self.controls])
        return text.strip()


@final
class Whisper(Attention, Languages):
    """A Whisper of the transformers library; `load_whisper` makes one.

    Clips are padded to 30 s with silence, as the model was trained. Texts are transcripts without timestamps,
    of at most half the decoder's context, found as OpenAI's `whisper.decode` finds them, without its retries
    at higher temperatures.

    language: the code of the language to write; None: the likeliest one of each clip, as it is heard there
        and then. The loss takes it without a gradient, so that a label's loss jumps where it changes.
    beams: 1 is greedy decoding; OpenAI's command line and Olivier (2023) take 5.
    autocast: run the network in bfloat16; features, scores and loss stay in single precision.
    """

    sample_rate = 16_000
    module: Any

    def __init__(
        self,
        module: Any,
        front: WhisperLogMel,
        spelling: Spelling,
        *,
        language: str | None = None,
        beams: int = 1,
        autocast: bool = False,
    ) -> None:
        check_beams(beams)
        self.module = module
        self.front = front
        self.spelling = spelling
        self.languages = tuple(spelling.languages)
        self.language = _checked_language(language, self.languages)
        self.clips = self._own_clips()
        self.beams = beams
        self.autocast = autocast
        self.barred = tuple(module.generation_config.suppress_tokens or ())
        self.barred_first = tuple(module.generation_config.begin_suppress_tokens or ())
        self.context = int(module.config.max_target_positions)
        self.longest_said: int = self.context // 2
        # The last token is only ever predicted, so it takes no place in the context.
        self.longest_text = self.context - (4 if self.languages else 2) + 1

    def _own_clips(self) -> str:
        """The prompts in the language that is written; all of them where it is detected."""
        if self.languages and self.language is None:
            return "prompts"
        return f"prompts:{self.language}" if self.language in ("es", "fr", "it", "ru") else "prompts:en"

    @property
    def longest(self) -> int | None:
        return self.front.longest

    def capability(self, kind: type[Capability]) -> Capability:
        if kind is Languages and not self.languages:
            raise MissingCapability(
                "this Whisper knows English only and detects no languages. Use a multilingual one (without "
                ".en in its name)."
            )
        return super().capability(kind)

    def tokens_of(self, label: str) -> list[int]:
        return self.spelling.spell(label)

    def forced_scores(self, batch: AudioBatch, tokens: Tensor, *, draws: Draws) -> Tensor:
        encoded = self._encode(batch)
        start = self._start(encoded, batch.ids)
        inputs = torch.cat([start, tokens[:, :-1]], dim=1)
        return self._scores(self._decode(inputs, encoded)[:, start.shape[1] - 1 :])

    def transcribe(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        encoded = self._encode(batch)
        library = import_transformers()
        cache = library.EncoderDecoderCache(library.DynamicCache(), library.DynamicCache())
        rows = search(
            CachedWriter(self._next, encoded, cache),
            self._start(encoded, batch.ids),
            self.spelling.end,
            beams=self.beams,
            longest=self.longest_said,
            permit=lambda scores, first: self.permitted(scores[:, None], first=first)[:, 0],
            ids=batch.ids,
        )
        return [self.spelling.read(row) for row in rows]

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        with evaluating(self.module):
            return self._language_scores(self._encode(batch))

    def _encode(self, batch: AudioBatch) -> Tensor:
        """`(batch, frames, width)`."""
        features = self.front(batch.waveforms, batch.lengths)
        with torch.autocast(features.device.type, torch.bfloat16, enabled=self.autocast):
            encoded: Tensor = self.module.model.encoder(features).last_hidden_state
        return encoded

    def _decode(self, tokens: Tensor, encoded: Tensor, cache: Any = None) -> Tensor:
        """What the decoder makes of each token, `(rows, places, width)`."""
        with torch.autocast(encoded.device.type, torch.bfloat16, enabled=self.autocast):
            output = self.module.model.decoder(
                input_ids=tokens,
                encoder_hidden_states=encoded,
                past_key_values=cache,
                use_cache=cache is not None,
            )
        states: Tensor = output.last_hidden_state
        return states

    def _scores(self, states: Tensor) -> Tensor:
        scores: Tensor = self.module.proj_out(states.float())
        return scores

    def _next(self, tokens: Tensor, encoded: Tensor, cache: Any) -> Tensor:
        return self._scores(self._decode(tokens, encoded, cache)[:, -1])

    def _language_scores(self, encoded: Tensor) -> Tensor:
        places = list(self.spelling.languages.values())
        start = torch.full((len(encoded), 1), self.spelling.start, device=encoded.device)
        states = self._decode(start, encoded)[:, 0].float()
        return torch.nn.functional.linear(states, self.module.proj_out.weight[places])

    def _start(self, encoded: Tensor, ids: Sequence[str]) -> Tensor:
        """The control tokens that a text begins with, `(batch, 4)`, or `(batch, 2)` for English alone."""
        columns = [self.spelling.start, self.spelling.no_timestamps]
        if self.languages:
            columns[1:1] = [
                self.spelling.languages[self.language or self.languages[0]],
                self.spelling.transcribe,
            ]
        start = torch.tensor(columns, device=encoded.device).repeat(len(encoded), 1)
        if self.languages and self.language is None:
            with torch.no_grad():
                best = best_places(self._language_scores(encoded), ids)
            start[:, 1] = start.new_tensor(list(self.spelling.languages.values()))[best]
        return start


def load_whisper(
    model: str,
    device: str = "cpu",
    language: str | None = None,
    beams: int = 1,
    autocast: bool = False,
    vocabulary: str | None = None,
) -> Whisper:
    """A Whisper model: a size ("tiny.en", "large-v3"), a hub id, a folder, or a `.pt` file of OpenAI's.

    vocabulary: the `.tiktoken` file of a `.pt`; None: one in its folder, or the package openai-whisper's.
    """
    path = Path(model).expanduser()
    if path.is_file() or path.suffix == ".pt":
        module, tokenizer = load_checkpoint(path, vocabulary)
        seconds = module.config.max_source_positions // _STATES_A_SECOND
        front = WhisperLogMel(bands=module.config.num_mel_bins, seconds=seconds)
    elif vocabulary is not None:
        raise InputError(
            f"vocabulary: only a .pt file takes one, got one with {model!r}, which brings its own; leave it "
            "out."
        )
    else:
        module, tokenizer, front = _load_folder(model)
    _check_frames(model, module.config, front)
    return Whisper(
        module.to(device).requires_grad_(False),
        front.to(device),
        Spelling.of(model, tokenizer, multilingual=_is_multilingual(module)),
        language=language,
        beams=beams,
        autocast=autocast,
    )


def size_of(model: str) -> str | None:
    """The published size of what `load_whisper` takes, such as "tiny.en"; None: none of them.

    A size and a hub id of OpenAI's are one; a file and a folder are looked into. The name of a file counts
    only where there is no such file, as where the records of a run are read on another machine, and then it
    must be the name that OpenAI gave it.
    """
    path = Path(model).expanduser()
    if path.is_file():
        dims = read_dims(path)
        shape = dims["n_audio_layer"], dims["n_text_layer"], dims["n_audio_state"]
        return _named_size(shape, dims["n_vocab"])
    if (path / "config.json").is_file():
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        shape = tuple(config.get(key) for key in ("encoder_layers", "decoder_layers", "d_model"))
        return _named_size(shape, config.get("vocab_size", 0))
    if path.exists():
        return None
    sizes = {name: size for size, hub in HUB_IDS.items() for name in (size, hub, f"{size}.pt")}
    sizes |= {f"{hub.rpartition('/')[2]}.pt": size for size, hub in HUB_IDS.items()}
    return sizes.get(model) or sizes.get(path.name if path.suffix == ".pt" else "")


def _named_size(shape: tuple[Any, ...], tokens: int) -> str | None:
    size = _SIZES.get(shape)
    english = size is not None and not size.startswith("large") and tokens < FIRST_MULTILINGUAL
    return f"{size}.en" if english else size


def _load_folder(model: str) -> tuple[Any, Any, Any]:
    """Model, tokenizer and front end, from a folder or from the hub."""
    library = import_transformers()
    is_folder = Path(model).expanduser().is_dir()
    source = source_of(model) if is_folder else HUB_IDS.get(model, model)
    kind = fetch(model, "configuration", library.AutoConfig, source).model_type
    if kind != "whisper":
        raise InputError(
            f"expected a Whisper model, got one of kind {kind} in {model!r}; open it with the target for its "
            f"kind, such as huggingface:{model}."
        )
    front = whisper_front(model, fetch(model, "feature extractor", library.WhisperFeatureExtractor, source))
    tokenizer = fetch(model, "tokenizer", library.WhisperTokenizer, source).backend_tokenizer
    # Half precision, which large models are saved in, would round small perturbations away.
    options = {"dtype": torch.float32, "output_loading_info": True}
    module, facts = fetch(model, "model", library.WhisperForConditionalGeneration, source, **options)
    check_weights(model, facts["missing_keys"])
    return module, tokenizer, front


def _is_multilingual(module: Any) -> bool:
    told = module.generation_config.to_dict().get("is_multilingual")
    return bool(module.config.vocab_size >= FIRST_MULTILINGUAL if told is None else told)


def _check_frames(model: str, config: Any, front: WhisperLogMel) -> None:
    frames, wanted = front.samples // front.hop_samples, 2 * config.max_source_positions
    if frames != wanted:
        raise InputError(
            f"expected a feature extractor of {wanted} frames, as the model needs, got {frames} in "
            f"{model!r}; give the folder of a model with its own feature extractor."
        )


def _checked_language(language: str | None, known: Sequence[str]) -> str | None:
    if language is None or language in known:
        return language
    if not known and language == "en":
        return None
    if not known:
        raise InputError(
            f"language: this Whisper knows English only, got {language!r}; choose a multilingual one "
            "(without .en in its name)."
        )
    raise UnknownName("language of the model", language, known)
