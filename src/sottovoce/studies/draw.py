"""Figures of the studies, on canvases of their own: nothing here touches matplotlib's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.statistics import Interval
from sottovoce.studies.vadillo2022.vadillo_tables import ACCEPTED_DB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Panel = tuple[str, Mapping[str, Floats]]
Sweep = tuple[str, Literal["log", "linear"], Mapping[str, tuple[list[float], list[float]]]]

INK, SOFT, OURS, PAPERS = "#1f2933", "#9aa5b1", "#0b7285", "#e8590c"
MARKS = "osv^<>DPXhd*"


def canvas(size: tuple[float, float]) -> Figure:
    """An empty figure of `size` inches. matplotlib is loaded here: who draws nothing does not wait for it."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def bars(
    ours: Mapping[str, Interval],
    paper: Mapping[str, float],
    *,
    label: str = "fooling ratio, %",
    top: float | None = 105,
) -> Figure:
    """A bar a class with its interval, in per cent, and the paper's value as a mark.

    top: of the scale; None: as the values need.
    """
    figure = canvas((9, 3.6))
    axes = figure.subplots()
    places, values = np.arange(len(ours)), np.array([found.value for found in ours.values()])
    low, high = (
        np.array([found.low for found in ours.values()]),
        np.array([found.high for found in ours.values()]),
    )
    reach = 100 * np.clip(np.stack([values - low, high - values]), 0, None)
    axes.bar(places, 100 * values, 0.6, yerr=reach, color=OURS, ecolor=INK, capsize=3, label="here")
    known = [(place, paper[name]) for place, name in enumerate(ours) if name in paper]
    if known:
        axes.plot(*zip(*known, strict=True), "D", color=PAPERS, label="paper")
    axes.set(xticks=places, xticklabels=list(ours), ylabel=label)
    axes.set_ylim(0, top)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return _plain(figure)


def curves(panels: Sequence[Sweep], *, label: str = "fooling ratio, %", top: float | None = 103) -> Figure:
    """One panel under the other, one curve a class, in per cent.

    top: of the scale; None: as the values need.
    """
    figure = canvas((9, 3.6 * len(panels)))
    colours = _colours("tab20")
    for axes, (title, scale, found) in zip(
        figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
    ):
        for number, (name, (points, values)) in enumerate(found.items()):
            mark, colour = MARKS[number % len(MARKS)], colours[number % len(colours)]
            axes.plot(points, values, marker=mark, markersize=4, linewidth=1.4, color=colour, label=name)
        axes.set(xscale=scale, xlabel=title, ylabel=label)
        axes.set_ylim(-3, top)
        if scale == "log":
            axes.xaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return _plain(figure)


def twin_curves(
    panels: Mapping[str, Mapping[str, tuple[list[str], list[float], list[float]]]],
    *,
    label: str,
    told: tuple[str, str],
) -> Figure:
    """Panels side by side, each named by what runs across it; for every name two curves in per cent of one
    colour, the first solid and the second dashed: names of places, solid, dashed.

    told: what the two are.
    """
    figure = canvas((5.2 * len(panels) + 1.5, 4.2))
    every = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    colours = _colours("tab10")
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    for axes, (across, lines) in zip(every, panels.items(), strict=True):
        for name, (places, solid, dashed) in lines.items():
            number = names.index(name)
            look = {"color": colours[number % len(colours)], "linewidth": 1.5}
            axes.plot(places, solid, marker=MARKS[number % len(MARKS)], markersize=4, label=name, **look)
            axes.plot(places, dashed, linestyle="--", alpha=0.7, **look)
        axes.set(xlabel=across)
        axes.set_ylim(-3, 103)
    every[0].set(ylabel=label)
    for text, style in zip(told, ("-", "--"), strict=True):
        every[-1].plot([], [], linestyle=style, color=INK, label=text)
    handles = {
        text: one for axes in every for one, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    every[-1].legend(
        handles.values(), handles, frameon=False, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8
    )
    return _plain(figure)


def bands(
    lines: Mapping[str, tuple[list[float], list[float], list[float]]],
    marks: Mapping[str, tuple[float, str]],
    *,
    across: str,
    label: str,
) -> Figure:
    """Curves in per cent with a band of their deviation around them: places, means and deviations.

    marks: levels drawn across the figure, each with its colour.
    """
    figure = canvas((9, 4.2))
    axes = figure.subplots()
    colours = _colours("tab10")
    for number, (name, (places, means, deviations)) in enumerate(lines.items()):
        mark, colour = MARKS[number % len(MARKS)], colours[number % len(colours)]
        axes.plot(places, means, marker=mark, markersize=4, linewidth=1.4, color=colour, label=name)
        low, high = (np.array(means) + sign * np.array(deviations) for sign in (-1, 1))
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    for (name, (level, colour)), style in zip(marks.items(), ("--", ":", "-.") * len(marks), strict=False):
        axes.axhline(level, color=colour, linewidth=1, linestyle=style, label=name)
    axes.set(xlabel=across, ylabel=label)
    axes.set_ylim(-3, 103)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    return _plain(figure)


def groups(found: Mapping[str, Mapping[str, Interval | None]], *, label: str) -> Figure:
    """Bars side by side, one of each series in every group, in per cent with intervals.

    found: series, then groups; a series without a value in a group leaves its place empty.
    """
    names = list(dict.fromkeys(name for series in found.values() for name in series))
    figure = canvas((9, 3.8))
    axes = figure.subplots()
    colours = _colours("tab10")
    width = 0.8 / max(len(found), 1)
    for number, (series, values) in enumerate(found.items()):
        known = [(place, one) for place, name in enumerate(names) if (one := values.get(name)) is not None]
        middles = [place - 0.4 + width * (number + 0.5) for place, _ in known]
        reach = [[max(0.0, side) for side in (one.value - one.low, one.high - one.value)] for _, one in known]
        spread = 100 * np.array(reach).reshape(-1, 2).T
        heights = [100 * one.value for _, one in known]
        colour = colours[number % len(colours)]
        axes.bar(middles, heights, width, yerr=spread, color=colour, ecolor=INK, capsize=2, label=series)
    axes.set(xticks=range(len(names)), xticklabels=names, ylabel=label)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return _plain(figure)


def boxes(grid: Sequence[Sequence[Panel]], lines_db: Sequence[float] = (ACCEPTED_DB,)) -> Figure:
    """A grid of panels, each with the spread of levels by class in dB and every clip as a dot.

    A class has one height in all panels, empty where it has no level.
    """
    panels = [panel for row in grid for panel in row]
    labels = max([list(levels) for _, levels in panels], key=len)
    size = (max(6.5, 4.8 * len(grid[0])), 3.9 * len(grid))
    figure = canvas(size)
    every = figure.subplots(len(grid), len(grid[0]), squeeze=False, sharex="row", sharey=True)
    for axes, (title, levels) in zip(every.flat, panels, strict=True):
        for line in lines_db:
            axes.axvline(line, color=PAPERS, linewidth=1, linestyle="--")
        for label, values in levels.items():
            if len(values):
                _box(axes, labels.index(label), values)
        axes.set(yticks=range(len(labels)), yticklabels=labels, xlabel=title)
        axes.set_ylim(len(labels) - 0.4, -0.6)
    return _plain(figure)


def _box(axes: Axes, place: int, values: Floats) -> None:
    style = {"color": INK, "linewidth": 1}
    axes.boxplot(
        [values],
        positions=[place],
        widths=0.6,
        orientation="horizontal",
        manage_ticks=False,
        showfliers=False,
        boxprops=style,
        whiskerprops=style,
        capprops=style,
        medianprops={"color": INK, "linewidth": 2},
    )
    # Dots are spread by rank, not at random, so that a figure is the same every time.
    spread = (np.arange(len(values)) * 0.618) % 1.0 - 0.5
    axes.plot(values, place + 0.4 * spread, ".", color=OURS, markersize=3, alpha=0.6)


def heat_map(counts: NDArray[np.int_], classes: Sequence[str]) -> Figure:
    """Clips by class (rows) and decision (columns), shaded by the share of the row."""
    figure = canvas((6.5, 5.8))
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row, column in zip(*np.nonzero(counts), strict=True):
        colour = "white" if shares[row, column] > 0.5 else INK
        axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=8, color=colour)
    places = range(len(classes))
    axes.set(xticks=places, yticks=places, yticklabels=classes, xlabel="decision", ylabel="class")
    axes.set_xticks(places, classes, rotation=45, ha="right")
    return figure


def _colours(name: str) -> Sequence[Any]:
    from matplotlib import colormaps

    colours: Sequence[Any] = colormaps[name].colors  # type: ignore[attr-defined]
    return colours


def _plain(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=SOFT, alpha=0.3, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure
