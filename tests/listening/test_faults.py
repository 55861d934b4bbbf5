"""A real server whose disk is full for a while, or whose database is restarted while people answer."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

SERVE = "import typer; from sottovoce.cli.listen_serve import serve; typer.run(serve)"


class Web:
    """A served study: the verbs of a client that a listener needs, on real sockets."""

    def __init__(self, study: Path, url: str) -> None:
        command = [sys.executable, "-c", SERVE, str(study), "--db", url, "--port", "0"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SOTTOVOCE_ADMIN_TOKEN": "token-for-tests-only"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if line.startswith("results:"):
                break
        found = re.search(r"listeners: (http://\S+?)/$", said, re.M)
        assert found, said
        self.place, self.pool = found[1], urllib3.PoolManager(maxsize=8, retries=False, timeout=30)

    def post(self, path: str, json: Any) -> Reply:
        return Reply(self.pool.request("POST", self.place + path, json=json))

    def get(self, path: str) -> Reply:
        return Reply(self.pool.request("GET", self.place + path))

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=30)


class Reply:
    def __init__(self, raw: Any) -> None:
        self.status_code, self.json, self.text, self.headers = (
            raw.status,
            raw.json,
            str(raw.data),
            raw.headers,
        )


@pytest.fixture
def web(request: pytest.FixtureRequest, make_site: Any, maker: Any, tmp_path: Path) -> Iterator[Any]:
    """A served study of six ABX trials, and a way to read its answers."""
    url = request.getfixturevalue("postgres").create() if "database" in request.node.name else None
    site = make_site("abx", url or f"sqlite:///{tmp_path / 'answers.db'}")
    served = Web(maker.folder / "study.yaml", site.url)
    yield served, site
    served.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to shrink the files of another process")
def test_a_disk_that_is_full_for_a_while(web, listen, tmp_path: Path):
    served, site = web
    listeners = [listen(served) for _ in range(6)]
    # To the server this is a disk without room: a file cannot grow beyond what it is.
    log = tmp_path / "answers.db-wal"
    room = log.stat().st_size + 16 * 1024
    _, most = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (room, most))
    acknowledged = []
    for listener in listeners * 5:
        reply = listener.post()
        if reply.status_code != 200:
            break
        acknowledged.append(listener.screen["id"])
        listener.screen = reply.json()["screen"]
    assert (reply.status_code, reply.json()["code"]) == (503, "try-again")
    assert reply.headers["retry-after"] == "2"
    # Nothing was half written, and whoever asks is where they were.
    assert len(site.rows()) == len(acknowledged)
    assert served.get(f"/api/sessions/{listener.token}/screen").json()["screen"] == listener.screen
    assert listener.post().status_code == 503
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (most, most))
    for listener in listeners:
        listener.finish()
    assert sorted((row.seat, row.place) for row in site.rows()) == [
        (seat, place) for seat in range(6) for place in range(7)
    ]


@pytest.mark.slow
def test_a_database_that_is_restarted_while_people_answer(web, listen, postgres):
    served, site = web
    listeners = [listen(served) for _ in range(4)]
    refused: list[str] = []

    def take(listener: Any) -> None:
        """As the page does: what is refused for now is sent again, as it is."""
        while listener.screen["kind"] != "done":
            reply = listener.post()
            if reply.status_code == 200:
                listener.screen = reply.json()["screen"]
                continue
            refused.append(reply.json()["code"])
            down.set()
            back.wait(30)

    down, back = threading.Event(), threading.Event()
    postgres.stop()
    threads = [threading.Thread(target=take, args=(listener,)) for listener in listeners]
    for thread in threads:
        thread.start()
    assert down.wait(30)
    postgres.start()
    back.set()
    for thread in threads:
        thread.join(60)
    assert set(refused) == {"try-again"}
    assert [listener.screen["kind"] for listener in listeners] == ["done"] * 4
    assert sorted((row.seat, row.place) for row in site.rows()) == [
        (seat, place) for seat in range(4) for place in range(7)
    ]
