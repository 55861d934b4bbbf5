"""Tables, files and the page of results: figures as the paper prints them, marks where they are due."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sottovoce.core.statistics import Interval
from sottovoce.data.load import Clip
from sottovoce.errors import InputError, StoreError, UnknownName
from sottovoce.listening.analysis.answer_rows import AnswerRow, Visit
from sottovoce.listening.analysis.counted_answers import RatingCounts
from sottovoce.listening.analysis.result_figures import naturalness_figure
from sottovoce.listening.analysis.result_tables import ResultColumn, ResultTable, show
from sottovoce.listening.analysis.results import Results, analyse
from sottovoce.listening.analysis.results_page import answers_csv, render, render_so_far, write
from sottovoce.listening.study.study_file import ListeningStudy, make_study
from sottovoce.perception.ears import learned


def study(**entries: Any) -> ListeningStudy:
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


def table(results: Results, name: str) -> ResultTable:
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
        "session-counts",
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
    lines = table(analyse(study(), rows), "session-counts").texts()
    assert lines == [
        ("started, with at least one answer", "21"),
        ("accepted", "18"),
        ("not finished", "1"),
        ("discarded", "2"),
        ("discarded: 1 of 6 sentinels missed", "2"),
    ]
    assert sum(line[3] for line in table(analyse(study(), rows), "abx").rows if line[1] == "all") == 108
    more = analyse(study(), rows, unfinished=True)
    assert sum(line[3] for line in table(more, "abx").rows if line[1] == "all") == 109


def test_checks_that_were_failed_and_noted_alone() -> None:
    rows = paper_abx()
    given, truth = {"choice": "a", "confidence": "low"}, {"choice": "a"}
    rows += [row("abx", given, truth, session=name, notes="headphone check failed") for name in ("x", "y")]
    lines = table(analyse(study(), rows), "session-counts").texts()
    assert lines[1:4] == [
        ("accepted", "20"),
        ("accepted, but: headphone check failed", "2"),
        ("not finished", "0"),
    ]
    last = list(csv.DictReader(io.StringIO(answers_csv(rows))))[-1]
    assert (last["accepted"], last["notes"]) == ("True", "headphone check failed")


def test_how_often_each_clip_was_heard() -> None:
    clips = {
        "w": {"path": "w.wav", "condition": "clean", "label": "yes"},
        "v": {"path": "v.wav", "condition": "noise", "level": "high", "label": "no"},
    }
    block = {
        "test": "naming",
        "items": ["w"],
        "sentinels": ["v"],
        "teaching": ["v"],
        "choices": ["yes", "no"],
    }
    content = study(clips=clips, blocks=[block], seats=5)
    given, truth = {"choice": "yes", "naturalness": 3}, {"choice": "yes"}
    heard = [
        row("attention", given, truth, roles={"Clip": "w"}, block=-1),
        row("naming", given, truth, roles={"Clip": "v"}, teaching=True),
        row("naming", given, truth, roles={"Clip": "v"}, sentinel=True),
        row("naming", given, truth, roles={"Clip": "w"}),
        row("naming", given, truth, roles={"Clip": "w"}, session="s2", accepted=False),
        # The same sound twice on one screen is one trial.
        row(
            "abx", {"choice": "a", "confidence": "low"}, truth, roles={"A": "w", "B": "anchor:1:w", "X": "w"}
        ),
    ]
    found = analyse(content, heard).exposure
    assert found is not None
    lines = list(csv.reader(io.StringIO(found.to_csv("people"))))
    assert lines == [
        ["listeners", "clip", "condition", "level", "trials planned", "trials answered", "trials that count"],
        ["people", "w", "clean", "", "5", "3", "2"],
        ["people", "v", "noise", "high", "5", "1", "0"],
        ["people", "anchor:1:w", "", "", "", "1", "1"],
    ]


def visit(**more: Any) -> Visit:
    plain: dict[str, Any] = {
        "session": "s1",
        "seat": 0,
        "simulated": False,
        "state": "finished",
        "accepted": True,
        "reason": "",
        "notes": "",
        "arrived_with": {},
        "code": "",
        "created": datetime(2026, 3, 1, 9, 30, tzinfo=UTC),
        "finished": None,
    }
    return Visit(**(plain | more))


def test_sessions_as_csv_say_who_came_and_what_they_were_given(tmp_path: Path) -> None:
    visits = [
        visit(
            arrived_with={"PROLIFIC_PID": "p1"},
            code="AB12",
            notes="headphone check failed",
            finished=datetime(2026, 3, 1, 9, 45, 5, tzinfo=UTC),
        ),
        visit(session="s2", seat=1, state="open", accepted=None),
        visit(session="bot", simulated=True),
    ]
    write(analyse(study(), paper_abx()), tmp_path, visits)
    lines = list(csv.reader((tmp_path / "sessions.csv").open()))
    names = ["session", "seat", "state", "accepted", "reason", "notes", "arrived_with", "code", "created"]
    begun, over = "2026-03-01T09:30:00+00:00", "2026-03-01T09:45:05+00:00"
    came, note = '{"PROLIFIC_PID": "p1"}', "headphone check failed"
    assert lines == [
        ["listeners", *names, "finished"],
        ["people", "s1", "0", "finished", "True", "", note, came, "AB12", begun, over],
        ["people", "s2", "1", "open", "", "", "", "{}", "", begun, ""],
    ]


def test_nothing_counts_yet() -> None:
    found = analyse(study(), [row("abx", {"choice": "a"}, {}, accepted=None)])
    assert found.notes == ["No answers count yet: no session is finished and accepted."]
    with pytest.raises(InputError, match="there are no answers of people"):
        analyse(study(), [])


def test_files_of_people(tmp_path: Path) -> None:
    page = write(analyse(study(), paper_abx()), tmp_path / "out")
    names = sorted(path.name for path in page.parent.iterdir())
    assert names == [
        "abx-confidence.csv",
        "abx.csv",
        "abx.png",
        "answers.csv",
        "exposure.csv",
        "report.html",
        "session-counts.csv",
    ]
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
    with pytest.raises(InputError, match="1 of 19 sessions are simulated"):
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
    assert note.startswith("The ear 'learned' was not compared with the answers") and "no such file" in note
    assert "was not compared with" in render(found)


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
    with pytest.raises(StoreError, match="choose another folder with --out"):
        write(analyse(study(), paper_abx()), tmp_path / "file")


def test_cells() -> None:
    assert show(Interval(0.5, 0.25, 0.75, 8), "percent") == "50.0 [25.0, 75.0]"
    assert show(Interval(0.5, np.nan, np.nan, 1), "percent") == "50.0"
    assert [show(cell, "number") for cell in (None, np.nan, 2.25)] == ["–", "–", "2.2"]
    assert (show(1234, "count"), show(0.00012, "p"), show(0.98765, "ratio")) == ("1,234", "1.2e-04", "0.988")
    made = ResultTable(
        name="t",
        title="T",
        columns=(ResultColumn("who"), ResultColumn("share", "percent"), ResultColumn("n", "count")),
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
    scores = [RatingCounts(name, "clean", (1, 0, 2, 0, 3)) for name in ("", "low", "medium", "high")[:levels]]
    figure = naturalness_figure(scores, "people")
    assert [bool(axes.patches) for axes in figure.axes if axes.get_visible()] == [True] * levels
