"""Closed tabs, lost replies and servers that go away: no answer is lost, and none is there twice."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

KEPT = (
    "The server cannot be reached right now. Your answer is kept on this device and will be sent by itself."
)
SAVED = "The connection is back, and your answer is saved."


@pytest.fixture
def short(maker: Any) -> dict[str, Any]:
    """A notice and two ABX trials."""
    return {**maker.content("abx", per_listener=2), "volume": False}


def answers(hall: Any) -> list[dict[str, Any]]:
    return [dict(row.given) for row in hall.rows()]


def test_a_closed_tab_comes_back(open_hall: Any, visit: Any, short: Any) -> None:
    """In the same browser by itself, and in another one by the address."""
    hall = open_hall(short)
    first = visit(hall).come("?PROLIFIC_PID=p1")
    first.until("abx")
    first.answer()
    shown, token, profile = first.id, first.token, first.page.context
    first.prepare()
    first.page.close(run_before_unload=False)

    again = visit(hall, context=profile).come("?PROLIFIC_PID=p1")
    assert (again.id, again.token) == (shown, token)
    assert again.page.locator("[data-state=heard], :checked:not([type=checkbox])").count() == 0
    again.page.close()

    elsewhere = visit(hall, seed=5).come(f"#s={token}")
    assert elsewhere.id == shown
    elsewhere.finish()
    assert answers(hall) == first.given + elsewhere.given
    assert len(hall.rows()) == 3 and len({row.session for row in hall.rows()}) == 1


def test_another_listener_gets_another_session(open_hall: Any, visit: Any, short: Any) -> None:
    hall = open_hall(short)
    first = visit(hall).come("?PROLIFIC_PID=p1")
    first.until("abx")
    second = visit(hall, context=first.page.context).come("?PROLIFIC_PID=p2")
    assert second.token != first.token
    assert second.kind == "notice"


@pytest.mark.slow
def test_two_tabs_make_one_answer(open_hall: Any, visit: Any, short: Any) -> None:
    """What was answered first stays; the tab that comes later goes on from there."""
    hall = open_hall(short)
    first = visit(hall).come()
    first.until("abx")
    second = visit(hall, context=first.page.context, seed=9).come()
    assert second.id == first.id
    for tab in (first, second):
        tab.page.bring_to_front()
        tab.answer()
    assert second.id == first.id
    first.page.bring_to_front()
    first.finish()
    assert answers(hall) == first.given


def test_a_lost_reply_makes_one_row(open_hall: Any, visit: Any, short: Any) -> None:
    """The server has the answer, but the page does not know: it sends it again."""
    hall = open_hall(short)
    listener = visit(hall).come()
    listener.until("abx")
    lost: list[int] = []

    def lose(route: Any) -> None:
        lost.append(route.fetch().status)
        route.abort("connectionreset")

    listener.page.route("**/answers", lose, times=1)
    listener.answer()
    listener.wait()
    assert lost == [200]
    listener.finish()
    assert answers(hall) == listener.given


@pytest.mark.slow
def test_an_answer_under_way_outlives_its_tab(open_hall: Any, visit: Any, short: Any) -> None:
    hall = open_hall(short)
    listener = visit(hall).come()
    listener.until("abx")
    page = listener.page
    page.route("**/answers", lambda route: route.abort("internetdisconnected"))
    listener.answer()
    page.locator("#status").get_by_text(KEPT).wait_for()
    assert len(hall.rows()) == 1
    page.close()

    again = visit(hall, context=page.context, seed=3).come()
    assert again.kind == "abx"
    assert answers(hall) == listener.given
    again.finish()
    assert answers(hall) == listener.given + again.given


@pytest.mark.slow
def test_a_server_that_is_away(open_hall: Any, visit: Any, short: Any) -> None:
    """The page says so and keeps what was shown; it goes on by itself, or at once when it is told to."""
    hall = open_hall(short)
    listener = visit(hall).come()
    listener.until("abx")
    hall.stop()
    listener.answer()
    page = listener.page
    page.locator("#status").get_by_text(KEPT).wait_for()
    assert page.locator(".screen[aria-busy=true][data-kind=abx]").count() == 1
    assert page.locator(".screen input:checked").count() == 2
    assert len(hall.rows()) == 1
    hall.start()
    page.get_by_role("button", name="Try now").click()
    page.locator("#status").get_by_text(SAVED).wait_for()
    listener.finish()
    assert answers(hall) == listener.given


@pytest.mark.slow
def test_a_database_that_is_away(open_hall: Any, visit: Any, short: Any) -> None:
    """Somebody else holds the file for longer than the server waits: it says so, and the page tries again."""
    hall = open_hall(short)
    listener = visit(hall).come()
    listener.until("abx")
    other = sqlite3.connect(str(hall.engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with listener.page.expect_response("**/answers") as reply:
        listener.answer()
    assert (reply.value.status, reply.value.json()["code"]) == (503, "try-again")
    status = listener.page.locator("#status")
    status.get_by_text(KEPT).wait_for()
    other.execute("ROLLBACK")
    other.close()
    status.get_by_text(SAVED).wait_for()
    listener.finish()
    assert answers(hall) == listener.given


def test_a_session_that_nobody_knows(open_hall: Any, visit: Any, short: Any) -> None:
    hall = open_hall(short)
    listener = visit(hall).come("#s=no-such-session")
    assert listener.kind == "trouble"
    assert listener.page.get_by_role("heading").inner_text() == "This session has ended"
    listener.page.get_by_role("button", name="Begin a new session").click()
    assert listener.kind == "notice"
    assert listener.token != "no-such-session"
    assert hall.rows() == []


class Command:
    """`sottovoce listen serve` as a process of its own."""

    def __init__(self, study: Path) -> None:
        self.study, self.port = study, 0

    def start(self) -> str:
        code = "from sottovoce.cli.main import main; main()"
        command = [sys.executable, "-c", code, "listen", "serve", str(self.study), "--port", str(self.port)]
        environment = {**os.environ, "SOTTOVOCE_ADMIN_TOKEN": "an-admin-token-of-tests"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"listeners: (http://127\.0\.0\.1:(\d+)/)", line):
                self.port = int(found[2])
                return found[1]
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.slow
def test_a_server_killed_in_the_middle_of_an_answer(visit: Any, maker: Any, short: Any) -> None:
    """kill -9 with the answer on its way; the same command again, and the session goes on."""
    from sottovoce.listening.server.database import default_url, open_engine, read_answers

    path = maker.write(short)
    server = Command(path)
    listener = visit(type("Place", (), {"address": server.start()}))
    try:
        listener.come()
        listener.until("abx")
        # Stopped, not ended: the connection is taken, and nothing answers.
        server.process.send_signal(signal.SIGSTOP)
        listener.answer()
        time.sleep(0.5)
        server.kill()
        status = listener.page.locator("#status")
        status.get_by_text(KEPT).wait_for()
        server.start()
        status.get_by_text(SAVED).wait_for()
        listener.finish()
    finally:
        server.kill()
    engine = open_engine(default_url(path))
    rows = read_answers(engine)
    engine.dispose()
    assert [dict(row.given) for row in rows] == listener.given
    assert len({row.session for row in rows}) == 1
