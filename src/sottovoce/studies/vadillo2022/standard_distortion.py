"""V4: the standard evaluation of distortion, dB_x,max on whole clips (section 4.1, Fig. 3, Table 2)."""

from __future__ import annotations

from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import boxes
from sottovoce.studies.shown_numbers import db_interval, percent_interval, printed
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.vadillo2022.evaluate import Floats, audible, distortion_db, mean, rate
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup, open_choice
from sottovoce.studies.vadillo2022.vadillo_tables import ACCEPTED_DB, TABLE_2


def run(bench: UniversalSetup) -> Result:
    levels: dict[str, Floats] = {}
    silent = []
    for label, perturbations in bench.perturbations().items():
        heard = audible(perturbations)
        if heard:
            levels[label] = distortion_db(bench.valid(label), heard)["whole_max"]
        if len(heard) < len(perturbations):
            silent.append(f"{label} {len(perturbations) - len(heard)} of {len(perturbations)}")
    found = {label: (mean(values), rate(values < ACCEPTED_DB)) for label, values in levels.items()}
    notes = ["dB_x,max(v): the peak of the perturbation relative to the peak of the clip; lower is quieter."]
    if silent:
        notes.append(f"Left out, as they fooled no clip and are all zeros: {', '.join(silent)}.")
    return Result(
        sheets=[_sheet(found)],
        drawings=[
            StudyFigure(
                name="distortion",
                title="dB_x,max of the perturbations on validation clips, each clip's mean over its class's "
                "perturbations; the line is -32 dB",
                figure=boxes([[("whole clip, dB_x,max", {k: v.mean(axis=0) for k, v in levels.items()})]]),
            )
        ],
        values={
            "classes": {
                label: {
                    "mean_db": level._asdict(),
                    "below": below._asdict(),
                    "clips_db": levels[label].tolist(),
                }
                for label, (level, below) in found.items()
            }
        },
        notes=notes,
    )


def _sheet(found: dict[str, tuple[Interval, Interval]]) -> StudyTable:
    rows = []
    for label, (level, below) in found.items():
        paper = TABLE_2.get(label)
        rows.append(
            (
                label,
                db_interval(level),
                printed(paper and paper.mean_db),
                percent_interval(below),
                printed(paper and paper.below_percent),
                str(level.n),
            )
        )
    return StudyTable(
        title="Distortion on whole clips (Table 2)",
        columns=("class", "mean dB_x,max", "paper", "% below -32 dB", "paper", "clips"),
        rows=rows,
        note="Brackets: 95 % interval over clips.",
    )


STUDY = Study(
    id="V4",
    title="Standard evaluation of distortion",
    paper="Vadillo and Santana, section 4.1, Fig. 3 and Table 2",
    reports="mean dB_x,max below -40 dB and about 90 % or more of clips below -32 dB; silence -29.5 dB, 48 %",
    open=open_choice,
    run=run,
)
