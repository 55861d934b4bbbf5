"""Tables, files and the page of results: figures as the paper prints them, marks where they are due."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sottovoce.core.statistics import Interval
from sottovoce.data.load import Clip
from sottovoce.errors import InputError, StoreError, UnknownName
from sottovoce.listening.analyse import Scores
from sottovoce.listening.figures import naturalness_figure
from sottovoce.listening.report import answers_csv, render, render_so_far, write
from sottovoce.listening.results import Results, analyse
from sottovoce.listening.rows import AnswerRow
from sottovoce.listening.sheets import Column, Table, show
from sottovoce.listening.study import Study, make_study
from sottovoce.perception import learned


def study(**entries: Any) -> Study:
    plain: dict[str, Any] = {
        "title": "Do <b>you</b> hear it?",
        "clips": {"w": {"path": "w.wav", "condition": "clean"}},
        "blocks": [{"test": "naming", "items": ["w"], "choices": ["yes", "no"]}],
    }
    return make_study(plain | entries)


def row(kind: str, given: dict[str, Any], truth: dict[str, Any], **more: Any) -> AnswerRow:
    plain: dict[str, Any] = {
        "session": "s1",
        "seat": 0,
        "simulated": False,
        "accepted": True,
        "place": 0,
        "block": 0,
        "teaching": False,
        "sentinel": False,
        "roles": {},
        "facts": {},
        "seconds": 1.5,
    }
    return AnswerRow(kind=kind, given=given, truth=truth, **(plain | more))


def paper_abx(**more: Any) -> list[AnswerRow]:
    """36 trials a level, 35, 33 and 20 of them right (Vadillo and Santana 2020, Fig. 7)."""
    return [
        row(
            "abx",
            {"choice": "a" if number < hits else "b", "confidence": "high" if level != "high" else "low"},
            {"choice": "a", "clean": "b"},
            facts={"condition": "adversarial", "level": level},
            session=f"{level}-{number // 6}",
            **more,
        )
        for level, hits in (("low", 35), ("medium", 33), ("high", 20))
        for number in range(36)
    ]


def table(results: Results, name: str) -> Table:
    return next(one for one in results.tables if one.name == name)


def test_abx_as_the_paper_prints_it() -> None:
    found = analyse(study(preset="v6"), paper_abx())
    texts = {line[1]: line for line in table(found, "abx").texts()}
    assert texts["low"][2:5] == ("35", "36", "97.2 [85.5, 99.9]")
    assert texts["medium"][2:5] == ("33", "36", "91.7 [77.5, 98.2]")
    assert texts["high"][2:] == ("20", "36", "55.6 [38.1, 72.1]", "0.309", "0.618")
    assert "97.2 [85, 99]" in table(found, "abx").note
    assert "97.2 [85, 99]" not in table(analyse(study(), paper_abx()), "abx").note
    sure = {line[:2]: line[2:4] for line in table(found, "abx-confidence").texts()}
    assert sure["high", "low"] == ("36", "100.0") and sure["low", "low"] == ("0", "0.0")


def test_every_kind_of_answer_has_its_tables() -> None:
    rows = paper_abx()
    for number, condition in enumerate(("clean", "adversarial")):
        rows += [
            row(
                "naming",
                {"choice": "yes", "naturalness": 5 - 2 * number},
                {"choice": "yes"},
                facts={"condition": condition, "level": ""},
            )
        ]
    rows += [
        row(
            "preference",
            {"choice": "a"},
            {"conditions": {"a": "ours", "b": "l1"}},
            roles={"A": "x", "B": "y"},
            facts={"level": "5 dB"},
        ),
        row(
            "mushra",
            {"ratings": {"A": 100, "B": 20}},
            {"hidden": "A", "anchors": {}, "conditions": {"A": "reference", "B": "codec"}},
            facts={"clip": "i"},
        ),
        row("headphones", {"choice": 1}, {"choice": 1}),
        row("attention", {"choice": "cat"}, {"choice": "dog"}),
    ]
    found = analyse(study(), rows)
    assert [one.name for one in found.tables] == [
        "sessions",
        "checks",
        "naming",
        "naturalness",
        "naturalness-tests",
        "abx",
        "abx-confidence",
        "mushra-screening",
        "mushra",
        "mushra-differences",
        "preference",
    ]
    assert table(found, "checks").texts()[1] == ("attention", "0", "1", "0.0 [0.0, 97.5]")
    assert {one.name for one in found.drawings} == {"naming", "naturalness", "abx", "mushra", "preference"}
    assert found.who == "people"


def test_sessions_that_do_not_count() -> None:
    rows = paper_abx()
    rows += [row("abx", {"choice": "a"}, {}, session="x", accepted=False, reason="1 of 6 sentinels missed")]
    rows += [row("abx", {"choice": "a"}, {}, session="y", accepted=False, reason="1 of 6 sentinels missed")]
    rows += [row("abx", {"choice": "b", "confidence": "low"}, {"choice": "b"}, session="z", accepted=None)]
    lines = table(analyse(study(), rows), "sessions").texts()
    assert lines == [
        ("begun, with an answer at least", "21"),
        ("accepted", "18"),
        ("not finished", "1"),
        ("discarded", "2"),
        ("discarded: 1 of 6 sentinels missed", "2"),
    ]
    assert sum(line[3] for line in table(analyse(study(), rows), "abx").rows if line[1] == "all") == 108
    more = analyse(study(), rows, unfinished=True)
    assert sum(line[3] for line in table(more, "abx").rows if line[1] == "all") == 109


def test_nothing_counts_yet() -> None:
    found = analyse(study(), [row("abx", {"choice": "a"}, {}, accepted=None)])
    assert found.notes == ["No answer counts yet: no session is finished and accepted."]
    with pytest.raises(InputError, match="expected answers of people"):
        analyse(study(), [])


def test_files_of_people(tmp_path: Path) -> None:
    page = write(analyse(study(), paper_abx()), tmp_path / "out")
    names = sorted(path.name for path in page.parent.iterdir())
    assert names == ["abx-confidence.csv", "abx.csv", "abx.png", "answers.csv", "report.html", "sessions.csv"]
    lines = list(csv.DictReader((page.parent / "abx.csv").open()))
    high = next(line for line in lines if line["level"] == "high")
    assert high["listeners"] == "people" and high["found"] == "20"
    assert float(high["found, %"]) == pytest.approx(100 * 20 / 36)
    assert float(high["found, %, low"]) == pytest.approx(38.09768, abs=1e-4)
    assert float(high["p, two-sided"]) == pytest.approx(0.6177193, abs=1e-6)
    answers = list(csv.DictReader((page.parent / "answers.csv").open()))
    assert len(answers) == 108
    assert (answers[0]["right"], answers[0]["condition"], answers[0]["seconds"]) == (
        "True",
        "adversarial",
        "1.5",
    )


def test_page_is_one_safe_file(tmp_path: Path) -> None:
    text = write(analyse(study(), paper_abx()), tmp_path).read_text()
    assert "Do &lt;b&gt;you&lt;/b&gt; hear it?" in text and "<b>you" not in text
    assert "55.6 [38.1, 72.1]" in text
    assert "data:image/svg+xml;base64," in text
    assert not re.search(r'(src|href)="(?!data:)', text) and "<script" not in text
    assert "@import" not in text and "url(http" not in text
    assert "SIMULATED" not in text


def test_simulated_answers_are_marked_everywhere(tmp_path: Path) -> None:
    found = analyse(study(), paper_abx(simulated=True))
    page = write(found, tmp_path)
    assert all(path.name.startswith("simulated-") for path in tmp_path.iterdir())
    text = page.read_text()
    assert text.count("(SIMULATED listeners, not people)") >= len(found.tables) + len(found.drawings)
    assert "<title>SIMULATED: " in text
    for path in tmp_path.glob("*.csv"):
        lines = list(csv.DictReader(path.open()))
        assert lines and all(line["listeners"] == "SIMULATED listeners, not people" for line in lines)
    for one in found.drawings:
        assert one.figure.get_suptitle() == "SIMULATED listeners, not people"


def test_mixing_is_refused_and_labelled(tmp_path: Path) -> None:
    bot = row("abx", {"choice": "a", "confidence": "low"}, {"choice": "a"}, session="bot", simulated=True)
    rows = [*paper_abx(), bot]
    with pytest.raises(InputError, match="got both: 1 of 19 sessions are simulated"):
        analyse(study(), rows)
    assert analyse(study(), rows, who="people").who == "people"
    page = write(analyse(study(), rows, who="mixed"), tmp_path)
    assert page.name == "mixed-report.html"
    assert "people and SIMULATED listeners, mixed" in page.read_text()
    lines = list(csv.DictReader((tmp_path / "mixed-answers.csv").open()))
    assert {line["listeners"] for line in lines} == {"people", "SIMULATED listeners, not people"}


def comparison(strength: float, different: bool, place: int) -> AnswerRow:
    return row(
        "same-different",
        {"different": different},
        {"reference": "first", "strength": strength, "different": True},
        place=place,
        roles={"First": "w", "Second": f"render:white:{strength:g}:w"},
        facts={"track": "0", "direction": "white"},
    )


def noisy(key: str) -> Clip:
    """White noise on white noise, more of it with the strength in the key."""
    source = np.random.default_rng(0)
    clean, added = source.normal(size=(2, 8000)) * 0.05
    strength = float(key.split(":")[2]) if ":" in key else 0.0
    return Clip(key, torch.from_numpy((clean + strength / 50 * added).astype(np.float32)), 16_000, "")


def comparisons() -> list[AnswerRow]:
    strengths = (10, 90, 30, 70, 45, 55, 40, 60)
    return [comparison(float(one), one > 50, place) for place, one in enumerate(strengths)]


def test_same_different_beside_an_ear() -> None:
    found = analyse(study(), comparisons(), sounds=noisy, ear="auditory")
    assert table(found, "same-different").texts()[0] == ("all", "all", "4", "4", "50.0", "100.0")
    assert table(found, "calibration").rows[0][:3] == ("all", 8, 8)
    assert {one.name for one in found.drawings} == {"jnd", "calibration"}
    assert analyse(study(), comparisons(), sounds=None).notes == []


def test_an_ear_without_weights_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(learned, "FOLDER", tmp_path)
    found = analyse(study(), comparisons(), sounds=noisy, ear="learned")
    (note,) = found.notes
    assert note.startswith("The ear 'learned' was not held against the answers") and "no such file" in note
    assert "was not held against" in render(found)


def test_an_unknown_ear_is_a_mistake() -> None:
    with pytest.raises(UnknownName, match="did you mean 'learned'"):
        analyse(study(), comparisons(), sounds=noisy, ear="lerned")


def test_a_report_so_far() -> None:
    assert "No answers yet." in render_so_far(study(), [])
    both = [*paper_abx(), row("abx", {}, {}, session="bot", simulated=True)]
    assert "SIMULATED" not in render_so_far(study(), both)
    assert "SIMULATED" in render_so_far(study(), paper_abx(simulated=True))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another --out"):
        write(analyse(study(), paper_abx()), tmp_path / "file")


def test_cells() -> None:
    assert show(Interval(0.5, 0.25, 0.75, 8), "percent") == "50.0 [25.0, 75.0]"
    assert show(Interval(0.5, np.nan, np.nan, 1), "percent") == "50.0"
    assert [show(cell, "number") for cell in (None, np.nan, 2.25)] == ["–", "–", "2.2"]
    assert (show(1234, "count"), show(0.00012, "p"), show(0.98765, "ratio")) == ("1,234", "1.2e-04", "0.988")
    made = Table(
        name="t",
        title="T",
        columns=(Column("who"), Column("share", "percent"), Column("n", "count")),
        rows=[("a, b", Interval(0.5, 0.25, 0.75, 8), 8), ("c", None, 0)],
    )
    lines = list(csv.reader(io.StringIO(made.to_csv("people"))))
    assert lines == [
        ["listeners", "who", "share", "share, low", "share, high", "n"],
        ["people", "a, b", "50.0", "25.0", "75.0", "8"],
        ["people", "c", "", "", "", "0"],
    ]


def test_answers_as_csv_hold_everything() -> None:
    one = row("mushra", {"ratings": {"A": 1}}, {"hidden": "A"}, roles={"A": "é"}, plays={"A": 3})
    (line,) = csv.DictReader(io.StringIO(answers_csv([one])))
    assert line["given"] == '{"ratings": {"A": 1}}'
    assert (line["roles"], line["plays"], line["right"]) == ('{"A": "é"}', '{"A": 3}', "")


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_a_panel_a_level_and_none_beyond(levels: int) -> None:
    scores = [Scores(name, "clean", (1, 0, 2, 0, 3)) for name in ("", "low", "medium", "high")[:levels]]
    figure = naturalness_figure(scores, "people")
    assert [bool(axes.patches) for axes in figure.axes if axes.get_visible()] == [True] * levels
