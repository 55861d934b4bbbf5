"""Hugging Face classifiers: tiny random models, saved to folders, against the library's own pipeline."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from sottovoce import registry
from sottovoce.attacks.pgd import Pgd
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import Target, check_clips
from sottovoce.errors import InputError, MissingExtra
from sottovoce.targets.adapters.huggingface_classifier import HuggingFaceClassifier, load_classifier

transformers = pytest.importorskip("transformers")

RATE = 16_000
DRAWS = Draws(7)
LABELS = {0: "yes", 1: "no", 2: "stop"}
NAMES = {"id2label": LABELS, "label2id": {name: place for place, name in LABELS.items()}}
CONVOLUTIONS = {"conv_dim": (16, 16, 16), "conv_stride": (5, 4, 4), "conv_kernel": (10, 8, 4)}
ENCODER = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 8,
}
LAYER_NORM = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
RAW: dict[str, tuple[str, dict[str, Any], bool]] = {
    # name: configuration class, settings, whether the extractor gives an attention mask
    "wav2vec2": ("Wav2Vec2Config", {}, False),
    "wav2vec2-lv60": ("Wav2Vec2Config", LAYER_NORM, True),
    "wav2vec2-weighted": ("Wav2Vec2Config", {"use_weighted_layer_sum": True}, False),
    "hubert": ("HubertConfig", {}, False),
    "wavlm": ("WavLMConfig", {}, False),
    "wavlm-large": ("WavLMConfig", LAYER_NORM, True),
    "unispeech": ("UniSpeechConfig", {}, False),
    "unispeech-sat": ("UniSpeechSatConfig", {}, False),
    "data2vec-audio": ("Data2VecAudioConfig", {"conv_pos_kernel_size": 5}, True),
    "sew": ("SEWConfig", {"squeeze_factor": 2}, False),
    "sew-d": ("SEWDConfig", {"squeeze_factor": 2}, True),
    "wav2vec2-conformer": ("Wav2Vec2ConformerConfig", {"conv_depthwise_kernel_size": 5}, True),
}
KINDS = [*RAW, "ast", "whisper"]


def make(kind: str) -> tuple[Any, Any]:
    """A tiny model with random weights, and its feature extractor."""
    if kind == "ast":
        extractor = transformers.ASTFeatureExtractor(num_mel_bins=40, max_length=64)
        plain = {name: ENCODER[name] for name in list(ENCODER)[:4]}
        config = transformers.ASTConfig(num_mel_bins=40, max_length=64, **plain, **NAMES)
    elif kind == "whisper":
        extractor = transformers.WhisperFeatureExtractor(chunk_length=1)
        config = transformers.WhisperConfig(
            d_model=16,
            encoder_layers=2,
            encoder_attention_heads=2,
            encoder_ffn_dim=32,
            decoder_layers=1,
            decoder_attention_heads=2,
            decoder_ffn_dim=32,
            max_source_positions=50,
            vocab_size=64,
            pad_token_id=0,
            classifier_proj_size=8,
            **NAMES,
        )
    else:
        name, extra, masked = RAW[kind]
        extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=masked)
        config = getattr(transformers, name)(**{**ENCODER, **CONVOLUTIONS, **NAMES, **extra})
    return _random_model(config), extractor


def _random_model(config: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForAudioClassification.from_config(config)
        # With the library's small initial weights all clips get nearly the same logits.
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim >= 2 and "weight.original" not in name:
                    fan_in = weight[0].numel()
                    weight.normal_(0.0, 1.5 / fan_in**0.5)
    return model.eval()


def save(folder: Path, model: Any, extractor: Any) -> str:
    model.save_pretrained(folder)
    extractor.save_pretrained(folder)
    return str(folder)


def clip(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """A tone of its own pitch and level in noise."""
    source = np.random.default_rng((samples, seed))
    tone = np.sin(2 * np.pi * source.uniform(150, 3000) * np.arange(samples) / RATE)
    noise = source.standard_normal(samples)
    return (source.uniform(0.1, 0.6) * tone + source.uniform(0.001, 0.05) * noise).astype(np.float32)


def batch_of(*lengths: int) -> AudioBatch:
    clips = [np.clip(clip(length, seed), -1, 1) for seed, length in enumerate(lengths)]
    return AudioBatch.of(clips, RATE)


def published_logits(model: Any, extractor: Any, batch: AudioBatch) -> torch.Tensor:
    """What the library's pipeline computes, clip by clip."""
    rows = []
    for row in range(len(batch)):
        inputs = extractor(batch.clip(row).numpy(), sampling_rate=RATE, return_tensors="pt")
        with torch.no_grad():
            rows.append(model(**inputs).logits)
    return torch.cat(rows)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[HuggingFaceClassifier, Any, Any]]:
    """Each kind: the target loaded from its folder, the model and the extractor it was saved from."""
    found = {}
    for kind in KINDS:
        model, extractor = make(kind)
        folder = save(tmp_path_factory.mktemp(kind), model, extractor)
        found[kind] = (load_classifier(folder), model, extractor)
    return found


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


# --- what the model hears ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_the_published_pipeline(built: Any, kind: str) -> None:
    target, model, extractor = built[kind]
    for samples in (4_000, 7_777, 8_000):
        batch = batch_of(samples)
        expected = published_logits(model, extractor, batch)
        torch.testing.assert_close(target.scores(batch, draws=DRAWS), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_nan_are_no_answer(
    built: Any, check_nan: Callable[[Target, AudioBatch], None], kind: str
) -> None:
    check_nan(built[kind][0], batch_of(8_000, 3_001, 5_432))


@pytest.mark.parametrize("kind", KINDS)
def test_a_clip_gives_the_same_alone_and_in_a_ragged_batch(built: Any, kind: str) -> None:
    target, model, extractor = built[kind]
    batch = batch_of(8_000, 3_001, 8_000, 1_200, 5_432)
    together = target.scores(batch, draws=DRAWS)
    expected = published_logits(model, extractor, batch)
    # The comparison would prove little if all clips had the same logits.
    assert expected.std(dim=0).max() > 0.02
    torch.testing.assert_close(together, expected, atol=1e-4, rtol=0)
    for row in range(len(batch)):
        alone = target.scores(batch.select([row]), draws=DRAWS)[0]
        torch.testing.assert_close(alone, together[row], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_reaches_the_waveform_and_is_the_same_in_a_batch(built: Any, kind: str) -> None:
    target = built[kind][0]
    batch = batch_of(4_000, 2_500)

    def gradient(part: AudioBatch) -> torch.Tensor:
        delta = torch.zeros_like(part.waveforms, requires_grad=True)
        moved = part.with_waveforms(part.waveforms + delta)
        losses = target.loss(moved, ["no"] * len(part), draws=DRAWS)
        assert losses.shape == (len(part),)
        return torch.autograd.grad(losses.sum(), delta)[0]

    together = gradient(batch)
    assert not together[1, 2_500:].any()
    for row in range(2):
        length = int(batch.lengths[row])
        alone = gradient(batch.select([row]))[0]
        assert (alone != 0).float().mean() > 0.9
        scale = float(alone.abs().max())
        torch.testing.assert_close(together[row, :length], alone, atol=1e-3 * scale, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_slope_of_the_loss(built: Any, kind: str) -> None:
    target = built[kind][0]
    batch = batch_of(4_000)
    delta = torch.zeros_like(batch.waveforms, requires_grad=True)
    loss = target.loss(batch.with_waveforms(batch.waveforms + delta), ["no"], draws=DRAWS).sum()
    (gradient,) = torch.autograd.grad(loss, delta)
    step = 1e-2 * gradient / gradient.norm()
    up, down = (
        float(target.loss(batch.with_waveforms(batch.waveforms + sign * step), ["no"], draws=DRAWS))
        for sign in (1, -1)
    )
    assert (up - down) / 2e-2 == pytest.approx(float(gradient.norm()), rel=0.1)


# --- what a user sees ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wav2vec2", "ast", "whisper"])
def test_decisions_are_the_labels_of_the_configuration(built: Any, kind: str) -> None:
    target, model, extractor = built[kind]
    assert target.classes == ("yes", "no", "stop")
    assert target.sample_rate == RATE
    batch = batch_of(8_000, 3_001, 4_000, 1_200, 5_432)
    best = published_logits(model, extractor, batch).argmax(dim=1).tolist()
    assert target.decode(batch, draws=DRAWS) == [LABELS[place] for place in best]


@pytest.mark.parametrize("kind", ["wav2vec2-lv60", "ast", "whisper"])
def test_a_pgd_attack_runs_and_its_examples_are_in_budget(built: Any, kind: str) -> None:
    target = built[kind][0]
    clean = batch_of(4_000, 2_500)
    budget = Snr(db=20.0)
    trial = Pgd(steps=5, step=0.3)(target, clean, Evade(), budget, draws=DRAWS)
    assert bool((budget.excess(trial.delta, trial.clean) <= 1.0).all())
    energies = trial.clean.waveforms.double().square().sum(1), trial.delta.double().square().sum(1)
    assert bool((10 * torch.log10(energies[0] / energies[1]) >= 20.0 - 1e-6).all())
    assert bool((trial.delta.abs().sum(dim=1) > 0).all()) and not trial.delta[1, 2_500:].any()
    losses = [
        target.loss(part, trial.references, draws=DRAWS).detach() for part in (trial.clean, trial.adversarial)
    ]
    assert bool((losses[1] > losses[0]).all())


@pytest.mark.parametrize("kind", ["wav2vec2", "ast", "whisper"])
def test_the_model_is_never_changed(built: Any, kind: str) -> None:
    target = built[kind][0]
    before = {name: value.clone() for name, value in target.module.state_dict().items()}
    target.module.train()
    try:
        batch = batch_of(4_000)
        first, second = (target.scores(batch, draws=DRAWS) for _ in range(2))
        assert torch.equal(first, second), "dropout was on"
        assert all(part.training for part in target.module.modules())
    finally:
        target.module.eval()
    assert all(torch.equal(value, before[name]) for name, value in target.module.state_dict().items())
    moved = batch.with_waveforms(batch.waveforms.clone().requires_grad_())
    target.loss(moved, ["no"], draws=DRAWS).sum().backward()
    assert all(weight.grad is None for weight in target.module.parameters())


def test_the_registry_builds_one_by_name(tmp_path: Path) -> None:
    folder = save(tmp_path, *make("wav2vec2"))
    assert registry.build("target", "huggingface", {"model": folder}).classes == ("yes", "no", "stop")


# --- lengths -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "layers", "samples"), [("wav2vec2", 7, 400), ("data2vec-audio", 7, 400), ("sew", 13, 720)]
)
def test_the_shortest_clip_gives_one_step(tmp_path: Path, kind: str, layers: int, samples: int) -> None:
    # The published convolutions see 400 samples and step by 320; SEW needs two steps to squeeze into one.
    name, extra, _ = RAW[kind]
    config = getattr(transformers, name)(**{**ENCODER, **NAMES, **extra, "conv_dim": [16] * layers})
    folder = save(tmp_path, _random_model(config), transformers.Wav2Vec2FeatureExtractor())
    target = load_classifier(folder)
    assert target.shortest == samples
    check_clips(target, batch_of(samples))
    assert bool(torch.isfinite(target.scores(batch_of(samples), draws=DRAWS)).all())
    with pytest.raises(InputError, match=f"at least {samples} samples"):
        check_clips(target, batch_of(samples - 1))
    with pytest.raises((RuntimeError, ValueError)):
        target.scores(batch_of(samples - 1), draws=DRAWS)


def test_clips_longer_than_the_model_hears_are_refused(built: Any) -> None:
    for kind, longest in (("ast", 400 + 64 * 160 - 1), ("whisper", 16_000)):
        target = built[kind][0]
        check_clips(target, batch_of(longest))
        with pytest.raises(InputError, match=f"at most {longest} samples"):
            check_clips(target, batch_of(longest + 1))
    assert built["wav2vec2"][0].longest is None
    assert built["ast"][0].shortest == 400


# --- what cannot be used -------------------------------------------------------------------------------


def test_importing_the_adapter_does_not_import_transformers() -> None:
    module = "sottovoce.targets.adapters.huggingface_classifier"
    code = f"import sys, {module}; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r'pip install "sottovoce\[huggingface\]"'):
        load_classifier("some/model")


def test_a_hub_id_that_cannot_be_fetched_is_a_clear_error(offline: None) -> None:
    with pytest.raises(InputError, match=r"hub id.*'nobody/no-such-model'.*or give the folder") as caught:
        load_classifier("nobody/no-such-model")
    assert "\n" not in str(caught.value)


def test_a_path_that_does_not_exist_is_a_clear_error(offline: None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a local folder"):
        load_classifier(str(tmp_path / "absent" / "model"))


def test_a_folder_without_a_configuration_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json.*save_pretrained"):
        load_classifier(str(tmp_path))


def test_a_folder_without_a_feature_extractor_is_a_clear_error(offline: None, tmp_path: Path) -> None:
    make("wav2vec2")[0].save_pretrained(tmp_path)
    with pytest.raises(InputError, match="feature extractor"):
        load_classifier(str(tmp_path))


def test_a_folder_without_weights_is_a_clear_error(offline: None, tmp_path: Path) -> None:
    folder = save(tmp_path, *make("wav2vec2"))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="audio classifier"):
        load_classifier(folder)


def test_torn_weights_are_a_clear_error(tmp_path: Path) -> None:
    folder = save(tmp_path, *make("wav2vec2"))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match="audio classifier"):
        load_classifier(folder)


def test_another_feature_extractor_is_named_with_what_is_supported(tmp_path: Path) -> None:
    extractor = transformers.SeamlessM4TFeatureExtractor()
    folder = save(tmp_path, make("wav2vec2")[0], extractor)
    with pytest.raises(InputError, match=r"Wav2Vec2FeatureExtractor, AST.*got SeamlessM4TFeatureExtractor"):
        load_classifier(folder)


def test_a_model_and_an_extractor_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, make("whisper")[0], make("wav2vec2")[1])
    with pytest.raises(InputError, match="expected a model that takes input_values"):
        load_classifier(folder)


def test_a_dithering_extractor_is_refused(tmp_path: Path) -> None:
    extractor = transformers.WhisperFeatureExtractor(chunk_length=1, dither=1e-4)
    with pytest.raises(InputError, match="without dither"):
        load_classifier(save(tmp_path, make("whisper")[0], extractor))


def test_a_model_that_is_no_audio_classifier_is_refused(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    folder = save(tmp_path, transformers.BertModel(config), make("wav2vec2")[1])
    with pytest.raises(InputError, match="audio classifier"):
        load_classifier(folder)


def test_a_model_without_a_trained_head_is_refused(tmp_path: Path) -> None:
    # The library would fill the head with random numbers and go on.
    model, extractor = make("wav2vec2")
    folder = save(tmp_path, model.wav2vec2, extractor)
    with pytest.raises(InputError, match=r"trained for audio classification.*classifier\.bias"):
        load_classifier(folder)


# --- checkpoints as they are found ---------------------------------------------------------------------


def test_half_precision_checkpoints_run_in_single_precision(tmp_path: Path) -> None:
    model, extractor = make("hubert")
    target = load_classifier(save(tmp_path, model.half(), extractor))
    batch = batch_of(4_000)
    expected = published_logits(model.float(), extractor, batch)
    torch.testing.assert_close(target.scores(batch, draws=DRAWS), expected, atol=1e-4, rtol=0)


def test_older_checkpoints_load_whole(tmp_path: Path) -> None:
    # Before torch 2.1 weight norm had other names, and the embedding of masked frames is often absent.
    model, extractor = make("wav2vec2")
    folder = save(tmp_path, model, extractor)
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {
        name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): value
        for name, value in weights.items()
        if not name.endswith("masked_spec_embed")
    }
    assert any(name.endswith("weight_g") for name in renamed) and len(renamed) == len(weights) - 1
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    batch = batch_of(4_000)
    expected = published_logits(model, extractor, batch)
    scores = load_classifier(folder).scores(batch, draws=DRAWS)
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)


def test_an_extractor_without_normalisation_is_followed(tmp_path: Path) -> None:
    model, _ = make("hubert")
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    batch = batch_of(4_000, 3_000)
    expected = published_logits(model, extractor, batch)
    scores = load_classifier(save(tmp_path, model, extractor)).scores(batch, draws=DRAWS)
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)


def test_labels_come_in_the_order_of_the_outputs(tmp_path: Path) -> None:
    folder = save(tmp_path, *make("wav2vec2"))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["id2label"] = {"2": "stop", "0": "yes", "1": "no"}
    path.write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_classifier(folder).classes == ("yes", "no", "stop")
