"""Speech2Text and Moonshine: tiny random models, saved to folders, against the library's own pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Force
from sottovoce.core.target import Matches, Target, check_clips
from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.adapters.huggingface_attention import HuggingFaceAttention, load_attention
from sottovoce.targets.adapters.huggingface_classifier import load_huggingface
from sottovoce.targets.families.front_ends import KaldiNormalised
from sottovoce.testing import check_attack, check_target

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

RATE = 16_000
DRAWS = Draws(7)
KINDS = ("speech2text", "moonshine")
# What stands before the letters: the start of a text, padding, the end, what cannot be spelt, a space.
MARKS = {
    "speech2text": ["<s>", "<pad>", "</s>", "<unk>", "▁"],
    "moonshine": ["<unk>", "<s>", "</s>", "<pad>", "▁"],
}


def config_of(kind: str, **extra: Any) -> Any:
    if kind == "speech2text":
        settings = {
            "vocab_size": 11,
            "d_model": 16,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "conv_channels": 8,
            "input_feat_per_channel": 20,
            "max_source_positions": 40,
            "max_target_positions": 10,
        }
        return transformers.Speech2TextConfig(**{**settings, **extra})
    settings = {
        "vocab_size": 11,
        "hidden_size": 16,
        "intermediate_size": 16,
        "encoder_num_hidden_layers": 1,
        "decoder_num_hidden_layers": 1,
        "encoder_num_attention_heads": 2,
        "decoder_num_attention_heads": 2,
        "max_position_embeddings": 10,
        "pad_token_id": 3,
    }
    return transformers.MoonshineConfig(**{**settings, **extra})


def make(kind: str, **extra: Any) -> Any:
    """A tiny model with random weights; large ones, so that clips do not all sound the same to it."""
    with torch.random.fork_rng():
        torch.manual_seed({"speech2text": 21, "moonshine": 6}[kind])
        model = transformers.AutoModelForSpeechSeq2Seq.from_config(config_of(kind, **extra))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim >= 2:
                    weight.normal_(0.0, 2.0 / weight[0].numel() ** 0.5)
    return model.eval()


def tokenizer_of(kind: str, letters: str = "abcdef") -> Any:
    """One token a letter."""
    words = {token: place for place, token in enumerate([*MARKS[kind], *letters])}
    spelling = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    spelling.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="never")
    spelling.decoder = tokenizers.decoders.Metaspace(prepend_scheme="never")
    marks = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=spelling, **marks)


def extractor_of(kind: str, **extra: Any) -> Any:
    if kind == "speech2text":
        return transformers.Speech2TextFeatureExtractor(feature_size=20, num_mel_bins=20, **extra)
    return transformers.Wav2Vec2FeatureExtractor(do_normalize=False, **extra)


def save(folder: Path, kind: str, **extra: Any) -> str:
    make(kind, **extra).save_pretrained(folder)
    extractor_of(kind).save_pretrained(folder)
    tokenizer_of(kind).save_pretrained(folder)
    return str(folder)


def batch_of(*lengths: int) -> AudioBatch:
    source = np.random.default_rng(3)
    clips = []
    for length in lengths:
        tone = np.sin(2 * np.pi * source.uniform(150, 3000) * np.arange(length) / RATE)
        clips.append(source.uniform(0.1, 0.6) * tone + 0.03 * source.standard_normal(length))
    return AudioBatch.of([np.clip(clip, -1, 1).astype(np.float32) for clip in clips], RATE)


def published_input(kind: str, batch: AudioBatch, row: int) -> torch.Tensor:
    """What the library's extractor makes of one clip."""
    inputs = extractor_of(kind)(batch.clip(row).numpy(), sampling_rate=RATE, return_tensors="pt")
    values: torch.Tensor = inputs["input_features" if kind == "speech2text" else "input_values"]
    return values


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[HuggingFaceAttention, Any]]:
    """Each kind: the target loaded from its folder, and the model that was saved there."""
    return {kind: (load_huggingface(save(tmp_path_factory.mktemp(kind), kind)), make(kind)) for kind in KINDS}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


# --- what the model hears ------------------------------------------------------------------------------


@pytest.mark.parametrize(("centre", "scale"), [(True, True), (True, False), (False, False)])
def test_kaldi_features_are_those_of_the_published_extractor(centre: bool, scale: bool) -> None:
    extractor = transformers.Speech2TextFeatureExtractor(normalize_means=centre, normalize_vars=scale)
    front = KaldiNormalised(bands=80, centre=centre, scale=scale)
    batch = batch_of(8_000, 3_001, 5_432)
    together = front(batch.waveforms, batch.lengths)
    counts = front.frames(batch.lengths).tolist()
    # (8,000 - 400) // 160 + 1 and so on.
    assert counts == [48, 17, 32]
    for row, count in enumerate(counts):
        clip = batch.clip(row).numpy()
        expected = extractor(clip, sampling_rate=RATE, return_tensors="pt").input_features[0]
        torch.testing.assert_close(together[row, :count], expected, atol=2e-3, rtol=0)
        assert not together[row, count:].any()


def test_silence_has_finite_features_and_gradients() -> None:
    # The published extractor divides zero by zero here.
    waveforms = torch.zeros(1, 1_000, requires_grad=True)
    features = KaldiNormalised(bands=20)(waveforms, torch.tensor([1_000]))
    assert not features.any()
    (gradient,) = torch.autograd.grad(features.square().sum(), waveforms)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_in_a_ragged_batch_is_that_of_the_published_model(built: Any, kind: str) -> None:
    target, model = built[kind]
    batch = batch_of(8_000, 3_001, 8_000, 1_300, 5_432)
    labels = ["abc", "fed", "a", "", "abcdef"]
    losses = target.loss(batch, labels, draws=DRAWS)
    for row, label in enumerate(labels):
        # The letters follow five marks.
        tokens = [*("abcdef".index(letter) + 5 for letter in label), model.config.eos_token_id]
        with torch.no_grad():
            expected = model(published_input(kind, batch, row), labels=torch.tensor([tokens])).loss
        assert float(losses[row]) == pytest.approx(float(expected), abs=1e-3)
    assert float(losses.std()) > 0.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 3])
def test_transcripts_in_a_ragged_batch_are_those_the_library_generates(
    kind: str, beams: int, tmp_path: Path
) -> None:
    target, model = load_huggingface(save(tmp_path, kind), beams=beams), make(kind)
    batch = batch_of(8_000, 3_001, 5_432, 7_000, 8_000, 1_300)
    texts = target.decode(batch, draws=DRAWS)
    assert len(set(texts)) > 1
    for row, text in enumerate(texts):
        tokens = model.generate(published_input(kind, batch, row), max_length=10, num_beams=beams)
        assert text == tokenizer_of(kind).decode(tokens[0], skip_special_tokens=True).strip()
        assert target.decode(batch.select([row]), draws=DRAWS) == [text]


@pytest.mark.parametrize("kind", KINDS)
def test_the_laws_of_targets_hold(built: Any, kind: str) -> None:
    check_target(built[kind][0], labels=["abc", "fed", "a b", ""])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 3])
def test_scores_of_nan_are_no_answer(
    check_nan: Callable[[Target, AudioBatch], None], kind: str, beams: int, tmp_path: Path
) -> None:
    check_nan(load_huggingface(save(tmp_path, kind), beams=beams), batch_of(8_000, 3_001, 5_432, 8_000))


@pytest.mark.parametrize("kind", KINDS)
def test_an_attack_obeys_its_laws(built: Any, kind: str) -> None:
    check_attack(Pgd(steps=2), built[kind][0], [Snr(20.0)], goals=[Force("abc")])


@pytest.mark.parametrize("kind", KINDS)
def test_a_match_is_what_greedy_decoding_writes(built: Any, kind: str) -> None:
    target, model = built[kind]
    assert target.offers(Matches)
    batch = batch_of(8_000, 3_001, 5_432, 7_000)
    written = [model.generate(published_input(kind, batch, row), max_length=10)[0, 1:] for row in range(4)]
    ended = [row for row in range(4) if written[row][-1] == 2]
    texts = [tokenizer_of(kind).decode(written[row], skip_special_tokens=True) for row in ended]
    assert any(texts), "no clip has words that end"
    part = batch.select(ended)
    assert target.loss_and_match(part, texts, draws=DRAWS)[1].all()
    for other in ("fedcb", "f"):
        assert not target.loss_and_match(part, [other] * len(texts), draws=DRAWS)[1].any()


# --- labels and lengths --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_spelt_in_the_models_case_and_end(built: Any, kind: str) -> None:
    assert built[kind][0].tokens_of("Cab B") == [7, 5, 6, 4, 6, 2]
    assert built[kind][0].tokens_of("") == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_cannot_be_spelt_is_refused(built: Any, kind: str) -> None:
    with pytest.raises(InputError, match=r"tokenizer can write, got 'dog'.*model's letters"):
        built[kind][0].check_labels(["dog"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_longer_than_the_decoder_is_refused(built: Any, kind: str) -> None:
    target = built[kind][0]
    # Ten places, one of them the start and one the end.
    assert target.longest_text == 9
    target.check_labels(["abcdefab"])
    with pytest.raises(InputError, match="at most 9 tokens"):
        target.check_labels(["abcdefabc"])


def test_lengths_that_the_models_can_hear(built: Any) -> None:
    speech2text, moonshine = (built[kind][0] for kind in KINDS)
    assert speech2text.shortest == 560
    # 40 positions of 4 frames, 160 samples apart, and less than one more frame.
    assert speech2text.longest == 400 + 160 * 160 - 1
    for target in (speech2text, moonshine):
        shortest = batch_of(target.shortest)
        assert bool(torch.isfinite(target.loss(shortest, ["a"], draws=DRAWS)).all())
    assert moonshine.shortest == 127 + 64 * (7 + 3 * (3 - 1) - 1)
    check_clips(speech2text, batch_of(speech2text.longest))
    table = speech2text.module.model.encoder.embed_positions.weights
    speech2text.loss(batch_of(speech2text.longest), ["abcdefab"], draws=DRAWS)
    assert speech2text.module.model.encoder.embed_positions.weights is table


def test_a_forced_first_token_is_given_and_not_judged(tmp_path: Path) -> None:
    folder = save(tmp_path, "speech2text")
    path = tmp_path / "generation_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "forced_bos_token_id": 9, "max_length": 6}))
    target = load_attention(folder)
    assert target.start == (2, 9) and target.longest_text == 4
    batch, model = batch_of(5_000), make("speech2text")
    given = torch.tensor([[2, 9, 5]])
    with torch.no_grad():
        logits = model(published_input("speech2text", batch, 0), decoder_input_ids=given).logits[0, 1:]
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([5, 2]))
    assert float(target.loss(batch, ["a"], draws=DRAWS)) == pytest.approx(float(expected), abs=1e-3)


# --- folders that cannot be used -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_without_a_tokenizer_is_a_clear_error(offline: None, tmp_path: Path, kind: str) -> None:
    make(kind).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="write the feature extractor there"):
        load_huggingface(str(tmp_path))
    extractor_of(kind).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="write the tokenizer there"):
        load_huggingface(str(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_without_its_head_is_refused(tmp_path: Path, kind: str) -> None:
    model = make(kind, tie_word_embeddings=False)
    model.save_pretrained(tmp_path, state_dict=model.model.state_dict())
    extractor_of(kind).save_pretrained(tmp_path)
    tokenizer_of(kind).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="trained for speech recognition"):
        load_huggingface(str(tmp_path))


def test_a_dithering_extractor_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, "speech2text")
    extractor_of("speech2text", dither=4.0).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"without dither.*dither 4\.0"):
        load_huggingface(folder)


def test_a_missing_tokenizer_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path, "speech2text")

    def refuse(*args: Any, **options: Any) -> None:
        raise ImportError("Speech2TextTokenizer requires the SentencePiece library")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(MissingExtra, match="pip install sentencepiece"):
        load_huggingface(folder)


def test_speech2text_with_its_own_tokenizer(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece", reason="Speech2Text spells with sentencepiece")
    (tmp_path / "text.txt").write_text("abc fed\ncab bed\nface deaf bead\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "sentencepiece.bpe"),
        model_type="char",
        vocab_size=10,
        minloglevel=2,
    )
    words = {token: place for place, token in enumerate([*MARKS["speech2text"], *"abcdef"])}
    (tmp_path / "vocab.json").write_text(json.dumps(words))
    tokenizer = transformers.Speech2TextTokenizer(
        str(tmp_path / "vocab.json"), str(tmp_path / "sentencepiece.bpe.model")
    )
    folder = tmp_path / "model"
    save(folder, "speech2text")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    transformers.Speech2TextProcessor(extractor_of("speech2text"), tokenizer).save_pretrained(folder)
    target = load_huggingface(str(folder))
    assert target.tokens_of("CAB b") == [4, 7, 5, 6, 4, 6, 2]
    with pytest.raises(InputError, match="can write"):
        target.check_labels(["dog"])
    check_target(target, labels=["abc", "fed", "a b", ""])


def test_whisper_goes_to_its_own_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.WhisperConfig(architectures=["WhisperForConditionalGeneration"])
    config.save_pretrained(tmp_path)
    asked: list[Any] = []
    monkeypatch.setattr(
        "sottovoce.targets.adapters.whisper.load_whisper",
        lambda model, **settings: asked.append((model, settings)),
    )
    load_huggingface(str(tmp_path), beams=2, language="fr")
    assert asked == [(str(tmp_path), {"device": "cpu", "beams": 2, "language": "fr"})]
