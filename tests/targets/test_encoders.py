"""Encoders: tiny random ones against the library's own forward pass, and the recogniser that is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.adapters.speech_encoders import WhisperEncoder, open_encoder
from sottovoce.targets.families.front_ends import WhisperLogMel
from sottovoce.targets.zoo.detector_networks import EmbeddingHead
from sottovoce.targets.zoo.detector_targets import EmbeddingDetector
from sottovoce.targets.zoo.recogniser_targets import recogniser
from sottovoce.testing import check_target, example_clips

transformers = pytest.importorskip("transformers")

RATE = 16_000
LAYERS, WIDTH = 3, 16
SIZE = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 4, 4),
    "conv_kernel": (10, 8, 4),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
}
KINDS = {
    "wav2vec2": ("Wav2Vec2", {}),
    "wav2vec2-large": ("Wav2Vec2", {"feat_extract_norm": "layer", "do_stable_layer_norm": True}),
    "hubert": ("Hubert", {}),
    "wavlm": ("WavLM", {}),
}


def save(kind: str, folder: Path, *, normalise: bool = True) -> tuple[Any, Any]:
    """A tiny model with random weights in a folder: the model and its feature extractor."""
    name, extra = KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = getattr(transformers, f"{name}Model")(
            getattr(transformers, f"{name}Config")(**SIZE, **extra)
        ).eval()
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalise)
    model.save_pretrained(folder)
    extractor.save_pretrained(folder)
    return model, extractor


@pytest.fixture
def clips() -> AudioBatch:
    return example_clips(seconds=(0.4, 0.25, 0.5, 0.4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalise", [True, False])
def test_layers_are_those_of_the_library(
    kind: str, normalise: bool, tmp_path: Path, clips: AudioBatch
) -> None:
    model, extractor = save(kind, tmp_path, normalise=normalise)
    encoder = open_encoder(f"wav2vec2:{tmp_path}")
    assert (encoder.width, encoder.layers, encoder.sample_rate) == (WIDTH, LAYERS, RATE)
    for layer in (0, 2, LAYERS):
        frames, counts = encoder.frames(clips, layer)
        for row in range(len(clips)):
            heard = extractor(clips.clip(row).numpy(), sampling_rate=RATE, return_tensors="pt").input_values
            with torch.no_grad():
                expected = model(heard, output_hidden_states=True).hidden_states[layer][0]
            assert int(counts[row]) == len(expected)
            torch.testing.assert_close(frames[row, : len(expected)], expected, rtol=1e-4, atol=1e-4)


def test_gradients_reach_the_waveform_through_the_normalisation(tmp_path: Path, clips: AudioBatch) -> None:
    model, _ = save("wav2vec2", tmp_path)
    encoder = open_encoder(f"wav2vec2:{tmp_path}")
    leaf = clips.waveforms.clone().requires_grad_()
    direction = torch.linspace(-1.0, 1.0, WIDTH)
    (encoder.embed(clips.with_waveforms(leaf), 2) @ direction).sum().backward()
    for row, length in enumerate(clips.lengths.tolist()):
        single = clips.clip(row).clone().requires_grad_()
        # The published extractor, in torch: zero mean and unit variance over the clip.
        heard = (single - single.mean()) / (single.var(correction=0) + 1e-7).sqrt()
        states = model(heard[None], output_hidden_states=True).hidden_states[2]
        (states.mean(dim=1) @ direction).sum().backward()
        scale = float(single.grad.abs().max())
        assert scale > 0
        torch.testing.assert_close(leaf.grad[row, :length] / scale, single.grad / scale, rtol=0, atol=1e-3)
        assert not leaf.grad[row, length:].any()
    assert not any(value.requires_grad for value in encoder.module.parameters())


def test_frames_of_wav2vec2_are_the_convolutions_windows(tmp_path: Path) -> None:
    save("wav2vec2", tmp_path)
    encoder = open_encoder(f"wav2vec2:{tmp_path}")
    # 1600 samples: (1600 - 10) // 5 + 1 = 319, (319 - 8) // 4 + 1 = 78, (78 - 4) // 4 + 1 = 19.
    frames, counts = encoder.frames(AudioBatch.of([torch.ones(1600) * 0.1], RATE), 1)
    assert (frames.shape, counts.tolist()) == ((1, 19, WIDTH), [19])


def test_an_embedding_is_the_mean_over_the_clips_own_frames(tmp_path: Path, clips: AudioBatch) -> None:
    save("wav2vec2", tmp_path)
    encoder = open_encoder(f"wav2vec2:{tmp_path}")
    frames, counts = encoder.frames(clips, 1)
    found = encoder.embed(clips, 1)
    for row, count in enumerate(counts.tolist()):
        torch.testing.assert_close(found[row], frames[row, :count].mean(dim=0))


@pytest.mark.parametrize("kind", KINDS)
def test_detectors_on_encoders_keep_the_laws(kind: str, tmp_path: Path, clips: AudioBatch) -> None:
    save(kind, tmp_path)
    encoder = open_encoder(f"wav2vec2:{tmp_path}")
    check_target(EmbeddingDetector(encoder, 2, EmbeddingHead(WIDTH)), clips)


def tiny_whisper() -> WhisperEncoder:
    config = transformers.WhisperConfig(
        d_model=WIDTH,
        encoder_layers=LAYERS,
        encoder_attention_heads=2,
        encoder_ffn_dim=32,
        max_source_positions=50,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
    return WhisperEncoder("whisper:tiny", module.requires_grad_(False), WhisperLogMel(seconds=1))


def test_whisper_gives_the_frames_of_the_clip_alone(clips: AudioBatch) -> None:
    encoder = tiny_whisper()
    extractor = transformers.WhisperFeatureExtractor(chunk_length=1)
    module = encoder.module.eval()
    for layer in (0, 2, LAYERS):
        frames, counts = encoder.frames(clips, layer)
        # A frame is 20 ms: 0.4 s are 20, 0.25 s are 12 and a half.
        assert counts.tolist() == [20, 12, 25, 20]
        for row, count in enumerate(counts.tolist()):
            heard = extractor(clips.clip(row).numpy(), sampling_rate=RATE, return_tensors="pt").input_features
            with torch.no_grad():
                expected = module(heard, output_hidden_states=True).hidden_states[layer][0, :count]
            torch.testing.assert_close(frames[row, :count], expected, rtol=1e-3, atol=1e-3)
    check_target(EmbeddingDetector(encoder, 2, EmbeddingHead(WIDTH)), clips)


def test_the_last_layer_of_the_recogniser_is_what_it_spells_from(clips: AudioBatch) -> None:
    encoder = open_encoder("recogniser")
    target = recogniser()
    frames, counts = encoder.frames(clips, encoder.layers)
    expected, same = target.module(clips.waveforms, clips.lengths)
    assert counts.tolist() == same.tolist()
    found = target.module.output(frames).log_softmax(dim=2)
    for row, count in enumerate(counts.tolist()):
        torch.testing.assert_close(found[row, :count], expected[row, :count], rtol=1e-4, atol=1e-4)


def test_layers_that_are_not_there_are_refused(clips: AudioBatch) -> None:
    encoder = open_encoder("recogniser")
    for layer in (-1, 9):
        with pytest.raises(
            InputError, match=rf"encoder recogniser: expected a layer from 0 to 8, got {layer}"
        ):
            encoder.frames(clips, layer)


def test_fingerprints_tell_weights_apart(tmp_path: Path) -> None:
    save("wav2vec2", tmp_path / "one")
    save("wav2vec2", tmp_path / "two")
    one, two = (open_encoder(f"wav2vec2:{tmp_path / name}") for name in ("one", "two"))
    assert one.fingerprint() == two.fingerprint()
    with torch.no_grad():
        next(two.module.parameters()).flatten()[0] += 1e-3
    assert one.fingerprint() != two.fingerprint()


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("wav2vec", UnknownName, r"unknown encoder 'wav2vec': did you mean 'wav2vec2'\?"),
        ("recogniser:file", InputError, "takes nothing after its name"),
        ("whisper", InputError, "expected an encoder like whisper:FILE.pt"),
    ],
)
def test_encoders_that_cannot_be_had_say_so(spec: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        open_encoder(spec)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a model folder with a config\.json"):
        open_encoder(f"wav2vec2:{tmp_path}")
