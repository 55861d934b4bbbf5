"""Small studies of every kind: clips of a quarter of a second at 16 kHz, of noise that hangs on the name."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml

RATE = 16000
WAYS = ("white", "mulaw", "eq")


def write_noise(
    path: Path, name: str, *, samples: int = RATE // 4, rate: int = RATE, rms: float = 0.05
) -> None:
    source = np.random.default_rng(list(name.encode()))
    sound = np.rint(32768 * rms * source.standard_normal(samples)).clip(-32768, 32767)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, sound.astype(np.int16), rate, subtype="PCM_16")


class StudyMaker:
    """Writes clips and a study file into a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def clip(
        self, name: str, *, samples: int = RATE // 4, rate: int = RATE, rms: float = 0.05, **entries: Any
    ) -> dict[str, Any]:
        write_noise(self.folder / "audio" / f"{name}.wav", name, samples=samples, rate=rate, rms=rms)
        return {"path": f"audio/{name}.wav", **entries}

    def write(self, content: dict[str, Any]) -> Path:
        path = self.folder / "study.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return path

    def pairs(self, count: int, **entries: Any) -> dict[str, Any]:
        """`count` clean clips w0, w1... and as many adversarial ones, w0-adv..."""
        clips: dict[str, Any] = {}
        for number in range(count):
            label = ("yes", "no")[number % 2]
            clips[f"w{number}"] = self.clip(f"w{number}", condition="clean", label=label, **entries)
            clips[f"w{number}-adv"] = self.clip(
                f"w{number}-adv", condition="adversarial", label=label, reference=f"w{number}", **entries
            )
        return clips

    def content(self, test: str, **entries: Any) -> dict[str, Any]:
        """A study of one block of a kind; entries change the block."""
        clips = self.pairs(6)
        blocks: dict[str, dict[str, Any]] = {
            "naming": {"items": list(clips), "choices": ["yes", "no"]},
            "abx": {"items": [f"w{number}-adv" for number in range(6)]},
            "same-different": {
                "items": [{"reference": f"w{n}", "direction": way} for n, way in enumerate(WAYS)],
                "strengths": 11,
            },
            "mushra": {"items": [{"reference": f"w{n}", "clips": [f"w{n}-adv"]} for n in range(2)]},
            "preference": {"items": [{"a": f"w{n}", "b": f"w{n}-adv"} for n in range(6)]},
            "closer": {"items": [{"reference": f"w{n}", "a": f"w{n}", "b": f"w{n}-adv"} for n in range(6)]},
        }  # fmt: skip
        block = {"test": test, **blocks[test], **entries}
        return {"title": "A test", "seed": 3, "seats": 8, "clips": clips, "blocks": [block]}


@pytest.fixture
def maker(tmp_path: Path) -> StudyMaker:
    return StudyMaker(tmp_path)


def find_postgres() -> Path:
    """The folder of a PostgreSQL server's programs: on the path, or where Debian puts them."""
    found = [Path(program).parent] if (program := shutil.which("initdb")) else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in found:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.skip("needs the programs of a PostgreSQL server (Debian: postgresql)")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """A server of its own on loopback, in a folder of its own, with a password."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.programs, self.folder, self.port = find_postgres(), folder, free_port()
        self.durable = durable
        self.user: str | None = None
        if os.geteuid() == 0:
            # PostgreSQL does not run as root.
            self.user = next((name for name in ("postgres", "nobody") if _exists(name)), None)
            if self.user is None:
                pytest.skip("needs a user other than root to run PostgreSQL as")
        self.data, self.password = folder / "data", secrets.token_hex(8)
        (folder / "password").write_text(self.password)
        if self.user is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, self.user)
        access = ("-U", "tester", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}")
        made = self._call("initdb", "-D", self.data, "-E", "UTF8", "--no-locale", *access)
        if made.returncode:
            pytest.skip(f"needs a PostgreSQL server, which could not be made: {made.stderr[-300:]}")

    def _call(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / program), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, user=self.user, cwd=self.folder)

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c max_connections=60"
        options += "" if self.durable else " -c fsync=off"
        log = self.folder / "log"
        told = self._call("pg_ctl", "-D", self.data, "-w", "-o", options, "-l", log, "start")
        if told.returncode:
            pytest.skip(f"needs a PostgreSQL server, which did not start: {told.stdout[-300:]}")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://tester:{self.password}@127.0.0.1:{self.port}/{name}"

    def create(self) -> str:
        """The address of a new, empty database."""
        import psycopg

        name = f"study_{secrets.token_hex(6)}"
        with psycopg.connect(self.url(), autocommit=True) as link:
            link.execute(f"CREATE DATABASE {name}")
        return self.url(name)


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL; skips where there is none."""
    find_postgres()
    with tempfile.TemporaryDirectory(prefix="sottovoce-postgres-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'answers.db'}"
    url: str = request.getfixturevalue("postgres").create()
    return url


class Listener:
    """Answers screens through the API, as the page would. client: anything with httpx's verbs."""

    def __init__(self, client: Any, **arrived_with: str) -> None:
        self.client = client
        reply = client.post("/api/sessions", json={"arrived_with": arrived_with})
        assert reply.status_code == 201, reply.text
        self.token: str = reply.json()["token"]
        self.screen: dict[str, Any] = reply.json()["screen"]
        self.seen = [self.screen]

    def post(self, given: dict[str, Any] | None = None, **entries: Any) -> Any:
        """Send an answer to the screen that was shown last; nothing is taken from the reply."""
        body = {"screen": self.screen["id"], "given": given or self.plain(), "seconds": 1.5, **entries}
        return self.client.post(f"/api/sessions/{self.token}/answers", json=body)

    def answer(self, given: dict[str, Any] | None = None, **entries: Any) -> dict[str, Any]:
        reply = self.post(given, **entries)
        assert reply.status_code == 200, reply.text
        told: dict[str, Any] = reply.json()
        self.screen = told["screen"]
        self.seen.append(self.screen)
        return told

    def finish(self) -> dict[str, Any]:
        while self.screen["kind"] != "done":
            self.answer()
        return self.screen

    def until(self, kind: str) -> dict[str, Any]:
        while self.screen["kind"] != kind:
            self.answer()
        return self.screen

    def plain(self) -> dict[str, Any]:
        """An answer that any screen of its kind takes."""
        shown = self.screen
        answers: dict[str, dict[str, Any]] = {
            "consent": {"agreed": True},
            "headphones": {"choice": 0},
            "attention": {"choice": shown.get("choices", [""])[0]},
            "naming": {"choice": shown.get("choices", [""])[0], "naturalness": 3},
            "abx": {"choice": "a", "confidence": "low"},
            "same-different": {"different": True},
            "mushra": {"ratings": {slot["label"]: 50 for slot in shown.get("clips", [])}},
            "preference": {"choice": "a"},
            "closer": {"choice": "b"},
            "questionnaire": {"answers": {one["name"]: fill(one) for one in shown.get("questions", [])}},
        }
        return {"kind": shown["kind"], **answers.get(shown["kind"], {})}


def fill(question: dict[str, Any]) -> str | float:
    return {"text": "words", "number": 30.0, "choice": (question["choices"] or [""])[0]}[question["kind"]]


def slots_in(shown: dict[str, Any]) -> list[dict[str, str]]:
    """All slots of a screen."""
    values = [one for value in shown.values() for one in (value if isinstance(value, list) else [value])]
    return [one for one in values if isinstance(one, dict) and "audio" in one]


ADMIN = "an-admin-token-of-tests"


class Site:
    """The application of one study on one database, with a client; `open` makes another on the same."""

    def __init__(self, study: Any, shelf: Any, url: str, **settings: Any) -> None:
        from fastapi.testclient import TestClient

        from sottovoce.listening.server.app import make_app
        from sottovoce.listening.server.database import open_engine

        self.study, self.shelf, self.url, self.settings = study, shelf, url, settings
        self.engine = open_engine(url)
        self.app = make_app(study, shelf, self.engine, **{"admin_token": ADMIN, **settings})
        self.client = TestClient(self.app, raise_server_exceptions=False)
        self.admin = {"Authorization": f"Bearer {ADMIN}"}

    def open(self, **settings: Any) -> Site:
        return Site(self.study, self.shelf, self.url, **{**self.settings, **settings})

    def listener(self, **arrived_with: str) -> Listener:
        return Listener(self.client, **arrived_with)

    def rows(self) -> list[Any]:
        from sottovoce.listening.server.database import read_answers

        return read_answers(self.engine)


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(maker: StudyMaker, tmp_path: Path) -> Iterator[MakeSite]:
    """Makes a site: test, database and what else goes into the study file."""
    from sottovoce.listening.study.stimuli import prepare
    from sottovoce.listening.study.study_file import read_study

    made: list[Site] = []

    def make(
        test: str, url: str, *, block: dict[str, Any] | None = None, settings: Any = None, **entries: Any
    ) -> Site:
        content = maker.content(test, **(block or {})) | {"volume": False, **entries}
        study = read_study(maker.write(content))
        made.append(Site(study, prepare(study, tmp_path / "cache"), url, **(settings or {})))
        return made[-1]

    yield make
    for site in made:
        site.engine.dispose()


@pytest.fixture
def site(make_site: MakeSite, tmp_path: Path) -> Site:
    """Six ABX trials on SQLite."""
    return make_site("abx", f"sqlite:///{tmp_path / 'answers.db'}")


@pytest.fixture
def listen() -> type[Listener]:
    return Listener


@pytest.fixture
def slots() -> Callable[[dict[str, Any]], list[dict[str, str]]]:
    return slots_in
