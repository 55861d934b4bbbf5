"""`sottovoce listen serve`: what it says and refuses before the first listener comes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import typer
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from sottovoce.cli import listen_serve
from sottovoce.errors import InputError, StoreError
from sottovoce.listening.server.limits import Limits


@pytest.fixture
def said(monkeypatch, maker):
    """Runs the command up to where it would wait for listeners; gives what it printed."""
    app = typer.Typer()
    app.command()(listen_serve.serve)
    study = maker.write(maker.content("abx") | {"volume": False})

    def keep(app, door, workers, console, told, guard) -> None:
        run.app, run.guard = app, guard
        told()

    def run(*arguments: str) -> str:
        monkeypatch.setattr(listen_serve, "run", keep)
        result = CliRunner().invoke(app, [str(study), "--port", "0", *arguments], env={"COLUMNS": "200"})
        if result.exception is not None:
            raise result.exception
        return result.output

    return run


def test_it_says_where_everything_is(said, tmp_path: Path):
    output = said()
    assert f"answers: {(tmp_path / 'study.db').resolve()}" in output
    assert "listeners: http://127.0.0.1:" in output and "/results" in output
    assert "warning" not in output
    token = output.split("admin token: ")[1].split()[0]
    assert len(token) == 32
    # A token of one's own is not printed.
    assert "a-token-of-my-own" not in said("--admin-token", "a-token-of-my-own")


def test_it_warns_where_others_can_listen_in(said):
    assert "HTTPS" in said("--host", "0.0.0.0")
    assert "HTTPS" not in said("--host", "0.0.0.0", "--https")


def test_a_password_is_not_printed(said, postgres):
    output = said("--db", postgres.create())
    assert postgres.password not in output and "postgresql+psycopg://tester:***@127.0.0.1" in output


def test_a_port_that_is_taken(said):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StoreError, match="choose another --port"):
            said("--port", str(taken.getsockname()[1]))


def test_several_processes_need_a_database_that_they_can_share(said, monkeypatch):
    with pytest.raises(InputError, match=r"--workers 2 needs PostgreSQL"):
        said("--workers", "2")
    assert "listeners:" in said("--workers", "1")
    count = listen_serve.count_workers
    assert (count(None, "sqlite:///a.db"), count(1, "sqlite:///a.db")) == (1, 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert (count(None, "postgresql://me@host/a"), count(3, "postgresql://me@host/a")) == (2, 3)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert count(None, "postgresql://me@host/a") == 4


@pytest.mark.parametrize(
    "frame",
    ["http://example.org", "https://", "https://a.org/x", "*", "https://a.org; script-src *", "'self'"],
)
def test_frames_are_origins(frame):
    with pytest.raises(InputError, match="expected --frame such as"):
        listen_serve.check_frames([frame])


def test_frames(said):
    assert listen_serve.check_frames(["https://www.mturkcontent.com", "https://a.org:8443"]) == (
        "https://www.mturkcontent.com",
        "https://a.org:8443",
    )


def test_it_answers_to_its_own_names_alone(said):
    def ask(host: str) -> int:
        return TestClient(said.app, base_url=f"http://{host}").get("/healthz").status_code

    said()
    assert [ask(host) for host in ("127.0.0.1:8765", "localhost", "evil.example")] == [200, 200, 421]
    said("--host-name", "study.example.org", "--host-name", "other.example.org")
    assert [ask(host) for host in ("study.example.org", "other.example.org", "evil.example")] == [
        200,
        200,
        421,
    ]
    with pytest.raises(InputError, match="expected --host-name"):
        said("--host-name", "https://study.example.org")


def test_it_believes_a_proxy_where_it_is_told_of_one(said):
    said()
    assert not said.guard.is_proxy("127.0.0.1")
    assert said.guard.configure(said.app).proxy_headers is False
    said("--https")
    assert said.guard.is_proxy("127.0.0.1") and said.guard.is_proxy("::1")
    assert not said.guard.is_proxy("10.0.0.1")
    said("--https", "--proxy", "10.0.0.0/8")
    assert said.guard.is_proxy("10.0.0.1") and not said.guard.is_proxy("127.0.0.1")
    with pytest.raises(InputError, match="expected --proxy"):
        said("--proxy", "nginx")


def test_it_limits_what_an_address_may_do(said):
    said()
    # The defaults of the command are those of a server without one.
    assert said.guard.limits == Limits()
    said("--joins", "1", "--connections", "7")
    assert said.guard.limits.connections == 7
    client = TestClient(said.app, base_url="http://localhost")
    assert [client.post("/api/sessions", json={}).status_code for _ in range(2)] == [201, 429]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.3", False),
        ("me", False),
    ],
)
def test_which_addresses_are_this_machine_alone(host, local):
    assert listen_serve.is_local(host) is local


def test_the_report_holds_the_ear_against_the_answers(make_site, tmp_path: Path, monkeypatch):
    url, folder = f"sqlite:///{tmp_path / 'answers.db'}", tmp_path / "cache"
    tracks = [{"reference": "w0", "direction": "white"}]
    block = {"items": tracks, "comparisons": 4, "sentinels": 0, "teaching": 0}
    site = make_site("same-different", url, block=block)
    listener = site.listener()
    listener.until("same-different")
    for different in (True, False, True, False):
        listener.answer({"kind": "same-different", "different": different})
    played = {frozenset(row.roles.values()) for row in site.rows() if row.kind == "same-different"}
    text, known = listen_serve._report(site.study, url, folder, {})
    assert "P(heard) of the learned distance against the answers" in text
    assert {frozenset(pair) for pair in known} == played
    # A second page needs no clip any more.
    monkeypatch.setattr("sottovoce.listening.study.stimuli.prepare", lambda *_: pytest.fail("loaded again"))
    assert listen_serve._report(site.study, url, folder, known)[0] == text


def test_the_page_is_in_the_package():
    from sottovoce.listening.server.app import PAGE, TYPES

    assert (PAGE / "index.html").exists()
    assert {file.suffix for file in PAGE.iterdir()} <= set(TYPES)
