"""One whole session of every test in a real browser: what is in the database is what was pressed."""

from __future__ import annotations

from typing import Any

import pytest

AROUND = ["consent", "notice", "volume", "headphones", "attention", "notice"]
"""Consent, instructions, checks, and what is said before the block."""
TESTS = [
    ("naming", False),
    ("naming", True),
    ("same-different", False),
    ("same-different", True),
    ("mushra", False),
    ("mushra", True),
    ("preference", False),
    ("closer", True),
    ("abx", True),
]


def take(hall: Any, visit: Any, test: str, keys: bool, trials: list[str]) -> None:
    listener = visit(hall, keys=keys, seed=len(test) + keys).come("?PROLIFIC_PID=p%207&STUDY_ID=s1")
    listener.finish()
    page = listener.page
    code = page.locator(".code").inner_text()
    link = page.get_by_role("link", name="Go back to the study's site").get_attribute("href")
    assert link == f"https://example.org/back?cc={code}&id=p%207"
    rows = hall.rows()
    assert [row.kind for row in rows] == [*AROUND, *trials, "questionnaire"]
    assert [dict(row.given) for row in rows] == listener.given
    assert [dict(row.plays) for row in rows] == listener.plays
    assert len({row.session for row in rows}) == 1
    assert all(row.accepted for row in rows), rows[0].reason
    assert not any(row.simulated for row in rows)
    assert all(0 < row.seconds < 60 for row in rows)
    taught = [row for row in rows if row.teaching]
    said = [row.right for row in taught if row.right is not None]
    assert [text.startswith("Right") for text in listener.feedback[: len(said)]] == said
    assert len(listener.feedback) == len(taught) > 0
    assert listener.faults == []


def test_abx_by_mouse(open_hall: Any, visit: Any, dress: Any) -> None:
    take(open_hall(dress("abx")), visit, "abx", False, ["abx", "abx", "notice", "abx"])


@pytest.mark.slow
@pytest.mark.parametrize(("test", "keys"), TESTS)
def test_every_test(open_hall: Any, visit: Any, dress: Any, test: str, keys: bool) -> None:
    trials = [test, test, "notice", test]
    if test == "same-different":
        trials = [test] * 4 + ["notice"] + [test] * 2
    take(open_hall(dress(test)), visit, test, keys, trials)


@pytest.mark.slow
def test_a_break_lasts(open_hall: Any, visit: Any, maker: Any) -> None:
    """Going on is held back until the rest is over; neither mouse nor keys get past it."""
    content = maker.content("abx", per_listener=2, break_after=1, rest_seconds=2)
    hall = open_hall({**content, "volume": False})
    listener = visit(hall, keys=True).come()
    listener.until("abx")
    listener.answer()
    assert listener.kind == "notice"
    page = listener.page
    button = page.get_by_role("button", name="Continue")
    assert button.is_disabled()
    page.keyboard.press("Enter")
    assert listener.kind == "notice"
    page.get_by_text("You can go on whenever you like.").wait_for(state="attached")
    assert button.is_enabled()
    listener.finish()
    assert hall.rows()[2].seconds >= 2
    assert [dict(row.given) for row in hall.rows()] == listener.given


def test_who_does_not_agree_is_asked_nothing(open_hall: Any, visit: Any, dress: Any) -> None:
    hall = open_hall(dress("abx"))
    listener = visit(hall).come()
    listener.page.get_by_role("button", name="I do not agree").click()
    assert listener.kind == "done"
    assert "nothing was asked" in listener.page.locator(".prose").inner_text()
    assert [dict(row.given) for row in hall.rows()] == [{"kind": "consent", "agreed": False}]
    assert listener.page.locator(".code").count() == 0


def test_the_next_listener_at_the_same_machine(open_hall: Any, visit: Any, dress: Any) -> None:
    """The address alone shows the last listener's end; from there the next one begins."""
    hall = open_hall(dress("abx"))
    listener = visit(hall).come()
    page, first = listener.page, listener.token
    page.get_by_role("button", name="I do not agree").click()
    assert listener.kind == "done"
    listener.come()
    assert (listener.kind, listener.token) == ("done", first)
    page.get_by_role("link", name="Another listener").click()
    page.get_by_role("button", name="I agree").wait_for()
    assert listener.token != first
    listener.answer()
    listener.until("notice")
    assert len({row.session for row in hall.rows()}) == 2
    assert page.url == f"{hall.address}#s={listener.token}"
    assert listener.faults == []


@pytest.mark.slow
def test_who_misses_the_word_goes_home(open_hall: Any, visit: Any, dress: Any) -> None:
    hall = open_hall(dress("abx", headphones=None))
    listener = visit(hall, word="stop").come()
    listener.finish()
    assert [row.kind for row in hall.rows()] == ["consent", "notice", "volume", "attention"]
    assert hall.rows()[0].reason == "attention test failed"
    assert "a word in a sentence was not heard" in listener.page.locator(".prose").inner_text()


@pytest.mark.slow
def test_questions_are_checked_before_they_are_sent(open_hall: Any, visit: Any, dress: Any) -> None:
    content = dress("abx", consent=None, instructions="", volume=False, headphones=None, attention=[])
    content["blocks"][0] |= {"per_listener": 1, "teaching": []}
    hall = open_hall(content)
    listener = visit(hall).come()
    listener.until("questionnaire")
    page = listener.page
    page.get_by_label("How old are you?").fill("old")
    page.locator("[data-submit]").click()
    faults = page.locator(".fault:not(:empty)").all_inner_texts()
    assert faults == ["Please give a number.", "Please answer this question."]
    assert page.get_by_label("How old are you?").evaluate("it => it === document.activeElement")
    assert page.get_by_label("How old are you?").get_attribute("aria-invalid") == "true"
    listener.finish()
    assert hall.rows()[-1].given["answers"] == {
        "age": 34.5,
        "device": "Headphones",
        "remarks": "clear & <b>loud</b>",
    }
