"""`sottovoce measure`: how much was added to a clip."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from sottovoce.errors import InputError

if TYPE_CHECKING:
    from sottovoce.core.attack import Trial
    from sottovoce.core.metric import Metric


def measure(
    clean: Annotated[Path, typer.Argument(help="The clip as it was.")],
    adversarial: Annotated[Path, typer.Argument(help="The clip after the attack, of the same length.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure the difference between two clips: SNR, norms, level on the vocal part and background."""
    from sottovoce import registry
    from sottovoce.core.metric import clip_values
    from sottovoce.metrics.parts import intensity_level

    trial = _pair(clean, adversarial)
    figures: dict[str, tuple[float, str]] = {}
    for name in registry.names("metric"):
        metric: Metric = registry.find("metric", name)()
        if metric.of == "decisions":
            continue
        value = float(clip_values(metric.measure(trial).numpy())[0])
        figures[name] = value, metric.unit
    level = intensity_level(trial.clean.waveforms, trial.clean.lengths)[0]
    if as_json:
        values = {name: value if math.isfinite(value) else None for name, (value, _) in figures.items()}
        typer.echo(json.dumps({"intensity": level, **values}))
        return
    table = Table(show_header=False, box=None)
    for name, (value, unit) in figures.items():
        table.add_row(name, f"{100 * value:.0f} %" if unit == "%" else f"{value:.4g} {unit}")
    table.add_row("intensity", level)
    Console().print(table)


def _pair(clean: Path, adversarial: Path) -> Trial:
    import soundfile

    from sottovoce.core.attack import Trial
    from sottovoce.data.load import collate, load_clip

    try:
        rate = soundfile.info(clean).samplerate
    except (OSError, soundfile.LibsndfileError) as error:
        raise InputError(f"expected an audio file, got {str(clean)!r} ({error}); check the path.") from None
    pair = [collate([load_clip(path, rate, id="pair", label="")]) for path in (clean, adversarial)]
    if pair[0].waveforms.shape != pair[1].waveforms.shape:
        lengths = [int(batch.lengths[0]) for batch in pair]
        raise InputError(
            f"expected clips of one length, got {lengths[0]} and {lengths[1]} samples; align them first."
        )
    return Trial(pair[0], pair[1], ("",), None, ("",), ("",), (False,), (False,))
