"""M1: the perturbation space (section 3.1, Table 1): what is asked for, and what is found in the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from sottovoce import __version__
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import collate
from sottovoce.perception.degradations.perturbation_space import CATEGORIES, MAKERS, Direction
from sottovoce.studies.draw import canvas, curves
from sottovoce.studies.manocha2020 import perturbation_measures as measure
from sottovoce.studies.study import (
    Choice,
    Result,
    Study,
    StudyFigure,
    StudyTable,
    Tell,
    default_folder,
    find_scale,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLE_RATE = 16_000
STRENGTHS = (0.0, 25.0, 50.0, 75.0, 100.0)
CLIPS = {"mini": 4, "full": 64}
DIRECTIONS = {"mini": 10, "full": 100}
SHOWN_STRENGTH = 50.0


@final
@dataclass(frozen=True)
class PerturbationSetup:
    """Clips to degrade, and how many random directions to walk."""

    folder: Path
    clips: AudioBatch
    data: str
    note: str
    scale: str
    seed: int
    tell: Tell
    unused: dict[str, str]

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "data": self.data,
            "scale": self.scale,
            "clips": list(self.clips.ids),
            "seed": self.seed,
        }

    def scope(self, study: Study[Any]) -> list[str]:
        return [
            f"Data {self.data} ({self.note}), {len(self.clips)} clips, seed {self.seed}.",
            "Noises and room responses are synthesised; the paper took noises from ESC-50 and measured "
            "responses. The paper does not say how strengths map to a range, or what EQ amounts mean: both "
            "are our "
            "choice.",
        ]

    @property
    def draws(self) -> Draws:
        return Draws(self.seed).turn("study", "M1")


def open_bench(choice: Choice, out: Path | None, device: str, tell: Tell) -> PerturbationSetup:
    choice.refuse("M1", "attack", "fit", "model", "batch")
    scale = "full" if find_scale(choice.scale).name == "full" else "mini"
    data, count = choice.data or "strings", choice.clips or CLIPS[scale]
    corpus = open_corpus(data).limit(count, choice.seed)
    (chunk,) = corpus.chunks(len(corpus), SAMPLE_RATE)
    return PerturbationSetup(
        folder=out or default_folder("M1", scale, [data, count, choice.seed]),
        clips=collate(chunk.clips),
        data=data,
        note=corpus.note,
        scale=scale,
        seed=choice.seed,
        tell=tell,
        unused={failure.id: failure.reason for failure in chunk.failures},
    )


def run(bench: PerturbationSetup) -> Result:
    found, growth = {}, {}
    for place, name in enumerate(MAKERS):
        bench.tell(place / (len(MAKERS) + 1), name)
        growth[name] = _growth(bench, Direction((name,)))
        found[name] = [
            (asked, growth[name][step].tolist() if values is None else values)
            for step, strength in enumerate(STRENGTHS)
            for asked, values in [_figures(bench, name, strength)]
        ]
    bench.tell(len(MAKERS) / (len(MAKERS) + 1), "directions")
    walks = {
        str(one): _growth(bench, one)
        for number in range(DIRECTIONS[bench.scale])
        for one in [Direction.draw(bench.draws, f"direction-{number}")]
    }
    return Result(
        sheets=[
            _figure_sheet(found),
            _growth_sheet("Along each perturbation", growth),
            _growth_sheet("Along random directions", walks),
        ],
        drawings=[
            StudyFigure(
                name="gallery",
                title=f"One clip, clean and at strength {SHOWN_STRENGTH:g} of each perturbation; 80 dB of "
                "level, up to 8 kHz",
                figure=_gallery(bench),
            ),
            StudyFigure(
                name="growth",
                title="Log-spectral distance from the clean clip along each perturbation, mean over clips",
                figure=curves(
                    [
                        (
                            "strength",
                            "linear",
                            {
                                name: (list(STRENGTHS), [float(one.mean()) for one in steps])
                                for name, steps in growth.items()
                            },
                        )
                    ],
                    label="distance, dB",
                    top=None,
                ),
            ),
        ],
        values={
            "figures": {
                name: [{"strength": s, "asked": a, "found": f} for s, (a, f) in _zip(pairs)]
                for name, pairs in found.items()
            },
            "distance_db": {
                name: [one.tolist() for one in steps] for name, steps in {**growth, **walks}.items()
            },
        },
        notes=[
            "SNR: over the clip's own length. DRR and RT60: of the impulse response, the RT60 by "
            "backward integration from -5 to -35 dB. Bit rate: size of a stream of 20 s; MP3 at 16 kHz has 8 "
            "to 160 kbit/s, and the nearest rate is used. Levels: different samples of a ramp; the "
            "nearest odd number is used. EQ: the middle band of white noise relative to the low one, in "
            "units of "
            "20 dB. Pops and dropouts: number of samples of white noise that changed. Griffin-Lim: the "
            "number of "
            "iterations as set, and the measured log-spectral distance.",
            "Distance: RMS difference of log magnitudes (25 ms) in dB, with a floor at -80 dB.",
        ],
    )


def _figures(bench: PerturbationSetup, name: str, strength: float) -> tuple[float, list[float] | None]:
    """What a perturbation is asked for at a strength, and what is found, a value a clip or one; None where
    the figure leaves no trace but a distance."""
    part, rate, draws = MAKERS[name](strength=strength), SAMPLE_RATE, bench.draws.turn(name)
    if name == "drr":
        return part.asked, [measure.drr_db(measure.response_of(part, 2.0, rate, draws), rate)]
    if name == "rt60":
        heard = measure.response_of(part, 1.1 * part.asked + 0.1, rate, draws)
        return part.asked, [measure.rt60_seconds(heard, rate)]
    if name == "mp3":
        return part.asked, [measure.bit_rate(part.asked, rate)]
    if name == "mulaw":
        return part.asked, [float(measure.count_levels(part, rate, draws))]
    if name == "eq":
        return part.asked, [measure.band_gain(part.asked, rate, draws)]
    if part.range.figure == "percent":
        return part.asked, [measure.changed_percent(part, rate, draws)]
    if part.range.figure == "snr_db":
        return part.asked, measure.noise_db(bench.clips, part(bench.clips, draws=draws)).tolist()
    return part.asked, None


def _growth(bench: PerturbationSetup, direction: Direction) -> list[Any]:
    """Distances at each strength, `(clips,)` in dB."""
    return [
        measure.spectral_distance_db(bench.clips, one.batch)
        for one in direction.render(bench.clips, STRENGTHS, draws=bench.draws)
    ]


def _zip(pairs: Sequence[tuple[float, list[float]]]) -> list[tuple[float, tuple[float, list[float]]]]:
    return list(zip(STRENGTHS, pairs, strict=True))


def _figure_sheet(found: dict[str, list[tuple[float, list[float]]]]) -> StudyTable:
    rows = []
    for category, names in CATEGORIES.items():
        for name in names:
            part = MAKERS[name]()
            cells = [f"{asked:.3g} / {_spread(values)}" for asked, values in found[name]]
            rows.append((name, category, part.range.unit or "of 20 dB", *cells))
    return StudyTable(
        title="Set / measured, by strength (Table 1)",
        columns=("perturbation", "category", "unit", *(f"{strength:g}" for strength in STRENGTHS)),
        rows=rows,
        note="Measured: on every clip, smallest to largest where they differ in the third digit. "
        "Griffin-Lim: iterations / log-spectral distance in dB.",
    )


def _spread(values: list[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low}..{high}"


def _growth_sheet(title: str, growth: dict[str, list[Any]]) -> StudyTable:
    rows = []
    for name, steps in growth.items():
        table = np.stack(steps)
        # A tenth of a decibel is no step back.
        grown = (np.diff(table, axis=0) > -0.1).mean()
        rows.append((name, *(f"{one:.2f}" for one in table.mean(axis=1)), f"{100 * grown:.0f}"))
    return StudyTable(
        title=f"{title}: log-spectral distance from the clean clip, dB",
        columns=("perturbation", *(f"{strength:g}" for strength in STRENGTHS), "steps that grow, %"),
        rows=rows,
    )


def _gallery(bench: PerturbationSetup) -> Figure:
    figure = canvas((12, 6.4))
    names = ["clean", *MAKERS]
    grid = figure.subplots(3, 5, sharex=True, sharey=True)
    one = bench.clips.select([0])
    for axes in grid.flat[len(names) :]:
        axes.set_axis_off()
    top = None
    for axes, name in zip(grid.flat, names, strict=False):
        heard = one
        if name != "clean":
            heard = Direction((name,)).at(SHOWN_STRENGTH)(one, draws=bench.draws)
        cells = measure.magnitudes(heard.clip(0), SAMPLE_RATE).numpy().clip(1e-9)
        level = 20 * np.log10(cells)
        top = level.max() if top is None else top
        extent = (0.0, len(one.clip(0)) / SAMPLE_RATE, 0.0, SAMPLE_RATE / 2000)
        axes.imshow(
            level, origin="lower", aspect="auto", extent=extent, cmap="magma", vmin=top - 80, vmax=top
        )
        axes.set_title(name, fontsize=9)
    figure.supxlabel("seconds", fontsize=9)
    figure.supylabel("frequency, kHz", fontsize=9)
    return figure


STUDY = Study(
    id="M1",
    title="The perturbation space",
    paper="Manocha et al. (2020), section 3.1 and Table 1",
    reports="thirteen perturbations in five categories and their ranges; nothing is measured",
    open=open_bench,
    run=run,
    fits=False,
)
