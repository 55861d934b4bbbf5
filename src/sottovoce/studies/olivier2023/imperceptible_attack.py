"""O6: the imperceptible attack (section 2.4): a text is forced, then hidden under what the clip masks."""

from __future__ import annotations

from collections.abc import Sequence

from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import bars
from sottovoce.studies.olivier2023.runs.recogniser_figures import Keep, forced_wer, found
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup, opener
from sottovoce.studies.shown_numbers import MISSING, db_interval, percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable

STAGES = {"cw-asr": "forced", "imperceptible": "forced and hidden"}
SHARE, EXCESS, SNR = "masking-share", "masking-excess", "snr"


def run(bench: AsrSetup) -> Result:
    stages = {
        title: (cell, rows)
        for name, title in STAGES.items()
        for cell, rows in bench.cells("imperceptible", name)
    }
    both = in_all([rows for _, rows in stages.values()])
    noise = {f"white noise, {cell.budget_title}": rows for cell, rows in bench.cells("noise", "noise")}
    sizes = {title: measures(rows, both) for title, (_, rows) in stages.items()}
    sizes |= {title: measures(rows, both) for title, rows in noise.items()}
    success = {title: found(rows, "success") for title, (_, rows) in stages.items()}
    wers = {title: forced_wer(cell, rows) for title, (cell, rows) in stages.items()}
    shares = {title: one[SHARE] for title, one in sizes.items()}
    return Result(
        sheets=[
            StudyTable(
                title="A forced text before and after the masking stage",
                columns=(
                    *("perturbation", "texts forced, %", "WER to the target, %", "SNR, dB"),
                    *("audible cells, %", "excess, dB", "clips"),
                ),
                rows=[
                    (
                        title,
                        percent_interval(success.get(title)),
                        percent_interval(wers.get(title)),
                        db_interval(one[SNR]),
                        percent_interval(one[SHARE]),
                        db_interval(one[EXCESS]),
                        MISSING if (snr := one[SNR]) is None else str(snr.n),
                    )
                    for title, one in sizes.items()
                ],
                note="SNR, audible cells and excess: over the clips on which both attacks force their text. "
                "Audible: cells of the spectrum above the masking threshold of the clip; excess: how far, "
                "on average over all cells.",
            )
        ],
        drawings=[
            StudyFigure(
                name="audible",
                title="Time-frequency cells above the masking threshold of the clip, % with 95 % interval",
                figure=bars({k: v for k, v in shares.items() if v}, {}, label="audible cells, %", top=None),
            )
        ],
        values={"success": success, "wer": wers, "sizes": sizes},
        notes=["The paper gives no table: SNRs within 3 dB of those of the attack without the second stage."],
    )


def in_all(stages: Sequence[Sequence[Record]]) -> Keep:
    """Whether a record's clip has a success in every stage."""
    won = [{record.clip for record in rows if record.achieved} for rows in stages]
    clips = set.intersection(*won) if won else set()
    return lambda record: record.clip in clips


def measures(records: Sequence[Record], keep: Keep) -> dict[str, Interval | None]:
    return {name: found(records, name, keep) for name in (SNR, SHARE, EXCESS)}


STUDY = Study(
    id="O6",
    title="The imperceptible attack",
    paper="Olivier's thesis (2023), sections 2.4 and 5.2.2",
    reports="almost the same results as the attack without a masking model, SNRs within 3 dB; no table",
    open=opener("O6", model="recogniser", data="strings"),
    run=run,
)
