"""Audio files: how long they are before they are decoded, their samples, and headers that do not fit.

libsndfile corrects a wrong header silently.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sottovoce.errors import InputError

LONGEST_SECONDS = 1800.0
"""The default limit: a longer clip is refused before memory is allocated for it."""
_ORDER: dict[bytes, Literal["little", "big"]] = {
    b"RIFF": "little",
    b"RF64": "little",
    b"BW64": "little",
    b"RIFX": "big",
}
_OPEN = 0xFFFFFFFF
"""The size of a chunk that was written before its end was known, or whose size is in the chunk `ds64`."""
_MOST_CHUNKS = 1000


class Recording(NamedTuple):
    """Samples as they came: floats in [-1, 1], `(time,)` or `(time, channels)`; remarks say what is lost."""

    samples: NDArray[np.float64]
    sample_rate: int
    remarks: tuple[str, ...] = ()


def read_audio(
    file: Path | BinaryIO,
    place: str,
    start: int = 0,
    frames: int | None = None,
    longest_seconds: float = LONGEST_SECONDS,
) -> Recording:
    """An audio file, or a piece of it in its own samples. place: how messages name it."""
    # Imported here: clips from a pack do not need it.
    import soundfile

    remarks = [_look_at_header(file)]
    # As bytes, so that names that are no UTF-8 are found as well.
    named = os.fsencode(file) if isinstance(file, Path) and os.name == "posix" else file
    try:
        with soundfile.SoundFile(named) as sound:
            rate, there = int(sound.samplerate), max(sound.frames - start, 0)
            wanted = there if frames is None else frames
            check_length(place, min(wanted, there), rate, longest_seconds)
            if start:
                sound.seek(min(start, sound.frames))
            samples = sound.read(min(wanted, there), dtype="float64", always_2d=True)
    except soundfile.SoundFileError as error:
        reason = str(error).rpartition(": ")[2].rstrip(".")
        raise InputError(
            f"{place}: expected audio that libsndfile reads (WAV, FLAC, Ogg, MP3), got a file it rejects "
            f"({reason}); convert or drop it."
        ) from error
    if len(samples) < wanted:
        remarks.append(f"{len(samples)} of {wanted} samples could be read")
    return Recording(samples, rate, tuple(filter(None, remarks)))


def check_length(place: str, samples: int, sample_rate: int, longest_seconds: float) -> None:
    """Refuse a clip by its length in seconds, which no resampling changes."""
    if sample_rate <= 0:
        raise InputError(f"{place}: expected a sample rate above 0 Hz, got {sample_rate}; drop the clip.")
    if samples > longest_seconds * sample_rate:
        raise InputError(
            f"{place}: expected a clip of at most {longest_seconds:g} s, got {samples / sample_rate:.10g} s "
            f"({samples} samples at {sample_rate} Hz); cut it into shorter clips, or raise --longest."
        )


def _look_at_header(file: Path | BinaryIO) -> str:
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return check_header(opened)
    remark = check_header(file)
    file.seek(0)
    return remark


def check_header(file: BinaryIO) -> str:
    """A remark on a header that does not fit its file; "" where it does, and for other formats."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(12)
    order = _ORDER.get(head[:4])
    if order is None or head[8:] != b"WAVE":
        return ""
    place, data_bytes, after = 12, _OPEN, False
    for _ in range(_MOST_CHUNKS):
        if end - place < 8:
            break
        file.seek(place)
        name, size = file.read(4), int.from_bytes(file.read(4), order)
        if after and not name.strip(b"\0"):
            break  # zeros fill the file up
        if after and not all(32 <= letter < 127 for letter in name):
            return f"after its samples the file has {end - place} bytes that its header does not tell of"
        place += 8
        if name == b"ds64":
            # Sizes of 64 bits: of the whole file, then of the samples.
            data_bytes = int.from_bytes(file.read(16)[8:], order)
        elif name == b"data":
            size, after = (data_bytes if size == _OPEN else size), True
            if size > end - place:
                return f"its header tells of {size} bytes of samples, the file has {end - place}"
        place += size + size % 2
    return ""
