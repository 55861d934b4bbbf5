"""Recognisers of the SpeechBrain library as targets, with a gradient down to the waveform.

CRDNN and Transformer models with a CTC head (`EncoderASR`) or an attention decoder (`EncoderDecoderASR`).

The library pads a batch and tells its modules relative lengths, which some use and some ignore. Clips of
different lengths go through a model separately, so that each is heard without padding.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import check_scores
from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.adapters.huggingface_hub import running
from sottovoce.targets.adapters.unpadded_layers import lengths_apart
from sottovoce.targets.families.attention import Attention
from sottovoce.targets.families.ctc import Ctc, Vocabulary
from sottovoce.targets.families.label_spelling import case_of, spell
from sottovoce.targets.families.recogniser import check_beams

HYPERPARAMETERS = "hyperparams.yaml"
LONGEST_TEXT = 1000
# Pooling over time needs some frames to pool.
SHORTEST_SECONDS = 0.1
PROBE_SECONDS = (2, 4)
UNKNOWN = "⁇"


@final
class SpeechBrainCtc(Ctc):
    """An `EncoderASR`, whose encoder ends in the scores of letters; `load_speechbrain` makes one.

    frame_seconds: from the start of one frame to the next.
    """

    def __init__(self, module: Any, vocabulary: Vocabulary, frame_seconds: float, *, beams: int = 1) -> None:
        self.module = module
        self.vocabulary = vocabulary
        self.sample_rate = int(module.audio_normalizer.sample_rate)
        check_beams(beams)
        self.beams = beams
        self._frame_seconds = frame_seconds

    @property
    def frame_seconds(self) -> float:
        return self._frame_seconds

    @property
    def shortest(self) -> int:
        return round(SHORTEST_SECONDS * self.sample_rate)

    def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        rows: list[Tensor] = [batch.waveforms] * len(batch)
        with _differentiable(self.module):
            for places, length in lengths_apart(batch.lengths):
                scores = encode(self.module, batch.waveforms[places, :length])
                for place, row in zip(places.tolist(), scores, strict=True):
                    rows[place] = row
        frames = torch.tensor([len(row) for row in rows], device=batch.device)
        # Some encoders end in a log-softmax already; a second one changes nothing.
        return nn.utils.rnn.pad_sequence(rows, batch_first=True).log_softmax(dim=-1), frames


@final
class SpeechBrainAttention(Attention):
    """An `EncoderDecoderASR` with a recurrent or a Transformer decoder; `load_speechbrain` makes one.

    Texts are found by the model's own searcher, with its own width and language model. The loss is that of
    the decoder alone.
    """

    longest_text = LONGEST_TEXT

    def __init__(self, module: Any) -> None:
        self.module = module
        self.sample_rate = int(module.audio_normalizer.sample_rate)
        self._searcher = module.mods["decoder"]
        self._case = case_of(_pieces(module.tokenizer))
        self._spelt_before: dict[str, list[int]] = {}

    @property
    def shortest(self) -> int:
        return round(SHORTEST_SECONDS * self.sample_rate)

    def tokens_of(self, label: str) -> list[int]:
        if label not in self._spelt_before:
            tokenizer: Any = self.module.tokenizer
            tokens = spell(
                label,
                tokenizer.encode_as_ids,
                tokenizer.decode_ids,
                case=self._case,
                unknown=tokenizer.unk_id(),
                canonical=self.canonical,
            )
            self._spelt_before[label] = [*tokens, self._searcher.eos_index]
        return self._spelt_before[label]

    def forced_scores(self, batch: AudioBatch, tokens: Tensor, *, draws: Draws) -> Tensor:
        start = torch.full_like(tokens[:, :1], self._searcher.bos_index)
        given = torch.cat([start, tokens[:, :-1]], dim=1)
        order, scores = [], []
        with _differentiable(self.module):
            for places, length in lengths_apart(batch.lengths):
                encoded = encode(self.module, batch.waveforms[places, :length])
                order.append(places)
                scores.append(self._searcher.fc(self._decoded(encoded, given[places])))
        return torch.cat(scores)[torch.cat(order).argsort()]

    def transcribe(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        texts = [""] * len(batch)
        module: Any = self.module
        with running(module):
            for places, length in lengths_apart(batch.lengths):
                waveforms = batch.waveforms[places, :length]
                with _readable(self._searcher.fc, [batch.ids[place] for place in places.tolist()]):
                    words, _ = module.transcribe_batch(waveforms, waveforms.new_ones(len(places)))
                for place, text in zip(places.tolist(), words, strict=True):
                    # A label cannot contain the mark of an unknown token; it is not a word.
                    texts[place] = " ".join(text.replace(UNKNOWN, " ").split())
        return texts

    def _decoded(self, encoded: Tensor, given: Tensor) -> Tensor:
        """What the decoder makes of the tokens it is given, `(batch, places, width)`."""
        searcher = self._searcher
        if _recurrent(searcher):
            outputs, _ = searcher.dec(searcher.emb(given), encoded, encoded.new_ones(len(encoded)))
            # The attention keeps what it made of the encoder's output, and so the whole graph.
            searcher.dec.attn.reset()
        else:
            # The library means this method for searches and switches the gradient off around it.
            decode = inspect.unwrap(type(searcher.model).decode)
            outputs, _ = decode(searcher.model, given, encoded)
        hidden: Tensor = outputs
        return hidden


def load_speechbrain(
    model: str, device: str = "cpu", beams: int = 1, savedir: str | None = None
) -> SpeechBrainCtc | SpeechBrainAttention:
    """A recogniser from a folder with a `hyperparams.yaml`, or from the hub by its id.

    That file can run any code: load models that you trust.

    beams: of a CTC head, 1 for the likeliest token of each frame and more for a search over texts. An
        attention decoder has its own searcher.
    savedir: where the library keeps what it fetches; None: in its cache.
    """
    library = _import_speechbrain()
    text = _hyperparameters(model, savedir)
    has_ctc = re.search(r"^decoding_function\s*:", text, flags=re.MULTILINE) is not None
    kind = library.EncoderASR if has_ctc else library.EncoderDecoderASR
    try:
        module = kind.from_hparams(source=model, savedir=savedir, run_opts={"device": device})
    except Exception as error:  # The file names classes and functions of any kind.
        raise _unusable(model, f"a model for {kind.__name__}", error) from error
    return wrap(model, module, beams=beams)


def wrap(model: str, module: Any, *, beams: int = 1) -> SpeechBrainCtc | SpeechBrainAttention:
    """An `EncoderASR` or `EncoderDecoderASR` as a target; `model` is its name in errors."""
    _prepare(model, module)
    if "decoder" in module.mods:
        _check_searcher(model, module.mods["decoder"])
        if beams != 1:
            raise InputError(
                f"beams: {model!r} brings its own search, got {beams}; leave it out and set beam_size in its "
                f"{HYPERPARAMETERS}."
            )
        return SpeechBrainAttention(module)
    counts, size = _probe(module)
    first, second = PROBE_SECONDS
    frame_seconds = (second - first) / (counts[1] - counts[0])
    return SpeechBrainCtc(module, vocabulary_of(model, module, size), frame_seconds, beams=beams)


def encode(module: Any, waveforms: Tensor) -> Tensor:
    """What the encoder makes of clips of one length, `(batch, frames, width)`."""
    encoded: Tensor = module.encode_batch(waveforms, waveforms.new_ones(len(waveforms)))
    return encoded


def vocabulary_of(model: str, module: Any, size: int) -> Vocabulary:
    """The letters of a model with a CTC head of `size` outputs."""
    decode = module.hparams.decoding_function
    if not isinstance(decode, partial):
        raise InputError(
            f"expected ctc_greedy_decode as the decoding_function, got a search in {model!r}; name it in its "
            f"{HYPERPARAMETERS} and give the number of beams here."
        )
    letters = _letters(module.tokenizer)
    long = [letter for letter in letters if len(letter) > 1]
    if long:
        raise InputError(
            f"expected a CTC model of letters, got pieces of words such as {long[0]!r} in {model!r}; choose "
            "a model of characters."
        )
    letters = (letters + [""] * size)[:size]
    blank = decode.keywords.get("blank_id", -1) % size
    letters[blank] = ""
    return Vocabulary(tuple(letters), blank=blank, case=case_of(letters))


@contextmanager
def _readable(scorer: nn.Module, ids: Sequence[str]) -> Iterator[None]:
    """Refuse scores that no token can be chosen by, whenever a searcher's last layer gives some."""

    def check(layer: nn.Module, inputs: Any, scores: Tensor) -> None:
        # A clip's beams are adjacent rows; a searcher that takes fewer rows than clips does not say whose.
        beams = len(scores) // len(ids)
        names = [name for name in ids for _ in range(beams)] if beams else [", ".join(ids)] * len(scores)
        check_scores(scores, names)

    handle = scorer.register_forward_hook(check)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _differentiable(module: Any) -> Iterator[None]:
    # cuDNN has no gradient of recurrent layers in evaluation mode.
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    cudnn = torch.backends.cudnn.enabled and not recurrent
    with running(module), torch.backends.cudnn.flags(enabled=cudnn):
        yield


def _import_speechbrain() -> Any:
    try:
        return import_module("speechbrain.inference.ASR")
    # A torchaudio that was built for another torch fails as any of these.
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise MissingExtra(
            "SpeechBrain models need the packages speechbrain and torchaudio (built for torch "
            f"{torch.__version__}), got {type(error).__name__}: {error}; pip install "
            '"sottovoce[speechbrain]" and the torchaudio of that version.'
        ) from None


def _hyperparameters(model: str, savedir: str | None) -> str:
    """The text of the model's file of hyperparameters."""
    fetch = import_module("speechbrain.utils.fetching").fetch
    try:
        path = fetch(filename=HYPERPARAMETERS, source=model, savedir=savedir)
        return Path(path).read_text(encoding="utf-8")
    except Exception as error:  # Of the hub's client, of the file system, or the library's own.
        raise _unusable(model, f"a {HYPERPARAMETERS}", error) from error


def _unusable(model: str, what: str, error: Exception) -> InputError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return InputError(
        f"expected a local folder or a hub id with {what}, got {model!r} ({reason}); check the name, or give "
        "the folder of a downloaded model."
    )


def _prepare(model: str, module: Any) -> None:
    for part in module.modules():
        if type(part).__name__ == "InputNormalization" and part.norm_type == "batch":
            raise InputError(
                "expected features that are normalised clip by clip, got a norm over the batch in "
                f"{model!r}; choose a model with norm_type global or sentence."
            )
        # Encoders of the transformers library that are marked as frozen cut the gradient to save memory. The
        # filterbank has a `freeze` too, which means something else.
        if "huggingface" in type(part).__module__ and part.__dict__.get("freeze") is True:
            part.freeze = False
    module.requires_grad_(False)


def _check_searcher(model: str, searcher: Any) -> None:
    name = type(searcher).__name__
    if not _recurrent(searcher) and not name.startswith("S2STransformer"):
        raise InputError(
            f"expected a searcher of kind S2SRNN... or S2STransformer..., got {name} in {model!r}; choose a "
            "CRDNN or a Transformer."
        )
    if "Greedy" in name and searcher.temperature:
        raise InputError(
            f"expected a searcher that does not sample, got temperature {searcher.temperature} in {model!r}; "
            f"set it to 0 in its {HYPERPARAMETERS}."
        )


def _recurrent(searcher: Any) -> bool:
    return type(searcher).__name__.startswith("S2SRNN")


def _probe(module: Any) -> tuple[list[int], int]:
    """Frames of some seconds of silence, and how many scores a frame has."""
    rate = int(module.audio_normalizer.sample_rate)
    with running(module), torch.no_grad():
        shapes = [encode(module, torch.zeros(1, rate * seconds)).shape for seconds in PROBE_SECONDS]
    return [shape[1] for shape in shapes], shapes[0][2]


def _letters(tokenizer: Any) -> list[str]:
    """What each token writes; "" for those that write nothing."""
    if type(tokenizer).__name__ == "CTCTextEncoder":
        labels = [str(tokenizer.ind2lab[place]) for place in range(len(tokenizer.ind2lab))]
        return ["" if re.fullmatch(r"<.+>", label) else label for label in labels]
    return [piece.replace("▁", " ") for piece in _pieces(tokenizer)]


def _pieces(tokenizer: Any) -> list[str]:
    """The pieces of a SentencePiece model; "" for those that write nothing."""
    return [
        "" if tokenizer.is_control(place) or tokenizer.is_unknown(place) else tokenizer.id_to_piece(place)
        for place in range(tokenizer.get_piece_size())
    ]
