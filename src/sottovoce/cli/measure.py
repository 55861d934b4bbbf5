"""`sottovoce measure`: how a clip was changed, and whether a person would hear it."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.api.measure_pairs import MeasuredPair, PairFigures
    from sottovoce.core.metric import Estimate


def measure(
    clean: Annotated[Path, typer.Argument(help="The original clip, or a folder of clips.")],
    changed: Annotated[
        Path, typer.Argument(help="The changed clip, or a folder with files of the same names.")
    ],
    metrics: Annotated[
        str,
        typer.Option(
            help="Names of metrics, separated by commas; `sottovoce parts metric` lists them. visqol, "
            "zimtohrli, cdpam and dnsmos are measured only if named here.",
            show_default="all of audio",
        ),
    ] = "",
    align: Annotated[
        bool,
        typer.Option(
            "--align",
            help="Undo a delay of up to a second and cut both clips to the part that they share. The clips "
            "may differ in length, and in sample rate: the changed one is resampled.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    table: Annotated[
        Path | None, typer.Option("--csv", help="Write one line per pair to this file.", dir_okay=False)
    ] = None,
) -> None:
    """Measure the difference between two clips: how loud it is, what it does to quality, who would hear it.

    SNR (dB), norms, levels and masking compare sample by sample. PESQ, STOI, fwSSNR, CD and LLR rate quality;
    they are measured after a delay between the clips is undone (`shift` reports it), and ignore a change of
    gain (`loudness-change` measures it). A metric that cannot score a clip says why.

    With two folders, files of the same name are pairs, and every figure is a mean with a 95 % interval. Exit
    codes: 0 done, 1 some pairs could not be measured, 2 a mistake in the command.

    Examples:

      sottovoce measure clean.wav adversarial.wav

      sottovoce measure original.flac decoded.mp3 --align

      sottovoce measure clean.wav adversarial.wav --metrics pesq,stoi,visqol --json

      sottovoce measure runs/first/audio/clean runs/first/audio/ATTACK --csv figures.csv
    """
    from sottovoce.api.measure_pairs import (
        all_to_json,
        find_metrics,
        find_pairs,
        load_pair,
        measure_pairs,
        pair_to_json,
    )

    found = find_metrics([name.strip() for name in metrics.split(",") if name.strip()])
    paths, alone = find_pairs(clean, changed)
    folders = clean.is_dir()
    failed: dict[str, str] = {}

    def load() -> Iterator[MeasuredPair]:
        for each in paths:
            try:
                yield load_pair(each, align=align)
            except InputError as error:
                failed[each.name] = str(error)

    figures = measure_pairs(load(), found, asked=bool(metrics))
    if not figures.names:
        raise InputError(next(iter(failed.values())))
    if table is not None:
        _write(table, figures)
    if as_json:
        typer.echo(json.dumps(all_to_json(figures, failed) if folders else pair_to_json(figures)))
    else:
        console = Console(highlight=False)
        console.print(_summary(figures) if folders else _figures(figures))
        notes = [*_ears(figures), *([] if align else _shifted(figures)), *_left_out(alone)]
        notes += [f"not measured: {reason}" for reason in failed.values()]
        for note in notes if folders else [*figures.notes[0], *notes]:
            console.print(f"[dim]{escape(note)}[/dim]", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _figures(figures: PairFigures) -> Table:
    table = _grid()
    unscored = figures.unscored(0)
    for each in figures.metrics:
        value = figures.value(each.name, 0)
        shown = "" if math.isnan(value) else _show(value, each.unit)
        about = unscored.get(each.name, each.title)
        table.add_row(each.name, shown, f"[dim]{escape(about)}[/dim]")
    table.add_row("intensity", figures.intensities[0], "[dim]level of the clean clip[/dim]")
    return table


def _summary(figures: PairFigures) -> Table:
    table = _grid()
    for each in figures.metrics:
        estimate = each.summarise(figures.parts[each.name])
        reasons = Counter(figures.reasons[each.name].values())
        missing = len(figures.names) - estimate.n
        why = f": {reasons.most_common(1)[0][0]}" if reasons else ""
        rest = (
            f"[dim]{missing} unscored{escape(why)}[/dim]" if missing else f"[dim]{escape(each.title)}[/dim]"
        )
        table.add_row(each.name, _show_estimate(estimate, each.unit), f"n = {estimate.n}", rest)
    return table


def _grid() -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    return table


def _shifted(figures: PairFigures) -> list[str]:
    """A warning if clips are delayed, which a sample by sample comparison takes for noise."""
    if "shift" not in figures.parts:
        return []
    count = sum(figures.value("shift", row) != 0.0 for row in range(len(figures.names)))
    if not count:
        return []
    return [
        f"changed clips that are early or late: {count} of {len(figures.names)}. Quality is measured after "
        "the "
        "delay is undone, SNR, norms and masking before; --align undoes it for all."
    ]


def _ears(figures: PairFigures) -> list[str]:
    """Whose answers the learned ear was trained on, so that its P(heard) is not taken for that of people."""
    from sottovoce.metrics.audibility import EarMetric
    from sottovoce.perception.ears.learned import Learned

    said = [each.name for each in figures.metrics if isinstance(each, EarMetric) and each.ear == Learned.name]
    said = [name for name in said if any(math.isfinite(part) for part in figures.parts[name][:, 0])]
    if not said or Learned().facts.get("listeners") == "people":
        return []
    return [
        f"{' and '.join(said)}: by the learned ear, which was trained on simulated listeners, not on people."
    ]


def _left_out(alone: list[str]) -> list[str]:
    if not alone:
        return []
    names = ", ".join(alone[:3]) + (", ..." if len(alone) > 3 else "")
    return [f"left out, as the other folder has no file of the same name: {len(alone)} ({names})"]


def _write(path: Path, figures: PairFigures) -> None:
    """One line a pair; an empty field has its reason in the last column."""
    from sottovoce.api.measure_pairs import finite_values

    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["pair", *(each.name for each in figures.metrics), "unscored"])
            for row, name in enumerate(figures.names):
                reasons = "; ".join(f"{metric}: {reason}" for metric, reason in figures.unscored(row).items())
                values = finite_values(figures, row).values()
                writer.writerow([name, *("" if value is None else repr(value) for value in values), reasons])
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r} ({error.strerror or error}); check the path.") from None


def _show(value: float, unit: str) -> str:
    return f"{100 * value:.3g} %" if unit == "%" else f"{value:.4g} {unit}".rstrip()


def _show_estimate(estimate: Estimate, unit: str) -> str:
    if not estimate.n:
        return "[dim]none[/dim]"
    scale, unit = (100.0, "%") if unit == "%" else (1.0, unit)
    value, low, high = (scale * each for each in (estimate.value, estimate.low, estimate.high))
    return escape(f"{value:.4g} [{low:.4g}, {high:.4g}] {unit}".rstrip())
