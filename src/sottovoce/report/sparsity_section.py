"""Sparsity as it is shown: rows of a table, the chart, and the section of an audit's report."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.auditing.sparsity.sparsity_folder import FOLDER, SparsityFolder, SparsityRow, tabulate
from sottovoce.auditing.sparsity.sparsity_run import SparsityPlan, read_sparsity_plan
from sottovoce.core.statistics import Interval
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.errors import SottovoceError
from sottovoce.report.shown_words import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOFT = "#9aa5b1"
COLOURS = ("#0b7285", "#c2410c", "#5f3dc4", "#2b8a3e", "#a61e4d", "#495057")
MARKS = "os^Dvx"
COLUMNS = {
    "l2": ("radius", "fooled, %", "residual", "robust counted", "spread", "robust", "wrong"),
    "linf": ("radius", "fooled, %", "residual", "of clip", "robust counted", "spread", "robust", "wrong"),
}
HEADS = {
    "l2": "Radians to the nearest perturbation that fools",
    "linf": "Samples that must be free to change",
}
EXPLAINED = (
    "Residual: the mean over the clips that were fooled. Robust counted: over all clips, where one that "
    "nothing fooled counts as {most}. Spread: the deviation over the directions of a clip. Wrong: clips that "
    "the model got wrong before, which are left out."
)
MOST = {"l2": "pi", "linf": "all its samples"}


@dataclass(frozen=True)
class SparsityRows:
    """A table as it is shown, of one norm behind one defense."""

    head: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables_of(rows: Sequence[SparsityRow]) -> list[SparsityRows]:
    """A table a norm and defense, in the order of the plan."""
    found = []
    for norm, defense in dict.fromkeys((row.setting.norm, row.setting.defense) for row in rows):
        some = [row for row in rows if (row.setting.norm, row.setting.defense) == (norm, defense)]
        head = HEADS[norm] if defense == NO_DEFENSE else f"{HEADS[norm]}, behind {defense}"
        found.append(SparsityRows(head, COLUMNS[norm], [cells_of(row) for row in some]))
    return found


def cells_of(row: SparsityRow) -> tuple[str, ...]:
    """A row of the table, a text a column."""
    linf = row.setting.norm == "linf"
    share = [f"{100 * row.share:.1f} %" if row.residual.n else "–"] if linf else []
    return (
        row.setting.title,
        percent(row.success),
        number(row.residual, linf),
        *share,
        number(row.counted, linf),
        "–" if math.isnan(row.spread) else f"{row.spread:.0f}" if linf else f"{row.spread:.4f}",
        str(row.robust),
        str(row.wrong),
    )


def number(found: Interval, whole: bool) -> str:
    """A size with its interval: an angle, or a whole number of samples."""
    if not found.n:
        return "–"
    form = ".0f" if whole else ".3f"
    value, low, high = (f"{each:{form}}" for each in found[:3])
    return value if math.isnan(found.low) else f"{value} [{low},{high}]"


def percent(found: Interval) -> str:
    if not found.n:
        return "–"
    value, low, high = (100 * each for each in found[:3])
    return f"{value:.0f} [{low:.0f},{high:.0f}]"


def notes_on(rows: Sequence[SparsityRow]) -> list[str]:
    """What the table leaves out, a sentence each."""
    norms = dict.fromkeys(row.setting.norm for row in rows)
    notes = [EXPLAINED.format(most=" or ".join(MOST[norm] for norm in norms))]
    if at_once := sum(row.at_once for row in rows):
        notes.append(
            f"{plural(at_once, 'random direction')} fooled the model without any search: a size of 0."
        )
    if clipped := sum(row.clipped for row in rows):
        notes.append(
            f"In {clipped} searches some samples of the nearest perturbation were cut to [-1, 1], so that it "
            "is a little shorter than the radius."
        )
    held = [row.held for row in rows if not math.isnan(row.held)]
    if held:
        notes.append(
            f"Behind random defenses the nearest perturbations fooled {100 * min(held):.0f} to "
            f"{100 * max(held):.0f} % of fresh passes, after more than half of others had been fooled."
        )
    passes = [row.passes for row in rows if not math.isnan(row.passes)]
    if passes:
        notes.append(f"At most {max(passes):,.0f} passes with a gradient a clip and radius.")
    return notes


def draw_sparsity(rows: Sequence[SparsityRow]) -> Figure:
    """Sparsity against the radius, and success against the radius beside it; a line of panels a norm."""
    from matplotlib.figure import Figure

    norms = list(dict.fromkeys(row.setting.norm for row in rows))
    figure = Figure(figsize=(9, 3.3 * len(norms)), layout="constrained")
    panels = figure.subplots(len(norms), 2, squeeze=False)
    for norm, (left, right) in zip(norms, panels, strict=True):
        some = [row for row in rows if row.setting.norm == norm]
        for place, defense in enumerate(dict.fromkeys(row.setting.defense for row in some)):
            _draw_lines(left, right, [row for row in some if row.setting.defense == defense], place)
        left.set(ylabel="sparsity, radians" if norm == "l2" else "sparsity, % of the samples")
        right.set(ylabel="clips fooled, %", ylim=(-3, 103))
        for axes in (left, right):
            _finish(axes, some)
        left.set_ylim(bottom=0)
        left.legend(frameon=False, fontsize=8)
    return figure


def _draw_lines(left: Axes, right: Axes, rows: Sequence[SparsityRow], place: int) -> None:
    colour, mark = COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)]
    at = [radius_of(row) for row in rows]
    order = np.argsort(at)
    scale = [1.0 if row.setting.norm == "l2" else _per_cent(row) for row in rows]
    name = rows[0].setting.defense
    name = "residual" if name == NO_DEFENSE else name
    for axes, found, sizes, label in (
        (left, [row.residual for row in rows], scale, name),
        (right, [row.success for row in rows], [100.0] * len(rows), ""),
    ):
        value, low, high = (
            np.array([getattr(one, side) * by for one, by in zip(found, sizes, strict=True)])[order]
            for side in ("value", "low", "high")
        )
        places = np.array(at)[order]
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(places, value, marker=mark, markersize=4, color=colour, linewidth=1.6, label=label or None)
    counted = np.array([row.counted.value * by for row, by in zip(rows, scale, strict=True)])[order]
    if any(row.robust for row in rows):
        left.plot(
            np.array(at)[order], counted, linestyle=":", color=colour, linewidth=1.2,
            label=f"{name}, robust clips counted",
        )  # fmt: skip


def _per_cent(row: SparsityRow) -> float:
    """From samples to per cent of the clip."""
    return 100.0 * row.share / row.residual.value if row.residual.n and row.residual.value else 0.0


def radius_of(row: SparsityRow) -> float:
    """Where a radius lies on its axis: an SNR in dB, or an amplitude."""
    ball = SparsityPlan.ball(row.setting.budget)
    found = getattr(ball, "db", None)
    return float(getattr(ball, "eps", 0.0) if found is None else found)


def _finish(axes: Axes, rows: Sequence[SparsityRow]) -> None:
    in_db = all(row.setting.budget.startswith("snr") for row in rows)
    axes.set_xlabel("radius as SNR, dB (louder to the right)" if in_db else "radius")
    if in_db:
        axes.invert_xaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=SOFT, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)


def write_sparsity(rows: Sequence[SparsityRow], path: Path) -> Path:
    """The chart as a PNG."""
    draw_sparsity(rows).savefig(path, dpi=144)
    return path


@dataclass(frozen=True)
class SparsitySection:
    """What the report of an audit says of sparsity. chart: the figure as a data URI. described: in words."""

    sentence: str
    tables: list[SparsityRows]
    chart: str
    described: str
    notes: list[str]


def make_sparsity(run: Path) -> SparsitySection | None:
    """The section of a run's folder; None where no sparsity was measured there, or nothing is readable."""
    folder = SparsityFolder(run / FOLDER)
    if not folder.records_path.exists():
        return None
    try:
        plan = read_sparsity_plan(folder.path)
        rows = tabulate(plan.settings(), folder.records())
    except SottovoceError:
        return None
    if not any(row.clips for row in rows):
        return None
    drawn = io.BytesIO()
    draw_sparsity(rows).savefig(drawn, format="png", dpi=144)
    return SparsitySection(
        sentence=tell_sparsity(rows, plan.directions),
        tables=tables_of(rows),
        chart=f"data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}",
        described="Sparsity by radius: "
        + "; ".join(f"{title_of(row)}: {cells_of(row)[2]}, {percent(row.success)} % fooled" for row in rows),
        notes=notes_on(rows),
    )


def tell_sparsity(rows: Sequence[SparsityRow], directions: int) -> str:
    """The first row in words."""
    first = rows[0]
    linf = first.setting.norm == "linf"
    where = f"At {title_of(first)}"
    if not first.residual.n:
        return f"{where} nothing was found that fools any of {plural(first.clips, 'clip')}."
    found, over = number(first.residual, linf), f"the mean over {plural(first.residual.n, 'fooled clip')}"
    over = f"{over} and {plural(directions, 'direction')} each"
    if linf:
        return f"{where} {found} samples must be free to change from a random direction, {over}."
    return (
        f"{where} the nearest perturbation that fools lies {found} radians from a random direction, {over}."
    )


def title_of(row: SparsityRow) -> str:
    """A setting in words."""
    where = row.setting.title
    return where if row.setting.defense == NO_DEFENSE else f"{where} behind {row.setting.defense}"
