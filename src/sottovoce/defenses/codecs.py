"""Lossy codecs: encode and decode. None has a gradient of its own, so all use the identity's."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform, straight_through
from sottovoce.errors import InputError, MissingExtra

# Bit rates of layer III in kbit/s, in the order of their codes in a frame's header (ISO 11172-3, 13818-3).
_MPEG_1 = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG_2 = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MPEG_25 = _MPEG_2[:8]
_KBPS = {
    **dict.fromkeys((8000, 11025, 12000), _MPEG_25),
    **dict.fromkeys((16000, 22050, 24000), _MPEG_2),
    **dict.fromkeys((32000, 44100, 48000), _MPEG_1),
}
# Samples by which a decoded stream is late: 576 by the encoder (LAME) and 529 by any decoder. A stream with
# room for an info frame tells this to the decoder, which then cuts it off itself.
_DELAY = 576 + 529


@final
@dataclass(frozen=True, kw_only=True)
class Mp3(Transform):
    """MP3 at a constant bit rate, mono, decoded again and aligned with the clip.

    kbps: bit rate in kbit/s; 8 to 160 at 16 kHz, 32 to 320 at 44.1 kHz.

    The encoder (LAME) lowers the level by about half a decibel, against clipping; that is left as it is.
    There is no gradient, so the identity's is used. Works on the CPU.

    >>> clips = sv.testing.example_clips(16000)
    >>> coded = sv.defenses.Mp3(kbps=32)(clips, draws=sv.Draws(0))
    >>> coded.lengths.tolist() == clips.lengths.tolist()  # no delay is left
    True
    """

    kbps: int = 32

    def __post_init__(self) -> None:
        known = sorted({*_MPEG_1, *_MPEG_2})
        if self.kbps not in known:
            raise InputError(
                f"kbps: expected a bit rate of MP3 in kbit/s ({', '.join(map(str, known))}), got {self.kbps}."
            )
        if "MP3" not in _soundfile().available_formats():
            raise MissingExtra(
                "mp3 needs a libsndfile that writes MP3 (1.1 or later, built with LAME and mpg123), which "
                "this one cannot; pip install --upgrade soundfile."
            )

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        rate, table = batch.sample_rate, _KBPS.get(batch.sample_rate)
        if table is None:
            raise InputError(
                f"mp3 works at {', '.join(map(str, _KBPS))} Hz, got clips at {rate} Hz; resample them, or "
                "choose another codec."
            )
        if self.kbps not in table:
            raise InputError(
                f"kbps: MP3 at {rate} Hz has {', '.join(map(str, table))} kbit/s, got {self.kbps}; choose "
                "one of them."
            )
        heard = torch.zeros_like(batch.waveforms, requires_grad=False)
        clips = [batch.clip(row).detach().cpu().float().numpy() for row in range(len(batch))]
        for row, samples in enumerate(
            _workers().map(lambda clip: _encode_and_decode(clip, rate, self.kbps), clips)
        ):
            heard[row, : len(samples)] = torch.from_numpy(samples)
        return straight_through(batch.waveforms, heard)


@final
@dataclass(frozen=True, kw_only=True)
class MuLaw(Transform):
    """Mu-law companding: quantisation with fine steps for quiet samples and coarse ones for loud samples.

    levels: how many values a sample can take, 3 to 65536; an even number leaves one unused.
    mu: curvature of the law, above 0; 255 is that of ITU-T G.711 (the smooth curve, not its segments).

    Zero stays zero, and samples beyond full scale are clipped. There is no gradient, so the identity's is
    used.

    >>> clip = sv.AudioBatch.of([[0.5, 0.001, -0.5]], sample_rate=16000)
    >>> sv.defenses.MuLaw(levels=3)(clip, draws=sv.Draws(0)).waveforms.tolist()
    [[1.0, 0.0, -1.0]]
    """

    levels: int = 256
    mu: float = 255.0

    def __post_init__(self) -> None:
        if not 3 <= self.levels <= 65536:
            raise InputError(f"expected 3 to 65536 levels, got {self.levels}; 256 is usual.")
        if not 0 < self.mu < float("inf"):
            raise InputError(f"expected mu above 0, got {self.mu}; 255 is usual.")

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        steps, mu = (self.levels - 1) // 2, torch.tensor(self.mu, dtype=torch.float64, device=batch.device)
        samples = batch.waveforms.detach().double().clamp(-1.0, 1.0)
        curve = torch.log1p(mu * samples.abs()) / torch.log1p(mu)
        level = torch.expm1((curve * steps).round() / steps * torch.log1p(mu)) / mu
        heard = (samples.sign() * level).to(batch.waveforms.dtype)
        return straight_through(batch.waveforms, heard)


def _encode_and_decode(clip: NDArray[np.float32], sample_rate: int, kbps: int) -> NDArray[np.float32]:
    """A clip `(time,)` through the codec, aligned sample by sample."""
    if not np.isfinite(clip).all():
        raise InputError(
            "mp3 got NaN or infinite samples; look for the cause in the transform or the attack before it."
        )
    stream = encode(clip, sample_rate, kbps)
    samples, rate = _soundfile().read(io.BytesIO(stream), dtype="float32")
    late = 0 if len(samples) == len(clip) else _DELAY
    if rate != sample_rate or len(samples) < late + len(clip):
        raise InputError(
            f"the MP3 decoder gave {len(samples)} samples at {rate} Hz, expected {len(clip)} at "
            f"{sample_rate} Hz; install another build of libsndfile."
        )
    aligned: NDArray[np.float32] = samples[late : late + len(clip)]
    return aligned


def encode(clip: NDArray[np.float32], sample_rate: int, kbps: int) -> bytes:
    """A clip `(time,)` as an MP3 stream."""
    table = _KBPS[sample_rate]
    # libsndfile takes no bit rate but a level from 0 (the highest) to 1 (the lowest), and cuts off what lies
    # between whole rates: half a kbit/s more keeps clear of rounding.
    level = max(0.0, (table[-1] - kbps - 0.5) / (table[-1] - table[0]))
    stream = io.BytesIO()
    with _soundfile().SoundFile(
        stream,
        "w",
        sample_rate,
        1,
        "MPEG_LAYER_III",
        format="MP3",
        bitrate_mode="CONSTANT",
        compression_level=level,
    ) as file:
        file.write(clip)
    encoded = stream.getvalue()
    code = encoded[2] >> 4
    got = table[code - 1] if 0 < code <= len(table) else 0
    if got != kbps:
        raise InputError(
            f"the MP3 encoder gave {got} kbit/s, expected {kbps}; install another build of libsndfile."
        )
    return encoded


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:
        raise MissingExtra(
            f"mp3 needs the package soundfile, which cannot be loaded ({error}); pip install soundfile."
        ) from error
    return soundfile


@cache
def _workers() -> ThreadPoolExecutor:
    # libsndfile works outside of Python's lock, so threads share the cores.
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="codec")
