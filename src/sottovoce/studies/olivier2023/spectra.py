"""Where in the spectrum adversarial perturbations lie (Figs. 7.3 and 7.4)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from sottovoce.core.record import Record
from sottovoce.studies.draw import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
WINDOW, HOP = 400, 160
"""25 and 10 ms at 16 kHz: 201 frequencies, as in section 7.5."""
LIGHT = 40
"""How many of the lowest frequencies are hardly affected, according to the thesis on its Fig. 7.3."""
# Half a step of 16 bits, squared: a silent cell has no level.
_FLOOR = (0.5 / 32768) ** 2


class PowerSpectra(NamedTuple):
    """A clip before and after, as powers `(frequencies, frames)`, and that of what was added."""

    clean: Floats
    adversarial: Floats
    delta: Floats
    sample_rate: int


def read_examples(folder: Path, records: Iterable[Record]) -> list[PowerSpectra]:
    """Those whose audio was kept."""
    return [_example(folder, record) for record in records if {"clean", "adversarial"} <= set(record.audio)]


def mean_levels_db(examples: Iterable[PowerSpectra]) -> dict[str, Floats]:
    """Levels in dB by frequency, over all frames of all clips: natural, adversarial, and the difference."""
    rows = [(_db(one.clean), _db(one.adversarial), _db(one.delta)) for one in examples]
    names = ("natural", "adversarial", "perturbation")
    return {
        name: np.concatenate([row[place] for row in rows], axis=1).mean(axis=1)
        for place, name in enumerate(names)
    }


def snr_by_frequency_db(examples: Iterable[PowerSpectra]) -> Floats:
    """The ratio of a clip to what was added, in dB by frequency: energies over all clips and frames."""
    pairs = [(one.clean.sum(axis=1), one.delta.sum(axis=1)) for one in examples]
    clean, delta = (np.sum([pair[place] for pair in pairs], axis=0) for place in (0, 1))
    ratio: Floats = 10.0 * np.log10((clean + _FLOOR) / (delta + _FLOOR))
    return ratio


def share_below(examples: Iterable[PowerSpectra], hz: float) -> float:
    """The share of what was added, by energy over all clips, that lies up to a frequency."""
    rows = [(one.delta.sum(axis=1), one.sample_rate) for one in examples]
    total = np.sum([delta for delta, _ in rows], axis=0)
    return float(total[: int(hz / (rows[0][1] / WINDOW)) + 1].sum() / total.sum())


def draw_levels(levels: dict[str, Floats], sample_rate: int) -> Figure:
    figure = canvas((9, 3.6))
    axes = figure.subplots()
    for name, values in levels.items():
        axes.plot(np.linspace(0, sample_rate / 2000, len(values)), values, linewidth=1.4, label=name)
    axes.set(xlabel="frequency, kHz", ylabel="level, dB")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_ratio(example: PowerSpectra) -> Figure:
    """The SNR of every cell of one clip's spectrogram."""
    figure = canvas((9, 3.6))
    axes = figure.subplots()
    ratio = _db(example.clean) - _db(example.delta)
    extent = (0.0, ratio.shape[1] * HOP / example.sample_rate, 0.0, example.sample_rate / 2000)
    image = axes.imshow(ratio, origin="lower", aspect="auto", extent=extent, cmap="viridis")
    figure.colorbar(image, label="SNR, dB")
    axes.set(xlabel="seconds", ylabel="frequency, kHz")
    return figure


def _example(folder: Path, record: Record) -> PowerSpectra:
    clean, rate = soundfile.read(folder / record.audio["clean"])
    adversarial, _ = soundfile.read(folder / record.audio["adversarial"])
    return PowerSpectra(_power(clean), _power(adversarial), _power(adversarial - clean), int(rate))


def _power(waveform: Floats) -> Floats:
    """`(frequencies, frames)`, of a clip `(time,)` that is mirrored at its ends."""
    window = torch.hann_window(WINDOW, dtype=torch.float64)
    spectrum = torch.stft(torch.from_numpy(waveform), WINDOW, HOP, window=window, return_complex=True)
    found: Floats = spectrum.abs().square().numpy()
    return found


def _db(power: Floats) -> Floats:
    level: Floats = 10.0 * np.log10(power + _FLOOR)
    return level
