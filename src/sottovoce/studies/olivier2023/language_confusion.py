"""O8: language confusion (section 5.4, Fig. 5.3)."""

from __future__ import annotations

from collections.abc import Iterable

from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval
from sottovoce.studies.draw import groups
from sottovoce.studies.olivier2023.attack_tables import CONFUSION
from sottovoce.studies.olivier2023.runs.recogniser_figures import by_language, found
from sottovoce.studies.olivier2023.runs.recogniser_plans import LANGUAGES
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup, opener
from sottovoce.studies.shown_numbers import percent_interval
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable

ALL = "all"
Rates = dict[str, Interval | None]


def run(bench: AsrSetup) -> Result:
    own = {f"heard as {code}": _toward(bench, code) for code in LANGUAGES}
    universal = [record for _, rows in bench.cells("universal", "universal-gradient") for record in rows]
    judged = {record.clip for record in universal}
    noise_45 = bench.records("noise", "noise", "snr(db=45)")
    noise_40 = [one for one in bench.records("noise", "noise", "snr(db=40)") if one.clip in judged]
    wers = {
        "clean": rates(noise_45, "clean-wer"),
        **{title: rates(records, "wer") for title, records in own.items()},
        "white noise": rates(noise_45, "wer"),
    }
    heard = {
        **{title: rates(records, "success") for title, records in own.items()},
        "another language in white noise": rates(noise_45, "language-confusion"),
    }
    one_for_all = {
        "clean": rates(universal, "clean-wer"),
        "WER": rates(universal, "wer"),
        "white noise": rates(noise_40, "wer"),
        "heard as sr": rates(universal, "success"),
    }
    return Result(
        sheets=[
            _sheet("WER by true language, %, attacked clip by clip at 45 dB (Fig. 5.3)", wers),
            _sheet("Clips in which the target language is detected, %, at 45 dB", heard),
            _sheet(
                "One perturbation for all clips, 40 dB, %, on clips that it was not fitted on", one_for_all
            ),
            StudyTable(
                title="The paper's results for Whisper medium",
                columns=("languages", "paper"),
                rows=list(CONFUSION.items()),
                note="Fig. 5.3 has no numbers in its text beyond these.",
            ),
        ],
        drawings=[
            StudyFigure(
                name="wer-by-language",
                title="WER by the language that is spoken, % with 95 % interval",
                figure=groups(
                    {**wers, "universal, heard as sr": one_for_all["WER"]},
                    label="WER, %",
                ),
            )
        ],
        values={"wer": wers, "heard": heard, "universal": one_for_all},
        notes=[
            "Clips that are already in the target language are not attacked. WER after Whisper's normaliser, "
            "against the reference transcripts.",
        ],
    )


def rates(records: Iterable[Record], metric: str) -> Rates:
    """A metric for each language that is spoken, and for all together."""
    rows = list(records)
    parts = {language: found(members, metric) for language, members in by_language(rows).items()}
    return {**parts, ALL: found(rows, metric)}


def _toward(bench: AsrSetup, code: str) -> list[Record]:
    return bench.records("confusion", "pgd", "snr(db=45)", f"language(code={code})")


def _sheet(title: str, columns: dict[str, Rates]) -> StudyTable:
    spoken = sorted({name for rates in columns.values() for name in rates if name != ALL})
    first = next(iter(columns.values()))
    rows = []
    for name in [*spoken, ALL]:
        clips = first.get(name)
        cells = [percent_interval(rates.get(name)) for rates in columns.values()]
        rows.append((name, *cells, str(clips.n if clips else 0)))
    return StudyTable(
        title=title,
        columns=("spoken", *columns, "clips"),
        rows=rows,
        note="Brackets: 95 % interval over clips, over speakers where there are five or more. Clips: those "
        "of the first column.",
    )


STUDY = Study(
    id="O8",
    title="Language confusion",
    paper="Olivier's thesis (2023), section 5.4, Fig. 5.3",
    reports="a wrong language is heard at 45 dB: WER above 100 % in languages with little training data, 16 "
    "to 60 points more in English and Italian; one perturbation for all clips: 20 to 40 points more",
    open=opener("O8", model="whisper:tiny", data="prompts", fits=True),
    run=run,
)
