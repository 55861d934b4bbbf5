"""M2 on a few simulated listeners: figures that must come out, and the label that must be there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sottovoce.errors import InputError
from sottovoce.studies.manocha2020 import jnd_rivals
from sottovoce.studies.manocha2020 import jnd_search as m2
from sottovoce.studies.run_study import run_study
from sottovoce.studies.study import Choice


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(m2.LISTENERS, "mini", 4)
    monkeypatch.setitem(m2.SESSIONS, "mini", 12)


def test_page_and_figures(few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jnd_rivals, "has_quest_plus", lambda: False)
    _, result, page = run_study(m2.STUDY, Choice(), tmp_path)
    trends, errors, sessions = result.sheets
    assert [row[0] for row in errors.rows] == ["our rule", "random strengths"]
    assert (
        dict(zip([row[0] for row in trends.rows], [row[1] for row in trends.rows], strict=True))[
            "as close to the JND as QUEST+ (within 1.25 times)"
        ]
        == "–"
    )
    assert sessions.rows[0] == ("people (paper)", "1,812 of 2,000", "25,782 : 26,130", "88.3")
    assert all(row[0].startswith(("people (paper)", "simulated")) for row in sessions.rows)
    text = page.read_text()
    assert "SIMULATED LISTENERS, not people" in text and "QUEST+ was not run" in text
    values = json.loads((page.parent / "results.json").read_text())["values"]
    assert values["simulated"] is True
    assert values["sessions"]["simulated, inattentive"]["kept"] <= 3
    # 8 comparisons of each of 3 references.
    attentive = values["sessions"]["simulated, 2 % lapses"]
    assert sum(attentive["balance"].values()) == 24 * attentive["kept"]
    assert attentive["kept"] >= 8


def test_what_has_no_effect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data"):
        run_study(m2.STUDY, Choice(data="embedded"), tmp_path)
