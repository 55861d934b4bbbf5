"""V3: fooling ratio against distortion (section 3.3, Fig. 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.statistics import Interval
from sottovoce.core.universal_attack import Perturbation
from sottovoce.studies.draw import curves
from sottovoce.studies.shown_numbers import percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.vadillo2022.evaluate import audible, changed, decisions, rate
from sottovoce.studies.vadillo2022.scaling import to_db_max, to_l2
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup, best, open_choice

L2_NORMS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
LEVELS_DB = (-60.0, -50.0, -40.0, -30.0, -20.0, -10.0)
SHOWN_NORMS = (0.05, 0.1, 0.2, 0.5)
SHOWN_DB = (-50.0, -40.0, -30.0, -20.0)

Curve = dict[float, tuple[Interval, Interval]]
"""Fooling ratio at each point of a sweep: in floats, and as 16-bit files."""


def run(bench: UniversalSetup) -> Result:
    by_norm: dict[str, Curve] = {}
    by_level: dict[str, Curve] = {}
    fitted = bench.perturbations()
    for place, (label, perturbations) in enumerate(fitted.items()):
        bench.tell(place / len(fitted), f"scaling the perturbation of {label}")
        if audible(perturbations):
            clips, one = bench.valid(label), perturbations[best(perturbations)]
            by_norm[label] = sweep(bench, clips, L2_NORMS, partial(_at_norm, one))
            by_level[label] = sweep(bench, clips, LEVELS_DB, partial(_at_level, one))
    silent = [label for label in fitted if label not in by_norm]
    notes = [
        "Each class has the perturbation that does best on its own training set, scaled up and down.",
        "The paper shows Fig. 2 without numbers in its text: the ratio rises with the distortion.",
    ]
    if silent:
        notes.append(f"Left out, because no perturbation fooled any clip: {', '.join(silent)}.")
    return Result(
        sheets=[
            _sheet(by_norm, SHOWN_NORMS, "L2 norm", "{:g}"),
            _sheet(by_level, SHOWN_DB, "dB_x,max", "{:.0f} dB"),
        ],
        drawings=[
            StudyFigure(
                name="fooling-by-distortion",
                title="Fooling ratio on validation clips by L2 norm (top) and dB_x,max on each clip (bottom)",
                figure=curves(
                    [
                        ("L2 norm of the perturbation", "log", _values(by_norm)),
                        ("dB_x,max of the perturbation on each clip", "linear", _values(by_level)),
                    ]
                ),
            )
        ],
        values={"l2": _numbers(by_norm), "db_max": _numbers(by_level)},
        notes=notes,
    )


def sweep(
    bench: UniversalSetup,
    clips: Sequence[AudioBatch],
    points: Sequence[float],
    at: Callable[[float, AudioBatch], Tensor],
) -> Curve:
    """The fooling ratio at each point; `at(point, clean)` is what is added there, `(batch, time)`."""
    before = decisions(bench, clips)
    found = {point: changed(bench, clips, before, partial(at, point)) for point in points}
    return {point: (rate(exact), rate(saved)) for point, (exact, saved) in found.items()}


def _at_norm(perturbation: Perturbation, norm: float, clean: AudioBatch) -> Tensor:
    return to_l2(perturbation, norm).over(clean)


def _at_level(perturbation: Perturbation, level_db: float, clean: AudioBatch) -> Tensor:
    return to_db_max(perturbation, clean, level_db)


def _sheet(found: dict[str, Curve], points: Sequence[float], what: str, form: str) -> StudyTable:
    rows = [
        (label, *(percent_interval(curve[point][0]) for point in points)) for label, curve in found.items()
    ]
    return StudyTable(
        title=f"Fooling ratio by {what}, in floats, % with 95 % interval",
        columns=("class", *(form.format(point) for point in points)),
        rows=rows,
    )


def _values(found: dict[str, Curve]) -> dict[str, tuple[list[float], list[float]]]:
    return {
        label: (list(curve), [100 * exact.value for exact, _ in curve.values()])
        for label, curve in found.items()
    }


def _numbers(found: dict[str, Curve]) -> dict[str, list[dict[str, object]]]:
    return {
        label: [
            {"at": point, "float": exact._asdict(), "16bit": saved._asdict()}
            for point, (exact, saved) in curve.items()
        ]
        for label, curve in found.items()
    }


STUDY = Study(
    id="V3",
    title="Fooling ratio against distortion",
    paper="Vadillo and Santana, section 3.3, Fig. 2",
    reports="the fooling ratio of every class rises with the L2 norm and with dB_x,max",
    open=open_choice,
    run=run,
)
