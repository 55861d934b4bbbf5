"""SpeechBrain recognisers.

Where SpeechBrain and torchaudio import: tiny CRDNN and Transformer models with random weights, saved as the
library saves them, against the library's own interfaces. Everywhere: the adapter on stand-ins with the
library's attributes.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Force
from sottovoce.core.target import Matches, Target, Timings
from sottovoce.errors import InputError, MissingExtra, ScoreError
from sottovoce.targets.adapters.speechbrain import (
    SpeechBrainAttention,
    SpeechBrainCtc,
    _readable,
    load_speechbrain,
    wrap,
)
from sottovoce.testing import check_attack, check_target

RATE = 16_000
DRAWS = Draws(7)
LETTERS = ["<blank>", "<unk>", " ", "A", "B", "C", "D"]


def batch_of(*lengths: int) -> AudioBatch:
    source = np.random.default_rng(3)
    clips = []
    for length in lengths:
        tone = np.sin(2 * np.pi * source.uniform(150, 3000) * np.arange(length) / RATE)
        clips.append(source.uniform(0.1, 0.6) * tone + 0.03 * source.standard_normal(length))
    return AudioBatch.of([np.clip(clip, -1, 1).astype(np.float32) for clip in clips], RATE)


# --- the library itself --------------------------------------------------------------------------------

FRONT = """
compute_features: !new:speechbrain.lobes.features.Fbank
    sample_rate: 16000
    n_mels: 20
normalize: !new:speechbrain.processing.features.InputNormalization
    norm_type: sentence
"""
CRDNN = """
enc: !new:speechbrain.lobes.models.CRDNN.CRDNN
    input_shape: [null, null, 20]
    cnn_blocks: 1
    cnn_channels: [4]
    time_pooling: True
    time_pooling_size: 2
    rnn_class: !name:speechbrain.nnet.RNN.LSTM
    rnn_layers: 1
    rnn_neurons: 8
    dnn_blocks: 1
    dnn_neurons: 8
"""
TRANSFORMER = """
cnn: !new:speechbrain.lobes.models.convolution.ConvolutionFrontEnd
    input_shape: [null, null, 20]
    num_blocks: 1
    num_layers_per_block: 1
    out_channels: [4]
    kernel_sizes: [3]
    strides: [2]
    residuals: [False]
transformer: !new:speechbrain.lobes.models.transformer.TransformerASR.TransformerASR
    input_size: 40
    tgt_vocab: 7
    d_model: 8
    nhead: 2
    num_encoder_layers: 1
    num_decoder_layers: 1
    d_ffn: 16
    activation: !name:torch.nn.GELU
enc: !new:speechbrain.lobes.models.transformer.TransformerASR.EncoderWrapper
    transformer: !ref <transformer>
"""
CTC_HEAD = """
lin: !new:speechbrain.nnet.linear.Linear
    input_size: 8
    n_neurons: 7
tokenizer: !new:speechbrain.dataio.encoder.CTCTextEncoder
decoding_function: !name:speechbrain.decoders.ctc_greedy_decode
    blank_id: 0
"""
RNN_HEAD = """
emb: !new:speechbrain.nnet.embedding.Embedding
    num_embeddings: 7
    embedding_dim: 4
dec: !new:speechbrain.nnet.RNN.AttentionalRNNDecoder
    enc_dim: 8
    input_size: 4
    rnn_type: gru
    attn_type: location
    hidden_size: 8
    attn_dim: 8
    num_layers: 1
    channels: 4
    kernel_size: 5
    scaling: 1.0
lin: !new:speechbrain.nnet.linear.Linear
    input_size: 8
    n_neurons: 7
"""
TRANSFORMER_HEAD = """
lin: !new:speechbrain.nnet.linear.Linear
    input_size: 8
    n_neurons: 7
"""
SEARCH = """
    bos_index: 1
    eos_index: 2
    min_decode_ratio: 0.0
    max_decode_ratio: 0.3
"""
SEARCHERS = {
    "rnn-greedy": """
decoder: !new:speechbrain.decoders.S2SRNNGreedySearcher
    embedding: !ref <emb>
    decoder: !ref <dec>
    linear: !ref <lin>
""",
    "rnn-beam": """
decoder: !new:speechbrain.decoders.S2SRNNBeamSearcher
    embedding: !ref <emb>
    decoder: !ref <dec>
    linear: !ref <lin>
    beam_size: 3
""",
    "transformer-greedy": """
decoder: !new:speechbrain.decoders.S2STransformerGreedySearcher
    modules: [!ref <transformer>, !ref <lin>]
""",
    "transformer-beam": """
decoder: !new:speechbrain.decoders.S2STransformerBeamSearcher
    modules: [!ref <transformer>, !ref <lin>]
    beam_size: 3
""",
}
KINDS = ("crdnn-ctc", "transformer-ctc", *SEARCHERS)
PRETRAINER = """
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        model: !ref <model>
        tokenizer: !ref <tokenizer>
"""


def hyperparameters(kind: str) -> str:
    """A file as the library's recipes write them."""
    is_ctc, is_transformer = kind.endswith("ctc"), kind.startswith("transformer")
    parts = ["compute_features", "normalize", *(["cnn"] if is_transformer else []), "enc"]
    parts += ["lin"] if is_ctc else []
    text = FRONT + (TRANSFORMER if is_transformer else CRDNN)
    if is_ctc:
        text += CTC_HEAD
    else:
        text += TRANSFORMER_HEAD if is_transformer else RNN_HEAD
        text += SEARCHERS[kind] + SEARCH.lstrip("\n")
        text += "\ntokenizer: !new:sentencepiece.SentencePieceProcessor\n"
    text += "\nencoder: !new:speechbrain.nnet.containers.LengthsCapableSequential\n"
    text += "".join(f"    {part}: !ref <{part}>\n" for part in parts)
    heads = ["lin"] if is_ctc or is_transformer else ["emb", "dec", "lin"]
    weights = ["enc", *(["cnn"] if is_transformer else []), *heads]
    text += f"model: !new:torch.nn.ModuleList\n    - [{', '.join(f'!ref <{part}>' for part in weights)}]\n"
    text += "modules:\n    encoder: !ref <encoder>\n" + ("" if is_ctc else "    decoder: !ref <decoder>\n")
    return text + PRETRAINER


def write(folder: Path, kind: str) -> str:
    """A model with random weights as the library saves it."""
    hyperpyyaml = importlib.import_module("hyperpyyaml")
    folder.mkdir(exist_ok=True)
    text = hyperparameters(kind)
    (folder / "hyperparams.yaml").write_text(text)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        parts = hyperpyyaml.load_hyperpyyaml(text)
        with torch.no_grad():
            for weight in parts["model"].parameters():
                if weight.ndim >= 2:
                    weight.normal_(0.0, 1.5 / weight[0].numel() ** 0.5)
    torch.save(parts["model"].state_dict(), folder / "model.ckpt")
    if kind.endswith("ctc"):
        tokenizer = parts["tokenizer"]
        for place, letter in enumerate(LETTERS):
            tokenizer.insert_label(letter, place)
        tokenizer.save(str(folder / "tokenizer.ckpt"))
    else:
        sentencepiece = importlib.import_module("sentencepiece")
        (folder / "text.txt").write_text("ABC CAB\nCAB BAC\nBAB CAB\n" * 20)
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text.txt"),
            model_prefix=str(folder / "tokenizer"),
            model_type="char",
            vocab_size=7,
            unk_id=0,
            bos_id=1,
            eos_id=2,
            hard_vocab_limit=False,
            character_coverage=1.0,
            minloglevel=2,
        )
        (folder / "tokenizer.model").rename(folder / "tokenizer.ckpt")
    return str(folder)


@pytest.fixture(scope="module")
def library() -> Any:
    """The library, which imports torchaudio; skips where one of them does not import."""
    try:
        importlib.import_module("hyperpyyaml")
        return importlib.import_module("speechbrain.inference.ASR")
    except Exception as error:
        pytest.skip(f"needs speechbrain and the torchaudio of this torch ({type(error).__name__}: {error})")


@pytest.fixture(scope="module")
def built(library: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {kind: load_speechbrain(write(tmp_path_factory.mktemp(kind), kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_transcripts_in_a_ragged_batch_are_the_librarys_of_each_clip(built: Any, kind: str) -> None:
    target = built[kind]
    batch = batch_of(8_000, 3_001, 8_000, 5_432)
    texts = target.decode(batch, draws=DRAWS)
    assert any(texts)
    for row, text in enumerate(texts):
        expected, _ = target.module.transcribe_batch(batch.clip(row)[None], torch.ones(1))
        # The library writes a mark for what it does not know.
        assert text == " ".join(expected[0].replace("⁇", " ").replace("<unk>", "").split())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("ctc")])
def test_the_ctc_loss_is_that_of_the_librarys_scores(built: Any, kind: str) -> None:
    target = built[kind]
    batch, labels = batch_of(8_000, 3_001, 5_432), ["abc", "CAB", "a c"]
    losses = target.loss(batch, labels, draws=DRAWS)
    for row, label in enumerate(labels):
        scores = target.module.encode_batch(batch.clip(row)[None], torch.ones(1))
        tokens = torch.tensor([LETTERS.index(letter) for letter in label.upper()])
        expected = nn.functional.ctc_loss(
            scores.log_softmax(dim=-1).transpose(0, 1),
            tokens[None],
            torch.tensor([scores.shape[1]]),
            torch.tensor([3]),
            reduction="none",
        )
        assert float(losses[row]) == pytest.approx(float(expected) / 3, abs=1e-4)
    # The window moves by 10 ms and both models thin by two.
    assert target.frame_seconds == pytest.approx(0.02)


@pytest.mark.parametrize("kind", list(SEARCHERS))
def test_the_attention_loss_is_that_of_the_searchers_own_steps(built: Any, kind: str) -> None:
    target = built[kind]
    searcher = target.module.mods.decoder
    batch, labels = batch_of(8_000, 3_001, 5_432), ["abc", "CAB", "a c"]
    losses = target.loss(batch, labels, draws=DRAWS)
    for row, label in enumerate(labels):
        tokens = target.tokens_of(label)
        assert tokens[-1] == searcher.eos_index
        with torch.no_grad():
            encoded = target.module.encode_batch(batch.clip(row)[None], torch.ones(1))
            memory = searcher.reset_mem(1, encoded.device)
            last, total = torch.tensor([searcher.bos_index]), 0.0
            for token in tokens:
                frames = torch.tensor([encoded.shape[1]])
                scores, memory, _ = searcher.forward_step(last, memory, encoded, frames)
                total -= float(scores.log_softmax(dim=-1)[0, token])
                last = torch.tensor([token])
        assert float(losses[row]) == pytest.approx(total / len(tokens), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_laws_of_targets_hold(built: Any, kind: str) -> None:
    check_target(built[kind], labels=["abc", "cab", "a b", ""])


@pytest.mark.parametrize("kind", ["crdnn-ctc", "rnn-greedy", "transformer-greedy"])
def test_an_attack_obeys_its_laws(built: Any, kind: str) -> None:
    check_attack(Pgd(steps=2), built[kind], [Snr(20.0)], goals=[Force("ab")])


def test_folders_that_cannot_be_used_are_clear_errors(library: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"with a hyperparams\.yaml"):
        load_speechbrain(str(tmp_path))
    folder = write(tmp_path / "model", "crdnn-ctc")
    (tmp_path / "model" / "model.ckpt").unlink()
    with pytest.raises(InputError, match="a model for EncoderASR"):
        load_speechbrain(folder)


# --- stand-ins -----------------------------------------------------------------------------------------


class Pieces:
    """A SentencePiece model of single letters, with the library's names."""

    pieces = ("<unk>", "<s>", "</s>", "▁", "A", "B", "C")

    def get_piece_size(self) -> int:
        return len(self.pieces)

    def id_to_piece(self, place: int) -> str:
        return self.pieces[place]

    def is_control(self, place: int) -> bool:
        return place in (1, 2)

    def is_unknown(self, place: int) -> bool:
        return place == 0

    def unk_id(self) -> int:
        return 0

    def encode_as_ids(self, text: str) -> list[int]:
        marked = "▁" + text.replace(" ", "▁") if text else ""
        return [self.pieces.index(letter) if letter in self.pieces else 0 for letter in marked]

    def decode_ids(self, tokens: list[int]) -> str:
        return "".join(self.pieces[token] for token in tokens if token > 2).replace("▁", " ").strip()


class CTCTextEncoder:
    """The library's letters and their places."""

    def __init__(self) -> None:
        self.ind2lab = dict(enumerate(["<blank>", "<unk>", " ", "A", "B", "C"]))


def weights(seed: int, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / shape[0] ** 0.5)


class Encoder(nn.Module):
    """Frames of 20 ms; a batch norm that would drift and a dropout that would draw in training mode."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.readout = weights(1, 320, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.5)

    def forward(self, waveforms: torch.Tensor) -> torch.Tensor:
        hidden = 8.0 * waveforms.unfold(1, 320, 320) @ self.readout
        normed: torch.Tensor = self.drop(self.norm(hidden.transpose(1, 2)).transpose(1, 2))
        return normed


class StandIn(nn.Module):
    """What the adapter uses of the library's `Pretrained`."""

    def __init__(self, width: int, tokenizer: Any, **mods: nn.Module) -> None:
        super().__init__()
        self.mods = nn.ModuleDict({"encoder": Encoder(width), **mods})
        self.tokenizer = tokenizer
        self.audio_normalizer = types.SimpleNamespace(sample_rate=RATE)
        self.hparams = types.SimpleNamespace(decoding_function=partial(print, blank_id=0))

    def encode_batch(self, waveforms: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        assert bool((lengths == 1.0).all())
        encoded: torch.Tensor = self.mods["encoder"](waveforms)
        return encoded

    def transcribe_batch(self, waveforms: torch.Tensor, lengths: torch.Tensor) -> tuple[list[str], Any]:
        texts = []
        for encoded in self.encode_batch(waveforms, lengths):
            tokens = self.mods["decoder"].search(encoded[None])
            texts.append(self.tokenizer.decode_ids(tokens))
        return texts, None


class Memory:
    kept: Any = None

    def reset(self) -> None:
        self.kept = None


class Recurrent(nn.Module):
    """A decoder that adds up the letters it was given and looks at the mean of the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = Memory()

    def forward(self, given: torch.Tensor, encoded: torch.Tensor, lengths: torch.Tensor) -> tuple[Any, None]:
        self.attn.kept = encoded
        return (given.cumsum(dim=1) + encoded.mean(dim=1, keepdim=True)).tanh(), None


class S2SRNNGreedySearcher(nn.Module):
    bos_index, eos_index, temperature = 1, 2, 0.0

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 8, _weight=weights(2, 7, 8).detach())
        self.dec = Recurrent()
        self.fc = nn.Linear(8, 7)
        self.fc.weight = weights(3, 7, 8)

    def search(self, encoded: torch.Tensor) -> list[int]:
        tokens = [self.bos_index]
        for _ in range(5):
            hidden, _ = self.dec(self.emb(torch.tensor([tokens])), encoded, torch.ones(1))
            tokens.append(int(self.fc(hidden)[0, -1].argmax()))
            if tokens[-1] == self.eos_index:
                return tokens[1:-1]
        return tokens[1:]


class Transformer(nn.Module):
    """The same decoder behind a method without a gradient, as the library has it."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(7, 8, _weight=weights(2, 7, 8).detach())

    @torch.no_grad()
    def decode(self, given: torch.Tensor, encoded: torch.Tensor, lengths: Any = None) -> tuple[Any, None]:
        return (self.emb(given).cumsum(dim=1) + encoded.mean(dim=1, keepdim=True)).tanh(), None


class S2STransformerBeamSearcher(nn.Module):
    bos_index, eos_index, temperature = 1, 2, 1.0

    def __init__(self) -> None:
        super().__init__()
        self.model = Transformer()
        self.fc = nn.Linear(8, 7)
        self.fc.weight = weights(3, 7, 8)

    def search(self, encoded: torch.Tensor) -> list[int]:
        return [4, 5]


@pytest.fixture
def ctc() -> SpeechBrainCtc:
    target = wrap("stand-in", StandIn(6, CTCTextEncoder()).eval())
    assert isinstance(target, SpeechBrainCtc)
    return target


@pytest.fixture(params=[S2SRNNGreedySearcher, S2STransformerBeamSearcher])
def attention(request: pytest.FixtureRequest) -> SpeechBrainAttention:
    target = wrap("stand-in", StandIn(8, Pieces(), decoder=request.param()).eval())
    assert isinstance(target, SpeechBrainAttention)
    return target


def test_a_ctc_head_obeys_the_laws(ctc: SpeechBrainCtc) -> None:
    check_target(ctc, labels=["abc", "A", "b c", ""])
    assert ctc.offers(Matches) and ctc.offers(Timings)
    assert ctc.frame_seconds == 320 / RATE
    assert ctc.vocabulary.letters == ("", "", " ", "A", "B", "C") and ctc.vocabulary.blank == 0


def test_an_attention_decoder_obeys_the_laws(attention: SpeechBrainAttention) -> None:
    check_target(attention, labels=["abc", "A", "b c", ""])


def test_scores_of_nan_are_no_answer(
    ctc: SpeechBrainCtc, check_nan: Callable[[Target, AudioBatch], None]
) -> None:
    check_nan(ctc, batch_of(8_000, 3_200, 4_800))
    greedy = wrap("stand-in", StandIn(8, Pieces(), decoder=S2SRNNGreedySearcher()).eval())
    check_nan(greedy, batch_of(8_000, 3_200, 4_800))


def test_the_beams_of_a_clip_stand_together_in_a_searchers_scores() -> None:
    """Three clips of one length with two beams each: rows 2 and 3 are the second clip's."""
    last = nn.Linear(2, 3)
    hidden = torch.ones(6, 1, 2)
    hidden[3] = torch.nan
    with pytest.raises(ScoreError, match=r"^clip 'b': "), _readable(last, ["a", "b", "c"]):
        last(hidden)
    assert not last._forward_hooks
    with pytest.raises(ScoreError, match=r"^clip 'a, b': "), _readable(last, ["a", "b"]):
        last(hidden[3:4])


def test_the_loss_of_a_label_is_worked_out_by_hand(attention: SpeechBrainAttention) -> None:
    batch = batch_of(8_000, 3_200)
    searcher = attention.module.mods["decoder"]
    emb = searcher.emb if isinstance(searcher, S2SRNNGreedySearcher) else searcher.model.emb
    losses = attention.loss(batch, ["Ab", ""], draws=DRAWS)
    for row, tokens in enumerate([[3, 4, 5, 2], [2]]):
        focus = attention.module.mods["encoder"](batch.clip(row)[None])[0].mean(dim=0)
        total, heard = 0.0, torch.zeros(8)
        for last, token in zip([1, *tokens], tokens, strict=False):
            heard = heard + emb.weight[last]
            total -= float(searcher.fc((heard + focus).tanh()).log_softmax(dim=0)[token])
        assert float(losses[row]) == pytest.approx(total / len(tokens), abs=1e-5)


def test_a_recurrent_decoder_keeps_no_graph() -> None:
    target = wrap("stand-in", StandIn(8, Pieces(), decoder=S2SRNNGreedySearcher()).eval())
    target.loss(batch_of(8_000), ["a"], draws=DRAWS)
    assert target.module.mods["decoder"].dec.attn.kept is None


def test_labels_are_spelt_by_the_models_tokenizer(attention: SpeechBrainAttention) -> None:
    assert attention.tokens_of("Cab b") == [3, 6, 4, 5, 3, 5, 2]
    with pytest.raises(InputError, match="can write, got 'dog'"):
        attention.check_labels(["dog"])


def test_a_text_that_no_alignment_fits_is_refused(ctc: SpeechBrainCtc) -> None:
    with pytest.raises(InputError, match="'abcabcabcab' needs 11 frames, and the clip has 10"):
        ctc.loss(batch_of(3_200), ["abcabcabcab"], draws=DRAWS)


def test_frozen_encoders_of_transformers_pass_their_gradient_on_and_nothing_else_changes() -> None:
    class Wav2Vec2(Encoder):
        __module__ = "speechbrain.integrations.huggingface.wav2vec2"

    module = StandIn(6, CTCTextEncoder(), wav2vec2=Wav2Vec2(6), compute_features=Encoder(6))
    for name in ("wav2vec2", "compute_features"):
        module.mods[name].freeze = True
    wrap("stand-in", module)
    assert module.mods["wav2vec2"].freeze is False
    assert module.mods["compute_features"].freeze is True


def test_models_that_cannot_be_used_are_refused() -> None:
    class S2SWhisperGreedySearcher(S2SRNNGreedySearcher):
        pass

    class InputNormalization(nn.Module):
        norm_type = "batch"

    with pytest.raises(InputError, match="got S2SWhisperGreedySearcher"):
        wrap("m", StandIn(8, Pieces(), decoder=S2SWhisperGreedySearcher()))
    with pytest.raises(InputError, match="norm over the batch"):
        wrap("m", StandIn(6, CTCTextEncoder(), norm=InputNormalization()))
    searcher = S2SRNNGreedySearcher()
    searcher.temperature = 0.7
    with pytest.raises(InputError, match=r"temperature 0\.7"):
        wrap("m", StandIn(8, Pieces(), decoder=searcher))
    with pytest.raises(InputError, match=r"beams: .* brings its own search"):
        wrap("m", StandIn(8, Pieces(), decoder=S2SRNNGreedySearcher()), beams=2)
    search = StandIn(6, CTCTextEncoder())
    search.hparams.decoding_function = print
    with pytest.raises(InputError, match="ctc_greedy_decode"):
        wrap("m", search)
    words = Pieces()
    words.pieces = ("<unk>", "<s>", "</s>", "▁", "A", "B", "▁THE")
    with pytest.raises(InputError, match="pieces of words such as ' THE'"):
        wrap("m", StandIn(7, words))


def test_a_negative_blank_counts_from_the_end() -> None:
    module = StandIn(6, CTCTextEncoder())
    module.hparams.decoding_function = partial(print)
    vocabulary = wrap("m", module).vocabulary
    assert vocabulary.blank == 5 and vocabulary.letters[5] == ""


# --- a library that is not there -----------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["speechbrain", "torchaudio"])
def test_a_missing_library_is_named_with_what_to_install(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "speechbrain"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=r"torchaudio .built for torch.*sottovoce\[speechbrain\]"):
        load_speechbrain("speechbrain/asr-crdnn-rnnlm-librispeech")


def test_a_torchaudio_of_another_torch_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise OSError("libtorchaudio.so: undefined symbol")

    monkeypatch.setattr("sottovoce.targets.adapters.speechbrain.import_module", refuse)
    with pytest.raises(MissingExtra, match="undefined symbol"):
        load_speechbrain("speechbrain/asr-crdnn-rnnlm-librispeech")
