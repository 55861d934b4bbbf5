"""V5: distortion on the vocal part and on the background apart (sections 4.2 and 4.3, Fig. 4)."""

from __future__ import annotations

import numpy as np

from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import boxes
from sottovoce.studies.shown_numbers import db_interval, percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.vadillo2022.evaluate import Floats, audible, distortion_db, mean, rate
from sottovoce.studies.vadillo2022.fitting_split import SILENCE
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup, open_choice
from sottovoce.studies.vadillo2022.vadillo_tables import ACCEPTED_DB, HIGH_DB

MEASURES = ("vocal_max", "background_max", "vocal_mean", "background_mean")
TITLES = {
    "vocal_max": "vocal part, dB_x,max",
    "background_max": "background, dB_x,max",
    "vocal_mean": "vocal part, dB_x,mean",
    "background_mean": "background, dB_x,mean",
}
CLAIMS = (
    ("vocal_max", ACCEPTED_DB, "almost none"),
    ("vocal_mean", ACCEPTED_DB, "almost none"),
    ("background_max", ACCEPTED_DB, "still acceptable"),
    ("background_mean", ACCEPTED_DB, "great majority"),
    ("background_mean", HIGH_DB, "about half"),
)
"""Shares of clips above a threshold, in the words of section 4.3."""


def run(bench: UniversalSetup) -> Result:
    levels: dict[str, dict[str, Floats]] = {name: {} for name in MEASURES}
    silent = []
    for label, perturbations in bench.perturbations().items():
        heard = audible(perturbations)
        if not heard:
            silent.append(label)
            continue
        found = distortion_db(bench.valid(label), heard)
        for name in MEASURES:
            # Silence is all background: it has no vocal part (section 4.2).
            if not (label == SILENCE and name.startswith("vocal")):
                levels[name][label] = _known(found[name])
    notes = [
        "The vocal part is the shortest stretch with 95 % of a clip's energy; the rest is background. "
        "A clip that is vocal from end to end has no background and is left out there.",
        "Lower is quieter; v is measured before the sum is cut to [-1, 1].",
    ]
    if silent:
        notes.append(f"Left out, because no perturbation fooled any clip: {', '.join(silent)}.")
    return Result(
        sheets=[_shares(levels), _levels(bench.classes, levels)],
        drawings=[_drawing(levels)],
        values={
            "levels_db": {name: {k: v.tolist() for k, v in own.items()} for name, own in levels.items()},
            "shares": [
                {"measure": name, "above_db": line, "paper": words, **_above(levels[name], line)._asdict()}
                for name, line, words in CLAIMS
            ],
        },
        notes=notes,
    )


def _known(values: Floats) -> Floats:
    """`(sets, clips)` without the clips that have no such part."""
    return values[:, ~np.isnan(values).any(axis=0)]


def _above(levels: dict[str, Floats], line_db: float) -> Interval:
    """The share of all clips, each by its mean over perturbations, above a level."""
    means = [values.mean(axis=0) for values in levels.values()]
    return rate(np.concatenate(means) > line_db)


def _shares(levels: dict[str, dict[str, Floats]]) -> StudyTable:
    return StudyTable(
        title="Clips whose distortion is above a threshold, %",
        columns=("part and measure", "above", "here", "paper"),
        rows=[
            (TITLES[name], f"{line:.0f} dB", percent_interval(_above(levels[name], line)), words)
            for name, line, words in CLAIMS
        ],
        note="All classes together (silence in the background only), with 95 % intervals over clips. "
        "The paper gives these in words.",
    )


def _levels(classes: list[str], levels: dict[str, dict[str, Floats]]) -> StudyTable:
    rows = []
    for label in classes:
        own = [levels[name].get(label) for name in MEASURES]
        cells = [db_interval(mean(one)) if one is not None and one.size else db_interval(None) for one in own]
        rows.append((label, *cells))
    return StudyTable(
        title="Mean level of the perturbation on each part, dB with 95 % interval",
        columns=("class", *(TITLES[name] for name in MEASURES)),
        rows=rows,
        note="The paper shows these as distributions (Fig. 4), without numbers in its text.",
    )


def _drawing(levels: dict[str, dict[str, Floats]]) -> StudyFigure:
    grid = [
        [(TITLES[name], _means(levels[name])) for name in row]
        for row in (("vocal_max", "background_max"), ("vocal_mean", "background_mean"))
    ]
    return StudyFigure(
        name="parts",
        title="Distortion by part on validation clips: dB_x,max (top) and dB_x,mean (bottom); the lines are "
        "-32 and -20 dB",
        figure=boxes(grid, lines_db=(ACCEPTED_DB, HIGH_DB)),
    )


def _means(levels: dict[str, Floats]) -> dict[str, Floats]:
    return {label: values.mean(axis=0) for label, values in levels.items()}


STUDY = Study(
    id="V5",
    title="Distortion on vocal part and background apart",
    paper="Vadillo and Santana, section 4.3, Fig. 4",
    reports="vocal part below -32 dB; background dB_x,mean above -32 dB mostly, above -20 dB for about half",
    open=open_choice,
    run=run,
)
