"""Recognisers of the transformers library with a CTC head on the waveform: wav2vec 2.0 and its relatives."""

from __future__ import annotations

from math import prod
from typing import Any, final

import torch
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.targets.adapters.huggingface_hub import (
    check_kind,
    fetch,
    fetch_model,
    import_transformers,
    running,
    source_of,
)
from sottovoce.targets.adapters.unpadded_layers import (
    lengths_apart,
    receptive_field,
    windows,
    without_padding,
)
from sottovoce.targets.families.ctc import Ctc, Vocabulary
from sottovoce.targets.families.front_ends import RawWaveform
from sottovoce.targets.families.label_spelling import case_of

# With an attention mask, and with the padding kept out of `_padded_layers`, a clip gives in these models the
# same as alone. Clips of different lengths go through all other models separately.
SHARED = (
    "Wav2Vec2ForCTC",
    "HubertForCTC",
    "Data2VecAudioForCTC",
    "WavLMForCTC",
    "UniSpeechForCTC",
    "UniSpeechSatForCTC",
)


@final
class HuggingFaceCtc(Ctc):
    """A model with a CTC head on raw waveforms; `load_ctc` makes one.

    together: whether clips of different lengths share a pass, in a model that allows it; None: they do, but
        not on a CPU, where one pass after another takes less time.
    """

    def __init__(
        self,
        module: Any,
        front: RawWaveform,
        vocabulary: Vocabulary,
        sample_rate: int,
        *,
        beams: int = 1,
        together: bool | None = None,
    ) -> None:
        self.module = module
        self.front = front
        self.vocabulary = vocabulary
        self.sample_rate = sample_rate
        self.beams = beams
        self.together = together

    @property
    def frame_seconds(self) -> float:
        config = self.module.config.to_dict()
        adapter = config["adapter_stride"] ** config["num_adapter_layers"] if config.get("add_adapter") else 1
        return float(prod(config["conv_stride"]) * adapter / self.sample_rate)

    @property
    def shortest(self) -> int:
        config = self.module.config
        # SEW and SEW-D average `squeeze_factor` steps into one.
        steps = config.to_dict().get("squeeze_factor", 1)
        return max(receptive_field(config.conv_kernel, config.conv_stride, steps), self.sample_rate // 50)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        with running(self.module):
            heard = self.front(batch.waveforms, batch.lengths)
            run = self._together if batch.ragged and self._shares(batch) else self._apart
            logits, frames = run(heard, batch)
        return logits.log_softmax(dim=-1), frames

    def _shares(self, batch: AudioBatch) -> bool:
        wanted = batch.device.type != "cpu" if self.together is None else self.together
        return wanted and can_share(self.module)

    def _together(self, heard: Tensor, batch: AudioBatch) -> tuple[Tensor, Tensor]:
        with without_padding(self._padded_layers(batch.lengths)):
            logits = self.module(heard, attention_mask=batch.mask.long()).logits
        return logits, self._frames(batch.lengths)

    def _apart(self, heard: Tensor, batch: AudioBatch) -> tuple[Tensor, Tensor]:
        """The clips of each length in a pass of their own."""
        rows: list[Tensor] = [heard] * len(batch)
        for places, length in lengths_apart(batch.lengths):
            logits = self.module(heard[places, :length]).logits
            for place, row in zip(places.tolist(), logits, strict=True):
                rows[place] = row
        frames = torch.tensor([len(row) for row in rows], device=batch.device)
        return nn.utils.rnn.pad_sequence(rows, batch_first=True), frames

    def _frames(self, lengths: Tensor) -> Tensor:
        config = self.module.config
        for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
            lengths = windows(lengths, kernel, stride)
        return lengths

    def _padded_layers(self, lengths: Tensor) -> list[tuple[nn.Module, Tensor]]:
        config = self.module.config
        first = windows(lengths, config.conv_kernel[0], config.conv_stride[0])
        norms = [(part, first) for part in self.module.modules() if isinstance(part, nn.GroupNorm)]
        # Data2Vec codes places by a stack of convolutions; the others have one, which the mask is enough for.
        stacked = [part for part in self.module.modules() if _named(part, "Data2VecAudioPositionalConvLayer")]
        frames = self._frames(lengths)
        return norms + [(part, frames) for part in stacked]


def can_share(module: Any) -> bool:
    """Whether a clip gives the same in a batch of different lengths as alone, see `SHARED`."""
    config = module.config.to_dict()
    usual = not config.get("add_adapter") and not config.get("conv_pos_batch_norm")
    return type(module).__name__ in SHARED and usual


def _named(part: object, name: str) -> bool:
    return type(part).__name__ == name


def load_ctc(model: str, device: str = "cpu", beams: int = 1) -> HuggingFaceCtc:
    """A recogniser with a CTC head from a folder with its model and processor, or from the hub by its id.

    beams: 1 for the likeliest token of each frame, more for a search over texts.
    """
    library = import_transformers()
    source = source_of(model)
    extractor = fetch(model, "feature extractor", library.AutoFeatureExtractor, source)
    check_kind(model, "feature extractor", extractor, ("Wav2Vec2FeatureExtractor",))
    tokenizer = fetch(model, "tokenizer", library.AutoTokenizer, source)
    check_kind(model, "tokenizer", tokenizer, ("Wav2Vec2CTCTokenizer",))
    module = fetch_model(model, "CTC recogniser", library.AutoModelForCTC, source, "speech recognition")
    return HuggingFaceCtc(
        module.to(device),
        RawWaveform(normalise=bool(extractor.do_normalize)),
        vocabulary_of(model, tokenizer, module.config.vocab_size),
        extractor.sampling_rate,
        beams=beams,
    )


def vocabulary_of(model: str, tokenizer: Any, size: int) -> Vocabulary:
    """The letters of a model with `size` outputs, as its tokenizer writes them."""
    places = tokenizer.get_vocab()
    if not all(isinstance(place, int) for place in places.values()):
        languages = ", ".join(sorted(places)[:5])
        raise InputError(
            f"expected the vocabulary of one language, got several ({languages}, ...) in {model!r}; set "
            "target_lang in its tokenizer_config.json."
        )
    letters = [""] * size
    for token, place in places.items():
        if token == tokenizer.word_delimiter_token:
            token = tokenizer.replace_word_delimiter_char
        elif token in tokenizer.all_special_tokens:
            token = ""
        if place < size:
            letters[place] = token.lower() if tokenizer.do_lower_case else token
    # The tokenizer leaves its padding out of what it writes, so that is the blank, whatever the model says.
    blank = tokenizer.pad_token_id
    if not 0 <= blank < size:
        raise InputError(
            f"expected the blank among the model's {size} outputs, got {blank} as the tokenizer's padding in "
            f"{model!r}; correct pad_token in its tokenizer_config.json."
        )
    return Vocabulary(tuple(letters), blank=blank, case=case_of(letters))
