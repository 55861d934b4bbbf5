"""Intervals of runs whose clips name their speakers."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.audit.plan import make_plan
from sottovoce.audit.summary import by_group, summarise
from sottovoce.core.record import Record
from sottovoce.core.statistics import ratio_bootstrap
from sottovoce.report.html import list_methods
from sottovoce.report.trials import Judged

SPEAKERS = "aabbccddeeff"
LEVELS = [10.0, 11.0, 20.0, 22.0, 30.0, 31.0, 15.0, 14.0, 26.0, 25.0, 18.0, 19.0]


def records(speakers: str) -> list[Record]:
    """Clips at some SNR, two of each speaker, who is not known where the letter is a space."""
    return [
        Record(
            cell="pgd_evade_snr-db-20",
            clip=str(number),
            status="ok",
            achieved=True,
            achieved_unrounded=True,
            facts={"speaker": speaker} if speaker != " " else {},
            parts={"snr": [level, 1.0], "success": [1.0, 1.0]},
        )
        for number, (speaker, level) in enumerate(zip(speakers, LEVELS, strict=True))
    ]


def test_speakers_are_resampled_where_all_are_known() -> None:
    plan = make_plan({"attacks": ["pgd"], "budgets": ["snr(db=20)"]})
    summary = summarise(plan, records(SPEAKERS))
    found = summary.cells[0].estimates
    parts = np.array([[level, 1.0] for level in LEVELS])
    expected = ratio_bootstrap(parts, groups=list(SPEAKERS))
    assert (found["snr"].value, found["snr"].n) == (pytest.approx(sum(LEVELS) / 12), 12)
    assert (found["snr"].low, found["snr"].high) == (expected.low, expected.high)
    assert found["snr"].method == "bootstrap over speakers 95%"
    assert found["success"].method == "Clopper-Pearson 95%"
    explained = dict(list_methods(summary))
    assert "over speakers" in explained["bootstrap over speakers 95%"]
    assert by_group(records(SPEAKERS), "snr", lambda record: record.cell) == {
        "pgd_evade_snr-db-20": found["snr"]
    }


def test_clips_are_resampled_where_one_speaker_is_not_known() -> None:
    plan = make_plan({"attacks": ["pgd"], "budgets": ["snr(db=20)"]})
    summary = summarise(plan, records(SPEAKERS[:-1] + " "))
    assert summary.cells[0].estimates["snr"].method == "bootstrap 95%"
    assert "over clips" in dict(list_methods(summary))["bootstrap 95%"]


def test_a_part_of_a_report_knows_its_speakers() -> None:
    judged = Judged()
    for record in records(SPEAKERS):
        judged.add(record)
    every = judged.estimate("snr", np.ones(12, dtype=bool))
    assert every is not None and every.method == "bootstrap over speakers 95%"
    # Eight clips of four speakers.
    some = judged.estimate("snr", np.arange(12) < 8)
    assert some is not None and (some.n, some.method) == (8, "bootstrap 95%")
