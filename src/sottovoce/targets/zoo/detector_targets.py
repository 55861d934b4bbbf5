"""Detectors of pathological speech as targets (Amiri and Kodrasi), and the files they are kept in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.weight_files import Weights, read_weights, save_weights
from sottovoce.core.target import evaluating
from sottovoce.data.load import Clip
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.adapters.speech_encoders import Encoder, open_encoder
from sottovoce.targets.adapters.unpadded_layers import inside, windows
from sottovoce.targets.families.classifier import Classifier
from sottovoce.targets.zoo.detector_networks import (
    CLASSES,
    HOP,
    SAMPLE_RATE,
    SEGMENT,
    EmbeddingHead,
    SegmentCnn,
)
from sottovoce.targets.zoo.shipped_weights import PLAIN, shipped_file

ARCHITECTURE = "detector"
CNN, EMBEDDING = "cnn", "embedding"
MAKER = "sottovoce's training of detectors"
TRAINED_ON = "trained_on"
# Segments that go through the network at once: a gradient keeps some 4 MB of each. So few fit the caches of a
# CPU, which is up to twice as fast with them.
AT_ONCE = 256
CACHED = 32


@final
class SegmentDetector(Classifier):
    """A `SegmentCnn` on every segment of 500 ms, a new one from each 250 ms on.

    The chance of a class is the mean of its chances over the segments, and its score the logarithm of that:
    the soft vote of one utterance. Segments lie wholly inside a clip: what is left behind the last of them,
    less than 250 ms, is not heard. A clip of 500 ms is one segment.
    """

    classes = CLASSES
    sample_rate = SAMPLE_RATE
    clips = "proxy"

    def __init__(self, module: SegmentCnn) -> None:
        self.module = module

    @property
    def shortest(self) -> int:
        return SEGMENT

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        counts = windows(batch.lengths, SEGMENT, HOP)
        _check_counts(batch, counts)
        whole = batch.waveforms.unfold(1, SEGMENT, HOP)
        heard = inside(counts, whole.shape[1])
        logs = self._log_chances(whole[heard])
        rows = logs.new_full((*heard.shape, len(CLASSES)), -torch.inf)
        rows[heard] = logs
        return rows.logsumexp(dim=1) - counts[:, None].log()

    def _log_chances(self, segments: Tensor) -> Tensor:
        """`(segments, 2)`. Where they are many, each part is run again for its gradient and not kept."""
        parts = torch.split(segments, CACHED if segments.device.type == "cpu" else AT_ONCE)
        if len(segments) <= AT_ONCE or not torch.is_grad_enabled():
            return torch.cat([self._run(part) for part in parts])
        options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
        return torch.cat([checkpoint(self._run, part, **options) for part in parts])

    def _run(self, segments: Tensor) -> Tensor:
        with evaluating(self.module):
            scores: Tensor = self.module(segments)
        return scores.log_softmax(dim=1)


@final
class EmbeddingDetector(Classifier):
    """An `EmbeddingHead` on the mean frame of a whole utterance, from one layer of a frozen encoder."""

    classes = CLASSES
    clips = "proxy"

    def __init__(self, encoder: Encoder, layer: int, module: EmbeddingHead) -> None:
        encoder.check_layer(layer)
        if module.width != encoder.width:
            raise InputError(
                f"encoder: expected one with frames of {module.width} numbers, got {encoder.width} from "
                f"{encoder.name}; name the encoder that the detector was trained with."
            )
        self.encoder = encoder
        self.layer = layer
        self.module = module
        self.sample_rate = encoder.sample_rate

    @property
    def shortest(self) -> int:
        return self.encoder.shortest

    @property
    def longest(self) -> int | None:
        return self.encoder.longest

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        embeddings = self.encoder.embed(batch, self.layer)
        with evaluating(self.module):
            scores: Tensor = self.module(embeddings)
        return scores


Detector = SegmentDetector | EmbeddingDetector


def segments_of(batch: AudioBatch) -> AudioBatch:
    """The segments of all clips as clips of their own, in order: "clip#0" is the first of "clip"."""
    counts = windows(batch.lengths, SEGMENT, HOP)
    _check_counts(batch, counts)
    whole = batch.waveforms.unfold(1, SEGMENT, HOP)
    segments = whole[inside(counts, whole.shape[1])]
    named = zip(batch.ids, counts.tolist(), strict=True)
    ids = tuple(f"{name}#{place}" for name, count in named for place in range(count))
    return AudioBatch(segments, counts.new_full((len(ids),), SEGMENT), batch.sample_rate, ids)


def segment_rows(batch: AudioBatch) -> list[int]:
    """Which clip each of `segments_of(batch)` was cut from."""
    counts = windows(batch.lengths, SEGMENT, HOP).tolist()
    return [row for row, count in enumerate(counts) for _ in range(count)]


def segment_clips(clips: Sequence[Clip]) -> list[Clip]:
    """As `segments_of`, of clips with their labels and facts, which every segment keeps."""
    found = []
    for clip in clips:
        _check_long(clip.id, len(clip.waveform))
        for place, waveform in enumerate(clip.waveform.unfold(0, SEGMENT, HOP)):
            found.append(replace(clip, id=f"{clip.id}#{place}", waveform=waveform.clone()))
    return found


def save_detector(path: Path, detector: Detector, *, trained_on: str, half: bool = False) -> None:
    """A detector as one file, of either kind. trained_on: in words. half: in 16 bits."""
    shape: dict[str, Any] = {"kind": CNN, "classes": list(detector.classes)}
    if isinstance(detector, EmbeddingDetector):
        encoder = {"encoder": detector.encoder.name, "fingerprint": detector.encoder.fingerprint()}
        shape |= {"kind": EMBEDDING, "layer": detector.layer, "width": detector.module.width, **encoder}
    state = {
        name: value.half() if half and value.is_floating_point() else value
        for name, value in detector.module.state_dict().items()
    }
    save_weights(path, ARCHITECTURE, shape, state, {TRAINED_ON: trained_on})


def load_detector(path: Path, device: str = "cpu", encoder: str | None = None) -> Detector:
    """A detector from its file, frozen and in evaluation.

    encoder: the one that it was trained with, where that lies elsewhere than the file says.
    """
    weights = read_weights(path, ARCHITECTURE, MAKER)
    kind = weights.shape.get("kind")
    if tuple(weights.shape.get("classes", ())) != CLASSES:
        raise InputError(
            f"{path}: expected a detector of {' and '.join(CLASSES)}, got {weights.shape.get('classes')}; "
            f"name a file of {MAKER}."
        )
    if kind == EMBEDDING:
        return _load_embedding(weights, device, encoder)
    if kind != CNN:
        raise UnknownName(f"kind of detector in {path}:", str(kind), (CNN, EMBEDDING))
    if encoder is not None:
        raise InputError(f"encoder: {path} is a {CNN}, which has none; leave it out.")
    return SegmentDetector(weights.fill(SegmentCnn()).to(device))


def _load_embedding(weights: Weights, device: str, encoder: str | None) -> EmbeddingDetector:
    shape = weights.shape
    known = open_encoder(encoder or shape["encoder"], device)
    if known.fingerprint() != shape["fingerprint"]:
        raise InputError(
            f"encoder: {weights.path} was trained with {shape['encoder']}, got other weights in "
            f"{known.name}; name the right one with encoder=...."
        )
    module = weights.fill(EmbeddingHead(shape["width"])).to(device)
    return EmbeddingDetector(known, shape["layer"], module)


def detector(weights: str | None = None, device: str = "cpu", encoder: str | None = None) -> Detector:
    """Whether speech is pathological, by the embedded CNN or a detector of your own.

    The embedded CNN was trained on a synthetic PROXY and knows no patient.

    weights: path of a file that the training of detectors wrote, of a CNN or of embeddings.
    device: where it runs.
    encoder: of a detector on embeddings, where it is elsewhere than the file says.
    """
    if weights is not None:
        return load_detector(Path(weights).expanduser(), device, encoder)
    with resources.as_file(shipped_file(ARCHITECTURE, PLAIN, (PLAIN,), plain=ARCHITECTURE)) as path:
        return load_detector(path, device, encoder)


def _check_counts(batch: AudioBatch, counts: Tensor) -> None:
    short = int(counts.argmin())
    if int(counts[short]) < 1:
        _check_long(batch.ids[short], int(batch.lengths[short]))


def _check_long(clip: str, samples: int) -> None:
    if samples < SEGMENT:
        raise InputError(
            f"clip {clip!r}: expected at least {SEGMENT} samples (500 ms), one segment, got {samples}; drop "
            "it or record it again."
        )
