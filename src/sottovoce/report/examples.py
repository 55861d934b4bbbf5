"""Examples to hear and to see: players and spectrograms, embedded in the page."""

from __future__ import annotations

import base64
import io
import math
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import soundfile
from matplotlib import colormaps
from numpy.typing import NDArray
from scipy.signal import stft

from sottovoce.auditing.plan.plan_file import Cell
from sottovoce.auditing.results.summary import find_metric
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.goal import Become
from sottovoce.core.record import Record
from sottovoce.errors import InputError
from sottovoce.report.model_reading import WORDS, ModelReading
from sottovoce.report.shown_words import DASH, defense_title, form_title, goal_title, number
from sottovoce.report.transcript_differences import WordRun, mark_words
from sottovoce.report.trial_columns import Trials

DIFFERENCE_PEAK = 0.5
RANGE_DB = 100.0
COLOURS = "magma"
SHADES = 64
"""More look the same on this scale and cost twice the bytes."""
Samples = NDArray[np.float64]


@dataclass(frozen=True)
class ExampleSound:
    """One of the three signals of an example, as data URIs."""

    title: str
    note: str
    audio: str
    image: str
    alt: str
    top: str
    end: str
    """What the axes of the picture end at."""


@dataclass(frozen=True)
class ExampleText:
    """One text of an example, word by word."""

    title: str
    pieces: list[WordRun]


@dataclass(frozen=True)
class ReportExample:
    clip: str
    label: str
    clean_text: str
    heard: str
    setting: str
    lines: list[ExampleText]
    """Reference and transcripts, for a recogniser."""
    figures: list[tuple[str, str]]
    sounds: list[ExampleSound]
    trouble: str
    """Why there is nothing to hear, where that is so."""


def make_examples(
    folder: RunFolder, trials: Trials, reading: ModelReading, count: int = 3
) -> tuple[list[ReportExample], list[ReportExample]]:
    """The least and the most audible successful examples, by the level of the background, else by SNR."""
    loud, quiet = trials.extremes.pick(count)
    return [make_example(folder, trials, each, reading) for each in quiet], [
        make_example(folder, trials, each, reading) for each in loud
    ]


def make_example(folder: RunFolder, trials: Trials, record: Record, reading: ModelReading) -> ReportExample:
    cell = trials.cells[record.cell]
    words = [form_title(cell), goal_title(cell.goal), cell.budget_title]
    figures = [_figure(record, name) for name in reading.example if _shown(record, name)]
    if level := record.facts.get("intensity"):
        figures.append(("intensity of the clip", level))
    sounds, trouble = [], ""
    try:
        sounds = make_sounds(folder, record, reading)
    except (InputError, OSError, soundfile.LibsndfileError) as error:
        trouble = f"The audio could not be read: {error}"
    return ReportExample(
        clip=record.clip,
        label=record.label,
        clean_text=record.clean_text,
        heard=record.adversarial_text,
        setting=" · ".join([*words, defense_title(cell.defense)]),
        lines=make_lines(record, cell) if reading is WORDS else [],
        figures=figures,
        sounds=sounds,
        trouble=trouble,
    )


def make_lines(record: Record, cell: Cell) -> list[ExampleText]:
    """The reference, what it was to become where the goal has a text, and both transcripts."""
    language = record.facts.get("language", "")
    goal = cell.goal.build("goal")
    lines = [("reference", record.label, record.label), ("clean", record.label, record.clean_text)]
    if isinstance(goal, Become):
        wanted = goal.text_for(record.clean_text)
        lines.append(("wanted", wanted, wanted))
    lines.append(("adversarial", record.label, record.adversarial_text))
    return [ExampleText(title, mark_words(reference, text, language)) for title, reference, text in lines]


def make_sounds(folder: RunFolder, record: Record, reading: ModelReading) -> list[ExampleSound]:
    clean, rate, bits = _read(folder, record.audio["clean"])
    adversarial, other_rate, _ = _read(folder, record.audio["adversarial"])
    if len(clean) != len(adversarial) or rate != other_rate:
        raise InputError(
            f"expected two files of one length and rate, got {len(clean)} samples at {rate} Hz and "
            f"{len(adversarial)} at {other_rate} Hz; run the audit again in a new folder."
        )
    delta = adversarial - clean
    gain_db = difference_gain_db(delta)
    # Silence has no level to refer to; full scale is used instead.
    top_db = max(_spectrum(clean).max(), -120.0)
    cut = "" if len(clean) <= reading.samples else f", first {reading.samples / rate:.3g} s"
    about = [
        ("clean", f"{reading.heard} “{record.clean_text}”{cut}", clean, 0.0),
        ("adversarial", f"{reading.heard} “{record.adversarial_text}”{cut}", adversarial, 0.0),
        ("difference", f"played {number(gain_db, 'dB')} dB louder than it is{cut}", delta, gain_db),
    ]
    return [
        ExampleSound(
            title=title,
            note=note,
            audio=_uri("audio/flac", encode(samples[: reading.samples] * 10 ** (gain / 20), rate, bits)),
            image=_uri("image/png", draw_spectrogram(samples, top_db)),
            alt=f"Spectrogram of the {title} signal of clip {record.clip}, 0 to {rate / 2000:g} kHz over "
            f"{len(clean) / rate:.2f} s, on a scale of {RANGE_DB:g} dB that ends at the clean clip's maximum",
            top=f"{rate / 2000:g} kHz",
            end=f"{len(clean) / rate:.2f} s",
        )
        for title, note, samples, gain in about
    ]


def difference_gain_db(delta: Samples) -> float:
    """What brings the difference to half of full scale; 0 where there is none."""
    peak = float(np.abs(delta).max(initial=0.0))
    return 20.0 * math.log10(DIFFERENCE_PEAK / peak) if peak > 0 else 0.0


def encode(samples: Samples, rate: int, bits: int) -> bytes:
    """A FLAC file, lossless for 16-bit samples; integers, because libsndfile scales floats by 32767."""
    steps = 2.0 ** (bits - 1)
    whole = np.clip(np.round(samples * steps), -steps, steps - 1)
    file = io.BytesIO()
    content = whole.astype(np.int16) if bits == 16 else (whole * 2 ** (32 - bits)).astype(np.int32)
    soundfile.write(file, content, rate, format="FLAC", subtype=f"PCM_{bits}")
    return file.getvalue()


def draw_spectrogram(samples: Samples, top_db: float) -> bytes:
    """A PNG of a pixel a bin and frame, low frequencies at the bottom, on a scale that ends at `top_db`."""
    shares = np.clip(1.0 + (_spectrum(samples) - top_db) / RANGE_DB, 0.0, 1.0)
    shades = np.round(shares[::-1] * (SHADES - 1)).astype(np.uint8)
    return _png(shades, np.round(255 * _palette(SHADES)).astype(np.uint8))


def _png(shades: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """A picture with a palette, which is half as large as one with three colours a pixel."""
    height, width = shades.shape
    rows = np.pad(shades, ((0, 0), (1, 0)))  # a line begins with its filter: 0, none
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": palette.tobytes(),
        b"IDAT": zlib.compress(rows.tobytes(), 9),
        b"IEND": b"",
    }
    framed = (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def colour_ramp() -> str:
    """The spectrograms' colours as a CSS gradient, quiet to loud."""
    colours = (f"rgb({r:.0f} {g:.0f} {b:.0f})" for r, g, b in 255 * _palette(9))
    return f"linear-gradient(to right, {', '.join(colours)})"


def _palette(count: int) -> Samples:
    """`(count, 3)`, red, green and blue from 0 to 1."""
    palette: Samples = colormaps[COLOURS](np.linspace(0.0, 1.0, count))[:, :3]
    return palette


def _spectrum(samples: Samples) -> Samples:
    """Magnitudes in dB, `(frequencies, frames)`: windows of 512 samples, about 250 frames."""
    size = min(512, len(samples))
    step = max(1, len(samples) // 250)
    _, _, found = stft(samples, nperseg=size, noverlap=max(0, size - step), boundary="zeros", padded=True)
    spectrum: Samples = 20.0 * np.log10(np.abs(found) + 1e-9)
    return spectrum


def _read(folder: RunFolder, name: str) -> tuple[Samples, int, int]:
    """Samples on the [-1, 1] scale, the rate, and the bits that a player needs."""
    path = (folder.path / name).resolve()
    if not path.is_relative_to(folder.path.resolve()):
        raise InputError(
            f"a record names {name!r}, which is outside the folder of the run; delete the record."
        )
    with soundfile.SoundFile(path) as file:
        bits = 16 if file.subtype == "PCM_16" else 24
        samples: Samples = file.read(dtype="float64", always_2d=True)[:, 0]
        return samples, file.samplerate, bits


def _shown(record: Record, metric: str) -> bool:
    """What the model did not tell of a transcript, such as its language, is no figure of the example."""
    if metric not in record.parts:
        return False
    return find_metric(metric).says != "words" or not math.isnan(record.parts[metric][0])


def _figure(record: Record, name: str) -> tuple[str, str]:
    value, weight = record.parts[name]
    if name == "language-confusion" and {"heard_before", "heard_after"} <= record.facts.keys():
        return "language heard", f"{record.facts['heard_before']}, then {record.facts['heard_after']}"
    if name == "language-confusion":
        return "language heard", "changed" if value else "unchanged"
    metric = find_metric(name)
    shown = number(value / weight if weight > 0 else math.nan, metric.unit)
    return metric.title, f"{shown} {metric.unit}" if shown != DASH and metric.unit else shown


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
