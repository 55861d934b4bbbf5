"""`sottovoce listen serve`: what it says and refuses before the first listener comes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sottovoce.cli import listen_serve
from sottovoce.errors import InputError, StoreError


@pytest.fixture
def said(monkeypatch, maker):
    """Runs the command up to where it would wait for listeners; gives what it printed."""
    app = typer.Typer()
    app.command()(listen_serve.serve)
    study = maker.write(maker.content("abx") | {"volume": False})

    def run(*arguments: str) -> str:
        monkeypatch.setattr(listen_serve, "run", lambda app, door, workers, console, told: told())
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
    with pytest.raises(InputError, match=r"expected --workers 1, got 2; .* PostgreSQL"):
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
    monkeypatch.setattr("sottovoce.listening.stimuli.prepare", lambda *_: pytest.fail("loaded again"))
    assert listen_serve._report(site.study, url, folder, known)[0] == text


def test_the_page_is_in_the_package():
    from sottovoce.listening.server import PAGE, TYPES

    assert (PAGE / "index.html").exists()
    assert {file.suffix for file in PAGE.iterdir()} <= set(TYPES)
