"""O14: smoothing around any recogniser (section 7.4, Fig. 7.2)."""

from __future__ import annotations

from sottovoce.studies.draw import curves
from sottovoce.studies.olivier2023.defense_tables import SNRS_DB, TABLE_E_2
from sottovoce.studies.olivier2023.runs.recogniser_figures import crossing_db, found, less
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup, opener
from sottovoce.studies.olivier2023.smoothing_under_attack import (
    HALF,
    Cells,
    curve,
    loudness,
    points,
    used_sheet,
)
from sottovoce.studies.shown_numbers import as_printed, percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, at_least, lower, trend_sheet

RUNS = {"bare": "bare", "smoothed": "smoothed, enhanced, ROVER-8"}
COMPARED = {
    "bare DeepSpeech2": (0.0, "DeepSpeech2"),
    "DeepSpeech2, off the shelf": (0.02, "RS + ASNR + ROVER"),
    "DeepSpeech2, trained": (0.02, "RS + AUG + ROVER"),
}
"""What Fig. 7.2 holds against the stronger models: rows of Table E.2."""


def run(bench: AsrSetup) -> Result:
    runs = {name: _cells(bench, name) for name in RUNS}
    lines = {title: curve(runs[name]) for name, title in RUNS.items()}
    paper = {
        f"paper: {title}": (sorted(map(float, SNRS_DB)), [float(one) for one in TABLE_E_2[key].pgd[::-1]])
        for title, key in COMPARED.items()
    }
    return Result(
        sheets=[trend_sheet(_trends(bench, runs)), _by_size(runs), *_used(runs)],
        drawings=[
            StudyFigure(
                name="wer-by-snr",
                title="WER under PGD by SNR (Fig. 7.2), beside the thesis's DeepSpeech2",
                figure=curves([("SNR, dB", "linear", {**lines, **paper})], label="WER, %", top=None),
            )
        ],
        values={
            name: {
                "clean": found(cells[0][1] if cells else [], "clean-wer"),
                **{str(cell.budget): found(records, "wer") for cell, records in cells},
            }
            for name, cells in runs.items()
        },
        notes=[
            "Corpus WER after Whisper's normaliser, against the reference transcripts. Fig. 7.2 has no "
            "numbers in "
            "its text; the values beside ours are from Table E.2 at .02.",
            "Smoothing with sigma .02 on LibriSpeech, as in the thesis, and .063 elsewhere, which is as far "
            "below the embedded strings. Gradients are means over 16 passes, through noise and enhancement.",
        ],
    )


def _cells(bench: AsrSetup, name: str) -> Cells:
    return [(cell, records) for cell, records in bench.cells(name, "pgd") if records]


def _by_size(runs: dict[str, Cells]) -> StudyTable:
    rows = []
    for name, title in RUNS.items():
        wers = {float(cell.budget.settings["db"]): found(records, "wer") for cell, records in runs[name]}
        first = runs[name][0][1] if runs[name] else []
        each = [percent_interval(wers.get(level)) for level in SNRS_DB]
        rows.append((f"here: {title}", percent_interval(found(first, "clean-wer")), *each, str(len(first))))
    for title, key in COMPARED.items():
        row = TABLE_E_2[key]
        rows.append((f"paper: {title}", *map(as_printed, (row.clean, *row.pgd)), "100"))
    return StudyTable(
        title="WER under PGD, %",
        columns=("model", "clean", *(f"{level} dB" for level in SNRS_DB), "clips"),
        rows=rows,
    )


def _used(runs: dict[str, Cells]) -> list[StudyTable]:
    attacked = {RUNS[name]: cells for name, cells in runs.items() if cells}
    return [used_sheet(attacked)] if attacked else []


def _trends(bench: AsrSetup, runs: dict[str, Cells]) -> list[Trend]:
    every = {name: bench.records(name, "pgd") for name in RUNS}
    claim = "smoothing lowers the WER under attack"
    trends = [lower(claim, less(every["smoothed"], every["bare"], "wer"), "points of WER, all SNRs together")]
    bare, smoothed = points(runs["bare"]), points(runs["smoothed"])
    claim = "a WER of 50 % takes a louder attack than on the bare model"
    if not bare or not smoothed:
        return [*trends, Trend(claim, None, "not run")]
    before, after = crossing_db(bare, HALF), crossing_db(smoothed, HALF)
    edge = bare[0][0], bare[-1][0]
    numbers = f"bare {at_least(before, edge)}, smoothed {at_least(after, edge)}"
    holds = None if before == after else loudness(after) > loudness(before)
    return [*trends, Trend(claim, holds, numbers)]


STUDY = Study(
    id="O14",
    title="Smoothing around strong recognisers",
    paper="Olivier's thesis (2023), section 7.4, Fig. 7.2",
    reports="behind smoothing (sigma .02, ASNR, ROVER-8) better recognisers are the more robust ones, which "
    "they are not without; no table",
    open=opener("O14", model="recogniser", data="strings"),
    run=run,
)
