"""Figures of O1: where robustness ends, by margin; areas by design; decisions of single networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import INK, OURS, PAPERS, SOFT, canvas
from sottovoce.studies.olivier2023.accidental.network_batch import Design, Networks
from sottovoce.studies.olivier2023.accidental.rxor_areas import oracle
from sottovoce.studies.olivier2023.accidental.rxor_runs import MARGINS, RxorFound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c")
PIXELS = 240


def draw_robustness(found: Mapping[str, Sequence[RxorFound]]) -> Figure:
    """A panel a design: P(robust) by margin, exact as a curve and sampled as marks, and P* as dashes.

    found: of each design, one for each of `MARGINS` that it was trained at.
    """
    figure = canvas((4.0 * len(found), 4.2))
    for axes, (title, row) in zip(figure.subplots(1, len(found), sharey=True), found.items(), strict=True):
        for place, (one, colour) in enumerate(zip(row, COLOURS, strict=True)):
            _robustness(axes, row, place, one, colour)
        axes.set(title=title, xlabel="margin of the test", xlim=(0.03, 0.42))
    figure.axes[0].set_ylabel("share of the valid networks, %")
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    return plain(figure)


def _robustness(axes: Axes, row: Sequence[RxorFound], place: int, one: RxorFound, colour: str) -> None:
    if not len(one.margins):
        return
    margins = np.linspace(0.0, 0.42, 200)
    shares = (one.margins[:, None] < margins).mean(axis=0)
    label = f"trained at {MARGINS[place]:g}"
    axes.plot(margins, 100 * shares, color=colour, linewidth=1.6, label=label)
    below = [number for number, margin in enumerate(MARGINS) if margin <= MARGINS[place]]
    x = [MARGINS[number] for number in below]
    axes.plot(x, 100 * one.passed.mean(axis=0)[below], "o", color=colour, markersize=4)
    best = oracle([other.valid for other in row], place)
    axes.plot(x, [100 * best[number] for number in below], "--", color=colour, linewidth=0.9, alpha=0.7)


def draw_areas(
    rows: Mapping[str, Mapping[str, tuple[Interval, Interval, Interval]]], margin: float
) -> Figure:
    """Bars of each design: the areas under P(robust), exact and by 1,000 points, and under P*, by figure."""
    names = [(group, name) for group, designs in rows.items() for name in designs]
    figure = canvas((9.0, 0.62 * len(names) + 1.2))
    axes = figure.subplots()
    styles = (("exact", OURS), ("by 1,000 points", "#66b2c2"), ("P*", SOFT))
    for number, (label, colour) in enumerate(styles):
        for place, (group, name) in enumerate(names):
            found = rows[group][name][number]
            if np.isnan(found.value):
                continue
            reach = None if np.isnan(found.low) else [[found.value - found.low], [found.high - found.value]]
            axes.barh(
                place + 0.27 * (number - 1), found.value, 0.25, xerr=reach, color=colour, ecolor=INK,
                capsize=2, label=label if place == 0 else None, alpha=1.0 if reach else 0.25,
            )  # fmt: skip
    for place, (group, name) in enumerate(names):
        found = rows[group][name][2]
        if np.isnan(found.low):
            axes.text(0.01, place, f"{found.n or 'no'} valid", va="center", fontsize=8, color=INK)
    axes.set(yticks=range(len(names)), yticklabels=[name for _, name in names])
    axes.set(xlabel=f"area under the curve, trained at {margin:g}", xlim=(0, 1))
    axes.set_ylim(len(names) - 0.5, -0.5)
    starts = [place for place in range(1, len(names)) if names[place][0] != names[place - 1][0]]
    for place in starts:
        axes.axhline(place - 0.5, color=SOFT, linewidth=0.6)
    axes.legend(frameon=False, loc="lower right")
    return plain(figure, "x")


def draw_decisions(design: Design, found: RxorFound, margin: float) -> Figure:
    """What single networks say on the square, from the smallest exact margin to the largest."""
    networks = Networks(design, torch.from_numpy(found.examples))
    order = np.sort(found.margins)
    margins = order[np.unique(np.linspace(0, max(len(order) - 1, 0), 6).round().astype(int))]
    figure = canvas((2.3 * max(len(networks), 1), 2.7))
    every = figure.subplots(1, max(len(networks), 1), squeeze=False)[0]
    for axes, picture, own in zip(every, _pictures(networks), margins, strict=False):
        axes.imshow(picture, extent=(-1, 1, -1, 1), origin="lower", interpolation="nearest")
        for side in (-margin, margin):
            axes.axhline(side, color=INK, linewidth=0.5, linestyle=":")
            axes.axvline(side, color=INK, linewidth=0.5, linestyle=":")
        axes.set(title=f"margin {own:.3f}", xticks=[], yticks=[])
    return figure


def _pictures(networks: Networks) -> Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Right decisions light, by what is said; wrong ones dark."""
    places = (torch.arange(PIXELS) + 0.5) / PIXELS * 2 - 1
    points = torch.cartesian_prod(places, places)
    with torch.no_grad():
        says = networks.scores(points.expand(len(networks), -1, -1))[..., 0] > 0
    differ = (points[:, 0] > 0) != (points[:, 1] > 0)
    light = torch.tensor([[0.86, 0.93, 0.95], [0.99, 0.91, 0.85]])[says.long()]
    dark = torch.tensor([[0.04, 0.45, 0.52], [0.91, 0.35, 0.05]])[says.long()]
    shown = torch.where((says != differ)[..., None], dark, light).reshape(-1, PIXELS, PIXELS, 3)
    # The first coordinate runs to the right.
    return [one.transpose(0, 1).double().numpy() for one in shown]


def draw_flattery(found: Sequence[RxorFound], place: int) -> Figure:
    """Of networks by their exact margin, the share that passes 1,000 points of one margin."""
    margins = np.concatenate([one.margins for one in found])
    passed = np.concatenate([one.passed[:, place] for one in found])
    edges = np.arange(0.0, 0.45, 0.02)
    middles, shares, counts = [], [], []
    for low, high in pairwise(edges):
        inside = (margins >= low) & (margins < high)
        if inside.sum():
            middles.append((low + high) / 2)
            shares.append(100 * passed[inside].mean())
            counts.append(int(inside.sum()))
    figure = canvas((8, 3.8))
    axes = figure.subplots()
    axes.bar(middles, shares, 0.018, color=OURS, label=f"pass 1,000 points of margin {MARGINS[place]:g}")
    for x, y, count in zip(middles, shares, counts, strict=True):
        axes.text(x, y + 1.5, f"{count:,}", ha="center", fontsize=6, color=INK)
    axes.axvline(
        MARGINS[place], color=PAPERS, linestyle="--", linewidth=1.2, label="from here on they should not"
    )
    axes.set(xlabel="exact margin of the network", ylabel="share that passes, %", ylim=(0, 108))
    axes.legend(frameon=False, loc="upper right")
    return plain(figure)


def plain(figure: Figure, axis: Literal["both", "x", "y"] = "both") -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=SOFT, alpha=0.3, linewidth=0.6, axis=axis)
        axes.set_axisbelow(True)
    return figure
