"""Many simulated listeners at once before a real server of a listening test, over HTTP on loopback.

python benchmarks/listening.py                     # 200 on SQLite, 1,000 on PostgreSQL
python benchmarks/listening.py --only sqlite --listeners 50 --think 1 2

The server is `sottovoce listen serve`; the listeners are another process, with kept connections that speak
just enough HTTP, so that they take little of the cores that all share. PostgreSQL is started for the run from
the programs that the tests find.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import uvloop
from sqlalchemy import select

from sottovoce.listening.server.database import open_engine
from sottovoce.listening.server.tables import ANSWER, SESSION, STEP

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "listening"))
from conftest import Postgres, StudyMaker, fill, slots_in

RATE = 16000
RUN = "from sottovoce.cli.main import main; main()"


@dataclass
class Tally:
    """What listeners saw. answers: milliseconds, of those sent while nothing was wrong; told: ids of screens
    whose answers were acknowledged; troubles: requests that had to be sent again."""

    answers: list[float] = field(default_factory=list)
    joins: list[float] = field(default_factory=list)
    clips: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    troubles: int = 0
    finished: int = 0


class Line(asyncio.Protocol):
    """One kept connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reply: asyncio.Future[tuple[int, bytes]] | None = None
        self.head, self.parts, self.status, self.left = b"", list[bytes](), 0, -1

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self.reply is not None and not self.reply.done():
            self.reply.set_exception(ConnectionResetError())

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        if self.transport is None:
            raise ConnectionResetError
        self.reply = asyncio.get_running_loop().create_future()
        self.head, self.parts, self.left = b"", [], -1
        self.transport.write(request)
        return self.reply

    def data_received(self, data: bytes) -> None:
        if self.left < 0:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            start = self.head.index(b"content-length: ") + 16
            self.status = int(self.head[9:12])
            self.left = int(self.head[start : self.head.index(b"\r\n", start)])
            data = self.head[end + 4 :]
        self.parts.append(data)
        self.left -= len(data)
        if self.left == 0 and self.reply is not None:
            self.reply.set_result((self.status, b"".join(self.parts)))


class Link:
    """A listener's connections, of which each request takes any; sends again until it is answered."""

    def __init__(self, place: tuple[str, int], tally: Tally, source: Random, lines: int) -> None:
        self.place, self.tally, self.source = place, tally, source
        self.lines = [Line() for _ in range(lines)]

    async def call(self, method: str, path: str, body: Any, spent: list[float]) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n".encode() + content
        pause = 0.25
        for attempt in range(60):
            start = time.perf_counter()
            try:
                status, reply = await self._once(request)
            except OSError:
                status, reply = 0, b""
            if status in (200, 201):
                if attempt == 0:
                    spent.append(1000 * (time.perf_counter() - start))
                return reply
            if status not in (0, 429, 503):
                raise RuntimeError(f"{method} {path}: {status} {reply[:300]!r}")
            self.tally.troubles += 1
            await asyncio.sleep(pause)
            pause = min(2.0, 2 * pause)
        raise RuntimeError(f"{method} {path}: no answer after 60 attempts")

    async def _once(self, request: bytes) -> tuple[int, bytes]:
        line = self.lines[0] if len(self.lines) == 1 else self.source.choice(self.lines)
        if line.transport is None:
            await asyncio.get_running_loop().create_connection(lambda: line, *self.place)
        return await line.ask(request)

    def close(self) -> None:
        for line in self.lines:
            if line.transport is not None:
                line.transport.close()


def answer_to(screen: dict[str, Any], source: Random) -> dict[str, Any]:
    kind = screen["kind"]
    given: dict[str, Any] = {"kind": kind}
    if kind == "naming":
        given |= {"choice": source.choice(screen["choices"]), "naturalness": source.randint(1, 5)}
    elif kind == "abx":
        given |= {"choice": source.choice("ab"), "confidence": source.choice(["low", "medium", "high"])}
    elif kind == "same-different":
        given |= {"different": source.random() < 0.5}
    elif kind == "questionnaire":
        given |= {"answers": {one["name"]: fill(one) for one in screen["questions"]}}
    return given


@dataclass(frozen=True)
class Load:
    """What is asked of a server. think: seconds a screen, from and to; arrive: within which all come;
    stop: after which nobody begins another screen; kill: after which the server, or one of its workers, is
    killed; lines: connections of a listener."""

    listeners: int
    think: tuple[float, float]
    arrive: float
    stop: float
    kill: float | None = None
    one: bool = False
    lines: int = 1


async def sit(number: int, place: tuple[str, int], load: Load, begin: float, tally: Tally) -> None:
    """One session: every clip of a screen is fetched, then comes a while of listening, then the answer."""
    source = Random(number)
    link = Link(place, tally, source, load.lines)
    await asyncio.sleep(source.uniform(0, load.arrive))
    arrival = {"arrived_with": {}, "token": secrets.token_urlsafe(32)}
    joined = json.loads(await link.call("POST", "/api/sessions", arrival, tally.joins))
    token, screen = joined["token"], joined["screen"]
    while screen["kind"] != "done" and time.perf_counter() - begin < load.stop:
        for slot in slots_in(screen):
            await link.call("GET", f"/api/audio/{slot['audio']}?token={token}", None, tally.clips)
        await asyncio.sleep(source.uniform(*load.think))
        body = {"screen": screen["id"], "given": answer_to(screen, source), "seconds": load.think[0]}
        reply = await link.call("POST", f"/api/sessions/{token}/answers", body, tally.answers)
        tally.told.append(screen["id"])
        screen = json.loads(reply)["screen"]
    tally.finished += screen["kind"] == "done"
    link.close()


def spent_by(root: int) -> float:
    """Processor seconds of a process and all that it has started."""
    tick, total, parents = os.sysconf("SC_CLK_TCK"), 0.0, dict[int, list[int]]()
    times = dict[int, tuple[int, int]]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents.setdefault(int(fields[1]), []).append(pid)
            times[pid] = (int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14]))
    family = [root]
    for pid in family:
        family += parents.get(pid, [])
        own, ended = times.get(pid, (0, 0))
        total += own + ended
    return total / tick


class Server:
    """`sottovoce listen serve`, which can be killed and started again at the same address."""

    def __init__(self, study: Path, url: str, workers: int | None) -> None:
        self.study, self.url, self.workers, self.port = study, url, workers, 0
        self.start()

    def start(self) -> None:
        words = ["listen", "serve", str(self.study), "--db", self.url, "--port", str(self.port)]
        words += ["--joins", "1000000", "--connections", "1000000"]  # All of them come from one address.
        words += [] if self.workers is None else ["--workers", str(self.workers)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SOTTOVOCE_ADMIN_TOKEN": "of-a-benchmark-only"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, *words],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.match(r"listeners: http://[^:]+:(\d+)/", line)
            if found:
                self.port = int(found[1])
            if line.startswith("results:"):
                return
        raise RuntimeError("the server did not start")

    def children(self) -> list[int]:
        """Its workers, where it has several."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self) -> None:
        """All of it at once."""
        for pid in [self.process.pid, *self.children()]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def kill_one(self) -> None:
        os.kill(self.children()[0], signal.SIGKILL)

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


async def crowd(server: Server, load: Load) -> tuple[Tally, float, float]:
    """All listeners at once: (what they saw, seconds, seconds without a server)."""
    tally, start, down = Tally(), time.perf_counter(), 0.0
    place = ("127.0.0.1", server.port)
    work = [asyncio.create_task(sit(number, place, load, start, tally)) for number in range(load.listeners)]
    if load.kill is not None:
        await asyncio.sleep(load.kill)
        begin = time.perf_counter()
        if load.one:
            server.kill_one()
        else:
            server.kill()
            await asyncio.to_thread(server.start)
            down = time.perf_counter() - begin
    await asyncio.gather(*work)
    return tally, time.perf_counter() - start, down


def check(url: str, tally: Tally, load: Load) -> str:
    """Acknowledged answers beside the rows of the database: none lost, none doubled."""
    engine = open_engine(url)
    with engine.connect() as link:
        kept = list(link.scalars(select(ANSWER.c.step_id)))
        places = [tuple(row) for row in link.execute(
            select(STEP.c.session_id, STEP.c.place).join_from(ANSWER, STEP, ANSWER.c.step_id == STEP.c.id)
        )]  # fmt: skip
        sessions = list(link.scalars(select(SESSION.c.state)))
    engine.dispose()
    lost = len(set(tally.told) - set(kept))
    doubled = len(places) - len(set(places)) + len(kept) - len(set(kept))
    unasked = len(set(kept) - set(tally.told))
    finished, listeners = sessions.count("finished"), load.listeners
    if len(sessions) != listeners or finished != tally.finished:
        raise RuntimeError(
            f"{len(sessions)} sessions of {listeners} listeners, {finished} finished, of {tally.finished}"
        )
    if load.stop == inf and finished != listeners:
        raise RuntimeError(f"{finished} of {listeners} sessions are finished")
    return f"{lost} / {doubled} / {unasked}"


def write_study(folder: Path) -> Path:
    """Naming and ABX as in V6, with clips of a second, and one adaptive search."""
    maker = StudyMaker(folder)
    clips = maker.pairs(3, samples=RATE)
    # The dearest first, so that a run that stops early is not an easy one.
    blocks = [
        {
            "test": "same-different",
            "items": [{"reference": "w0", "direction": "white"}],
            "strengths": 26,
            "comparisons": 6,
            "sentinels": 2,
        },
        {"test": "abx", "items": [key for key in clips if key.endswith("-adv")]},
        {"test": "naming", "items": list(clips), "choices": ["yes", "no"]},
    ]
    ask = [{"name": "age", "kind": "number", "text": "How old are you?", "choices": []}]
    content = {"title": "Load", "seats": 36, "volume": False, "questionnaire": ask}
    return maker.write({**content, "clips": clips, "blocks": blocks})


@contextmanager
def database(kind: str, folder: Path) -> Iterator[Any]:
    """Makes addresses of new databases of a kind, and gives the process they are in, where they have one."""
    if kind == "sqlite":
        yield lambda name: (f"sqlite:///{folder / secrets.token_hex(4)}.db", None)
        return
    with tempfile.TemporaryDirectory(prefix="sottovoce-postgres-", ignore_cleanup_errors=True) as place:
        server = Postgres(Path(place))
        server.start()
        try:
            pid = int((server.data / "postmaster.pid").read_text().split()[0])
            yield lambda name: (server.create(), pid)
        finally:
            server.stop()


def row(name: str, server: Server, load: Load, database_pid: int | None) -> str:
    pids = [server.process.pid, os.getpid(), *([] if database_pid is None else [database_pid])]
    busy, before = os.getloadavg()[0], [spent_by(pid) for pid in pids]
    # The server is a child of this process, and its own entry.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tally, seconds, down = runner.run(crowd(server, load))
    used = [spent_by(pid) - start for pid, start in zip(pids, before, strict=True)]
    used[1] -= used[0]
    shares = "" if load.kill else " / ".join(f"{100 * one / seconds:.0f}" for one in used)
    middle, high, highest = np.percentile(tally.answers, (50, 95, 99))
    answers, flat = len(tally.told), load.think == (0.0, 0.0)
    cells = [
        name, f"{load.listeners:,}", "none" if flat else f"{load.think[0]:g} to {load.think[1]:g}",
        str(len(server.children()) or 1), f"{answers:,}", f"{answers / seconds:.0f}",
        f"{len(tally.clips) / seconds:.0f}", f"{middle:.0f}", f"{high:.0f}", f"{highest:.0f}",
        f"{np.percentile(tally.joins, 95):.0f}", shares, f"{tally.troubles:,}",
        f"{down:.1f}" if load.kill else "", check(server.url, tally, load), f"{busy:.1f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| run | listeners | think time, s | workers | answers | answers/s | clips/s | p50, ms | p95, ms | "
    "p99, ms | p95 of arriving, ms | processor: server / listeners / database, % | sent again | down, s | "
    "lost / doubled / unasked | load before |"
)
RUNS = ("paced", "killed", "one killed", "flat")


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    parser.add_argument("--listeners", type=int, help="instead of 200 and 1,000")
    parser.add_argument(
        "--think", type=float, nargs="+", default=(2.0, 4.0), help="from, to; more pairs for PostgreSQL"
    )
    parser.add_argument("--arrive", type=float, default=10.0, help="seconds within which all come")
    parser.add_argument("--stop", type=float, default=inf, help="seconds after which nobody goes on")
    parser.add_argument("--lines", type=int, default=1, help="connections of a listener, taken at random")
    parser.add_argument("--workers", type=int, help="of the server, on PostgreSQL")
    options = parser.parse_args()
    paces = list(zip(options.think[::2], options.think[1::2], strict=True))
    print(HEAD, "|---|" + "---:|" * 15, sep="\n", flush=True)
    for kind, usual in (("sqlite", 200), ("postgresql", 1000)):
        if options.only not in (None, kind):
            continue
        with (
            tempfile.TemporaryDirectory(prefix="sottovoce-load-") as place,
            database(kind, Path(place)) as at,
        ):
            study = write_study(Path(place))
            for name in options.runs:
                if name == "one killed" and kind == "sqlite":
                    continue
                for pace in paces if name == "paced" and kind != "sqlite" else paces[:1]:
                    load = Load(
                        options.listeners or usual,
                        (0.0, 0.0) if name == "flat" else pace,
                        0.0 if name == "flat" else options.arrive,
                        options.stop,
                        20.0 if "killed" in name else None,
                        name == "one killed",
                        options.lines,
                    )
                    measure(f"{kind}, {name}", study, at, load, options.workers if kind != "sqlite" else None)


def measure(name: str, study: Path, at: Any, load: Load, workers: int | None) -> None:
    url, pid = at(name)
    server = Server(study, url, workers)
    try:
        print(row(name, server, load, pid), flush=True)
    finally:
        server.end()


if __name__ == "__main__":
    main()
