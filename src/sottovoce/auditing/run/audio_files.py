"""The audio files of a run: where they belong, and what is in them."""

from __future__ import annotations

import io
from hashlib import sha256
from urllib.parse import quote

import numpy as np
import soundfile
from torch import Tensor

LONGEST_NAME, LONGEST_PATH = 240, 1000
"""Letters of a file's name and of its path in a run's folder; most file systems end at 255 and 4,096."""


def sound_path(kind: str, clip: str, bits: int | None) -> str:
    """Where a clip belongs in the folder of a run. kind: "clean" or the id of a cell."""
    return f"audio/{kind}/{_file_name(clip)}{'.flac' if bits == 16 else '.wav'}"


def encode(waveform: Tensor, sample_rate: int, bits: int | None) -> bytes:
    """A clip `(time,)` as a file: FLAC of 16 bits, or a WAV of floats for a run on another grid."""
    samples, exact, file = waveform.detach().cpu().numpy(), bits == 16, io.BytesIO()
    # Integers, because how libsndfile scales and rounds floats depends on the format and on settings.
    content = np.round(samples * 32768).astype(np.int16) if exact else samples.astype(np.float32)
    kind, subtype = ("FLAC", "PCM_16") if exact else ("WAV", "FLOAT")
    soundfile.write(file, content, sample_rate, format=kind, subtype=subtype)
    return file.getvalue()


def _file_name(clip: str) -> str:
    """An id as a path that stays below its folder: what is unusual, and `..`, is percent-encoded. Where that
    is longer than file systems take, its end is a hash."""
    name = quote(clip, safe="/ ").replace("..", "%2E%2E").lstrip("/")
    if len(name) <= LONGEST_PATH and all(len(part) <= LONGEST_NAME for part in name.split("/")):
        return name
    return f"{name.rpartition('/')[2][:40].rstrip('%')}-{sha256(clip.encode()).hexdigest()[:16]}"
