"""Many simulated listeners at once before a real server of a listening test, over HTTP on loopback.

python benchmarks/listening.py                     # 200 on SQLite, 1,000 on PostgreSQL
python benchmarks/listening.py --only sqlite --listeners 50 --think 1 2

The server is `sottovoce listen serve` in a process of its own; the listeners are another, with a connection
each that is kept open. PostgreSQL is started for the run from the programs that the tests find.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from sqlalchemy import select

from sottovoce.listening.database import open_engine
from sottovoce.listening.schema import ANSWER, SESSION, STEP

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


class Link:
    """One kept connection that speaks just enough HTTP; sends again until it is answered."""

    def __init__(self, place: tuple[str, int], tally: Tally) -> None:
        self.place, self.tally = place, tally
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any, spent: list[float]) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "Content-Type: application/json\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: {len(content)}\r\n\r\n"
        pause = 0.25
        for attempt in range(60):
            start = time.perf_counter()
            try:
                status, reply = await self._once(head.encode() + content)
            except (OSError, asyncio.IncompleteReadError):
                status, reply, self.streams = 0, b"", None
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
        if self.streams is None:
            self.streams = await asyncio.open_connection(*self.place)
        reader, writer = self.streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        return int(head[9:12]), await reader.readexactly(int(length[1]))


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


async def sit(
    number: int, place: tuple[str, int], think: tuple[float, float], arrive: float, tally: Tally
) -> None:
    """One session: every clip of a screen is fetched, then comes a while of listening, then the answer."""
    source, link = Random(number), Link(place, tally)
    await asyncio.sleep(source.uniform(0, arrive))
    joined = json.loads(await link.call("POST", "/api/sessions", {"arrived_with": {}}, tally.joins))
    token, screen = joined["token"], joined["screen"]
    while screen["kind"] != "done":
        for slot in slots_in(screen):
            await link.call("GET", f"/api/audio/{slot['audio']}?token={token}", None, tally.clips)
        await asyncio.sleep(source.uniform(*think))
        body = {"screen": screen["id"], "given": answer_to(screen, source), "seconds": think[0]}
        reply = await link.call("POST", f"/api/sessions/{token}/answers", body, tally.answers)
        tally.told.append(screen["id"])
        screen = json.loads(reply)["screen"]
    tally.finished += 1
    if link.streams is not None:
        link.streams[1].close()


class Server:
    """`sottovoce listen serve`, which can be killed and started again at the same address."""

    def __init__(self, study: Path, url: str) -> None:
        self.study, self.url, self.port = study, url, 0
        self.start()

    def start(self) -> None:
        words = ["listen", "serve", str(self.study), "--db", self.url, "--port", str(self.port)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SOTTOVOCE_ADMIN_TOKEN": "of-a-benchmark-only"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, *words], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.match(r"listeners: http://[^:]+:(\d+)/", line)
            if found:
                self.port = int(found[1])
            if line.startswith("results:"):
                return
        raise RuntimeError("the server did not start")

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait()

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def crowd(
    server: Server, count: int, think: tuple[float, float], arrive: float, kill_at: float | None
) -> tuple[Tally, float, float]:
    """All listeners at once: (what they saw, seconds, seconds without a server)."""
    tally, start, down = Tally(), time.perf_counter(), 0.0
    place = ("127.0.0.1", server.port)
    work = [asyncio.create_task(sit(number, place, think, arrive, tally)) for number in range(count)]
    if kill_at is not None:
        await asyncio.sleep(kill_at)
        begin = time.perf_counter()
        server.end(signal.SIGKILL)
        await asyncio.to_thread(server.start)
        down = time.perf_counter() - begin
    await asyncio.gather(*work)
    return tally, time.perf_counter() - start, down


def check(url: str, tally: Tally, listeners: int) -> str:
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
    # A session that began while the server died may have lost its reply: it stays open, without an answer.
    finished = sessions.count("finished")
    if finished != tally.finished or tally.finished != listeners:
        raise RuntimeError(f"{finished} of {listeners} sessions are finished, listeners say {tally.finished}")
    return f"{lost} / {doubled} / {unasked}"


def write_study(folder: Path) -> Path:
    """Naming and ABX as in V6, with clips of a second, and one adaptive search."""
    maker = StudyMaker(folder)
    clips = maker.pairs(3, samples=RATE)
    blocks = [
        {"test": "naming", "items": list(clips), "choices": ["yes", "no"]},
        {"test": "abx", "items": [key for key in clips if key.endswith("-adv")]},
        {
            "test": "same-different",
            "items": [{"reference": "w0", "direction": "white"}],
            "strengths": 26,
            "comparisons": 6,
            "sentinels": 2,
        },
    ]
    ask = [{"name": "age", "kind": "number", "text": "How old are you?", "choices": []}]
    content = {"title": "Load", "seats": 36, "volume": False, "questionnaire": ask}
    return maker.write({**content, "clips": clips, "blocks": blocks})


@contextmanager
def database(kind: str, folder: Path) -> Iterator[Any]:
    """Makes addresses of new databases of a kind."""
    if kind == "sqlite":
        yield lambda name: f"sqlite:///{folder / name}.db"
        return
    with tempfile.TemporaryDirectory(prefix="sottovoce-postgres-", ignore_cleanup_errors=True) as place:
        server = Postgres(Path(place))
        server.start()
        try:
            yield lambda name: server.create()
        finally:
            server.stop()


def row(
    name: str, server: Server, count: int, think: tuple[float, float], arrive: float, kill: float | None
) -> str:
    flat = think == (0.0, 0.0)
    load, before = os.getloadavg()[0], server.processor_seconds()
    tally, seconds, down = asyncio.run(crowd(server, count, think, 0.0 if flat else arrive, kill))
    spent = "" if kill else f"{100 * (server.processor_seconds() - before) / seconds:.0f} %"
    middle, high, highest = np.percentile(tally.answers, (50, 95, 99))
    answers = len(tally.told)
    cells = [
        name, f"{count:,}", "none" if flat else f"{think[0]:g} to {think[1]:g}", f"{answers:,}",
        f"{answers / seconds:.0f}", f"{len(tally.clips) / seconds:.0f}", f"{middle:.0f}", f"{high:.0f}",
        f"{highest:.0f}", f"{np.percentile(tally.joins, 95):.0f}", spent, f"{tally.troubles:,}",
        f"{down:.1f}" if kill else "", check(server.url, tally, count), f"{load:.1f}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| run | listeners | think time, s | answers | answers/s | clips/s | p50, ms | p95, ms | p99, ms | "
    "p95 of arriving, ms | processor | sent again | down, s | lost / doubled / unasked | load before |"
)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--runs", nargs="+", choices=("paced", "killed", "flat"))
    parser.add_argument("--listeners", type=int, help="instead of 200 and 1,000")
    parser.add_argument("--think", type=float, nargs=2, default=(2.0, 4.0))
    parser.add_argument("--arrive", type=float, default=10.0, help="seconds within which all come")
    options = parser.parse_args()
    think = (options.think[0], options.think[1])
    print(HEAD, "|---|" + "---:|" * 14, sep="\n", flush=True)
    for kind, usual in (("sqlite", 200), ("postgresql", 1000)):
        if options.only not in (None, kind):
            continue
        count = options.listeners or usual
        with (
            tempfile.TemporaryDirectory(prefix="sottovoce-load-") as place,
            database(kind, Path(place)) as at,
        ):
            study = write_study(Path(place))
            for name, pace, kill in (
                ("paced", think, None),
                ("killed", think, 20.0),
                ("flat", (0.0, 0.0), None),
            ):
                if name not in (options.runs or [name]):
                    continue
                server = Server(study, at(name))
                try:
                    print(row(f"{kind}, {name}", server, count, pace, options.arrive, kill), flush=True)
                finally:
                    server.end(signal.SIGINT)


if __name__ == "__main__":
    main()
