"""Several processes that serve one study: whichever is killed, listeners go on and nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs Linux, to look at children of a process"
)

SERVE = "import typer; from sottovoce.cli.listen_serve import serve; typer.run(serve)"
FOREMAN = """
import os, sys, time
from sottovoce.listening.server.server_processes import ServerProcesses

def work(wait):
    os.write(1, f"begun {os.getpid()}\\n".encode())
    if "short" in sys.argv:
        raise RuntimeError("no good")
    wait()
    os.write(1, f"alone {os.getpid()}\\n".encode())

ServerProcesses(2, work, lambda text: os.write(1, f"{text}\\n".encode())).run()
os.write(1, b"over\\n")
"""


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come to be so"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def crew() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", FOREMAN], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def pids(said: list[str]) -> list[int]:
    return [int(line.removeprefix("begun ")) for line in said]


def test_a_worker_that_dies_is_replaced(crew):
    one, two = pids(lines(crew, 2))
    assert sorted(children(crew.pid)) == sorted([one, two])
    os.kill(one, signal.SIGKILL)
    told = lines(crew, 2)
    assert told[0] == "a worker ended (signal 9); starting another"
    (three,) = pids(told[1:])
    assert sorted(children(crew.pid)) == sorted([two, three])


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_all_end_together(crew, how):
    both = pids(lines(crew, 2))
    crew.send_signal(how)
    assert lines(crew, 1) == ["over"]
    assert crew.wait(10) == 0
    assert all(is_gone(pid) for pid in both)


def test_workers_end_when_nobody_looks_after_them(crew):
    both = pids(lines(crew, 2))
    crew.kill()
    assert sorted(lines(crew, 2)) == sorted(f"alone {pid}" for pid in both)
    wait_until(lambda: all(is_gone(pid) for pid in both))


def test_workers_that_never_stay_are_started_again_but_not_at_once():
    command = [sys.executable, "-c", FOREMAN, "short"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as crew:
        lines(crew, 1)
        time.sleep(3)
        crew.send_signal(signal.SIGTERM)
        said, wrong = crew.communicate(timeout=30)
    assert crew.returncode == 0 and said.endswith("over\n")
    assert "RuntimeError: no good" in wrong
    assert 2 <= said.count("a worker ended (exit status 1); starting another") <= 10


class Web:
    """A served study: the verbs of a client that a listener needs, on real sockets; it asks until it is
    answered, as a page does."""

    def __init__(self, study: Path, url: str, workers: int, port: int = 0) -> None:
        command = [sys.executable, "-c", SERVE, str(study), "--db", url, "--port", str(port)]
        command += ["--workers", str(workers)]
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
        self.place = found[1]
        self.pool = urllib3.PoolManager(maxsize=8, retries=False, timeout=30)

    @property
    def port(self) -> int:
        return int(self.place.rpartition(":")[2])

    def workers(self) -> list[int]:
        return children(self.process.pid)

    def post(self, path: str, json: Any) -> Any:
        return self._persist("POST", path, json=json)

    def get(self, path: str) -> Any:
        return self._persist("GET", path)

    def _persist(self, method: str, path: str, **more: Any) -> Any:
        for _ in range(200):
            try:
                reply = self.pool.request(method, self.place + path, **more)
            except urllib3.exceptions.HTTPError:
                time.sleep(0.05)
                continue
            if reply.status not in (429, 503):
                return Reply(reply)
            time.sleep(0.05)
        pytest.fail(f"{method} {path}: no answer")

    def report(self) -> Any:
        headers = {"Authorization": "Bearer token-for-tests-only"}
        return self._persist("GET", "/results/report", headers=headers, timeout=120)

    def close(self) -> str:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=60)
        return rest


class Reply:
    def __init__(self, raw: Any) -> None:
        self.status_code, self.json, self.text = raw.status, raw.json, str(raw.data)


@pytest.fixture
def served(make_site: Any, maker: Any, postgres: Any) -> Iterator[Any]:
    """Six ABX trials, served by two processes, and a way to read the answers."""
    site = make_site("abx", postgres.create())
    web = Web(maker.folder / "study.yaml", site.url, 2)
    yield web, site
    if web.process.poll() is None:
        web.close()


@pytest.mark.slow
def test_a_killed_worker_costs_no_answer(served, listen, slots):
    web, site = served
    wait_until(lambda: len(web.workers()) == 2)
    listeners = [listen(web) for _ in range(6)]
    acknowledged: list[str] = []

    def take(listener: Any) -> None:
        while listener.screen["kind"] != "done":
            for slot in slots(listener.screen):
                assert web.get(f"/api/audio/{slot['audio']}?token={listener.token}").status_code == 200
            screen = listener.screen["id"]
            listener.answer()
            acknowledged.append(screen)

    threads = [threading.Thread(target=take, args=(listener,)) for listener in listeners]
    for thread in threads:
        thread.start()
    killed = set()
    for share in (6, 15, 24):
        wait_until(lambda share=share: len(acknowledged) >= share)
        victim = web.workers()[0]
        killed.add(victim)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(set(web.workers()) - killed) == 2)
    for thread in threads:
        thread.join(60)
    rows = site.rows()
    assert len(killed) == 3 and len(acknowledged) == 42
    assert sorted((row.seat, row.place) for row in rows) == [
        (seat, place) for seat in range(6) for place in range(7)
    ]
    assert all(row.accepted for row in rows)
    report = web.report()
    assert report.status_code == 200 and "A test" in report.text
    said = web.close()
    assert said.count("a worker ended (signal 9); starting another") == 3
    assert "every answer that was confirmed to a listener is stored" in said and web.process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_port_is_free_after_the_server(served, listen, maker, how):
    web, site = served
    wait_until(lambda: len(web.workers()) == 2)
    workers = web.workers()
    listener = listen(web)
    listener.until("abx")
    web.process.send_signal(how)
    web.process.communicate(timeout=60)
    wait_until(lambda: all(is_gone(pid) for pid in workers))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", web.port)) != 0
    again = Web(maker.folder / "study.yaml", site.url, 2, web.port)
    try:
        listener.client = again
        assert listener.finish()["kind"] == "done"
        assert [row.place for row in site.rows()] == list(range(7))
    finally:
        again.close()
