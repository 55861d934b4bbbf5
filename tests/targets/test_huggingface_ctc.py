"""Hugging Face recognisers with a CTC head: tiny random models, saved to folders, against the library's own
pipeline."""

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
from sottovoce.core.target import Matches, Target, Timings
from sottovoce.errors import InputError
from sottovoce.targets.adapters.huggingface_classifier import load_huggingface
from sottovoce.targets.adapters.huggingface_ctc import HuggingFaceCtc, can_share, load_ctc, vocabulary_of
from sottovoce.testing import check_attack, check_target

transformers = pytest.importorskip("transformers")

RATE = 16_000
DRAWS = Draws(7)
LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", "A", "B", "C", "'"]
ENCODER = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "conv_dim": (8, 8, 8),
    "conv_stride": (8, 8, 5),
    "conv_kernel": (10, 8, 5),
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": len(LETTERS),
    "pad_token_id": 0,
}
LAYER_NORM = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
# Configuration class, settings, whether clips of different lengths share a pass.
KINDS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "wav2vec2": ("Wav2Vec2Config", {}, True),
    "wav2vec2-lv60": ("Wav2Vec2Config", LAYER_NORM, True),
    "wav2vec2-adapter": ("Wav2Vec2Config", {"add_adapter": True, "num_adapter_layers": 1}, False),
    "hubert": ("HubertConfig", {}, True),
    "hubert-large": ("HubertConfig", LAYER_NORM, True),
    "hubert-batch-norm": ("HubertConfig", {"conv_pos_batch_norm": True}, False),
    "data2vec-audio": (
        "Data2VecAudioConfig",
        {"conv_pos_kernel_size": 5, "num_conv_pos_embeddings": 3},
        True,
    ),
    "wavlm": ("WavLMConfig", {}, True),
    "wavlm-large": ("WavLMConfig", LAYER_NORM, True),
    "unispeech": ("UniSpeechConfig", {"num_ctc_classes": len(LETTERS)}, True),
    "unispeech-sat": ("UniSpeechSatConfig", {}, True),
    "sew": ("SEWConfig", {"squeeze_factor": 2}, False),
    "sew-d": ("SEWDConfig", {"squeeze_factor": 2}, False),
    "wav2vec2-conformer": ("Wav2Vec2ConformerConfig", {"conv_depthwise_kernel_size": 5}, False),
}


def make(kind: str, **extra: Any) -> Any:
    """A tiny model with random weights; large ones, so that clips do not all sound the same to it."""
    name, settings, _ = KINDS[kind]
    config = getattr(transformers, name)(**{**ENCODER, **settings, **extra})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCTC.from_config(config)
        with torch.no_grad():
            for label, weight in model.named_parameters():
                if weight.ndim >= 2 and "weight.original" not in label:
                    weight.normal_(0.0, 2.0 / weight[0].numel() ** 0.5)
    return model.eval()


def processor(folder: Path, letters: list[str] = LETTERS, **settings: Any) -> Any:
    (folder / "vocab.json").write_text(json.dumps({letter: place for place, letter in enumerate(letters)}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(folder / "vocab.json"), **settings)
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    return transformers.Wav2Vec2Processor(extractor, tokenizer)


def save(folder: Path, model: Any, **settings: Any) -> str:
    model.save_pretrained(folder)
    processor(folder, **settings).save_pretrained(folder)
    return str(folder)


def batch_of(*lengths: int) -> AudioBatch:
    source = np.random.default_rng(3)
    clips = []
    for length in lengths:
        tone = np.sin(2 * np.pi * source.uniform(150, 3000) * np.arange(length) / RATE)
        clips.append(source.uniform(0.1, 0.6) * tone + 0.03 * source.standard_normal(length))
    return AudioBatch.of([np.clip(clip, -1, 1).astype(np.float32) for clip in clips], RATE)


def published_logits(model: Any, batch: AudioBatch, row: int) -> torch.Tensor:
    """What the library's pipeline computes of one clip."""
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=False)
    inputs = extractor(batch.clip(row).numpy(), sampling_rate=RATE, return_tensors="pt")
    with torch.no_grad():
        logits: torch.Tensor = model(**inputs).logits[0]
    return logits


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[HuggingFaceCtc, Any]]:
    """Each kind: the target loaded from its folder, and the model that was saved there."""
    found = {}
    for kind in KINDS:
        model = make(kind)
        found[kind] = (load_huggingface(save(tmp_path_factory.mktemp(kind), model)), model)
    return found


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


# --- what the model hears ------------------------------------------------------------------------------


def on_one_pass(target: HuggingFaceCtc) -> HuggingFaceCtc:
    """The same target; clips of different lengths share a pass, as they do on an accelerator."""
    return HuggingFaceCtc(target.module, target.front, target.vocabulary, RATE, together=True)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_log_probs_in_a_ragged_batch_are_those_of_the_published_pipeline(
    built: Any, kind: str, together: bool
) -> None:
    target, model = built[kind]
    assert can_share(target.module) is KINDS[kind][2]
    target = on_one_pass(target) if together else target
    batch = batch_of(8_000, 3_001, 8_000, 1_300, 5_432)
    log_probs, frames = target.log_probs(batch, draws=DRAWS)
    for row in range(len(batch)):
        expected = published_logits(model, batch, row).log_softmax(dim=-1)
        # The comparison would prove little if all frames were alike.
        assert expected.std(dim=0).max() > 0.02
        assert int(frames[row]) == len(expected)
        torch.testing.assert_close(log_probs[row, : len(expected)], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_laws_of_targets_hold(built: Any, kind: str) -> None:
    check_target(on_one_pass(built[kind][0]))


def test_scores_of_nan_are_no_answer(
    built: Any, check_nan: Callable[[Target, AudioBatch], None], tmp_path: Path
) -> None:
    check_nan(built["wav2vec2"][0], batch_of(8_000, 3_001, 5_432))
    check_nan(on_one_pass(built["wav2vec2"][0]), batch_of(8_000, 3_001, 5_432))
    check_nan(load_huggingface(save(tmp_path, make("wav2vec2")), beams=3), batch_of(8_000, 3_001, 5_432))


@pytest.mark.parametrize("kind", ["wav2vec2", "data2vec-audio"])
def test_the_laws_hold_for_clips_that_go_apart(built: Any, kind: str) -> None:
    check_target(built[kind][0])


@pytest.mark.parametrize("kind", ["wav2vec2", "data2vec-audio"])
def test_an_attack_obeys_its_laws(built: Any, kind: str) -> None:
    check_attack(Pgd(steps=3), built[kind][0], [Snr(20.0)])


# --- what a user reads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wav2vec2", "hubert-large", "data2vec-audio", "wavlm", "unispeech-sat"])
def test_transcripts_are_those_of_the_published_processor(built: Any, kind: str, tmp_path: Path) -> None:
    target, model = built[kind]
    batch = batch_of(8_000, 3_001, 6_400)
    reader = processor(tmp_path).tokenizer
    for row, text in enumerate(target.decode(batch, draws=DRAWS)):
        tokens = published_logits(model, batch, row).argmax(dim=-1)
        read = reader.decode(tokens)
        for special in ("<s>", "</s>", "<unk>"):
            read = read.replace(special, "")
        assert text == " ".join(read.split())


def test_words_are_timed_by_the_stride(built: Any) -> None:
    target = built["wav2vec2"][0]
    assert target.offers(Matches) and target.offers(Timings)
    assert target.frame_seconds == 320 / 16_000
    batch = batch_of(8_000)
    words = target.timings(batch, draws=DRAWS)[0]
    assert " ".join(word.text for word in words) == target.decode(batch, draws=DRAWS)[0]
    assert all(0.0 <= word.start_seconds < word.end_seconds <= 0.5 for word in words)


def test_an_adapter_makes_the_frames_longer(built: Any) -> None:
    assert built["wav2vec2-adapter"][0].frame_seconds == 2 * 320 / 16_000


def test_more_beams_find_a_text_at_least_as_likely(built: Any, tmp_path: Path) -> None:
    folder = save(tmp_path, make("wav2vec2"))
    batch = batch_of(4_000, 3_000)
    greedy, searching = load_huggingface(folder), load_huggingface(folder, beams=8)
    assert (greedy.beams, searching.beams) == (1, 8)
    for row in range(2):
        part = batch.select([row])
        total = {
            text: float(greedy.loss(part, [text], draws=DRAWS)) * max(1, len(text))
            for target in (greedy, searching)
            for text in target.decode(part, draws=DRAWS)
        }
        assert total[searching.decode(part, draws=DRAWS)[0]] <= min(total.values()) + 1e-4


# --- letters -------------------------------------------------------------------------------------------


def test_labels_in_any_case_are_spelt_in_the_models(built: Any) -> None:
    vocabulary = built["wav2vec2"][0].vocabulary
    assert vocabulary.letters == ("", "", "", "", " ", "A", "B", "C", "'")
    assert vocabulary.blank == 0
    assert vocabulary.encode("Cab b") == vocabulary.encode("CAB B") == [7, 5, 6, 4, 6]


def test_a_vocabulary_of_both_cases_keeps_them_apart(tmp_path: Path) -> None:
    tokenizer = processor(tmp_path, ["<pad>", "<unk>", "|", "a", "A"]).tokenizer
    vocabulary = vocabulary_of("m", tokenizer, 5)
    assert vocabulary.encode("a A") == [3, 2, 4]


def test_a_tokenizer_that_writes_small_letters_is_followed(tmp_path: Path) -> None:
    tokenizer = processor(tmp_path, do_lower_case=True).tokenizer
    vocabulary = vocabulary_of("m", tokenizer, len(LETTERS))
    tokens = [5, 4, 6]
    assert vocabulary.decode(tokens) == tokenizer.decode(tokens) == "a b"
    assert vocabulary.encode("A b") == tokens


def test_the_padding_of_the_tokenizer_is_the_blank(tmp_path: Path) -> None:
    tokenizer = processor(tmp_path, ["A", "|", "<unk>", "<pad>"]).tokenizer
    vocabulary = vocabulary_of("m", tokenizer, 4)
    assert vocabulary.blank == 3 and vocabulary.letters == ("A", " ", "", "")
    with pytest.raises(InputError, match="blank among the model's 3 outputs, got 3"):
        vocabulary_of("m", tokenizer, 3)


def test_a_vocabulary_of_several_languages_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"eng": {"<pad>": 0, "a": 1}, "fra": {"<pad>": 0}}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json"), target_lang="eng")
    assert vocabulary_of("m", tokenizer, 2).letters == ("", "a")
    tokenizer.encoder = tokenizer.vocab
    with pytest.raises(InputError, match="target_lang"):
        vocabulary_of("m", tokenizer, 2)


def test_a_text_that_cannot_be_spelt_is_refused_before_any_work(built: Any) -> None:
    target = built["wav2vec2"][0]
    with pytest.raises(InputError, match=r"'CAFÉ 7' with '7FÉ'"):
        target.check_labels(["CAFÉ 7"])
    with pytest.raises(InputError, match="use the model's letters"):
        Pgd(steps=1)(target, batch_of(8_000), Force("dog"), Snr(20.0), draws=DRAWS)


def test_a_text_that_no_alignment_fits_is_refused(built: Any) -> None:
    target = built["wav2vec2"][0]
    # (3,000 - 10) // 8 + 1 = 374; (374 - 8) // 8 + 1 = 46; (46 - 5) // 5 + 1 = 9 frames.
    batch = batch_of(3_000)
    assert float(target.loss(batch, ["abcabcabc"], draws=DRAWS)) < float("inf")
    for text in ("abcabcabca", "abcabcabb"):
        with pytest.raises(InputError, match=r"needs 10 frames, and the clip has 9"):
            target.loss(batch, [text], draws=DRAWS)


# --- folders that cannot be used -----------------------------------------------------------------------


def test_a_folder_without_a_tokenizer_is_a_clear_error(offline: None, tmp_path: Path) -> None:
    make("wav2vec2").save_pretrained(tmp_path)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="write the tokenizer there with save_pretrained"):
        load_huggingface(str(tmp_path))


def test_a_folder_without_a_processor_is_a_clear_error(offline: None, tmp_path: Path) -> None:
    make("wav2vec2").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="write the feature extractor there with save_pretrained"):
        load_huggingface(str(tmp_path))


def test_a_folder_without_weights_is_a_clear_error(offline: None, tmp_path: Path) -> None:
    folder = save(tmp_path, make("wav2vec2"))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="CTC recogniser"):
        load_huggingface(folder)


def test_a_pretrained_model_without_a_head_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, make("wav2vec2").wav2vec2)
    with pytest.raises(InputError, match=r"ForCTC.*got Wav2Vec2Model.*fine-tuned"):
        load_huggingface(folder)
    # The library would fill the head with random numbers and go on.
    with pytest.raises(InputError, match=r"trained for speech recognition.*lm_head\.bias"):
        load_ctc(folder)


def test_a_configuration_without_an_architecture_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, make("wav2vec2"))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="got no architecture"):
        load_huggingface(folder)


def test_a_model_of_another_task_is_refused_with_what_is_supported(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"WhisperForConditionalGeneration.*got BertForMaskedLM"):
        load_huggingface(str(tmp_path))


def test_another_feature_extractor_or_tokenizer_is_refused(tmp_path: Path) -> None:
    make("wav2vec2").save_pretrained(tmp_path)
    transformers.SeamlessM4TFeatureExtractor().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="kind Wav2Vec2FeatureExtractor, got SeamlessM4TFeatureExtractor"):
        load_huggingface(str(tmp_path))
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n")
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="tokenizer of kind Wav2Vec2CTCTokenizer, got BertTokenizer"):
        load_huggingface(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 0}, "beams: expected 1 or more"),
        ({"language": "en"}, "only a WhisperForConditionalGeneration takes one"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_huggingface(save(tmp_path, make("wav2vec2")), **settings)


def test_beams_for_a_classifier_are_refused(tmp_path: Path) -> None:
    config = transformers.Wav2Vec2Config(**ENCODER)
    transformers.Wav2Vec2ForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    assert load_huggingface(str(tmp_path)).says == "class"
    with pytest.raises(InputError, match="beams: a classifier takes none"):
        load_huggingface(str(tmp_path), beams=2)


def test_half_precision_checkpoints_run_in_single_precision(tmp_path: Path) -> None:
    model = make("hubert")
    target = load_huggingface(save(tmp_path, model.half()))
    batch = batch_of(4_000)
    expected = published_logits(model.float(), batch, 0).log_softmax(dim=-1)
    torch.testing.assert_close(target.log_probs(batch, draws=DRAWS)[0][0], expected, atol=1e-4, rtol=0)
