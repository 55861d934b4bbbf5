"""Figures of results, on canvases of their own; each says whose answers it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sottovoce.core.statistics import Interval
from sottovoce.listening.analysis.answer_rows import TITLES, Who
from sottovoce.listening.analysis.counted_answers import (
    ALL,
    CONFIDENCES,
    RATINGS,
    Confidence,
    HitRate,
    RatingCounts,
)
from sottovoce.listening.analysis.ear_calibration import Calibration
from sottovoce.listening.analysis.jnd_searches import Search
from sottovoce.listening.analysis.mushra_stats import Mean

INK, SOFT, MARK = "#1f2933", "#9aa5b1", "#c92a2a"
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#a61e4d", "#1864ab", "#e67700", "#495057")
CHANCE = 50.0


def accuracy_figure(rates: Sequence[HitRate], who: Who) -> Figure:
    """Fig. 5: commands named rightly, by level, conditions side by side."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    levels = list(dict.fromkeys(rate.group[1] for rate in rates))
    series = {name: {r.group[1]: r.interval for r in rates if r.group[0] == name} for name in _first(rates)}
    _bars(axes, series, levels)
    axes.set(ylabel="named correctly, %", ylim=(0, 105))
    return _finish(figure, who)


def naturalness_figure(scores: Sequence[RatingCounts], who: Who) -> Figure:
    """Fig. 6: how often each rating was given, in per cent; a panel for all levels, and one a level."""
    levels = list(dict.fromkeys(one.level for one in scores))
    columns = min(2, len(levels))
    lines = -(-len(levels) // columns)
    figure = Figure(figsize=(4.2 * columns + 0.8, 2.9 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True).flat
    names = list(dict.fromkeys(one.condition for one in scores))
    # Levels first: zip would take, and lose, one more panel of the grid.
    for level, axes in zip(levels, grid, strict=False):
        some = {one.condition: one.counts for one in scores if one.level == level}
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            counts = np.array(some.get(name, (0,) * len(RATINGS)), dtype=np.float64)
            middles = np.array(RATINGS) - 0.4 + width * (place + 0.5)
            heights = 100 * counts / max(1.0, counts.sum())
            axes.bar(middles, heights, width, color=COLOURS[place % len(COLOURS)], label=name or "clips")
        axes.set(title=_level(level), xticks=RATINGS, xlabel="naturalness")
    for axes in list(grid):
        axes.set_visible(False)
    figure.axes[0].set_ylabel("answers, %")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return _finish(figure, who)


def abx_figure(rates: Sequence[HitRate], confidences: Sequence[Confidence], who: Who) -> Figure:
    """Fig. 7: how often X was found with 95 % intervals, and below how sure the answers were."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    top, bottom = figure.subplots(2)
    levels = list(dict.fromkeys(rate.group[1] for rate in rates))
    series = {name: {r.group[1]: r.interval for r in rates if r.group[0] == name} for name in _first(rates)}
    _bars(top, series, levels)
    top.axhline(CHANCE, color=MARK, linewidth=1, linestyle="--")
    top.set(ylabel="X found, %", ylim=(0, 105))
    width = 0.8 / len(CONFIDENCES)
    for place, name in enumerate(CONFIDENCES):
        middles = np.arange(len(confidences)) - 0.4 + width * (place + 0.5)
        heights = [100 * one.answers[name] / max(1, sum(one.answers.values())) for one in confidences]
        bottom.bar(middles, heights, width, color=COLOURS[place + 2], label=f"{name} confidence")
    bottom.set(xticks=range(len(confidences)), xticklabels=[_level(one.level) for one in confidences])
    bottom.set(ylabel="answers, %")
    bottom.legend(frameon=False, fontsize=8)
    return _finish(figure, who)


def jnd_figure(searches: Sequence[Search], who: Who) -> Figure:
    """JNDs by direction: a dot a search, open where the answers do not determine it, and the median."""
    directions = sorted({one.direction for one in searches})
    figure = Figure(figsize=(7, 1.2 + 0.5 * len(directions)), layout="constrained")
    axes = figure.subplots()
    for place, direction in enumerate(directions):
        some = [one for one in searches if one.direction == direction]
        mus = np.array([one.found.mu for one in some])
        unsure = np.array([one.found.undetermined for one in some])
        # Dots are spread by rank, not at random, so that a figure is the same every time.
        heights = place + 0.5 * ((np.arange(len(some)) * 0.618) % 1.0 - 0.5)
        for which, fill in ((~unsure, COLOURS[0]), (unsure, "none")):
            axes.plot(mus[which], heights[which], "o", markersize=5, color=COLOURS[0], mfc=fill)
        known = mus[~unsure]
        if len(known):
            axes.plot([float(np.median(known))] * 2, [place - 0.35, place + 0.35], color=INK, linewidth=2)
    axes.set(yticks=range(len(directions)), yticklabels=directions, xlim=(-2, 102))
    axes.set(xlabel="just noticeable strength", ylim=(len(directions) - 0.4, -0.6))
    return _finish(figure, who)


def mushra_figure(means: Sequence[Mean], who: Who) -> Figure:
    """A box a condition with all ratings, and the mean with its interval over listeners beside it."""
    figure = Figure(figsize=(7, 1.4 + 0.55 * len(means)), layout="constrained")
    axes = figure.subplots()
    line = {"color": INK, "linewidth": 1}
    axes.boxplot(
        [mean.ratings for mean in means],
        positions=range(len(means)),
        widths=0.5,
        orientation="horizontal",
        manage_ticks=False,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops={"color": INK, "linewidth": 2},
        flierprops={"marker": ".", "markersize": 4, "markeredgecolor": SOFT},
    )
    for place, mean in enumerate(means):
        _whisker(axes, mean.by_t, place + 0.38, 1.0)
    axes.set(yticks=range(len(means)), yticklabels=[mean.condition or "clips" for mean in means])
    axes.set(xlabel="rating", xlim=(-2, 102), ylim=(len(means) - 0.3, -0.6))
    return _finish(figure, who)


def choice_figure(rates: Sequence[HitRate], who: Who) -> Figure:
    """How often one was chosen over the other, with 95 % intervals, by pair and level."""
    figure = Figure(figsize=(7, 1.2 + 0.4 * len(rates)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(CHANCE, color=MARK, linewidth=1, linestyle="--")
    for place, rate in enumerate(rates):
        _whisker(axes, rate.interval, place, 100.0)
    names = [f"{first} over {second}, {level}" for first, second, level in (rate.group for rate in rates)]
    axes.set(yticks=range(len(rates)), yticklabels=names, xlabel="chosen, %", xlim=(-2, 102))
    axes.set_ylim(len(rates) - 0.4, -0.6)
    return _finish(figure, who)


def calibration_figure(found: Sequence[Calibration], ear: str, who: Who) -> Figure:
    """Said "different" against what the ear predicts: on the diagonal where it is calibrated."""
    every = found[0]
    figure = Figure(figsize=(5.2, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color=SOFT, linewidth=1, linestyle="--")
    x = [100 * one.predicted for one in every.bins]
    y = 100 * np.array([one.heard.value for one in every.bins])
    reach = (
        100 * np.array([[o.heard.value - o.heard.low, o.heard.high - o.heard.value] for o in every.bins]).T
    )
    sizes = [12 + 200 * one.heard.n / every.heard.n for one in every.bins]
    axes.errorbar(x, y, np.clip(reach, 0, None), fmt="none", ecolor=INK, elinewidth=1, capsize=3)
    axes.scatter(x, y, sizes, color=COLOURS[0], zorder=3)
    axes.set(xlabel=f"P(heard) by the {ear}, %", ylabel='called "different", %', aspect="equal")
    axes.set(xlim=(-3, 103), ylim=(-3, 103))
    return _finish(figure, who)


def _bars(axes: Axes, series: Mapping[str, Mapping[str, Interval]], groups: Sequence[str]) -> None:
    width = 0.8 / max(1, len(series))
    for number, (name, found) in enumerate(series.items()):
        known = [(place, found[group]) for place, group in enumerate(groups) if group in found]
        middles = [place - 0.4 + width * (number + 0.5) for place, _ in known]
        heights = [100 * one.value for _, one in known]
        reach = [[max(0.0, one.value - one.low), max(0.0, one.high - one.value)] for _, one in known]
        axes.bar(
            middles,
            heights,
            width,
            yerr=100 * np.array(reach).reshape(-1, 2).T,
            color=COLOURS[number % len(COLOURS)],
            ecolor=INK,
            capsize=3,
            label=name or "clips",
        )
    axes.set(xticks=range(len(groups)), xticklabels=[_level(group) for group in groups])
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)


def _whisker(axes: Axes, found: Interval, place: float, scale: float) -> None:
    axes.plot([scale * found.low, scale * found.high], [place, place], color=COLOURS[0], linewidth=1.6)
    axes.plot(scale * found.value, place, "D", color=COLOURS[0], markersize=5)


def _level(level: str) -> str:
    return "all levels" if level == ALL else level


def _first(rates: Sequence[HitRate]) -> list[str]:
    return list(dict.fromkeys(rate.group[0] for rate in rates))


def _finish(figure: Figure, who: Who) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=SOFT, alpha=0.3, linewidth=0.6)
        axes.set_axisbelow(True)
    if who != "people":
        figure.suptitle(TITLES[who], color=MARK, fontsize=10, fontweight="bold")
    return figure
