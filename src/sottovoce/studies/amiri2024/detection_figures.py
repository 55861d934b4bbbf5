"""The four figures of study A, each with what the data are written into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.studies.amiri2024 import job_plan as plans
from sottovoce.studies.amiri2024.amiri_tables import TABLE_1
from sottovoce.studies.amiri2024.attack_quality import JUDGES
from sottovoce.studies.amiri2024.attack_quality_sheets import NO_DIFFERENCE
from sottovoce.studies.amiri2024.clinic_options import certified_curves
from sottovoce.studies.amiri2024.detection_sheets import HARDENED, SERIES, SPECTRA
from sottovoce.studies.amiri2024.detector_attacks import CLEAN, cell
from sottovoce.studies.amiri2024.job_plan import CLAIMED_DB
from sottovoce.studies.amiri2024.job_results import Floats, PathologySetup
from sottovoce.studies.draw import INK, PAPERS, bands, canvas
from sottovoce.studies.olivier2023.spectra import draw_levels
from sottovoce.studies.study import StudyFigure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Series = dict[str, tuple[str, Callable[[int], str]]]
# A density of zero has no level; this is far below half a step of 16 bits.
_FLOOR = 1e-30


def drawings(bench: PathologySetup) -> list[StudyFigure]:
    made = [
        (
            "accuracy",
            "Fig. 1: speaker-level accuracy by SNR, mean and deviation over seeds",
            _levels(bench, SERIES),
        ),
        (
            "quality",
            "Fig. 2: quality of attacked clips by SNR; the thin line means no difference",
            _quality(bench),
        ),
        (
            "spectra",
            f"Fig. 3: power density of perturbations at {CLAIMED_DB} dB and of clean speech",
            _spectra(bench),
        ),
        (
            "hardened",
            "Fig. 4: adversarial training at 60 dB (CNN-A), attacked at every SNR",
            _levels(bench, HARDENED),
        ),
    ]
    certified = _certified(bench)
    if certified is not None:
        made.append(("certified", "Speakers certified behind Gaussian noise by SNR", certified))
    return [
        StudyFigure(name=name, title=f"{title}. {bench.setting.label}", figure=_marked(figure, bench))
        for name, title, figure in made
        if figure is not None
    ]


def _marked(figure: Figure, bench: PathologySetup) -> Figure:
    figure.suptitle(bench.setting.label, fontsize=8, color=PAPERS)
    return figure


def _levels(bench: PathologySetup, series: Series) -> Figure:
    """With the same seeds as the table of these curves."""
    lines, seeds = {}, bench.shared_seeds(kind for kind, _ in series.values())
    for name, (kind, make) in series.items():
        found = bench.levels(kind, make, seeds)
        if found:
            means, deviations = (
                [100 * getattr(one, part) for one in found.values()] for part in ("mean", "deviation")
            )
            lines[name] = (list(map(float, found)), means, deviations)
    marks = {f"chance, {100 * bench.chance:.0f} %": (100 * bench.chance, INK)}
    names = {plans.CNN: "CNN", plans.EMBEDDING: "embeddings", plans.ADVERSARIAL: "CNN-A"}
    for kind in dict.fromkeys(kind for kind, _ in series.values()):
        clean = bench.accuracy(kind, CLEAN, seeds)
        marks |= {} if clean is None else {f"{names[kind]}, clean": (100 * clean.mean, "#0b7285")}
        if kind in TABLE_1:
            marks |= {f"paper: {names[kind]}, clean": (TABLE_1[kind].mean, PAPERS)}
    return bands(lines, marks, across="SNR, dB", label="accuracy, %")


def _quality(bench: PathologySetup) -> Figure | None:
    known = [one for one in JUDGES if one.id not in bench.absent]
    if not bench.quality or not known:
        return None
    figure = canvas((11, 6))
    for axes, judge in zip(figure.subplots(2, 3).flat, JUDGES, strict=True):
        axes.set_title(judge.title, fontsize=9)
        axes.axhline(NO_DIFFERENCE[judge.id], color=INK, linewidth=0.6)
        for kind, name in ((plans.CNN, "CNN, whole utterances"), (plans.EMBEDDING, "embeddings")):
            found = {
                db: one
                for db in sorted(bench.setting.plan.levels_db)
                if (one := bench.measured(kind, cell("utterances", db), judge.id)) is not None
            }
            axes.plot(list(found), [one.value for one in found.values()], marker=".", label=name)
        axes.set_xlabel("SNR, dB", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _spectra(bench: PathologySetup) -> Figure | None:
    levels: dict[str, Floats] = {}
    for name, (kind, how) in SPECTRA.items():
        found = bench.psd(kind, how)
        if found is not None:
            levels.setdefault("clean speech", 10 * np.log10(found[0] + _FLOOR))
            levels[f"perturbation of {name}"] = 10 * np.log10(found[1] + _FLOOR)
    return draw_levels(levels, 16_000) if levels else None


def _certified(bench: PathologySetup) -> Figure | None:
    lines = {}
    for kind, name in (("gaussian", "CNN"), ("gaussian-trained", "CNN trained on the noise")):
        found = certified_curves(bench, kind)
        if found is not None:
            levels = sorted(found[0])
            lines[name] = (
                list(map(float, levels)),
                [100 * found[0][db] for db in levels],
                [0.0] * len(levels),
            )
    return bands(lines, {}, across="SNR, dB", label="certified speakers, %") if lines else None
