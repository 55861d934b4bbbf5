"""V2: how often single-class universal perturbations fool the model (section 3.3, Table 1)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from sottovoce.core.statistics import Interval
from sottovoce.core.universal_attack import Perturbation
from sottovoce.studies.draw import bars
from sottovoce.studies.shown_numbers import percent, percent_interval, printed
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.vadillo2022.evaluate import Bools, fooled, rate
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup, open_choice
from sottovoce.studies.vadillo2022.vadillo_tables import BOUND_L2, TABLE_1


@dataclass(frozen=True)
class FoolingRow:
    """Fooling ratios of a class. `max` is of the perturbation that is best on its own training set."""

    max_train: float
    max_valid: Interval
    mean_train: float
    mean_valid: Interval
    max_train_16bit: float
    max_valid_16bit: float
    mean_train_16bit: float
    mean_valid_16bit: float
    fit_clips: int
    valid_clips: int
    train: list[float]
    valid: list[float]
    l2: list[float]


def run(bench: UniversalSetup) -> Result:
    fitted = bench.perturbations()
    rows = {}
    for place, (label, perturbations) in enumerate(fitted.items()):
        bench.tell(place / len(fitted), f"judging {label}")
        rows[label] = judge(bench, label, perturbations)
    return Result(
        sheets=[_in_floats(rows, "max"), _in_floats(rows, "mean"), _as_files(rows)],
        drawings=[
            StudyFigure(
                name="fooling",
                title="Mean fooling ratio on validation clips, % with 95 % interval, beside the paper's",
                figure=bars(
                    {label: row.mean_valid for label, row in rows.items()},
                    {label: one.mean_valid for label, one in TABLE_1.items()},
                ),
            )
        ],
        values={"classes": {label: asdict(row) for label, row in rows.items()}},
        notes=[
            "Fooling ratio: the share of clips of a class whose decision changes, whether or not it was "
            "right before.",
            "Max: the perturbation that does best on its own training set. Mean: over all perturbations of a "
            "class.",
        ],
    )


def judge(bench: UniversalSetup, label: str, perturbations: list[Perturbation]) -> FoolingRow:
    valid_clips = bench.valid(label)
    train: list[tuple[Bools, Bools]] = []
    valid: list[tuple[Bools, Bools]] = []
    for number, one in enumerate(perturbations):
        train.append(fooled(bench, bench.load(bench.material.fit_set(label, number)), one))
        valid.append(fooled(bench, valid_clips, one))
    shares = [float(exact.mean()) for exact, _ in train]
    top = shares.index(max(shares))
    return FoolingRow(
        max_train=shares[top],
        max_valid=rate(valid[top][0]),
        mean_train=float(np.mean(shares)),
        mean_valid=rate(np.stack([exact for exact, _ in valid])),
        max_train_16bit=float(train[top][1].mean()),
        max_valid_16bit=float(valid[top][1].mean()),
        mean_train_16bit=float(np.mean([saved.mean() for _, saved in train])),
        mean_valid_16bit=float(np.mean([saved.mean() for _, saved in valid])),
        fit_clips=len(train[top][0]),
        valid_clips=len(valid[top][0]),
        train=shares,
        valid=[float(exact.mean()) for exact, _ in valid],
        l2=[float(one.waveform.double().norm()) for one in perturbations],
    )


def _in_floats(rows: dict[str, FoolingRow], kind: Literal["max", "mean"]) -> StudyTable:
    lines = []
    for label, row in rows.items():
        train, valid = (row.max_train, row.max_valid) if kind == "max" else (row.mean_train, row.mean_valid)
        paper = TABLE_1[label]._asdict() if label in TABLE_1 else {}
        lines.append(
            (
                label,
                percent(train),
                printed(paper.get(f"{kind}_train")),
                percent_interval(valid),
                printed(paper.get(f"{kind}_valid")),
            )
        )
    return StudyTable(
        title=f"{kind.capitalize()} fooling ratio in floats, % (Table 1)",
        columns=("class", "train", "paper", "valid", "paper"),
        rows=lines,
        note="Brackets: exact 95 % interval over the validation clips.",
    )


def _as_files(rows: dict[str, FoolingRow]) -> StudyTable:
    return StudyTable(
        title="The same as 16-bit files, %, and how it was fitted",
        columns=(
            "class",
            "max train",
            "max valid",
            "mean train",
            "mean valid",
            "fit clips",
            "valid clips",
            "L2",
        ),
        rows=[
            (
                label,
                percent(row.max_train_16bit),
                percent(row.max_valid_16bit),
                percent(row.mean_train_16bit),
                percent(row.mean_valid_16bit),
                str(row.fit_clips),
                str(row.valid_clips),
                f"{np.mean(row.l2):.3f}",
            )
            for label, row in rows.items()
        ],
        note=f"L2: mean norm of the perturbations; the bound is {BOUND_L2:g}.",
    )


STUDY = Study(
    id="V2",
    title="Single-class universal perturbations",
    paper="Vadillo and Santana, section 3.3, Table 1",
    reports="fooling ratio above 70 % at best for 7 of 12 classes; silence hardest, below 25 %",
    open=open_choice,
    run=run,
)
