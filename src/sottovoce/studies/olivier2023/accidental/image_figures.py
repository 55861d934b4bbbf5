"""Figures of O2: robustness by margin and by judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import INK, OURS, PAPERS, SOFT, canvas
from sottovoce.studies.olivier2023.accidental.image_runs import TESTS, ImageFound
from sottovoce.studies.olivier2023.accidental.rxor_figures import COLOURS, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = (
    ("plain PGD", PAPERS), ("strong attacks", "#66b2c2"), ("strong attacks and scores", OURS), ("P*", SOFT),
)  # fmt: skip


def draw_image_robustness(panels: Mapping[str, Mapping[str, ImageFound]]) -> Figure:
    """A panel a choice, a line a design: the share of valid networks that every judge calls robust."""
    figure = canvas((4.2 * len(panels), 3.8))
    for axes, (title, designs) in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        for (name, found), colour in zip(designs.items(), COLOURS, strict=False):
            if not len(found.robust):
                continue
            axes.plot(TESTS, 100 * found.flags("score").mean(axis=0), color=colour, linewidth=1.6, label=name)
            axes.plot(TESTS, 100 * found.flags("plain").mean(axis=0), "o", color=colour, markersize=4)
        axes.set(title=title, xlabel="L-infinity margin of the test", ylim=(-3, 103))
        axes.legend(frameon=False, fontsize=8, loc="upper right")
    figure.axes[0].set_ylabel("share of the valid networks, %")
    return plain(figure)


def draw_image_areas(rows: Mapping[str, Mapping[str, tuple[Interval, ...]]]) -> Figure:
    """Bars of each design: areas under P(robust) by judge, and under P*."""
    names = [(group, name) for group, designs in rows.items() for name in designs]
    figure = canvas((9.0, 0.62 * len(names) + 1.2))
    axes = figure.subplots()
    for number, (label, colour) in enumerate(STYLES):
        for place, (group, name) in enumerate(names):
            found = rows[group][name][number]
            if np.isnan(found.value):
                continue
            reach = None if np.isnan(found.low) else [[found.value - found.low], [found.high - found.value]]
            axes.barh(
                place + 0.21 * (number - 1.5), found.value, 0.19, xerr=reach, color=colour, ecolor=INK,
                capsize=2, label=label if place == 0 else None, alpha=1.0 if reach else 0.25,
            )  # fmt: skip
    axes.set(yticks=range(len(names)), yticklabels=[name for _, name in names])
    axes.set(xlabel="area under the curve, trained on images as they are", xlim=(0, 1))
    axes.set_ylim(len(names) - 0.5, -0.5)
    for place in range(1, len(names)):
        if names[place][0] != names[place - 1][0]:
            axes.axhline(place - 0.5, color=SOFT, linewidth=0.6)
    axes.legend(frameon=False, loc="lower right")
    return plain(figure, "x")
