"""O12: attacks without a gradient (appendix D.1, Table D.1, Fig. D.1), and a universal perturbation."""

from __future__ import annotations

from sottovoce.core.record import Record
from sottovoce.studies.draw import curves
from sottovoce.studies.olivier2023.attack_tables import GENETIC_SNR_DB, TABLE_D_1
from sottovoce.studies.olivier2023.runs.recogniser_figures import found, reached
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup, opener
from sottovoce.studies.shown_numbers import as_printed, db_interval, percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable

REMOVALS = {
    "kenansville": "Kenansville, DFT",
    "kenansville-ssa": "Kenansville, SSA",
    "yeehaw": "Yeehaw",
}
WHITE_NOISE = {"noise": "white noise"}


def run(bench: AsrSetup) -> Result:
    return Result(
        sheets=[_genetic(bench), _removal(bench), _least(bench), _universal(bench)],
        drawings=[
            StudyFigure(
                name="wer-by-snr",
                title="WER by SNR of attacks by removal, beside white noise (Fig. D.1)",
                figure=curves(
                    [("SNR, dB", "linear", {title: _curve(bench, name) for name, title in _shown().items()})],
                    label="WER, %",
                    top=None,
                ),
            )
        ],
        values={
            run: [
                {
                    "attack": str(cell.attack),
                    "budget": str(cell.budget),
                    "clean_wer": found(rows, "clean-wer"),
                    "wer": found(rows, "wer"),
                    "success": found(rows, "success"),
                    "snr_db": found(rows, "snr"),
                    "snr_of_successes_db": found(rows, "snr", reached),
                }
                for name in ("noise", "genetic", *REMOVALS, "universal-gradient")
                for cell, rows in bench.cells(run, name)
            ]
            for run in bench.runs
        },
        notes=[
            "Corpus WER by Whisper's normaliser, against the true transcripts. The paper's Fig. D.1 has no "
            "numbers in its text: above 20 dB Kenansville hardly changes the WER.",
        ],
    )


def _shown() -> dict[str, str]:
    return {**WHITE_NOISE, **REMOVALS}


def _genetic(bench: AsrSetup) -> StudyTable:
    ours = [
        (
            f"here: {bench.model}, {cell.budget_title}",
            percent_interval(found(rows, "clean-wer")),
            percent_interval(found(rows, "wer")),
            percent_interval(found(bench.records("genetic", "noise", str(cell.budget)), "wer")),
            db_interval(found(rows, "snr")),
            str(len(rows)),
        )
        for cell, rows in bench.cells("genetic", "genetic")
    ]
    paper = [
        (
            f"paper: {name}",
            as_printed(row.clean_wer),
            as_printed(row.wer),
            "–",
            as_printed(GENETIC_SNR_DB),
            "–",
        )
        for name, row in TABLE_D_1.items()
    ]
    return StudyTable(
        title="Genetic attack, WER in % (Table D.1)",
        columns=("model", "clean", "genetic", "white noise of the same size", "SNR, dB", "clips"),
        rows=[*ours, *paper],
        note="The paper's radius is not given; it comes to 20 dB on average.",
    )


def _removal(bench: AsrSetup) -> StudyTable:
    rows = []
    for cell, noise in bench.cells("removal", "noise"):
        each = [_records(bench, name, str(cell.budget)) for name in _shown()]
        wers = [percent_interval(found(records, "wer")) for records in each]
        clean = percent_interval(found(noise, "clean-wer"))
        rows.append((cell.budget_title, clean, *wers, str(len(noise))))
    return StudyTable(
        title="Attacks by removal, WER in % (Fig. D.1)",
        columns=("size", "clean", *_shown().values(), "clips"),
        rows=rows,
        note="The attacks remove all of the energy that the SNR allows.",
    )


def _least(bench: AsrSetup) -> StudyTable:
    return StudyTable(
        title="Smallest removal that makes a transcript worse",
        columns=("attack", "transcripts made worse, %", "SNR of those, dB", "clips"),
        rows=[
            (
                title,
                percent_interval(found(rows, "success")),
                db_interval(found(rows, "snr", reached)),
                str(len(rows)),
            )
            for name, title in REMOVALS.items()
            for _, rows in bench.cells("least", name)
        ],
        note="Searched for clip by clip, down from 0 dB.",
    )


def _universal(bench: AsrSetup) -> StudyTable:
    rows = []
    for cell, records in bench.cells("universal", "universal-gradient"):
        judged = {record.clip for record in records}
        noise = [one for one in _records(bench, "noise", str(cell.budget)) if one.clip in judged]
        rows.append(
            (
                cell.budget_title,
                percent_interval(found(records, "clean-wer")),
                percent_interval(found(records, "wer")),
                percent_interval(found(noise, "wer")),
                str(len(records)),
            )
        )
    return StudyTable(
        title="One perturbation for all clips, WER in %, on clips that it was not fitted on",
        columns=("size", "clean", "universal", "white noise of the same size", "clips"),
        rows=rows,
        note="The paper lists this attack without a table. White noise is measured on the clips that the "
        "attacks by removal used too.",
    )


def _records(bench: AsrSetup, attack: str, budget: str) -> list[Record]:
    return bench.records("removal", attack, budget)


def _curve(bench: AsrSetup, attack: str) -> tuple[list[float], list[float]]:
    points = [(found(rows, "snr"), found(rows, "wer")) for _, rows in bench.cells("removal", attack)]
    known = sorted((snr.value, 100 * wer.value) for snr, wer in points if snr and wer)
    return [snr for snr, _ in known], [wer for _, wer in known]


STUDY = Study(
    id="O12",
    title="Attacks without a gradient",
    paper="Olivier's thesis (2023), appendix D.1, Table D.1 and Fig. D.1",
    reports="the genetic attack at 20 dB takes most models to 11 to 25 % WER, DeepSpeech2 to 75 %; "
    "Kenansville does little above 20 dB",
    open=opener("O12", model="recogniser", data="strings", fits=True),
    run=run,
)
