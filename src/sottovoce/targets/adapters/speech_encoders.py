"""Frozen networks that turn speech into frames of numbers, differentiable down to the waveform."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import Any, final

import torch
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.target import evaluating
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.adapters.huggingface_hub import (
    check_kind,
    fetch,
    fetch_model,
    import_transformers,
    running,
    source_of,
)
from sottovoce.targets.adapters.unpadded_layers import inside, lengths_apart, receptive_field
from sottovoce.targets.adapters.whisper import load_whisper
from sottovoce.targets.families.front_ends import RawWaveform, WhisperLogMel
from sottovoce.targets.zoo import conformer

WAV2VEC2 = "facebook/wav2vec2-base"
KINDS = ("wav2vec2", "whisper", "recogniser")


class Encoder(ABC):
    """Layers of frames. Layer 0 is what the first transformer layer is given, layer k what the k-th gives."""

    name: str
    """As `open_encoder` takes it."""
    sample_rate: int = 16_000
    module: nn.Module
    width: int
    """Numbers in a frame."""
    layers: int
    """The last layer there is."""

    @property
    @abstractmethod
    def shortest(self) -> int:
        """The fewest samples that give a frame."""

    @property
    def longest(self) -> int | None:
        """The most samples a clip may have; None: any length."""
        return None

    @abstractmethod
    def frames(self, batch: AudioBatch, layer: int) -> tuple[Tensor, Tensor]:
        """Frames `(batch, frames, width)` of one layer, and how many of them are each clip's, `(batch,)`."""

    @final
    def embed(self, batch: AudioBatch, layer: int) -> Tensor:
        """The mean over each clip's own frames, `(batch, width)`."""
        frames, counts = self.frames(batch, layer)
        heard = inside(counts, frames.shape[1])[..., None]
        return frames.masked_fill(~heard, 0.0).sum(dim=1) / counts[:, None]

    @final
    def check_layer(self, layer: int) -> None:
        if not 0 <= layer <= self.layers:
            raise InputError(
                f"encoder {self.name}: expected a layer from 0 to {self.layers}, got {layer}; choose one."
            )

    @final
    def fingerprint(self) -> str:
        """Of the weights themselves, so that what was computed with others is never taken for theirs."""
        digest = blake2b(digest_size=8)
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()


@final
class RawEncoder(Encoder):
    """wav2vec 2.0, HuBERT, WavLM and their relatives of the transformers library, on the waveform itself.

    Clips of each length go through the network apart: the group norm of the base models would hear padding.
    """

    def __init__(self, name: str, module: Any, front: RawWaveform, sample_rate: int = 16_000) -> None:
        self.name = name
        self.module = module
        self.front = front
        self.sample_rate = sample_rate
        self.width = int(module.config.hidden_size)
        self.layers = int(module.config.num_hidden_layers)

    @property
    def shortest(self) -> int:
        config: Any = self.module.config
        return max(receptive_field(config.conv_kernel, config.conv_stride), self.sample_rate // 50)

    def frames(self, batch: AudioBatch, layer: int) -> tuple[Tensor, Tensor]:
        self.check_layer(layer)
        rows: list[Tensor] = [batch.waveforms] * len(batch)
        with running(self.module):
            heard = self.front(batch.waveforms, batch.lengths)
            for places, length in lengths_apart(batch.lengths):
                states = self.module(heard[places, :length], output_hidden_states=True).hidden_states
                for place, row in zip(places.tolist(), states[layer], strict=True):
                    rows[place] = row
        counts = torch.tensor([len(row) for row in rows], device=batch.device)
        return nn.utils.rnn.pad_sequence(rows, batch_first=True), counts


@final
class WhisperEncoder(Encoder):
    """Whisper's encoder. It hears 30 s, as it was trained; frames past the end of a clip are not the clip's.

    A frame is 20 ms. Behind the last layer comes the network's own norm, which is part of that layer here.
    """

    def __init__(self, name: str, module: Any, front: WhisperLogMel) -> None:
        self.name = name
        self.module = module
        self.front = front
        self.width = int(module.config.d_model)
        self.layers = int(module.config.encoder_layers)
        self._frame = front.samples // int(module.config.max_source_positions)

    @property
    def shortest(self) -> int:
        return self._frame

    @property
    def longest(self) -> int | None:
        return self.front.longest

    def frames(self, batch: AudioBatch, layer: int) -> tuple[Tensor, Tensor]:
        self.check_layer(layer)
        with evaluating(self.module):
            features = self.front(batch.waveforms, batch.lengths)
            states = self.module(features, output_hidden_states=True).hidden_states[layer]
        counts = batch.lengths.div(self._frame, rounding_mode="floor")
        return states[:, : int(counts.max())], counts


@final
class RecogniserEncoder(Encoder):
    """The recogniser that comes with sottovoce: what its blocks give, a frame in 40 ms."""

    name = "recogniser"
    module: conformer.Conformer

    def __init__(self, module: conformer.Conformer) -> None:
        self.module = module
        self.width = module.output.in_features
        self.layers = len(module.blocks)

    @property
    def shortest(self) -> int:
        return conformer.SHORTEST

    def frames(self, batch: AudioBatch, layer: int) -> tuple[Tensor, Tensor]:
        self.check_layer(layer)
        with evaluating(self.module):
            features, counts = self.module.mel(batch.waveforms, batch.lengths)
            hidden = self.module.subsampling(features)
            counts = conformer.subsample(counts)
            heard = inside(counts, hidden.shape[1])
            for block in list(self.module.blocks)[:layer]:
                hidden = block(hidden, heard)
        return hidden, counts


def open_encoder(spec: str, device: str = "cpu") -> Encoder:
    """A frozen encoder by its name.

    `wav2vec2` (the base model of the hub), `wav2vec2:FOLDER` or a hub id (HuBERT and WavLM too),
    `whisper:FILE.pt` or a size, or `recogniser`, which needs nothing but sottovoce.
    """
    kind, _, source = spec.partition(":")
    if kind not in KINDS:
        raise UnknownName("encoder", kind, KINDS)
    if kind == "recogniser":
        if source:
            raise InputError(
                f"the encoder 'recogniser' takes nothing after its name, got {spec!r}; write recogniser."
            )
        return RecogniserEncoder(conformer.load(device))
    if kind == "wav2vec2":
        return _load_raw(spec, source or WAV2VEC2, device)
    if not source:
        raise InputError(
            "expected an encoder like whisper:FILE.pt or whisper:tiny, got no name after the colon."
        )
    whisper = load_whisper(source, device=device)
    return WhisperEncoder(spec, whisper.module.model.encoder, whisper.front)


def _load_raw(spec: str, model: str, device: str) -> RawEncoder:
    library = import_transformers()
    source = source_of(model)
    extractor = fetch(model, "feature extractor", library.AutoFeatureExtractor, source)
    check_kind(model, "feature extractor", extractor, ("Wav2Vec2FeatureExtractor",))
    module = fetch_model(model, "encoder", library.AutoModel, source, "speech representations")
    front = RawWaveform(normalise=bool(extractor.do_normalize))
    return RawEncoder(spec, module.to(device), front, int(extractor.sampling_rate))
