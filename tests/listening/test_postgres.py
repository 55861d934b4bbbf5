"""Databases that go away and servers that are killed: what was acknowledged is there, and listeners go on."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import urllib3

SERVE = "import typer; from sottovoce.cli.listen_serve import serve; typer.run(serve)"


@pytest.mark.slow
def test_a_database_that_goes_away_and_comes_back(make_site, postgres):
    site = make_site("abx", postgres.create())
    listener = site.listener()
    listener.until("abx")
    before = len(site.rows())
    postgres.stop()
    try:
        for reply in (
            listener.post(),
            listener.post(),
            site.client.post("/api/sessions", json={}),
            site.client.get("/healthz"),
            site.client.get("/api/admin/progress", headers=site.admin),
        ):
            assert (reply.status_code, reply.json()["code"]) == (503, "try-again")
    finally:
        postgres.start()
    # The same answer, kept by the page, is sent again.
    listener.answer({"kind": "abx", "choice": "b", "confidence": "medium"})
    assert [row.given["choice"] for row in site.rows()[before:]] == ["b"]
    listener.finish()
    assert [row.place for row in site.rows()] == [0, 1, 2, 3, 4, 5, 6]


class Process:
    """A server of its own, as a researcher starts it."""

    def __init__(self, study: Any, url: str, port: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SOTTOVOCE_ADMIN_TOKEN": "token-for-tests-only"}
        command = [sys.executable, "-c", SERVE, str(study), "--db", url, "--port", str(port)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.said: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if line.startswith("results:"):
                break
        else:
            pytest.fail("".join(self.said))
        self.place = re.search(r"listeners: (http://\S+?)/$", "".join(self.said), re.M)[1]

    def end(self, how: signal.Signals) -> str:
        self.process.send_signal(how)
        rest, _ = self.process.communicate(timeout=30)
        return rest


class Client:
    """The few verbs of an HTTP client that a listener needs, on real sockets."""

    def __init__(self, place: str) -> None:
        self.place, self.pool = place, urllib3.PoolManager(maxsize=20, retries=False, timeout=20)

    def post(self, path: str, json: Any) -> Any:
        return Reply(self.pool.request("POST", self.place + path, json=json))

    def get(self, path: str) -> Any:
        return Reply(self.pool.request("GET", self.place + path))


class Reply:
    def __init__(self, raw: Any) -> None:
        self.status_code, self.content, self.json, self.text = raw.status, raw.data, raw.json, str(raw.data)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts servers, and ends those that are left."""
    started: list[Process] = []

    def begin(*arguments: Any) -> Process:
        started.append(Process(*arguments))
        return started[-1]

    yield begin
    for server in started:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_server_has_every_answer_it_acknowledged(make_site, listen, maker, database_url, start):
    site = make_site("abx", database_url)
    server = start(maker.folder / "study.yaml", database_url, 0)
    client = Client(server.place)
    listeners = [listen(client) for _ in range(12)]
    acknowledged: queue.Queue[tuple[str, str]] = queue.Queue()

    def take(listener: Any) -> None:
        while listener.screen["kind"] != "done":
            screen = listener.screen["id"]
            try:
                listener.answer()
            except urllib3.exceptions.HTTPError:
                return
            acknowledged.put((listener.token, screen))

    with ThreadPoolExecutor(12) as pool:
        work = [pool.submit(take, listener) for listener in listeners]
        while acknowledged.qsize() < 20:
            time.sleep(0.01)
            assert not all(one.done() for one in work)
        server.end(signal.SIGKILL)
        for one in work:
            one.result()
    assert server.process.returncode == -signal.SIGKILL
    kept = _screens(site)
    told = {screen for _, screen in acknowledged.queue}
    assert len(told) == acknowledged.qsize() >= 20
    # Each listener may have one answer more on the disk, of which the server could not say so any more.
    assert told <= kept and len(kept - told) <= 12

    again = start(maker.folder / "study.yaml", database_url, 0)
    for listener in listeners:
        listener.client = Client(again.place)
        before = listener.screen
        shown = listener.client.get(f"/api/sessions/{listener.token}/screen").json()["screen"]
        assert shown == before or before["id"] in kept
        # Where the reply was lost, the page sends its answer again, and is told what comes next.
        if before["kind"] != "done":
            assert listener.answer()["screen"] == shown or before == shown
        listener.finish()
    assert sorted((row.seat, row.place) for row in site.rows()) == [
        (seat, place) for seat in range(12) for place in range(7)
    ]
    assert all(row.accepted for row in site.rows())
    assert "every answer that was confirmed to a listener is stored" in again.end(signal.SIGINT)
    assert again.process.returncode == 0


def _screens(site: Any) -> set[str]:
    from sqlalchemy import select

    from sottovoce.listening.server.tables import ANSWER

    with site.engine.connect() as link:
        return set(link.scalars(select(ANSWER.c.step_id)))
