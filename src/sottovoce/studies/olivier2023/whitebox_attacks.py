"""O5: white-box attacks on recognisers (section 5.2, Table 5.1, Fig. 5.1)."""

from __future__ import annotations

from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import Sweep, curves
from sottovoce.studies.olivier2023.attack_tables import TABLE_5_1
from sottovoce.studies.olivier2023.runs.recogniser_figures import forced_wer, found, lost_by_rounding, reached
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup, opener
from sottovoce.studies.shown_numbers import MISSING, as_printed, db_interval, percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable

ATTACKS = {"noise": "white noise", "fgsm": "FGSM", "pgd": "PGD", "apgd": "AutoPGD"}


def run(bench: AsrSetup) -> Result:
    forced = [(cell, rows) for cell, rows in bench.cells("targeted", "cw-asr") if rows]
    return Result(
        sheets=[
            _by_size(bench),
            *(_forced(bench.model, forced_wer(cell, rows), rows) for cell, rows in forced),
        ],
        drawings=[
            StudyFigure(
                name="wer-by-snr",
                title="WER by SNR: L2 (top), and L-infinity (bottom) at the mean SNR of each radius",
                figure=curves(
                    [
                        _sweep(bench, "snr", "SNR, dB (L2)"),
                        _sweep(bench, "linf", "mean SNR, dB (L-infinity)"),
                    ],
                    label="WER, %",
                    top=None,
                ),
            )
        ],
        values={
            "untargeted": [
                {
                    "attack": name,
                    "budget": str(cell.budget),
                    "clean_wer": found(rows, "clean-wer"),
                    "wer": found(rows, "wer"),
                    "snr_db": found(rows, "snr"),
                }
                for name in ATTACKS
                for cell, rows in bench.cells("untargeted", name)
            ],
            "forced": [
                {
                    "wer": forced_wer(cell, rows),
                    "success": found(rows, "success"),
                    "snr_db": found(rows, "snr", reached),
                    "lost_by_rounding": lost_by_rounding(rows),
                }
                for cell, rows in forced
            ],
        },
        notes=[
            "Corpus WER after Whisper's normaliser, against the reference transcripts; it can exceed 100 % "
            "when "
            "words are added. The paper's Fig. 5.1 has no numbers in its text.",
        ],
    )


def _by_size(bench: AsrSetup) -> StudyTable:
    rows = []
    for cell, noise in bench.cells("untargeted", "noise"):
        size = str(cell.budget)
        each = [found(bench.records("untargeted", name, size), "wer") for name in ATTACKS]
        snr = found(bench.records("untargeted", "pgd", size), "snr")
        clean = percent_interval(found(noise, "clean-wer"))
        rows.append(
            (cell.budget_title, clean, *map(percent_interval, each), db_interval(snr), str(len(noise)))
        )
    return StudyTable(
        title="WER under untargeted attacks, % (Fig. 5.1)",
        columns=("size", "clean", *ATTACKS.values(), "SNR of PGD, dB", "clips"),
        rows=rows,
        note="Brackets: 95 % interval over clips, over speakers where there are five or more.",
    )


def _forced(model: str, wer: Interval | None, records: list[Record]) -> StudyTable:
    ours = (
        f"here: {model}",
        MISSING,
        percent_interval(found(records, "clean-wer")),
        percent_interval(wer),
        db_interval(found(records, "snr", reached)),
        percent_interval(found(records, "success")),
    )
    paper = [
        (f"paper: {name}", row.output, *(as_printed(value) for value in row[1:]))
        for name, row in TABLE_5_1.items()
    ]
    return StudyTable(
        title="Forced texts (Table 5.1, Carlini & Wagner)",
        columns=("model", "output", "clean WER, %", "WER to the target, %", "SNR, dB", "accuracy, %"),
        rows=[ours, *paper],
        note=f"Ours on {len(records)} clips. A low WER to the target means that the attack succeeded; our "
        "SNR is the mean over successes.",
    )


def _sweep(bench: AsrSetup, norm: str, title: str) -> Sweep:
    lines = {}
    for name, label in ATTACKS.items():
        cells = [(cell, rows) for cell, rows in bench.cells("untargeted", name) if cell.budget.name == norm]
        points = [(found(rows, "snr"), found(rows, "wer")) for _, rows in cells]
        known = sorted((snr.value, 100 * wer.value) for snr, wer in points if snr and wer)
        lines[label] = ([snr for snr, _ in known], [wer for _, wer in known])
    return title, "linear", lines


STUDY = Study(
    id="O5",
    title="White-box attacks on recognisers",
    paper="Olivier's thesis (2023), section 5.2, Table 5.1 and Fig. 5.1",
    reports="texts forced on all clips at 32 to 40 dB; on 66 to 91 % at 21 to 27 dB for SpeechBrain's LSTMs",
    open=opener("O5", model="recogniser", data="strings"),
    run=run,
)
