"""How much of its budget an attack used, from records written by hand."""

from __future__ import annotations

from sottovoce.core.record import Record
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.runs.recogniser_plans import plans_of
from sottovoce.studies.olivier2023.smoothing_under_attack import used_sheet


def test_snr_that_an_attack_ended_at() -> None:
    plan = plans_of("O14", Ask(scale="full", model="recogniser", data="strings"))["bare"]
    cells = {str(cell.budget): cell for cell in plan.cells()}
    loud = cells["snr(db=10)"]
    records = [
        Record(cell=loud.id, clip=str(clip), status="ok", parts={"snr": [db, 1.0]})
        for clip, db in enumerate((14.0, 17.0))
    ]
    sheet = used_sheet({"bare": [(loud, records)]})
    assert sheet.columns[-1] == "asked: 10 dB"
    assert sheet.rows == [("bare", *["–"] * 5, "15.5")]
